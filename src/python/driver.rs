//! The glue between asyncio's waiting and ours: `select` for asyncio's own loop, a tick for any other.
//!
//! With asyncio's own loop our selector waits on the backend (inverted) or beside the ring (pump). `select` runs the
//! engine's part of the turn, which calls no application code, and returns one ready key for the part that does: an
//! ordinary asyncio handle, so application code never runs inside `select`. A loop of another kind watches a descriptor
//! of the backend and calls [`Driver::tick`].

use std::os::fd::RawFd;
use std::sync::OnceLock;
use std::time::Duration;

use m0_platform::sync::Arc;
use m0_platform::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use m0_platform::{Backend, Clock, Instant, Interest, Waker};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::handoff::lane::STALL;
use crate::handoff::{Crew, Direct, Link};
use crate::host::asgi::{Host, Shared, ThreadBound};
use crate::host::hand_over::HandOver;
use crate::model::pump::SPIN;

/// asyncio's event masks (`selectors.EVENT_READ`, `EVENT_WRITE`).
const READ: u8 = 1;
const WRITE: u8 = 2;
/// While there is always something to do, foreign descriptors of the pump are looked at this often.
const LOOK_AFTER: Duration = Duration::from_micros(100);

/// However much threads beside have to say, Python gets to look at its signals after so many waits.
const LOOK_AT_SIGNALS: u32 = 256;

/// Threads are at work for as long after one of them has last called into the loop.
const AT_WORK: Duration = Duration::from_millis(20);

/// What may change between two calls.
struct State {
    /// The keys that run a turn, each with its handle, by how many turns are in progress: while one is, the context of
    /// its handle is entered, and a nested event loop needs another.
    turns: Vec<Py<PyAny>>,
    /// When foreign descriptors were last looked at.
    looked: Instant,
    hand_over: HandOver,
    ready: Vec<(RawFd, Interest)>,
}

/// Drives a host from an event loop.
#[pyclass(frozen, module = "m0serve._native")]
pub struct Driver {
    host: Py<Host>,
    /// Foreign descriptors: number to `selectors.SelectorKey`.
    keys: Py<PyDict>,
    state: ThreadBound<State>,
    clock: Clock,
    spin: bool,
    /// Ends this thread's wait.
    waker: Waker,
    /// Another thread has given the loop a callback since the last wait began: this one must not block.
    called: AtomicBool,
    /// When that was, in nanoseconds of the clock.
    called_at: AtomicU64,
    /// Handler threads of WSGI applications beside.
    crew: OnceLock<Arc<Crew>>,
}

impl Driver {
    /// A driver of a host. `spin`: whether to spin before parking.
    pub fn new(py: Python<'_>, host: Py<Host>, waker: Waker, spin: bool) -> Self {
        let clock = Clock::new();
        let now = clock.now();
        let state = State {
            turns: Vec::new(),
            looked: now,
            hand_over: HandOver::new(clock.clone(), spin).always_on_one_cpu(),
            ready: Vec::new(),
        };
        Driver {
            host,
            keys: PyDict::new(py).unbind(),
            state: ThreadBound::new(state),
            clock,
            spin,
            waker,
            called: AtomicBool::new(false),
            called_at: AtomicU64::new(0),
            crew: OnceLock::new(),
        }
    }

    /// Tells it of handler threads, which want the GIL too.
    pub fn set_crew(&self, crew: Arc<Crew>) {
        assert!(self.crew.set(crew).is_ok(), "a server is started once");
    }
}

#[pymethods]
impl Driver {
    /// The dict of keys, which the selector's Python side fills.
    #[getter]
    fn keys(&self, py: Python<'_>) -> Py<PyDict> {
        self.keys.clone_ref(py)
    }

    /// Watches a descriptor, or changes what it is watched for.
    fn watch(&self, fd: RawFd, events: u8) -> PyResult<()> {
        let mut shared = self.host.get().shared.get()?;
        let interest = Interest {
            read: events & READ != 0,
            write: events & WRITE != 0,
        };
        Ok(backend(&mut shared).watch(fd, interest)?)
    }

