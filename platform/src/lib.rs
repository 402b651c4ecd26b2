//! Sockets as completions, over io_uring, epoll and kqueue.
//!
//! This crate owns descriptors, kernel queues, wakers, the clock and the sync primitives of the handoff. It knows
//! nothing of HTTP or Python. The engine asks for accepts, receives, sends, file sends and closes; [`Backend::wait`]
//! gathers what happened, and [`Backend::next`] hands it over one [`Completion`] at a time.
//!
//! Rules kept here: R1 (`wait(0)` never blocks and submits what is queued), R3 (every token carries a generation),
//! R4 (a slot is reused only after its last completion), R5 (parking and waking), R9 (descriptors and buffers are all
//! given back), R10 (clock, threads, atomics and sockets are reached through this crate).

#![deny(unsafe_op_in_unsafe_fn)]
// R10: this crate is where the rest of the workspace is sent to for clocks, threads and sockets.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod activity;
mod backend;
pub mod canary;
pub mod clock;
#[cfg(not(feature = "modelled"))]
mod foreign;
#[cfg(all(
    not(feature = "modelled"),
    any(not(target_os = "linux"), feature = "emulated-kqueue")
))]
mod kevent;
#[cfg(not(feature = "modelled"))]
mod listener;
#[cfg(not(feature = "modelled"))]
mod out;
#[cfg(not(feature = "modelled"))]
mod probe;
#[cfg(not(feature = "modelled"))]
mod readiness;
mod sleep;
#[cfg(not(feature = "modelled"))]
mod slots;
pub mod sync;
#[cfg(not(feature = "modelled"))]
mod sys;
pub mod thread;
#[cfg(all(not(feature = "modelled"), target_os = "linux"))]
mod uring;
mod waker;

pub use activity::Activity;
pub use backend::{Backend, Choice, Chunk, Completion, EndOfReceive, Interest, Kind, ListenerId, SendBuf, Token};
pub use clock::{Clock, Hand, Instant};
#[cfg(not(feature = "modelled"))]
pub use probe::{Availability, Options, Refused, Resolved, available, open};
pub use sleep::Sleeper;
pub use waker::Waker;
