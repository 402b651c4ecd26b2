//! The ASGI host: jobs become calls of an ASGI 3.0 application on asyncio's thread, what it sends becomes frames.
//!
//! Owns the host's side of every exchange (R4: the slot is released once, after the application's task is done). All of
//! it runs on the event loop's thread. No part of [`Shared`] stays borrowed while application code runs.

mod bound;
mod callables;
mod exchange;
mod runtime;
mod scope;
mod tasks;
mod values;
mod waiters;

use std::cell::RefMut;
use std::sync::OnceLock;
use std::time::Duration;

use m0_platform::{Backend, Clock, Instant};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

pub use self::bound::ThreadBound;
use self::callables::{Exchange, Ready};
pub use self::runtime::Runtime;
pub use self::scope::Scopes;

use crate::handoff::{ExchangeId, Frame, Job, Link, Outlet, Why};
use crate::host::calls;
use crate::log::Logger;

/// No frame stays with us for longer than this while application code runs.
const FLUSH_AFTER: Duration = Duration::from_micros(200);
/// Jobs and time of one turn: batching must not become tail latency.
const TURN_JOBS: usize = 256;
const TURN_TIME: Duration = Duration::from_millis(2);
/// The turn's time is looked at once in so many jobs.
const LOOK_EVERY: usize = 8;

/// What changes while the host runs.
pub struct Shared {
    /// The host's end of the link.
    pub link: Link,
    /// In the pump: waits for asyncio's own descriptors, and is woken by the loop thread.
    pub foreign: Option<Box<dyn Backend>>,
    /// The host's side of each exchange, by its slot.
    table: Vec<Option<Py<Exchange>>>,
    scopes: Option<Scopes>,
    /// Applications by the number of their mount; none for those of another host.
    apps: Vec<Option<Py<PyAny>>>,
    /// When the first frame was pushed that has not left.
    unflushed: Option<Instant>,
    /// The engine said that the drain is over.
    pub stopped: bool,
    /// Everything is being closed: what is cancelled has been named.
    pub closing: bool,
    /// This is a child that the application forked.
    pub forked: bool,
    /// Futures that wait for that.
    pub drained: Vec<Py<PyAny>>,
    /// Turns in progress: more than one when an application nests its event loop.
    pub turns: usize,
    clock: Clock,
}

impl Shared {
    /// What was pushed leaves now when it must, or when nothing else of this turn could join it.
    fn said(&mut self, now: bool) -> PyResult<()> {
        if now || !self.link.has_jobs() || self.is_late() {
            self.flush()?;
        }
        Ok(())
    }

    /// Whether the first frame that has not left is too old; starts its clock.
    fn is_late(&mut self) -> bool {
        let now = self.clock.now();
        now.since(*self.unflushed.get_or_insert(now)) >= FLUSH_AFTER
    }

    /// Whether something was left to a turn that a loop which is not ours knows nothing of.
    fn wants_turn(&mut self) -> bool {
        let ready = match &self.link {
            Link::Direct(direct) => direct.engine.is_ready(),
            Link::Ring(_) => false, // the loop thread sees to itself
        };
        self.turns == 0 && (ready || self.link.has_jobs() || self.link.needs_flush())
    }

    /// Refuses a child that the application forked and that came back to its parent's loop: what it would say there goes
    /// to its parent's clients.
    ///
    /// # Errors
    /// EBADF in such a child.
    pub fn check_process(&self) -> PyResult<()> {
        if self.forked {
            return Err(std::io::Error::from_raw_os_error(libc::EBADF).into());
        }
        Ok(())
    }

    /// What was pushed leaves.
    pub fn flush(&mut self) -> PyResult<()> {
        self.unflushed = None;
        if self.forked {
            return Ok(()); // the connections are the parent's, and so is what is said on them
        }
        self.link.flush()?;
        Ok(())
    }
}

/// An ASGI host. The object itself is only passed around in the native module.
#[pyclass(frozen, module = "m0serve._native")]
pub struct Host {
    /// What changes.
    pub shared: ThreadBound<Shared>,
    runtime: OnceLock<Runtime>,
    /// Asks a loop that is not ours for a turn.
    nudge: OnceLock<Py<PyAny>>,
    ready: Py<Ready>,
    log: Logger,
}

