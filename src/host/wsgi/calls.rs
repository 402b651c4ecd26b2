//! Calls of the application, which the interpreter's end may cut off.
//!
//! Until 3.14 the interpreter ends a daemon thread where it next wants the GIL, by `pthread_exit`. That unwinds it through
//! the frames of this crate, whose destructors touch Python without the GIL: the process would crash. PyO3 has such a thread
//! hang where Rust asks for the GIL; this does the same where the application does, in a view that outlasts the drain
//! time-out of a server on a thread.

use pyo3::ffi;
use pyo3::prelude::*;

// PyO3 declares these with an ABI that is not to unwind.
unsafe extern "C-unwind" {
    fn PyObject_Vectorcall(
        callable: *mut ffi::PyObject,
        args: *const *mut ffi::PyObject,
        nargsf: usize,
        kwnames: *mut ffi::PyObject,
    ) -> *mut ffi::PyObject;
    fn PyIter_Next(iterator: *mut ffi::PyObject) -> *mut ffi::PyObject;
}

/// Dropped only when the thread is being ended: keeps it here, and all that is below it on the stack as it is.
struct Hang;

impl Drop for Hang {
    #[allow(
        clippy::disallowed_methods,
        reason = "waits for the end of the process, and for nothing that could come before"
    )]
    fn drop(&mut self) {
        loop {
            std::thread::park();
        }
    }
}

/// Calls something with positional arguments.
///
/// # Errors
/// What it raises.
pub fn call<'py, const N: usize>(
    callable: &Bound<'py, PyAny>,
    args: [&Bound<'py, PyAny>; N],
) -> PyResult<Bound<'py, PyAny>> {
    let args = args.map(Bound::as_ptr);
    let hang = Hang;
    // SAFETY: attached; the callable and the arguments are alive and borrowed for the call, which reads N of them.
    let result = unsafe { PyObject_Vectorcall(callable.as_ptr(), args.as_ptr(), N, std::ptr::null_mut()) };
    std::mem::forget(hang);
    // SAFETY: the function gives a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(callable.py(), result) }
}

/// What an iterator gives next.
///
/// # Errors
/// What it raises.
pub fn next<'py>(iterator: &Bound<'py, pyo3::types::PyIterator>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = iterator.py();
    let hang = Hang;
    // SAFETY: attached, and it is an iterator, which is alive.
    let item = unsafe { PyIter_Next(iterator.as_ptr()) };
    std::mem::forget(hang);
    // SAFETY: the function gives a new reference, or null: with an exception set, or none at the end.
    match unsafe { Bound::from_owned_ptr_or_opt(py, item) } {
        Some(item) => Ok(Some(item)),
        None => PyErr::take(py).map_or(Ok(None), Err),
    }
}
