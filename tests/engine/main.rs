//! The engine against a scripted network, a scripted host and a clock that stands still.
//!
//! Each test ends with [`rig::Rig::over`], which proves that nothing is left (R9).

// R10 is about what serves; these tests own their files and descriptors.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod ending;
mod faults;
mod identity;
mod lingering;
mod mounts;
mod peer;
mod requests;
mod responses;
mod rig;
mod script;
mod split;
mod timers;
mod walk;
mod windows;
