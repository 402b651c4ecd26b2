//! The WSGI host (PEP 3333): requests become calls of an application on handler threads, what it returns becomes frames.
//!
//! A handler thread is a Python thread that runs [`Host::work`] for its whole life: attached once, detached around every
//! wait, so that thread-locals (Django's database connections) live as long as it does. A view and its iterator run to
//! their end on the thread that popped the request. A request is popped with the GIL held, so that it is never in the
//! hands of a thread that still waits for it while others serve on.

mod context;
mod environ;
mod input;
mod names;
mod response;
mod view;

use std::time::Duration;

use m0_platform::sync::{Arc, Mutex};
use m0_platform::thread::usable_cpus;
use m0_platform::{Clock, Instant, Waker};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

pub use self::environ::Environs;
pub use self::response::FileWrapper;

use self::environ::Kept;
use self::input::Input;
use self::response::{StartResponse, block_of};
use self::view::{Shared, View, lock};
use crate::handoff::{Crew, Request, Seat, Work};
use crate::host::calls;
use crate::host::hand_over::HandOver;
use crate::log::Logger;
use crate::model::baton::Baton;
use crate::model::inline::{self, Between};
use crate::model::pump::LoopThread;

/// What is said before a turn ends leaves before the next view once it may be so old. When that is one that does not
/// return, the sentinel lets it out.
const FLUSH_AFTER: Duration = Duration::from_micros(200);

/// While views compute beside it, a thread that has nothing to do keeps the GIL for so long. Once it lets it go, it gets it
/// back only after a switch interval of the interpreter (5 ms) for each of them, and the next requests of clients that have
/// just been answered are nearer than that. The views that compute lose a few hundredths of their time by it.
const PATIENCE: Duration = Duration::from_micros(200);

/// A WSGI application.
pub struct App {
    /// The object.
    pub app: Py<PyAny>,
    /// What its environs have in common.
    pub environs: Environs,
}

/// WSGI applications and their crew.
pub struct Host {
    /// By the number of the mount; none for those of another host.
    apps: Vec<Option<App>>,
    /// Ends the wait of asyncio's thread, where this process hosts ASGI applications too.
    asyncio: Option<Waker>,
    crew: Arc<Crew>,
    /// Where the threads run the loop themselves.
    baton: Option<Arc<Baton<LoopThread>>>,
    clock: Clock,
    log: Logger,
    /// `m0serve._tasks.report`, which prints an application's traceback.
    report: Py<PyAny>,
    /// `m0serve._tasks.is_farewell`.
    is_farewell: Py<PyAny>,
    /// `m0serve._signals.end_child`.
    end_child: Py<PyAny>,
}

impl Host {
    /// A host whose threads have not started.
    ///
    /// # Errors
    /// What importing our own Python side gave.
    pub fn new(
        py: Python<'_>,
        apps: Vec<Option<App>>,
        crew: Arc<Crew>,
        asyncio: Option<Waker>,
        baton: Option<Arc<Baton<LoopThread>>>,
        log: Logger,
    ) -> PyResult<Self> {
        let helpers = py.import("m0serve._tasks")?;
        Ok(Host {
            apps,
            asyncio,
            crew,
            baton,
            clock: Clock::new(),
            log,
            report: helpers.getattr("report")?.unbind(),
            is_farewell: helpers.getattr("is_farewell")?.unbind(),
            end_child: py.import("m0serve._signals")?.getattr("end_child")?.unbind(),
        })
    }

    /// What a handler thread does from its start until the server sends it home.
    pub fn work(&self, py: Python<'_>) {
        let Some(seat) = self.crew.sit() else { return };
        match &self.baton {
            None => self.work_at_the_lane(py, seat),
            Some(baton) => self.work_with_the_baton(py, seat, baton),
        }
    }

    /// The threads end as soon as they have nothing to do.
    pub fn send_home(&self) {
        self.crew.lane.close();
        if let Some(baton) = &self.baton {
            baton.close();
            self.crew.ring();
        }
    }

