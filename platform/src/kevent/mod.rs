//! `kevent(2)` as `readiness/kqueue.rs` calls it: the kernel's, or on Linux an emulation with the same names.
//!
//! Both sides have a [`Queue`] (the descriptor and the call), and the structure and flags of `kqueue-sys`. A queue is
//! not inherited by a forked child: there every call gives EBADF, and dropping it closes nothing.

#[cfg(target_os = "linux")]
mod emulated;
#[cfg(not(target_os = "linux"))]
mod native;
#[cfg(test)]
mod tests;

#[cfg(target_os = "linux")]
pub(crate) use emulated::{EventFilter, EventFlag, FilterFlag, NOTE_TRIGGER, Queue, kevent};
#[cfg(not(target_os = "linux"))]
pub(crate) use native::{EventFilter, EventFlag, FilterFlag, NOTE_TRIGGER, Queue, kevent};
