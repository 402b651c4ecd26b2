//! A request's task: started from its job, and what its end means for the response.

use pyo3::intern;
use pyo3::prelude::*;

use super::bound::ThreadBound;
use super::callables::Exchange;
use super::exchange::{Stage, State};
use super::runtime::{Outcome, outcome};
use super::{Host, wake};
use crate::handoff::{Frame, Outlet, Request, Why};
use crate::host::calls;

/// Calls the application for a request, in a task of its own.
///
/// # Errors
/// SystemExit and KeyboardInterrupt only; everything else is the request's own failure.
pub fn begin(host: &Bound<'_, Host>, mut request: Box<Request>, plain: bool) -> PyResult<()> {
    let py = host.py();
    let state = State::new(&mut request);
    let id = state.id;
    let exchange = Bound::new(
        py,
        Exchange {
            host: host.clone().unbind(),
            state: ThreadBound::new(state),
        },
    )?;
    let (scope, app) = {
        let mut shared = host.get().shared.get()?;
        shared.insert(id, exchange.clone().unbind());
        let app = shared.apps[usize::from(request.mount)].as_ref();
        let app = app
            .expect("a request comes to the host of its application")
            .bind(py)
            .clone();
        let scopes = shared.scopes.as_mut().expect("scopes come with the start");
        (scopes.build(py, &request), app)
    };
    drop(request);
    let runtime = host.get().runtime();
    let receive = exchange.getattr(intern!(py, "receive"))?;
    let send = exchange.getattr(intern!(py, "send"))?;
    let started = scope
        .and_then(|scope| calls::call(&app, [scope.as_any(), &receive, &send]))
        .and_then(|made| runtime.spawn(made, plain));
    let task = match started {
        Ok(task) => task,
        Err(error) => {
            let ends = ends_the_loop(py, &error);
            failed(&exchange, &error)?;
            return if ends { Err(error) } else { Ok(()) };
        }
    };
    match outcome(&task)? {
        Outcome::Running => {
            exchange.get().state.get()?.task = Some(task.clone().unbind());
            let task_done = exchange.getattr(intern!(py, "task_done"))?;
            calls::method(intern!(py, "add_done_callback"), [&task, &task_done])?;
            Ok(())
        }
        Outcome::Returned => returned(&exchange),
        Outcome::Raised(error) => failed(&exchange, &error),
    }
}

/// The task of an exchange is done.
pub fn finish(exchange: &Bound<'_, Exchange>, task: &Bound<'_, PyAny>) -> PyResult<()> {
    exchange.get().state.get()?.task = None;
    match outcome(task)? {
        Outcome::Running => Ok(()),
        Outcome::Returned => returned(exchange),
        Outcome::Raised(error) => failed(exchange, &error),
    }
}

fn ends_the_loop(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<pyo3::exceptions::PySystemExit>(py)
        || error.is_instance_of::<pyo3::exceptions::PyKeyboardInterrupt>(py)
}

fn returned(exchange: &Bound<'_, Exchange>) -> PyResult<()> {
    let host = exchange.get().host.get();
    let (id, complaint) = {
        let state = exchange.get().state.get()?;
        let complaint = match state.stage {
            _ if state.gone || state.told_over || state.all_pushed() => None,
            Stage::Waiting => Some("ASGI callable returned without starting response."),
            // Complete but not all handed over: a large last body whose `send` was not awaited.
            Stage::Started | Stage::Complete => Some("ASGI callable returned without completing response."),
        };
        (state.id, complaint)
    };
    if let Some(text) = complaint {
        host.log.error(
            "incomplete response",
            format_args!("{text} ({})", exchange.get().state.get()?.name),
        );
    }
    let pointless = exchange.get().state.get()?.is_pointless();
    give_up(exchange, pointless)?;
    close(exchange)?;
    host.release(exchange.py(), id)
}

/// The application raised: reported once, and the response (if it is not complete) is given up.
fn failed(exchange: &Bound<'_, Exchange>, error: &PyErr) -> PyResult<()> {
    let py = exchange.py();
    let host = exchange.get().host.get();
    // Before the state is borrowed: it looks into an error of the application's, which is Python code.
    let pointless = exchange.get().state.get()?.is_pointless();
    let farewell = pointless && host.runtime().is_farewell(py, error);
    let (id, name, cancelled, obeyed, quiet) = {
        let state = exchange.get().state.get()?;
        let cancelled = error.is_instance(py, &py.import("asyncio")?.getattr("CancelledError")?);
        let named = cancelled && (state.all_pushed() || host.shared.get()?.closing);
        let obeyed = pointless && (cancelled || farewell);
        let quiet = obeyed || named || ends_the_loop(py, error);
        (state.id, state.name.clone(), cancelled, obeyed, quiet)
    };
    if !quiet && cancelled {
        // A traceback would lead to where it waited, which says nothing about who cancelled it.
        host.log.error(
            "incomplete response",
            format_args!("The application's task was cancelled before its response was complete. ({name})"),
        );
    } else if !quiet {
        host.runtime().report(py, error, &name);
    }
    give_up(exchange, obeyed)?;
    close(exchange)?;
    host.release(exchange.py(), id)
}

/// Nothing more is said of the response. Where it stopped because `send` had nobody to send to (`obeyed`), and its client
/// has finished only, it has no body and is whole: what came behind its request is still to be answered.
fn give_up(exchange: &Bound<'_, Exchange>, obeyed: bool) -> PyResult<()> {
    let mut shared = exchange.get().host.get().shared.get()?;
    let state = exchange.get().state.get()?;
    if !state.gone && !state.all_pushed() {
        shared.link.push(if obeyed {
            Frame::End(state.id)
        } else {
            Frame::Abort(state.id, Why::HostError)
        });
    }
    Ok(())
}

/// What is left of the exchange in the application's hands says nothing any more; who waits in it is told.
fn close(exchange: &Bound<'_, Exchange>) -> PyResult<()> {
    let waiting = exchange.get().state.get()?.close();
    for future in waiting {
        wake(future.bind(exchange.py()))?;
    }
    Ok(())
}
