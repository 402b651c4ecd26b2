//! `receive` and `send` as an application sees them, and the awaitables that they return.
//!
//! An awaitable that can complete at once costs no future and no trip through the event loop. It is also a coroutine by
//! duck type (`send`, `throw`, `close`), so that `asyncio.create_task(receive())` works as under other servers.

use std::cell::RefMut;

use pyo3::exceptions::{PyRuntimeError, PyStopIteration, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use super::bound::ThreadBound;
use super::exchange::{Message, Stage, State};
use super::values::{copied_dict, header_bytes, open_file, to_bytes};
use super::{Host, Shared};
use crate::handoff::{Frame, Outlet, ResponseHead, Why};
use crate::host::outgoing::Misuse;
use crate::host::{calls, joined};

/// One request; its bound methods `receive` and `send` are what the application is called with.
#[pyclass(frozen, module = "m0serve._native")]
pub struct Exchange {
    pub(super) host: Py<Host>,
    pub(super) state: ThreadBound<State>,
}

#[pymethods]
impl Exchange {
    /// The ASGI `receive` callable.
    fn receive(slf: Bound<'_, Self>) -> PyResult<Pending> {
        Ok(Pending {
            exchange: slf.unbind(),
            kind: Kind::Receive,
            waiting: None,
            over: false,
        })
    }

    /// The ASGI `send` callable.
    fn send<'py>(slf: &Bound<'py, Self>, message: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let exchange = slf.get();
        let kind = if exchange.state.is_here() {
            match exchange.take(message)? {
                None => return Ok(exchange.host.get().ready(slf.py())),
                Some(body) => Kind::Send(body),
            }
        } else {
            // A thread that has the loop await it: `run_coroutine_threadsafe`, or asgiref's `async_to_sync`.
            Kind::Later(message.clone().unbind())
        };
        let pending = Pending {
            exchange: slf.clone().unbind(),
            kind,
            waiting: None,
            over: false,
        };
        Ok(Bound::new(slf.py(), pending)?.into_any())
    }

    /// The task of this request is done.
    fn task_done(slf: &Bound<'_, Self>, task: &Bound<'_, PyAny>) -> PyResult<()> {
        super::tasks::finish(slf, task)
    }

    /// For somebody who prints what `send` and `receive` belong to.
    fn __repr__(&self) -> PyResult<String> {
        Ok(format!("<m0serve exchange {}>", self.state.get()?.name))
    }
}

impl Exchange {
    /// Takes a message. The number of the body that its `send` waits for, where there is no room for another.
    fn take(&self, message: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        let py = message.py();
        let copied;
        let message = if let Ok(dict) = message.cast::<PyDict>() {
            dict
        } else {
            copied = copied_dict(message)?;
            &copied
        };
        let kind = message
            .get_item(intern!(py, "type"))?
            .ok_or_else(|| PyValueError::new_err("an ASGI message must have a \"type\""))?;
        let kind = kind.cast::<PyString>()?.to_str()?;
        let open = match kind {
            "http.response.body" => self.body(py, message)?,
            "http.response.start" => self.start(py, message)?,
            "http.response.pathsend" => self.path(py, message)?,
            other => return Err(self.unexpected(other)),
        };
        if open {
            return Ok(None);
        }
        Ok(Some(self.state.get()?.bodies()))
    }

    fn unexpected(&self, kind: &str) -> PyErr {
        let expected = match self.state.get().map(|state| state.stage) {
            Ok(Stage::Waiting) => "Expected ASGI message 'http.response.start'",
            Ok(Stage::Started) => "Expected ASGI message 'http.response.body' or 'http.response.pathsend'",
            _ => {
                return PyRuntimeError::new_err(format!(
                    "Unexpected ASGI message '{kind}' sent, after response already completed."
                ));
            }
        };
        PyRuntimeError::new_err(format!("{expected}, but got '{kind}'."))
    }

    fn gone(&self, py: Python<'_>) -> PyErr {
        self.host.get().runtime().client_disconnected(py)
    }

    fn check_here(&self, py: Python<'_>, wanted: Stage, kind: &str) -> PyResult<()> {
        let (gone, stage) = {
            let state = self.state.get()?;
            (state.is_pointless(), state.stage)
        };
        if stage != Stage::Complete && gone {
            return Err(self.gone(py));
        }
        if stage != wanted {
            return Err(self.unexpected(kind));
        }
        Ok(())
    }

