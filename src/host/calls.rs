//! Calls into Python code, which the interpreter's end may cut off: the hosts call all of the application's through here.
//!
//! Until 3.14 the interpreter ends a daemon thread where it next wants the GIL, by `pthread_exit`. That unwinds it through
//! the frames of this crate, whose destructors touch Python without the GIL: the process would crash. PyO3 has such a thread
//! hang where Rust asks for the GIL; this does the same where Python code does, in an application that outlasts the drain
//! time-out of a server on a thread.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyString};

type Object = *mut ffi::PyObject;
type Vectorcall = unsafe extern "C-unwind" fn(Object, *const Object, usize, Object) -> Object;
type OfOne = unsafe extern "C-unwind" fn(Object) -> Object;

// PyO3 declares these with an ABI that is not to unwind.
unsafe extern "C-unwind" {
    fn PyObject_Vectorcall(callable: Object, args: *const Object, nargsf: usize, kwnames: Object) -> Object;
    fn PyObject_VectorcallDict(callable: Object, args: *const Object, nargsf: usize, kwargs: Object) -> Object;
    fn PyObject_VectorcallMethod(name: Object, args: *const Object, nargsf: usize, kwnames: Object) -> Object;
    fn PyObject_GetIter(object: Object) -> Object;
    fn PyIter_Next(iterator: Object) -> Object;
}

static VECTORCALL: Vectorcall = PyObject_Vectorcall;
static VECTORCALL_DICT: Vectorcall = PyObject_VectorcallDict;
static VECTORCALL_METHOD: Vectorcall = PyObject_VectorcallMethod;
static GET_ITER: OfOne = PyObject_GetIter;
static NEXT: OfOne = PyIter_Next;

/// A function that the compiler does not recognize. LLVM has one declaration of a symbol: where code of PyO3 is compiled into
/// the same unit, that one says that the function never unwinds, and what is to hang would be left out.
fn unrecognized<F: Copy>(function: &'static F) -> F {
    // SAFETY: a reference, to what may be copied.
    unsafe { std::ptr::read_volatile(function) }
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

/// Runs what may not come back.
fn hanging(call: impl FnOnce() -> Object) -> Object {
    let hang = Hang;
    let result = call();
    std::mem::forget(hang);
    result
}

/// Positional arguments, behind a place that the callee may use to put its `self` before them: it spares it a copy.
#[repr(C)]
struct Args<const N: usize> {
    spare: Object,
    args: [Object; N],
}

impl<const N: usize> Args<N> {
    /// Their number, and that there is a place before them.
    const COUNT: usize = N | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;

    fn new(args: [&Bound<'_, PyAny>; N]) -> Self {
        Args {
            spare: std::ptr::null_mut(),
            args: args.map(Bound::as_ptr),
        }
    }

    /// The first of them, from where the place before it may be reached.
    fn first(&mut self) -> *const Object {
        let all: *mut Self = self;
        // SAFETY: the struct is laid out as declared, all of it pointers, so its second one is within it or just behind it.
        unsafe { all.cast::<Object>().add(1) }
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
    let mut args = Args::new(args);
    let (args, none) = (args.first(), std::ptr::null_mut());
    let function = unrecognized(&VECTORCALL);
    // SAFETY: attached; the callable and the arguments are alive and borrowed for the call, which reads N of them and may
    // write to the place before.
    let result = hanging(|| unsafe { function(callable.as_ptr(), args, Args::<N>::COUNT, none) });
    // SAFETY: the function gives a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(callable.py(), result) }
}

/// Calls something with positional arguments and others by name.
///
/// # Errors
/// What it raises.
pub fn call_with<'py, const N: usize>(
    callable: &Bound<'py, PyAny>,
    args: [&Bound<'py, PyAny>; N],
    kwargs: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut args = Args::new(args);
    let (args, kwargs) = (args.first(), kwargs.as_ptr());
    let function = unrecognized(&VECTORCALL_DICT);
    // SAFETY: as in `call`; the dict is alive and only read.
    let result = hanging(|| unsafe { function(callable.as_ptr(), args, Args::<N>::COUNT, kwargs) });
    // SAFETY: the function gives a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(callable.py(), result) }
}

/// Calls the method of that name of the first argument.
///
/// # Errors
/// What it raises.
pub fn method<'py, const N: usize>(
    name: &Bound<'py, PyString>,
    args: [&Bound<'py, PyAny>; N],
) -> PyResult<Bound<'py, PyAny>> {
    const { assert!(N > 0, "a method has an object") };
    let mut args = Args::new(args);
    let (args, none) = (args.first(), std::ptr::null_mut());
    let function = unrecognized(&VECTORCALL_METHOD);
    // SAFETY: as in `call`; there is an object before the other arguments.
    let result = hanging(|| unsafe { function(name.as_ptr(), args, Args::<N>::COUNT, none) });
    // SAFETY: the function gives a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(name.py(), result) }
}

/// An iterator over something.
///
/// # Errors
/// What its `__iter__` raises.
pub fn iter<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyIterator>> {
    let function = unrecognized(&GET_ITER);
    // SAFETY: attached, and the object is alive.
    let iterator = hanging(|| unsafe { function(object.as_ptr()) });
    // SAFETY: the function gives a new reference to an iterator, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(object.py(), iterator).map(|iterator| iterator.cast_into_unchecked()) }
}

/// What an iterator gives next.
///
/// # Errors
/// What it raises.
pub fn next<'py>(iterator: &Bound<'py, PyIterator>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = iterator.py();
    let function = unrecognized(&NEXT);
    // SAFETY: attached, and it is an iterator, which is alive.
    let item = hanging(|| unsafe { function(iterator.as_ptr()) });
    // SAFETY: the function gives a new reference, or null: with an exception set, or none at the end.
    match unsafe { Bound::from_owned_ptr_or_opt(py, item) } {
        Some(item) => Ok(Some(item)),
        None => PyErr::take(py).map_or(Ok(None), Err),
    }
}
