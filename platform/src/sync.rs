//! The atomics, locks and cells of everything that crosses threads, and the threads themselves (R10): the standard
//! library's, loom's with the feature `loom`, shuttle's with `shuttle`. It is chosen here and nowhere else.
//!
//! Code that is checked by loom or shuttle takes its primitives from here. Only what all sides offer is re-exported, so a
//! protocol that compiles against this module can be modelled without an edit.

#[cfg(all(feature = "loom", feature = "shuttle"))]
compile_error!("the features loom and shuttle exclude each other");

#[cfg(feature = "loom")]
use loom as origin;
#[cfg(feature = "shuttle")]
use shuttle as origin;
#[cfg(not(feature = "modelled"))]
use std as origin;

pub use origin::sync::{Arc, Condvar, Mutex, MutexGuard};

pub(crate) use origin::thread;

/// Atomics.
pub mod atomic {
    pub use super::origin::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
}

/// Cells whose accesses loom can see.
pub mod cell {
    #[cfg(feature = "loom")]
    pub use loom::cell::UnsafeCell;

    /// `std::cell::UnsafeCell` with loom's interface: the pointer is lent to a closure, so that loom can check that no
    /// write overlaps another access.
    #[cfg(not(feature = "loom"))]
    #[derive(Debug, Default)]
    pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    #[cfg(not(feature = "loom"))]
    impl<T> UnsafeCell<T> {
        /// A cell that holds `value`.
        #[inline]
        pub const fn new(value: T) -> UnsafeCell<T> {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        /// Lends the pointer for reading. Whoever dereferences it answers for there being no writer.
        #[inline]
        pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        /// Lends the pointer for writing. Whoever dereferences it answers for there being no other access.
        #[inline]
        pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }

        /// The value, from its only owner.
        #[inline]
        pub fn into_inner(self) -> T {
            self.0.into_inner()
        }
    }
}

/// Busy waiting; a model turns it into a scheduling point.
pub mod hint {
    pub use super::origin::hint::spin_loop;
}
