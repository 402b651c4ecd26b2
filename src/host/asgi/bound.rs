//! A value that only one thread may touch, inside a Python object that any thread may hold.

use std::cell::{RefCell, RefMut};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

thread_local! {
    static HERE: u8 = const { 0 };
}

/// Tells threads apart: the address of a thread-local. An address is reused only by a later thread, after this one
/// ended, and the event loop's thread does not end before its objects are of no more use.
fn here() -> usize {
    HERE.with(|word| std::ptr::from_ref(word) as usize)
}

/// The value, and the thread it belongs to.
pub struct ThreadBound<T> {
    owner: usize,
    value: RefCell<T>,
}

// SAFETY: every access goes through `get`, which refuses all threads but the owner. A drop on another thread is
// possible (a traceback that holds the object may be freed there): it happens once, with the interpreter attached, and
// T: Send is required for it.
unsafe impl<T: Send> Send for ThreadBound<T> {}
// SAFETY: as above: a shared reference gives access on the owner's thread only.
unsafe impl<T: Send> Sync for ThreadBound<T> {}

impl<T> ThreadBound<T> {
    /// Binds a value to the calling thread.
    pub fn new(value: T) -> Self {
        ThreadBound {
            owner: here(),
            value: RefCell::new(value),
        }
    }

    /// Whether this is its thread.
    pub fn is_here(&self) -> bool {
        self.owner == here()
    }

    /// The value, on its own thread. Must not be held across a call into Python, which could come back here.
    ///
    /// # Errors
    /// RuntimeError on another thread, or when it is in use.
    #[inline]
    pub fn get(&self) -> PyResult<RefMut<'_, T>> {
        if !self.is_here() {
            return Err(PyRuntimeError::new_err(
                "this ASGI callable belongs to the event loop's thread",
            ));
        }
        self.value
            .try_borrow_mut()
            .map_err(|_| PyRuntimeError::new_err("the server is in the middle of a turn"))
    }
}
