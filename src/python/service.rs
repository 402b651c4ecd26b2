//! One server as Python holds it: opens the backends, makes the link, starts the loop thread, and takes it all down.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use m0_platform::sync::Arc;
use m0_platform::{Choice, Clock, Kind, Options, Resolved};
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use super::driver::Driver;
use super::listen::{self, Bound};
use crate::config::{Config, Exit, LoopChoice, Model};
use crate::doctor::choice;
use crate::engine::{Engine, Settings, SharedStats, Stats};
use crate::handoff::{Direct, Frame, Link, Stop, rings};
use crate::host::asgi::{Host, Runtime, Scopes};
use crate::host::forwarded::Trust;
use crate::http1::Limits;
use crate::log::Logger;
use crate::model::pump::LoopThread;
use crate::python_config::PyConfig;

/// The engine before it is handed to the loop thread (pump only).
struct Waiting {
    engine: Engine,
    link: crate::handoff::RingLoop,
}

/// The loop thread, from its start to its end.
enum Thread {
    None,
    Waiting(Box<Waiting>),
    Running(JoinHandle<std::io::Result<()>>),
}

/// One server.
#[pyclass(frozen, module = "m0serve._native")]
pub struct Service {
    config: Arc<Config>,
    resolved: Resolved,
    host: Py<Host>,
    driver: Py<Driver>,
    bound: OnceLock<Bound>,
    thread: Mutex<Thread>,
    stats: Arc<SharedStats>,
    log: Logger,
    /// What drives the turn on a loop that is not ours.
    foreign_loop: OnceLock<Py<PyAny>>,
}

