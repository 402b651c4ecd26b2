//! One server as Python holds it: opens the backends, makes the link, starts the loop thread, and takes it all down.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use m0_platform::sync::Arc;
use m0_platform::{Choice, Clock, Options, Resolved};
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use super::driver::Driver;
use super::listen::{self, BoundSocket};
use crate::config::{Config, Exit, Interface, LoopChoice, Model};
use crate::doctor::interface_name;
use crate::engine::{Engine, Mounts, Settings, SharedStats, Stats};
use crate::forwarded::Trust;
use crate::handoff::{Crew, Direct, Frame, Link, Outlet, RingLoop, Routes, Stop, rings};
use crate::host::asgi::{Host, Runtime};
use crate::host::wsgi;
use crate::http1::Limits;
use crate::log::Logger;
use crate::python_config::{PyConfig, process_interface};

/// The engine before it is handed to the loop thread (pump only).
pub(super) struct Waiting {
    pub engine: Engine,
    pub link: RingLoop,
    pub routes: Routes,
}

/// One application as Python found it: the object, its interface, and its lifespan's state.
pub(super) type Found = (Py<PyAny>, String, Option<Py<PyDict>>);

/// The loop thread, from its start to its end.
pub(super) enum Thread {
    None,
    Waiting(Box<Waiting>),
    Running(JoinHandle<std::io::Result<()>>),
}

impl Thread {
    /// Whether somebody takes what is said to the loop.
    fn runs(&self) -> bool {
        matches!(self, Thread::Running(handle) if !handle.is_finished())
    }
}

/// The host of WSGI applications, and the threads that it runs on.
type Views = (wsgi::Host, Arc<Crew>);

/// One server.
#[pyclass(frozen, module = "m0serve._native")]
pub struct Service {
    pub(super) config: Arc<Config>,
    resolved: Resolved,
    /// The backend of an engine that was moved off this thread.
    pub(super) moved: OnceLock<Resolved>,
    /// The interface of each mount, by its number.
    pub(super) interfaces: OnceLock<Vec<String>>,
    pub(super) host: Py<Host>,
    driver: Py<Driver>,
    bound: OnceLock<BoundSocket>,
    pub(super) thread: Mutex<Thread>,
    pub(super) stats: Arc<SharedStats>,
    pub(super) log: Logger,
    /// The host of WSGI applications, and the threads that it runs on; until the end, and for each of them until its own.
    wsgi: Mutex<Option<Arc<Views>>>,
    /// What drives the turn on a loop that is not ours.
    foreign_loop: OnceLock<Py<PyAny>>,
}

#[pymethods]
impl Service {
    #[new]
    fn new(py: Python<'_>, config: &Bound<'_, PyConfig>) -> PyResult<Self> {
        let config = config.get().get().clone();
        let log = Logger::new(config.log_level, config.access_log, Clock::new());
        if let Err(error) = m0_platform::thread::raise_open_files() {
            log.warn(
                "open files",
                format_args!("the limit of open files could not be raised: {error}"),
            );
        }
        let (backend, resolved) = m0_platform::open(config.backend.choice(), &Options::default()).map_err(refused)?;
        let spin = m0_platform::thread::usable_cpus() > 1;
        let mut engine = Engine::new(backend, settings(&config), Clock::new(), log.clone());
        let stats = engine.published();
        let (waker, link, foreign, thread) = match config.model {
            Model::Inverted => {
                let waker = engine.backend().waker();
                (waker, Link::Direct(Box::new(Direct::new(engine))), None, Thread::None)
            }
            Model::Pump => {
                let own = match resolved.kind {
                    kind if kind.is_readiness() => Choice::Only(kind),
                    _ => Choice::Readiness,
                };
                let (foreign, _) = m0_platform::open(own, &Options::default()).map_err(refused)?;
                let (host, link) = rings(engine.backend().waker(), foreign.waker());
                (
                    foreign.waker(),
                    Link::Ring(host),
                    Some(foreign),
                    Thread::Waiting(Box::new(Waiting {
                        engine,
                        link,
                        routes: Routes::default(),
                    })),
                )
            }
        };
        let host = Py::new(py, Host::new(py, link, foreign, log.clone())?)?;
        let driver = Py::new(py, Driver::new(py, host.clone_ref(py), waker, spin))?;
        Ok(Service {
            config,
            resolved,
            moved: OnceLock::new(),
            interfaces: OnceLock::new(),
            host,
            driver,
            bound: OnceLock::new(),
            thread: Mutex::new(thread),
            stats,
            log,
            wsgi: Mutex::new(None),
            foreign_loop: OnceLock::new(),
        })
    }