    /// In the pump: another thread runs the loop.
    fn work_at_the_lane(&self, py: Python<'_>, mut seat: Seat) {
        let mut hand_over = HandOver::new(self.clock.clone(), usable_cpus() > 1);
        let mut kept = Kept::new(py);
        loop {
            match self.crew.lane.pop() {
                Some(work) => {
                    seat = self.view(py, work, seat, &mut kept);
                    seat.flush();
                    self.hand_over(py, &mut hand_over, seat.index);
                }
                None if self.is_patient() && self.crew.lane.stand_by(PATIENCE) => {}
                None if py.detach(|| self.crew.lane.idle()) => {}
                None => return,
            }
        }
    }

    /// Inverted: whoever has the baton runs the loop, and views between its turns.
    fn work_with_the_baton(&self, py: Python<'_>, seat: Seat, baton: &Arc<Baton<LoopThread>>) {
        let mut thread = Inline {
            host: self,
            py,
            hand_over: HandOver::new(self.clock.clone(), usable_cpus() > 1),
            kept: Kept::new(py),
            since: None,
        };
        if let Err(error) = inline::serve(&self.crew, baton, seat, &mut thread) {
            crate::model::cannot_go_on(&self.log, &error);
        }
    }

    /// Whether to keep the GIL for a moment although there is nothing to do.
    fn is_patient(&self) -> bool {
        self.asyncio.is_none() && self.crew.has_others_at_work() && self.crew.has_computing()
    }

    /// A view that has waited elsewhere, or asyncio, may want the GIL back, and this thread would never let it. One that
    /// computes does not need it from here: the interpreter's switch interval gives it its turns.
    fn hand_over(&self, py: Python<'_>, hand_over: &mut HandOver, index: usize) {
        let asyncio_runs = self.asyncio.as_ref().is_some_and(|waker| !waker.is_parked());
        if !asyncio_runs && !self.crew.has_others_at_work() {
            return;
        }
        let now = self.clock.now();
        if !hand_over.is_due(now) {
            return;
        }
        if asyncio_runs || self.crew.has_returned(index) {
            hand_over.offer(py);
        } else {
            hand_over.pass(now);
        }
    }

    /// Serves one request.
    fn view(&self, py: Python<'_>, work: Work, seat: Seat, kept: &mut Kept) -> Seat {
        let Work { mut request, mailbox } = work;
        let (index, mount) = (seat.index, request.mount);
        let head = &request.head;
        self.crew.begin(index, [head.get(head.method), head.get(head.path)]);
        let view = Arc::new(Mutex::new(View::new(&mut request, mailbox, seat)));
        let result = context::of_its_own(py, || self.respond(py, &view, &request, kept));
        if self.crew.is_forked() {
            self.end_child(py, result.as_ref().err());
        }
        if let Err(error) = result {
            view::give_up(py, &view);
            if !self.is_farewell(py, &error) {
                self.failed(py, &error, &request);
            }
        }
        self.crew.end(index, mount);
        view::release(&view).expect("only the view's own thread takes its seat back")
    }

    /// The view has come back in a child that it forked, where nothing else runs: the child ends.
    fn end_child(&self, py: Python<'_>, error: Option<&PyErr>) {
        let error = error.map_or_else(|| py.None().into_bound(py), |error| error.value(py).clone().into_any());
        if let Err(error) = calls::call(self.end_child.bind(py), [&error]) {
            error.write_unraisable(py, None);
        }
    }

    /// Calls the application and sends what it returns.
    fn respond(&self, py: Python<'_>, view: &Shared, request: &Request, kept: &mut Kept) -> PyResult<()> {
        let input = Bound::new(py, Input { view: view.clone() })?;
        let app = self.apps[usize::from(request.mount)].as_ref();
        let app = app.expect("a request comes to the host of its application");
        let environ = app.environs.build(py, request, input.into_any(), kept)?;
        let start = Bound::new(py, StartResponse { view: view.clone() })?;
        let body = calls::call(app.app.bind(py), [environ.as_any(), start.as_any()])?;
        let sent = send_body(view, &body);
        if sent.is_err() {
            view::give_up(py, view);
        }
        // Whatever happened: an iterable with a `close` is closed, once. The client does not wait for it.
        match (sent, close(view, &body)) {
            (Err(error), Err(later)) => {
                later.set_context(py, Some(error)); // as a `finally` that raises
                Err(later)
            }
            (sent, closed) => sent.and(closed),
        }
    }

