//! What the host needs of Python, looked up once: the loop, asyncio's Task.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyType};

use crate::host::calls;

/// The loop of a host that has been started.
pub struct Runtime {
    /// The event loop.
    pub event_loop: Py<PyAny>,
    /// The context that turns start from: the one the server was started in.
    context: Py<PyAny>,
    /// Its `create_future`, bound.
    pub create_future: Py<PyAny>,
    create_task: Py<PyAny>,
    get_task_factory: Py<PyAny>,
    task: Py<PyAny>,
    /// `loop=…, eager_start=True`, where eager tasks are safe.
    eager: Option<Py<PyDict>>,
    /// `m0serve._tasks.wrap`, a coroutine function that awaits what is no coroutine.
    wrap: Py<PyAny>,
    /// `m0serve._tasks.report`, which prints an application's traceback.
    pub report: Py<PyAny>,
    is_farewell: Py<PyAny>,
    /// What `send` raises once the client has gone.
    client_disconnected: Py<PyType>,
}

/// Whether `asyncio.Task(..., eager_start=True)` may be used: it exists from 3.12, and crashed on `get_coro()` until
/// python/cpython#122332 was fixed in 3.12.5. On uvloop it is refused by some versions, so only asyncio's own loop has it.
pub fn eager_is_safe(version: (u8, u8, u8), own_loop: bool) -> bool {
    own_loop && version >= (3, 12, 5)
}

impl Runtime {
    /// Looks everything up.
    ///
    /// # Errors
    /// Whatever is missing.
    pub fn new(event_loop: &Bound<'_, PyAny>, own_loop: bool) -> PyResult<Self> {
        let py = event_loop.py();
        let version = py.version_info();
        let eager = if eager_is_safe((version.major, version.minor, version.patch), own_loop) {
            let kwargs = PyDict::new(py);
            kwargs.set_item("loop", event_loop)?;
            kwargs.set_item("eager_start", true)?;
            Some(kwargs.unbind())
        } else {
            None
        };
        let helpers = py.import("m0serve._tasks")?;
        if eager.is_some() {
            helpers.getattr("hush_exits")?.call1((event_loop,))?;
        }
        Ok(Runtime {
            create_future: event_loop.getattr("create_future")?.unbind(),
            create_task: event_loop.getattr("create_task")?.unbind(),
            get_task_factory: event_loop.getattr("get_task_factory")?.unbind(),
            task: py.import("asyncio")?.getattr("Task")?.unbind(),
            context: py.import("contextvars")?.call_method0("copy_context")?.unbind(),
            event_loop: event_loop.clone().unbind(),
            eager,
            wrap: helpers.getattr("wrap")?.unbind(),
            report: helpers.getattr("report")?.unbind(),
            is_farewell: helpers.getattr("is_farewell")?.unbind(),
            client_disconnected: helpers.getattr("ClientDisconnected")?.cast_into()?.unbind(),
        })
    }

    /// An asyncio handle for `callback`. A nested event loop asks for one within a request, whose context must not be what
    /// other requests start from.
    ///
    /// # Errors
    /// Whatever asyncio raises.
    pub fn handle<'py>(&self, callback: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = callback.py();
        let context = self.context.bind(py).call_method0("copy")?;
        py.import("asyncio")?
            .getattr("Handle")?
            .call1((callback, (), self.event_loop.bind(py), context))
    }

    /// Whether the application has set a task factory, which then makes all tasks.
    pub fn has_task_factory(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.eager.is_some() && !calls::call(self.get_task_factory.bind(py), [])?.is_none())
    }

    /// A task for what the application returned. `plain`: no eager start, the loop's own factory decides.
    ///
    /// # Errors
    /// TypeError when it is nothing that can be awaited; SystemExit and KeyboardInterrupt of an eager start.
    pub fn spawn<'py>(&self, awaitable: Bound<'py, PyAny>, plain: bool) -> PyResult<Bound<'py, PyAny>> {
        let py = awaitable.py();
        let coroutine = if is_coroutine(&awaitable) {
            awaitable
        } else {
            calls::call(self.wrap.bind(py), [&awaitable])?
        };
        match &self.eager {
            Some(kwargs) if !plain => calls::call_with(self.task.bind(py), [&coroutine], kwargs.bind(py)),
            _ => calls::call(self.create_task.bind(py), [&coroutine]),
        }
    }

    /// What `send` raises once the client has gone.
    pub fn client_disconnected(&self, py: Python<'_>) -> PyErr {
        PyErr::from_type(self.client_disconnected.bind(py).clone(), "the client has disconnected")
    }

    /// Whether an application that failed after its client had gone only passed that on. Not where the look into its error
    /// raises: that is code of the application's, and the exchange has still to be released.
    pub fn is_farewell(&self, py: Python<'_>, error: &PyErr) -> bool {
        let answer = calls::call(self.is_farewell.bind(py), [error.value(py).as_any()]);
        answer.and_then(|answer| answer.is_truthy()).unwrap_or(false)
    }

    /// Prints an application's traceback; see `m0serve._tasks.report`.
    pub fn report(&self, py: Python<'_>, error: &PyErr, name: &str) {
        let name = PyString::new(py, name);
        if let Err(error) = calls::call(self.report.bind(py), [error.value(py).as_any(), name.as_any()]) {
            error.write_unraisable(py, None);
        }
    }
}

fn is_coroutine(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: reads the type of a live object; the bound reference keeps it alive and proves that we are attached.
    unsafe { pyo3::ffi::PyCoro_CheckExact(object.as_ptr()) != 0 }
}

/// Whether a task is done, and with what.
pub enum Outcome {
    /// It still runs.
    Running,
    /// It returned.
    Returned,
    /// It raised (CancelledError when it was cancelled).
    Raised(PyErr),
}

/// Asks a task.
pub fn outcome(task: &Bound<'_, PyAny>) -> PyResult<Outcome> {
    let py = task.py();
    if !calls::method(intern!(py, "done"), [task])?.is_truthy()? {
        return Ok(Outcome::Running);
    }
    match calls::method(intern!(py, "exception"), [task]) {
        Ok(none) if none.is_none() => Ok(Outcome::Returned),
        Ok(error) => Ok(Outcome::Raised(PyErr::from_value(error))),
        Err(cancelled) => Ok(Outcome::Raised(cancelled)),
    }
}