impl Host {
    /// A host at its end of a link, on the thread that will run the event loop.
    pub fn new(py: Python<'_>, link: Link, foreign: Option<Box<dyn Backend>>, log: Logger) -> PyResult<Self> {
        let shared = Shared {
            link,
            foreign,
            table: Vec::new(),
            scopes: None,
            apps: Vec::new(),
            unflushed: None,
            stopped: false,
            closing: false,
            forked: false,
            drained: Vec::new(),
            turns: 0,
            clock: Clock::new(),
        };
        Ok(Host {
            shared: ThreadBound::new(shared),
            runtime: OnceLock::new(),
            nudge: OnceLock::new(),
            ready: Py::new(py, Ready)?,
            log,
        })
    }

    /// Tells it the loop and the applications.
    pub fn start(&self, runtime: Runtime, scopes: Scopes, apps: Vec<Option<Py<PyAny>>>) -> PyResult<()> {
        let mut shared = self.shared.get()?;
        shared.scopes = Some(scopes);
        shared.apps = apps;
        drop(shared);
        self.runtime
            .set(runtime)
            .map_err(|_| PyRuntimeError::new_err("the server has been started already"))
    }

    /// Lets go of the applications, which may hold their server, or a `send` of this host: no collector sees through it
    /// (R9). No request comes after this.
    pub fn close(&self) -> PyResult<()> {
        let (apps, scopes) = {
            let mut shared = self.shared.get()?;
            (std::mem::take(&mut shared.apps), shared.scopes.take())
        };
        drop((apps, scopes)); // outside of the borrow: it may run code of theirs
        Ok(())
    }

    /// Says how to ask for a turn, where the loop is not ours: nothing else looks at what was pushed between two turns.
    pub fn set_nudge(&self, nudge: Py<PyAny>) {
        assert!(self.nudge.set(nudge).is_ok(), "one loop drives a host");
    }