    /// Forgets a descriptor.
    fn unwatch(&self, fd: RawFd) -> PyResult<()> {
        backend(&mut *self.host.get().shared.get()?).unwatch(fd);
        Ok(())
    }

    /// asyncio's wait. Returns ready keys with their events; `timeout` in seconds, None without limit.
    #[pyo3(signature = (timeout=None))]
    fn select<'py>(slf: &Bound<'py, Self>, timeout: Option<f64>) -> PyResult<Bound<'py, PyList>> {
        let py = slf.py();
        let driver = slf.get();
        let timeout = timeout.map(|seconds| {
            if seconds > 0.0 {
                Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
            } else {
                Duration::ZERO
            }
        });
        // Whatever was added before this is in asyncio's queue already, but it may have looked there before it was.
        let timeout = if driver.called.swap(false, Ordering::Relaxed) {
            Some(Duration::ZERO)
        } else {
            timeout
        };
        let mut ready = std::mem::take(&mut driver.state.get()?.ready);
        let jobs = driver.gather(py, timeout, &mut ready);
        let result = driver.events(slf, &ready, jobs);
        ready.clear();
        driver.state.get()?.ready = ready;
        result
    }

    /// Makes the loop look at its callbacks: what asyncio calls after another thread has added one. The only method that
    /// any thread may call. Costs a system call only when the loop's thread is parked (R5), where asyncio's own way (a
    /// byte through a socket pair) always costs two and an event.
    fn wake(&self) {
        self.called_at.store(self.clock.now().nanos(), Ordering::Relaxed);
        self.called.store(true, Ordering::Relaxed);
        self.waker.wake(); // orders the store before its look at who is parked
    }

    /// The turn's application part; called by asyncio as a handle.
    fn turn(&self, py: Python<'_>) -> PyResult<()> {
        Host::turn(self.host.bind(py)).map(drop)
    }

    /// A whole turn without waiting, for a loop that is not ours. Returns whether to come back at once.
    fn tick(&self, py: Python<'_>) -> PyResult<bool> {
        self.pass(py)?;
        let more = Host::turn(self.host.bind(py))?;
        match side(&mut *self.host.get().shared.get()?) {
            Side::Direct(direct) => {
                direct.apply();
                direct.engine.submit()?;
                let more = more || direct.routes.look_for_stall() || direct.engine.is_ready() || direct.has_jobs();
                // From here threads ring when they have said something; what they said before is seen by this look.
                self.waker.announce();
                let more = more || direct.routes.has_frames();
                if more {
                    self.waker.retract();
                }
                Ok(more)
            }
            Side::Ring(link, foreign) => {
                // From here the loop thread rings when it pushes; what it pushed before is seen by this look.
                foreign.waker().announce();
                let more = more || link.has_jobs();
                if more {
                    foreign.waker().retract();
                }
                Ok(more)
            }
        }
    }

    /// The descriptor that a loop which is not ours watches.
    fn poll_fd(&self) -> PyResult<RawFd> {
        Ok(backend(&mut *self.host.get().shared.get()?).poll_fd()?)
    }
}

impl Driver {
    /// Lets go of Python objects that hold this one: no collector sees through it (R9). Nothing runs after this.
    pub fn close(&self) -> PyResult<()> {
        let turns = std::mem::take(&mut self.state.get()?.turns);
        drop(turns); // outside of the borrow: it may run code of theirs
        Ok(())
    }
}

/// What asyncio's thread waits on.
enum Side<'a> {
    /// The engine.
    Direct(&'a mut Direct),
    /// A ring to the loop thread, and a backend of its own for descriptors.
    Ring(&'a mut Link, &'a mut dyn Backend),
}

fn side(shared: &mut Shared) -> Side<'_> {
    match (&mut shared.link, &mut shared.foreign) {
        (Link::Direct(direct), _) => Side::Direct(direct),
        (link, Some(foreign)) => Side::Ring(link, &mut **foreign),
        (Link::Ring(_), None) => unreachable!("a pump has a backend of its own for descriptors"),
    }
}