    fn start(&self, py: Python<'_>, message: &Bound<'_, PyDict>) -> PyResult<bool> {
        self.check_here(py, Stage::Waiting, "http.response.start")?;
        let status = message
            .get_item(intern!(py, "status"))?
            .ok_or_else(|| PyValueError::new_err("'http.response.start' must have a \"status\""))?;
        let status: u16 = status.extract()?;
        let bad = |bad: crate::handoff::BadHead| PyValueError::new_err(bad.message());
        let mut head = ResponseHead::new(status).map_err(bad)?;
        if let Some(headers) = message.get_item(intern!(py, "headers"))? {
            let pairs = calls::iter(&headers)?;
            while let Some(pair) = calls::next(&pairs)? {
                let items = calls::iter(&pair)?;
                let next = || calls::next(&items);
                let (Some(name), Some(value), None) = (next()?, next()?, next()?) else {
                    return Err(PyValueError::new_err("a response header must be a pair of bytes"));
                };
                head.push(header_bytes(&name)?, header_bytes(&value)?).map_err(bad)?;
            }
        }
        // The application's iterables ran above: the stage may have changed.
        self.check_here(py, Stage::Waiting, "http.response.start")?;
        self.state.get()?.start(head);
        Ok(true)
    }

    fn body(&self, py: Python<'_>, message: &Bound<'_, PyDict>) -> PyResult<bool> {
        self.check_here(py, Stage::Started, "http.response.body")?;
        let body = match message.get_item(intern!(py, "body"))? {
            None => PyBytes::new(py, b""),
            Some(body) => match body.cast_into::<PyBytes>() {
                Ok(body) => body,
                Err(other) => to_bytes(other.into_inner())?,
            },
        };
        let more = match message.get_item(intern!(py, "more_body"))? {
            None => false,
            Some(more) => more.is_truthy()?,
        };
        let host = self.host.get();
        let mut state = self.state.get()?;
        if let Err(misuse) = state.outgoing().account(body.as_bytes().len() as u64, !more) {
            return Err(self.misused(state, misuse));
        }
        let mut shared = host.shared.get()?;
        state.push_body(&body, !more, &mut shared.link);
        let open = state.may_send(state.bodies());
        self.said(py, state, shared, more || !open)?;
        Ok(open)
    }

    /// Something was pushed; where it completes the response, a `receive` that waits (for a disconnect) is told so.
    fn said(
        &self,
        py: Python<'_>,
        mut state: RefMut<'_, State>,
        shared: RefMut<'_, Shared>,
        now: bool,
    ) -> PyResult<()> {
        let receivers = state.take_receivers();
        drop(state);
        self.host.get().said(py, shared, now)?;
        for future in receivers {
            super::wake(future.bind(py))?;
        }
        Ok(())
    }

    /// The body does not fit its length: what is out cannot be taken back, so the connection goes.
    fn misused(&self, mut state: RefMut<'_, State>, misuse: Misuse) -> PyErr {
        if state.outgoing().is_head_sent()
            && let Ok(mut shared) = self.host.get().shared.get()
        {
            shared.link.push(Frame::Abort(state.id, Why::HostError));
            state.stage = Stage::Complete;
        }
        PyRuntimeError::new_err(misuse.message())
    }

    fn path(&self, py: Python<'_>, message: &Bound<'_, PyDict>) -> PyResult<bool> {
        self.check_here(py, Stage::Started, "http.response.pathsend")?;
        let path = message
            .get_item(intern!(py, "path"))?
            .ok_or_else(|| PyValueError::new_err("'http.response.pathsend' must have a \"path\""))?;
        let path: std::path::PathBuf = path.extract()?;
        let (file, len) = open_file(&path)?;
        let host = self.host.get();
        let mut state = self.state.get()?;
        if !state.has_room() {
            return Err(PyRuntimeError::new_err(
                "'http.response.pathsend' sent before an earlier send was awaited",
            ));
        }
        if let Err(misuse) = state.outgoing().account(len, true) {
            return Err(self.misused(state, misuse));
        }
        let mut shared = host.shared.get()?;
        state.push_file(file.into(), len, &mut shared.link);
        self.said(py, state, shared, true)?;
        Ok(true)
    }
}

enum Kind {
    Receive,
    /// Of the body with this number.
    Send(u64),
    /// Of a message that was given on another thread, and is taken once the loop's awaits it.
    Later(Py<PyAny>),
}

/// An awaitable of one `receive` or `send` call.
#[pyclass(module = "m0serve._native")]
pub struct Pending {
    exchange: Py<Exchange>,
    kind: Kind,
    /// Iterator of the future that it waits for.
    waiting: Option<Py<PyAny>>,
    over: bool,
}

#[pymethods]
impl Pending {
    fn __await__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.step(py)
    }

    fn send(&mut self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let _ = value;
        // As a coroutine's: the end is StopIteration, also without a value.
        self.step(py)?.ok_or_else(|| PyStopIteration::new_err(()))
    }

    #[pyo3(signature = (kind, value=None, traceback=None))]
    fn throw(
        &mut self,
        kind: &Bound<'_, PyAny>,
        value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let _ = traceback;
        self.waiting = None;
        self.over = true;
        Err(thrown(kind, value)?)
    }

    fn close(&mut self) {
        self.waiting = None;
        self.over = true;
    }
}

