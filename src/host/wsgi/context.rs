//! A context of its own for each request (PEP 567), on threads that serve many: what one sets the next does not see.

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Calls `f` in a copy of the thread's context, as `contextvars.copy_context().run` would.
///
/// # Errors
/// What `f` gave. RuntimeError when the application has left in another context than it was called in.
pub fn of_its_own<R>(py: Python<'_>, f: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    // SAFETY: the interpreter is attached; the function gives a new reference, or null with an exception set.
    let context = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyContext_CopyCurrent()) }?;
    // SAFETY: attached, and it is a context that nobody has entered.
    if unsafe { ffi::PyContext_Enter(context.as_ptr()) } != 0 {
        return Err(PyErr::fetch(py));
    }
    let result = f();
    // SAFETY: attached, no exception is set (`f` gave its own back), and the context is alive. When it is not the one
    // that was entered last, the function says so and does nothing.
    if unsafe { ffi::PyContext_Exit(context.as_ptr()) } != 0 {
        let error = PyErr::take(py).unwrap_or_else(|| PyRuntimeError::new_err("a context could not be left"));
        return result.and(Err(error));
    }
    result
}