/// The backend that waits on this thread.
fn backend(shared: &mut Shared) -> &mut dyn Backend {
    match side(shared) {
        Side::Direct(direct) => direct.engine.backend(),
        Side::Ring(_, foreign) => foreign,
    }
}

impl Driver {
    /// The engine's part of a turn, without waiting.
    fn pass(&self, py: Python<'_>) -> PyResult<()> {
        let mut shared = self.host.get().shared.get()?;
        shared.check_process()?;
        match side(&mut shared) {
            Side::Direct(direct) => {
                self.waker.retract();
                self.gather_direct(py, direct, Some(Duration::ZERO), &mut Vec::new())
                    .map(drop)
            }
            Side::Ring(link, foreign) => {
                foreign.waker().retract();
                link.flush()?;
                foreign.wait(Some(Duration::ZERO))?; // takes the bell's ring, so that the descriptor goes quiet
                while foreign.next().is_some() {}
                Ok(())
            }
        }
    }

    /// Waits until there are jobs or ready descriptors, a signal came, or the time is up. Returns whether there are
    /// jobs.
    fn gather(&self, py: Python<'_>, timeout: Option<Duration>, ready: &mut Vec<(RawFd, Interest)>) -> PyResult<bool> {
        self.hand_over(py)?;
        let mut shared = self.host.get().shared.get()?;
        shared.check_process()?;
        match side(&mut shared) {
            Side::Direct(direct) => self.gather_direct(py, direct, timeout, ready),
            Side::Ring(link, foreign) => self.gather_ring(py, link, foreign, timeout, ready),
        }
    }

    fn gather_direct(
        &self,
        py: Python<'_>,
        direct: &mut Direct,
        timeout: Option<Duration>,
        ready: &mut Vec<(RawFd, Interest)>,
    ) -> PyResult<bool> {
        direct.apply();
        if direct.engine.is_ready() && !direct.has_jobs() {
            // What is known already (sends that were over at once) would end the wait below before it has waited.
            direct.engine.pass(|fd, events| ready.push((fd, events)));
        }
        if direct.has_jobs() || !ready.is_empty() || timeout == Some(Duration::ZERO) {
            direct.engine.wait(Some(Duration::ZERO))?;
            direct.engine.pass(|fd, events| ready.push((fd, events)));
        } else {
            py.detach(|| self.wait_for_jobs(direct, timeout, ready))?;
        }
        Ok(direct.has_jobs())
    }

    /// Blocks, without the GIL, until there is something for Python; threads beside are served meanwhile. Nothing found after
    /// a wait is a signal, a deadline or the time: Python looks at its signals.
    fn wait_for_jobs(
        &self,
        direct: &mut Direct,
        timeout: Option<Duration>,
        ready: &mut Vec<(RawFd, Interest)>,
    ) -> std::io::Result<()> {
        let until = timeout.map(|timeout| self.clock.now().plus(timeout));
        for _ in 0..LOOK_AT_SIGNALS {
            let left = until.map(|until| until.since(self.clock.now()));
            let mut stalls = false;
            self.block(left, |left| {
                // After the wait has been announced: a thread that takes its seat rings.
                stalls = direct.routes.look_for_stall();
                let limit = if stalls {
                    Some(left.map_or(STALL, |left| left.min(STALL)))
                } else {
                    left
                };
                let said = direct.routes.has_frames();
                direct.engine.wait(if said { Some(Duration::ZERO) } else { limit })
            })?;
            let found = direct.engine.is_ready() || direct.routes.has_frames() || stalls;
            direct.engine.pass(|fd, events| ready.push((fd, events)));
            direct.apply();
            let over = left == Some(Duration::ZERO) || self.called.load(Ordering::Relaxed);
            if direct.has_jobs() || !ready.is_empty() || over || !found {
                break;
            }
        }
        Ok(())
    }