    /// Whether an application only passed on that it was told its client has gone.
    fn is_farewell(&self, py: Python<'_>, error: &PyErr) -> bool {
        let answer = calls::call(self.is_farewell.bind(py), [error.value(py).as_any()]);
        answer.and_then(|answer| answer.is_truthy()).unwrap_or(false)
    }

    fn failed(&self, py: Python<'_>, error: &PyErr, request: &Request) {
        let head = &request.head;
        let text = |span| String::from_utf8_lossy(head.get(span));
        let name = PyString::new(py, &format!("{} {}", text(head.method), text(head.path)));
        if let Err(error) = calls::call(self.report.bind(py), [error.value(py).as_any(), name.as_any()]) {
            error.write_unraisable(py, None);
        }
    }
}

/// A handler thread that runs the loop itself.
struct Inline<'a, 'py> {
    host: &'a Host,
    py: Python<'py>,
    hand_over: HandOver,
    kept: Kept,
    /// When the first view of this turn began.
    since: Option<Instant>,
}

impl Between for Inline<'_, '_> {
    fn detached<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        self.py.detach(f)
    }

    fn patience(&self) -> Duration {
        if self.host.is_patient() {
            PATIENCE
        } else {
            Duration::ZERO
        }
    }

    fn is_late(&mut self) -> bool {
        let now = self.host.clock.now();
        now.since(*self.since.get_or_insert(now)) >= FLUSH_AFTER
    }

    fn left(&mut self) {
        self.since = None;
    }

    fn view(&mut self, work: Work, seat: Seat) -> Seat {
        self.host.view(self.py, work, seat, &mut self.kept)
    }

    fn viewed(&mut self, index: usize) {
        self.host.hand_over(self.py, &mut self.hand_over, index);
    }
}

/// Sends a body, with the head where nothing of it has left, and the end.
fn send_body(view: &Shared, body: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = body.py();
    if let Some(block) = only_block(body)? {
        return view::finish(py, view, block_of(&block)?.as_bytes());
    }
    if let Ok(wrapper) = body.cast::<FileWrapper>()
        && lock(view).is_started()
        && let Some((file, offset, len)) = wrapper.get().regular(py)
    {
        return view::send_file(py, view, file, offset, len);
    }
    let blocks = calls::iter(body)?;
    let is_file = body.is_instance_of::<FileWrapper>();
    loop {
        let left = if is_file { lock(view).left() } else { usize::MAX };
        if left == 0 {
            break;
        }
        let Some(block) = calls::next(&blocks)? else { break };
        let block = block_of(&block)?.as_bytes();
        let block = &block[..block.len().min(left)];
        if !block.is_empty() && !view::send(py, view, block)? {
            break; // nobody will see the rest, which may have no end
        }
    }
    view::finish(py, view, b"")
}

/// Closes a body that can be closed. What was said before is heard now.
fn close(view: &Shared, body: &Bound<'_, PyAny>) -> PyResult<()> {
    if body.is_exact_instance_of::<PyList>() || body.is_exact_instance_of::<PyTuple>() {
        return Ok(());
    }
    match body.getattr_opt(intern!(body.py(), "close"))? {
        Some(close) => {
            lock(view).flush();
            calls::call(&close, []).map(drop)
        }
        None => Ok(()),
    }
}

/// The block of a body that is a list or tuple of one: its length is known before it is sent.
fn only_block<'py>(body: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    if let Ok(list) = body.cast_exact::<PyList>() {
        return if list.len() == 1 {
            list.get_item(0).map(Some)
        } else {
            Ok(None)
        };
    }
    if let Ok(tuple) = body.cast_exact::<PyTuple>() {
        return if tuple.len() == 1 {
            tuple.get_item(0).map(Some)
        } else {
            Ok(None)
        };
    }
    Ok(None)
}