#[pymethods]
impl Service {
    #[new]
    fn new(py: Python<'_>, config: &Bound2<'_, PyConfig>) -> PyResult<Self> {
        let config = config.get().get().clone();
        config.check()?;
        let log = Logger::new(config.log_level, config.access_log, Clock::new());
        if let Err(error) = m0_platform::thread::raise_open_files() {
            log.warn(
                "open files",
                format_args!("the limit of open files could not be raised: {error}"),
            );
        }
        let refused = |refused: m0_platform::Refused| {
            PyErr::from(if refused.unsupported {
                Exit::config(refused.sentence)
            } else {
                Exit::failure(refused.sentence)
            })
        };
        let (backend, resolved) = m0_platform::open(choice(config.backend), &Options::default()).map_err(refused)?;
        let spin = m0_platform::thread::usable_cpus() > 1;
        let mut engine = Engine::new(backend, settings(&config), Clock::new(), log.clone());
        let stats = engine.published();
        let (waker, link, foreign, thread) = match config.model {
            Model::Inverted => {
                let waker = engine.backend().waker();
                (waker, Link::Direct(Box::new(Direct::new(engine))), None, Thread::None)
            }
            Model::Pump => {
                let own = Choice::Only(if cfg!(target_os = "linux") {
                    Kind::Epoll
                } else {
                    Kind::Kqueue
                });
                let (foreign, _) = m0_platform::open(own, &Options::default()).map_err(refused)?;
                let (host, link) = rings(engine.backend().waker(), foreign.waker());
                (
                    foreign.waker(),
                    Link::Ring(host),
                    Some(foreign),
                    Thread::Waiting(Box::new(Waiting { engine, link })),
                )
            }
        };
        let host = Py::new(py, Host::new(py, link, foreign, log.clone())?)?;
        let driver = Py::new(py, Driver::new(py, host.clone_ref(py), waker, spin))?;
        Ok(Service {
            config,
            resolved,
            host,
            driver,
            bound: OnceLock::new(),
            thread: Mutex::new(thread),
            stats,
            log,
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
    fn resolved<'py>(&self, py: Python<'py>) -> PyResult<Bound2<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("backend", self.resolved.kind.name())?;
        dict.set_item("model", Config::name_of(self.config.model))?;
        dict.set_item("interface", "asgi")?;
        dict.set_item("loop", self.loop_name())?;
        dict.set_item("reason", self.resolved.reason.as_deref().unwrap_or(""))?;
        Ok(dict)
    }

    /// The selector that asyncio's own loop waits on.
    fn selector<'py>(&self, py: Python<'py>) -> PyResult<Bound2<'py, PyAny>> {
        py.import("m0serve._selector")?
            .getattr("Selector")?
            .call1((self.driver.clone_ref(py),))
    }

    /// Listens; returns the ready line.
    fn start(
        &self,
        py: Python<'_>,
        event_loop: &Bound2<'_, PyAny>,
        app: Py<PyAny>,
        state: Option<Py<PyDict>>,
    ) -> PyResult<String> {
        let bound = self
            .bound
            .get()
            .ok_or_else(|| PyRuntimeError::new_err("bind() comes before start()"))?;
        let own = self.is_own_loop();
        let runtime = Runtime::new(event_loop, app, own)?;
        let trust = Trust(
            self.config
                .proxy_headers
                .then(|| self.config.forwarded_allow_ips.clone()),
        );
        let scopes = Scopes::new(py, &self.config.root_path, state, trust, bound.path.clone())?;
        self.host.get().start(runtime, scopes)?;
        let socket = bound.listen()?;
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *thread, Thread::None) {
            Thread::None => {
                let mut shared = self.host.get().shared.get()?;
                if let Link::Direct(direct) = &mut shared.link {
                    direct.engine.listen(socket)?;
                    direct.engine.submit()?;
                }
            }
            Thread::Waiting(mut waiting) => {
                waiting.engine.listen(socket)?;
                let spin = m0_platform::thread::usable_cpus() > 1;
                let run = LoopThread::new(waiting.engine, waiting.link, spin);
                let log = self.log.clone();
                let handle = m0_platform::thread::spawn("m0serve-loop", move || run_loop(run, &log))?;
                *thread = Thread::Running(handle);
            }
            Thread::Running(_) => return Err(PyRuntimeError::new_err("the server has been started already")),
        }
        drop(thread);
        if !own {
            let drive = py.import("m0serve._foreign")?.getattr("Foreign")?;
            let made = drive.call1((event_loop, self.driver.clone_ref(py)))?;
            self.host.get().set_nudge(made.getattr("nudge")?.unbind());
            let _ = self.foreign_loop.set(made.unbind());
        }
        Ok(self.ready_line(bound))
    }

    /// Accepts no more; the future is done when nothing is in flight.
    fn drain<'py>(&self, py: Python<'py>) -> PyResult<Bound2<'py, PyAny>> {
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
        Ok(self
            .host
            .get()
            .in_flight(py)?
            .into_iter()
            .map(|(name, _)| name)
            .collect())
    }

    /// Tasks of requests that still run.
    fn tasks<'py>(&self, py: Python<'py>) -> PyResult<Bound2<'py, PyList>> {
        let tasks = self.host.get().in_flight(py)?.into_iter().filter_map(|(_, task)| task);
        PyList::new(py, tasks.collect::<Vec<_>>())
    }

    /// Counters.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound2<'py, PyDict>> {
        stats_dict(py, &self.stats.load())
    }

    /// Where it listens.
    #[getter]
    fn address(&self) -> &str {
        self.bound.get().map_or("", |bound| bound.address.as_str())
    }

    /// In a child that the application forked: from here on nothing reaches a connection.
    fn forked(&self) -> PyResult<()> {
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
                Link::Direct(direct) => direct.engine.shutdown(),
                link @ Link::Ring(_) => {
                    link.push(Frame::Stop(Stop::Now));
                    // The loop thread never waits for us, so a full ring has room before long.
                    while link.needs_flush() {
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
        self.driver.get().close()?;
        if let Some(foreign) = self.foreign_loop.get() {
            foreign.bind(py).call_method0("close")?;
        }
        self.log.tick(true);
        Ok(())
    }
}

/// `Bound` of PyO3, beside the bound socket of this module.
type Bound2<'py, T> = pyo3::Bound<'py, T>;

impl Service {
    fn is_own_loop(&self) -> bool {
        matches!(self.config.event_loop, LoopChoice::Auto | LoopChoice::Asyncio)
    }

    fn loop_name(&self) -> String {
        if self.is_own_loop() {
            "asyncio".to_owned()
        } else {
            Config::name_of(self.config.event_loop)
        }
    }

    /// On a loop that is not ours nothing else would notice what was pushed outside a turn.
    fn nudge(&self, py: Python<'_>) -> PyResult<()> {
        match self.foreign_loop.get() {
            Some(foreign) => foreign.bind(py).call_method0("nudge").map(drop),
            None => Ok(()),
        }
    }

    fn ready_line(&self, bound: &Bound) -> String {
        let reason = match &self.resolved.reason {
            Some(reason) => format!("; not io_uring: {reason}"),
            None => String::new(),
        };
        format!(
            "m0serve ready on {} (backend {}, model {}, interface asgi, loop {}{reason})",
            bound.address,
            self.resolved.kind.name(),
            Config::name_of(self.config.model),
            self.loop_name(),
        )
    }
}

/// The loop thread's main function. A failure of the loop ends the process: nothing could be served any more, and a
/// supervisor must see that rather than a server that hangs.
fn run_loop(run: LoopThread, log: &Logger) -> std::io::Result<()> {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.run()));
    match result {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => {
            log.error("loop", format_args!("the event loop cannot go on: {error}"));
            std::process::exit(1)
        }
        Err(_) => {
            log.error(
                "loop",
                "the event loop failed an assertion; this is a defect of m0serve, please report it",
            );
            std::process::exit(1)
        }
    }
}

fn settings(config: &Config) -> Settings {
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
    }
}

fn stats_dict<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound2<'py, PyDict>> {
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
