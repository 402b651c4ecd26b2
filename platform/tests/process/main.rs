//! What concerns the whole process: descriptors, limits, signals, forks, seccomp. One test at a time, in a binary of its
//! own, so that none sees another's descriptors.

#![allow(missing_docs, clippy::disallowed_methods)]

#[cfg(target_os = "linux")]
mod child;
#[cfg(target_os = "linux")]
mod limits;
#[cfg(target_os = "linux")]
mod probing;
#[allow(dead_code)]
#[path = "../contract/rig.rs"]
mod rig;
#[cfg(target_os = "linux")]
mod signals;
#[allow(dead_code)]
#[path = "../contract/site.rs"]
mod site;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held by every test of this binary.
fn guard() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