    fn gather_ring(
        &self,
        py: Python<'_>,
        link: &mut Link,
        foreign: &mut dyn Backend,
        timeout: Option<Duration>,
        ready: &mut Vec<(RawFd, Interest)>,
    ) -> PyResult<bool> {
        link.flush()?;
        let now = self.clock.now();
        let mut state = self.state.get()?;
        if link.has_jobs() || timeout == Some(Duration::ZERO) {
            if now.since(state.looked) >= LOOK_AFTER || !link.has_jobs() {
                state.looked = now;
                foreign.wait(Some(Duration::ZERO))?;
            }
        } else {
            state.looked = now;
            py.detach(|| self.park(link, foreign, timeout))?;
        }
        while let Some(completion) = foreign.next() {
            if let m0_platform::Completion::Foreign { fd, ready: events } = completion {
                ready.push((fd, events));
            }
        }
        Ok(link.has_jobs())
    }

    /// Gives the GIL to other threads in earnest, when there are some at work and they had no chance for a while.
    ///
    /// A loop under load never blocks, so it drops the GIL for a microsecond at a time and always wins it back from a
    /// thread that must wake up first. See `docs/notes/giving-up-the-gil.md`.
    fn hand_over(&self, py: Python<'_>) -> PyResult<()> {
        let now = self.clock.now();
        let called = Instant::from_nanos(self.called_at.load(Ordering::Relaxed));
        let mut state = self.state.get()?;
        let beside = self.crew.get().is_some_and(|crew| crew.is_busy());
        if (beside || now.since(called) <= AT_WORK) && state.hand_over.is_due(now) {
            state.hand_over.offer(py);
        }
        Ok(())
    }

    /// Parks beside the ring: spins where that pays, then blocks.
    fn park(&self, link: &mut Link, foreign: &mut dyn Backend, timeout: Option<Duration>) -> std::io::Result<()> {
        if self.spin {
            let until = self.clock.now().plus(SPIN);
            while self.clock.now() < until {
                if link.has_jobs() {
                    return foreign.wait(Some(Duration::ZERO));
                }
                std::hint::spin_loop();
            }
        }
        self.block(timeout, |timeout| {
            let timeout = if link.has_jobs() { Some(Duration::ZERO) } else { timeout };
            foreign.wait(timeout)
        })
    }

    /// Blocks as in R5: announces, looks again, waits.
    fn block(
        &self,
        timeout: Option<Duration>,
        wait: impl FnOnce(Option<Duration>) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        self.waker.announce();
        let called = self.called.load(Ordering::Relaxed);
        let waited = wait(if called { Some(Duration::ZERO) } else { timeout });
        self.waker.retract();
        waited
    }

    /// What `select` returns: a key per ready descriptor, and the turn's when there are jobs.
    fn events<'py>(
        &self,
        slf: &Bound<'py, Self>,
        ready: &[(RawFd, Interest)],
        jobs: PyResult<bool>,
    ) -> PyResult<Bound<'py, PyList>> {
        let py = slf.py();
        let list = PyList::empty(py);
        let keys = self.keys.bind(py);
        for (fd, events) in ready {
            if let Some(key) = keys.get_item(fd)? {
                let watched: u8 = key.getattr(intern!(py, "events"))?.extract()?;
                let mask = ((u8::from(events.read) * READ) | (u8::from(events.write) * WRITE)) & watched;
                if mask != 0 {
                    list.append((key, mask))?;
                }
            }
        }
        if jobs? && self.host.get().is_started() {
            list.append((self.turn_key(slf)?, READ))?;
        }
        Ok(list)
    }

    fn turn_key<'py>(&self, slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let depth = self.host.get().shared.get()?.turns;
        if let Some(key) = self.state.get()?.turns.get(depth) {
            return Ok(key.bind(py).clone());
        }
        let handle = self.host.get().runtime().handle(slf.getattr("turn")?.into_any())?;
        let data = PyTuple::new(py, [handle, py.None().into_bound(py)])?;
        let key = py
            .import("selectors")?
            .getattr("SelectorKey")?
            .call1((-1, -1, READ, data))?;
        self.state.get()?.turns.push(key.clone().unbind());
        Ok(key)
    }
}