impl Pending {
    /// Completes (None, or StopIteration with a value) or gives the future to wait for.
    fn step(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if self.over {
            return Err(PyRuntimeError::new_err("cannot reuse an awaitable that has completed"));
        }
        if let Some(waiting) = self.waiting.take() {
            // The future is done: this raises StopIteration, or what the future was given (a cancellation).
            let iterator = waiting.into_bound(py).cast_into::<pyo3::types::PyIterator>()?;
            match calls::next(&iterator).transpose() {
                // A `send` was woken since there was room for it: that others took it meanwhile is their turn to wait.
                None if matches!(self.kind, Kind::Send(_)) => return self.sent(py),
                None => {}
                Some(Err(error)) => {
                    self.over = true;
                    return Err(error);
                }
                Some(Ok(future)) => {
                    // Somebody polled before it was done.
                    self.waiting = Some(iterator.into_any().unbind());
                    return Ok(Some(future.unbind()));
                }
            }
        }
        let done = match &self.kind {
            Kind::Receive => self.step_receive(py)?,
            Kind::Send(body) => self.step_send(py, *body)?,
            Kind::Later(message) => {
                let message = message.clone_ref(py);
                self.step_later(py, &message)?
            }
        };
        match done {
            Some(value) => {
                self.over = true;
                if value.is_none(py) {
                    Ok(None)
                } else {
                    Err(PyStopIteration::new_err((value,)))
                }
            }
            None => self.wait(py).map(Some),
        }
    }

    fn step_receive(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let exchange = self.exchange.get();
        let host = exchange.host.get();
        let message = {
            let mut shared = host.shared.get()?;
            let (message, asked) = exchange.state.get()?.next_message(&mut shared.link);
            if asked {
                host.said(py, shared, true)?;
            }
            message
        };
        let Some(message) = message else { return Ok(None) };
        let dict = PyDict::new(py);
        match message {
            Message::Body(mut pieces, more) => {
                dict.set_item(intern!(py, "type"), intern!(py, "http.request"))?;
                dict.set_item(intern!(py, "body"), joined(py, pieces.make_contiguous())?)?;
                dict.set_item(intern!(py, "more_body"), more)?;
            }
            Message::Disconnect => dict.set_item(intern!(py, "type"), intern!(py, "http.disconnect"))?,
        }
        Ok(Some(dict.into_any().unbind()))
    }

    fn step_send(&self, py: Python<'_>, body: u64) -> PyResult<Option<Py<PyAny>>> {
        let state = self.exchange.get().state.get()?;
        if state.gone {
            return Err(self.exchange.get().gone(py));
        }
        Ok(state.may_send(body).then(|| py.None()))
    }

    /// Takes a message that was given on another thread; once, whatever comes of it.
    fn step_later(&mut self, py: Python<'_>, message: &Py<PyAny>) -> PyResult<Option<Py<PyAny>>> {
        self.over = true;
        let taken = self.exchange.get().take(message.bind(py))?;
        let Some(body) = taken else { return Ok(Some(py.None())) };
        self.over = false;
        self.kind = Kind::Send(body);
        self.step_send(py, body)
    }

    /// A `send` that waited is over.
    fn sent(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.over = true;
        if self.exchange.get().state.get()?.gone {
            return Err(self.exchange.get().gone(py));
        }
        Ok(None)
    }

    /// Waits for a future that the host completes when something changes.
    fn wait(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let exchange = self.exchange.get();
        let future = exchange.host.get().new_future(py)?;
        match self.kind {
            Kind::Receive => exchange.state.get()?.wait_to_receive(&future)?,
            Kind::Send(body) => exchange.state.get()?.wait_to_send(body, &future)?,
            Kind::Later(_) => unreachable!("its message has been taken"),
        }
        let iterator = calls::iter(&future)?;
        let yielded = calls::next(&iterator)?.ok_or_else(|| PyRuntimeError::new_err("a new future is not done"))?;
        self.waiting = Some(iterator.into_any().unbind());
        Ok(yielded.unbind())
    }
}

/// The exception that a coroutine's `throw(type, value)` or `throw(exception)` is to raise.
///
/// # Errors
/// What making one of its type gave.
fn thrown(kind: &Bound<'_, PyAny>, value: Option<&Bound<'_, PyAny>>) -> PyResult<PyErr> {
    let error = match value {
        Some(value) if !value.is_none() => value.clone(),
        _ if kind.is_instance_of::<pyo3::types::PyType>() => calls::call(kind, [])?,
        _ => kind.clone(),
    };
    Ok(PyErr::from_value(error))
}

/// An awaitable that completes at once; one object serves all.
#[pyclass(frozen, module = "m0serve._native")]
pub struct Ready;

#[pymethods]
impl Ready {
    fn __await__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self) -> Option<Py<PyAny>> {
        None
    }

    fn send(&self, value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let _ = value;
        Err(PyStopIteration::new_err(()))
    }

    #[pyo3(signature = (kind, value=None, traceback=None))]
    fn throw(
        &self,
        kind: &Bound<'_, PyAny>,
        value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let _ = traceback;
        Err(thrown(kind, value)?)
    }

    fn close(&self) {}
}