    /// Binds, without listening yet.
    fn bind(&self) -> PyResult<()> {
        let bound = listen::bind(&self.config).map_err(|error| PyOSError::new_err(error.to_string()))?;
        self.bound
            .set(bound)
            .map_err(|_| PyRuntimeError::new_err("the server is bound already"))
    }

    /// What `auto` became.
    fn resolved<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("backend", self.backend().kind.name())?;
        dict.set_item("model", Config::name_of(self.model()))?;
        dict.set_item("interface", self.interface_name())?;
        dict.set_item("loop", self.loop_name().unwrap_or_default())?;
        dict.set_item("reason", self.backend().reason.as_deref().unwrap_or(""))?;
        Ok(dict)
    }

    /// The selector that asyncio's own loop waits on.
    fn selector<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("m0serve._selector")?
            .getattr("Selector")?
            .call1((self.driver.clone_ref(py),))
    }

    /// Listens; returns the ready line. `apps` are in the order of the configuration's mounts.
    fn start(&self, py: Python<'_>, event_loop: &Bound<'_, PyAny>, apps: Vec<Found>) -> PyResult<String> {
        let bound = self
            .bound
            .get()
            .ok_or_else(|| PyRuntimeError::new_err("bind() comes before start()"))?;
        let interfaces = apps.iter().map(|(_, interface, _)| interface.clone()).collect();
        if self.interfaces.set(interfaces).is_err() {
            return Err(PyRuntimeError::new_err("the server has been started already"));
        }
        let own = self.is_own_loop();
        let crew = self.make_crew()?;
        let (scopes, asgi, wsgi) = self.sort_apps(py, apps, bound, crew.as_deref())?;
        let runtime = Runtime::new(event_loop, own)?;
        self.host.get().start(runtime, scopes, asgi)?;
        let socket = bound.listen().map_err(|error| Exit::failure(error.to_string()))?;
        let baton = self.run(socket)?;
        if let Some(crew) = crew {
            let asyncio = self.waker_of_asyncio()?;
            if asyncio.is_some() {
                self.driver.get().set_crew(crew.clone());
            }
            let host = wsgi::Host::new(py, wsgi, crew.clone(), asyncio, baton, self.log.clone())?;
            *self.wsgi.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new((host, crew)));
        }
        if !own {
            let drive = py.import("m0serve._foreign")?.getattr("Foreign")?;
            let made = drive.call1((event_loop, self.driver.clone_ref(py)))?;
            self.host.get().set_nudge(made.getattr("nudge")?.unbind());
            let _ = self.foreign_loop.set(made.unbind());
        }
        Ok(self.ready_line(bound))
    }

    /// Accepts no more; the future is done when nothing is in flight.
    fn drain<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let host = self.host.get();
        let future = host.runtime().event_loop.bind(py).call_method0("create_future")?;
        let mut shared = host.shared.get()?;
        if shared.stopped {
            drop(shared);
            future.call_method1("set_result", (py.None(),))?;
            return Ok(future);
        }
        shared.drained.push(future.clone().unbind());
        shared.link.push(Frame::Stop(Stop::Drain));
        shared.flush()?;
        drop(shared);
        self.nudge(py)?;
        Ok(future)
    }

    /// Closes every connection.
    fn stop_now(&self, py: Python<'_>) -> PyResult<()> {
        let mut shared = self.host.get().shared.get()?;
        shared.closing = true;
        shared.link.push(Frame::Stop(Stop::Now));
        shared.flush()?;
        drop(shared);
        self.nudge(py)
    }

    /// Method and path of each request in flight.
    fn abandoned(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let mut names = self.views().map_or_else(Vec::new, |views| views.1.at_work());
        names.extend(self.host.get().in_flight(py)?.into_iter().map(|(name, _)| name));
        Ok(names)
    }

    /// How many threads are to call [`Service::work`].
    #[getter]
    fn threads(&self) -> usize {
        self.views().map_or(0, |views| views.1.size())
    }

    /// Serves views in the calling thread. It may hold the loop, so a failed assertion in it ends the process as one in the
    /// loop's own thread does: else it would take the server with it in silence.
    fn work(&self, py: Python<'_>) -> PyResult<()> {
        let Some(views) = self.views() else {
            return Ok(());
        };
        let work = || {
            views.0.work(py);
            Ok(())
        };
        Ok(guard(&self.log, work)?)
    }

    /// Sends the threads home that have nothing to do.
    fn end_work(&self) {
        if let Some(views) = self.views() {
            views.0.send_home();
        }
    }

    /// Tasks of requests that still run.
    fn tasks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let tasks = self.host.get().in_flight(py)?.into_iter().filter_map(|(_, task)| task);
        PyList::new(py, tasks.collect::<Vec<_>>())
    }

    /// Counters.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats_dict(py, &self.stats.load())
    }

    /// Where it listens.
    #[getter]
    fn address(&self) -> &str {
        self.bound.get().map_or("", |bound| bound.address.as_str())
    }

    /// In a child that the application forked: from here on nothing reaches a connection.
    fn forked(&self) -> PyResult<()> {
        if let Some(bound) = self.bound.get() {
            bound.leave();
        }
        if let Some(views) = self.views() {
            views.1.set_forked();
        }
        self.host.get().shared.get()?.forked = true;
        Ok(())
    }

    /// Gives everything back. Called once, after the event loop is closed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let thread = {
            let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *thread, Thread::None)
        };
        {
            let mut shared = self.host.get().shared.get()?;
            match &mut shared.link {
                Link::Direct(direct) => {
                    direct.engine.shutdown();
                    if let Some(crew) = direct.routes.crew() {
                        crew.end();
                    }
                }
                link @ Link::Ring(_) => {
                    link.push(Frame::Stop(Stop::Now));
                    // The loop thread never waits for us, so a full ring has room before long, unless the loop is over.
                    while link.needs_flush() && thread.runs() {
                        link.flush()?;
                        m0_platform::thread::yield_now();
                    }
                }
            }
            if let Some(foreign) = &mut shared.foreign {
                foreign.shutdown();
            }
        }
        match thread {
            Thread::Running(handle) => match py.detach(|| handle.join()) {
                Ok(result) => result?,
                Err(_) => return Err(PyRuntimeError::new_err("the loop thread panicked")),
            },
            Thread::Waiting(mut waiting) => waiting.engine.shutdown(),
            Thread::None => {}
        }
        if let Some(bound) = self.bound.get() {
            listen::clean_up(bound);
        }
        self.host.get().close()?;
        let views = self.wsgi.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(views); // not under the lock: it may run code of theirs
        self.driver.get().close()?;
        if let Some(foreign) = self.foreign_loop.get() {
            foreign.bind(py).call_method0("close")?;
        }
        self.log.tick(true);
        Ok(())
    }
}

