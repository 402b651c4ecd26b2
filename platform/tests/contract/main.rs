//! What every backend must do, test by test. This suite is the specification of [`m0_platform::Backend`].
//!
//! Each test runs on every backend; its name says on which (`receiving::pause_keeps_everything::io_uring`). One that
//! this machine does not have is skipped with a line on stderr. The fourth backend is the simulator's: the same tests run
//! on it in `tests/sim/tests/contract/`, since nothing here can know it.

#![allow(missing_docs, clippy::disallowed_methods)]

mod site;
// By its path, so that its own modules are found beside it from wherever it is read.
#[path = "suite.rs"]
mod suite;

use suite::rig;

/// Tests of this binary run beside each other.
fn guard() -> impl Sized {}
