//! What every backend must do, test by test. This suite is the specification of [`m0_platform::Backend`].
//!
//! Each test runs on every backend; its name says on which (`receiving::pause_keeps_everything::io_uring`). One that
//! this machine does not have is skipped with a line on stderr.

#![allow(missing_docs, clippy::disallowed_methods)]

mod accepting;
mod closing;
mod exhaustion;
mod files;
mod foreign;
mod polling;
mod receiving;
mod rig;
mod sending;
mod waiting;
mod waking;

/// Tests of this binary run beside each other.
fn guard() -> impl Sized {}