impl Service {
    fn views(&self) -> Option<Arc<Views>> {
        self.wsgi.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn is_own_loop(&self) -> bool {
        matches!(self.config.event_loop, LoopChoice::Auto | LoopChoice::Asyncio)
    }

    /// The event loop that applications run in; none where all of them are WSGI.
    fn loop_name(&self) -> Option<String> {
        match (self.interface(), self.is_own_loop()) {
            (Interface::Wsgi, _) => None,
            (_, true) => Some("asyncio".to_owned()),
            (_, false) => Some(Config::name_of(self.config.event_loop)),
        }
    }

    pub(super) fn trust(&self) -> Trust {
        trust(&self.config)
    }

    /// What decides model and backend.
    pub(super) fn interface(&self) -> Interface {
        self.interfaces
            .get()
            .map_or(Interface::Asgi, |all| process_interface(all))
    }

    /// The interface of all applications, where they have the same.
    fn interface_name(&self) -> String {
        let all = self.interfaces.get().map_or(&[][..], Vec::as_slice);
        let names: Vec<Option<&str>> = all.iter().map(|name| Some(name.as_str())).collect();
        interface_name(&names).unwrap_or_else(|| Config::name_of(Interface::Asgi))
    }

    pub(super) fn model(&self) -> Model {
        self.config.model_for(self.interface()).unwrap_or(self.config.model)
    }

    /// The backend that serves.
    fn backend(&self) -> &Resolved {
        self.moved.get().unwrap_or(&self.resolved)
    }

    /// On a loop that is not ours nothing else would notice what was pushed outside a turn.
    fn nudge(&self, py: Python<'_>) -> PyResult<()> {
        match self.foreign_loop.get() {
            Some(foreign) => foreign.bind(py).call_method0("nudge").map(drop),
            None => Ok(()),
        }
    }

    /// The interface, or that of each mount.
    fn interfaces_shown(&self) -> String {
        let (mounts, all) = (self.config.mounts(), self.interfaces.get());
        match (&mounts[..], all) {
            ([], _) | ([_], _) | (_, None) => format!("interface {}", self.interface_name()),
            (mounts, Some(all)) => {
                let each = mounts
                    .iter()
                    .zip(all)
                    .map(|(mount, name)| format!("{name} at {}", mount.shown()));
                format!("interfaces {}", each.collect::<Vec<_>>().join(" and "))
            }
        }
    }

    fn ready_line(&self, bound: &BoundSocket) -> String {
        let reason = match &self.backend().reason {
            Some(reason) => format!("; not io_uring: {reason}"),
            None => String::new(),
        };
        let event_loop = self
            .loop_name()
            .map_or_else(String::new, |name| format!(", loop {name}"));
        format!(
            "m0serve ready on {} (backend {}{}, model {}, {}{event_loop}{reason})",
            bound.address,
            self.backend().kind.name(),
            if self.backend().kind.is_emulated() {
                " (emulated)"
            } else {
                ""
            },
            Config::name_of(self.model()),
            self.interfaces_shown(),
        )
    }
}

/// What to end with where the platform refuses.
pub(super) fn refused(refused: m0_platform::Refused) -> PyErr {
    Exit::from(refused).into()
}

/// The main function of a thread that runs the loop. A failure of the loop ends the process, and so does a failed assertion.
pub(super) fn guard(log: &Logger, run: impl FnOnce() -> std::io::Result<()>) -> std::io::Result<()> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => crate::model::cannot_go_on(log, &error),
        Err(_) => {
            log.error(
                "loop",
                "the event loop failed an assertion; this is a defect of m0serve, please report it",
            );
            std::process::exit(1)
        }
    }
}