    /// Lets what was pushed leave (see [`Shared::said`]), and asks for a turn where that has left something to do.
    fn said(&self, py: Python<'_>, mut shared: RefMut<'_, Shared>, now: bool) -> PyResult<()> {
        shared.said(now)?;
        match self.nudge.get() {
            Some(nudge) if shared.wants_turn() => {
                drop(shared);
                calls::call(nudge.bind(py), []).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// The loop.
    pub fn runtime(&self) -> &Runtime {
        self.runtime.get().expect("no request comes before the start")
    }

    /// Whether [`Host::start`] has been called.
    pub fn is_started(&self) -> bool {
        self.runtime.get().is_some()
    }

    fn ready<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.ready.bind(py).clone().into_any()
    }

    fn new_future<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        calls::call(self.runtime().create_future.bind(py), [])
    }

    /// Runs jobs: application code, on an ordinary handle of asyncio. Returns whether jobs are left.
    ///
    /// # Errors
    /// SystemExit and KeyboardInterrupt of the application, which end the loop as they do elsewhere.
    pub fn turn(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let host = slf.get();
        if !host.is_started() {
            return Ok(false);
        }
        host.shared.get()?.turns += 1;
        let result = Self::run_jobs(slf);
        let mut shared = host.shared.get()?;
        shared.turns -= 1;
        result?;
        if shared.unflushed.is_some() || shared.link.needs_flush() {
            shared.flush()?;
        }
        Ok(shared.link.has_jobs())
    }

    fn run_jobs(slf: &Bound<'_, Self>) -> PyResult<()> {
        let host = slf.get();
        let plain = host.runtime().has_task_factory(slf.py())?;
        let started = host.shared.get()?.clock.now();
        for n in 1..=TURN_JOBS {
            let job = {
                let mut shared = host.shared.get()?;
                // Early too: jobs that take long are seen before many of them have kept the loop.
                if (n % LOOK_EVERY == 0 || (n > 1 && n.is_power_of_two()))
                    && shared.clock.now().since(started) > TURN_TIME
                {
                    return Ok(());
                }
                if shared.unflushed.is_some() && shared.is_late() {
                    shared.flush()?;
                }
                let Some(job) = shared.link.next_job() else {
                    return Ok(());
                };
                job
            };
            Self::run_job(slf, job, plain)?;
        }
        Ok(())
    }

    fn run_job(slf: &Bound<'_, Self>, job: Job, plain: bool) -> PyResult<()> {
        let py = slf.py();
        let host = slf.get();
        match job {
            Job::Request(request) => tasks::begin(slf, request, plain),
            Job::Body(id, bytes) => host.update(py, id, |state, _| state.body(bytes)),
            Job::BodyEnd(id) => host.update(py, id, |state, _| state.body_ended()),
            Job::BodyAborted(id, why) => {
                let cut = why != Why::PeerFinished;
                host.update(py, id, |state, _| if cut { state.reset() } else { state.input_ended() })
            }
            Job::Credit(id, charged) => host.update(py, id, |state, link| state.credit(py, charged, link)),
            Job::FileSent(..) => Ok(()), // the response was complete when its file was handed over
            Job::Reset(id, _) => host.update(py, id, |state, _| state.reset()),
            Job::Stopped => host.stopped(py),
        }
    }

    /// Changes the state of an exchange, then wakes who waits for it. An exchange that is over is left alone (R3).
    fn update(
        &self,
        py: Python<'_>,
        id: ExchangeId,
        change: impl FnOnce(&mut exchange::State, &mut Link),
    ) -> PyResult<()> {
        let (receivers, senders) = {
            let mut shared = self.shared.get()?;
            let Some(exchange) = shared.exchange(py, id) else {
                return Ok(());
            };
            let mut state = exchange.get().state.get()?;
            change(&mut state, &mut shared.link);
            if shared.link.needs_flush() {
                self.said(py, shared, false)?;
            }
            (state.take_receivers(), state.take_senders())
        };
        for future in receivers.into_iter().chain(senders) {
            wake(future.bind(py))?;
        }
        Ok(())
    }

    fn stopped(&self, py: Python<'_>) -> PyResult<()> {
        let waiting = {
            let mut shared = self.shared.get()?;
            shared.stopped = true;
            std::mem::take(&mut shared.drained)
        };
        for future in waiting {
            wake(future.bind(py))?;
        }
        Ok(())
    }

    /// Says that the host holds nothing of the exchange any more (R4).
    fn release(&self, py: Python<'_>, id: ExchangeId) -> PyResult<()> {
        let released = {
            let mut shared = self.shared.get()?;
            let Some(slot) = shared.table.get_mut(id.index as usize) else {
                return Ok(());
            };
            let released = slot.take();
            shared.link.push(Frame::Released(id));
            self.said(py, shared, false)?;
            released
        };
        drop(released); // may run finalizers of the application
        Ok(())
    }

    /// Method and path of each request whose application is not done.
    pub fn in_flight(&self, py: Python<'_>) -> PyResult<Vec<(String, Option<Py<PyAny>>)>> {
        let shared = self.shared.get()?;
        let mut all = Vec::new();
        for exchange in shared.table.iter().flatten() {
            let state = exchange.get().state.get()?;
            all.push((state.name.clone(), state.task.as_ref().map(|task| task.clone_ref(py))));
        }
        Ok(all)
    }
}

impl Shared {
    fn exchange(&self, py: Python<'_>, id: ExchangeId) -> Option<Py<Exchange>> {
        let exchange = self.table.get(id.index as usize)?.as_ref()?;
        let same = exchange.get().state.get().is_ok_and(|state| state.id == id);
        same.then(|| exchange.clone_ref(py))
    }

    fn insert(&mut self, id: ExchangeId, exchange: Py<Exchange>) {
        let index = id.index as usize;
        if self.table.len() <= index {
            self.table.resize_with(index + 1, || None);
        }
        assert!(
            self.table[index].is_none(),
            "the engine reuses an exchange only after its release (R4)"
        );
        self.table[index] = Some(exchange);
    }
}

/// Completes a future that somebody waits on, unless it was cancelled meanwhile.
fn wake(future: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = future.py();
    if !calls::method(pyo3::intern!(py, "done"), [future])?.is_truthy()? {
        let none = py.None().into_bound(py);
        calls::method(pyo3::intern!(py, "set_result"), [future, &none])?;
    }
    Ok(())
}