fn trust(config: &Config) -> Trust {
    Trust(config.proxy_headers.then(|| config.forwarded_allow_ips.clone()))
}

pub(super) fn settings(config: &Config) -> Settings {
    Settings {
        limits: Limits {
            max_head: config.max_head,
            max_body: config.max_body.unwrap_or(0),
            max_target: config.max_target.min(config.max_head),
            max_fields: config.max_fields,
        },
        header_timeout: config.header_timeout,
        body_timeout: config.body_timeout,
        idle_timeout: config.idle_timeout,
        max_connections: usize::try_from(config.max_connections.unwrap_or(0)).unwrap_or(usize::MAX),
        max_requests: u32::try_from(config.max_keepalive_requests.unwrap_or(0)).unwrap_or(u32::MAX),
        date: config.date_header,
        server: config.server_header.then(|| b"m0serve".to_vec()),
        access_log: config.access_log,
        trust: trust(config),
        mounts: Mounts::new(config.mounts().iter().map(|mount| mount.prefix.as_str())),
    }
}

fn stats_dict<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in [
        ("accepted", stats.accepted),
        ("connections", stats.connections),
        ("requests", stats.requests),
        ("responses", stats.responses),
        ("refused", stats.refused),
        ("abandoned", stats.abandoned),
        ("timed_out", stats.timed_out),
        ("exchanges", stats.exchanges),
    ] {
        dict.set_item(name, value)?;
    }
    Ok(dict)
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
