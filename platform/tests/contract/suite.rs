//! The tests, for whatever `crate::site` opens.

mod accepting;
mod closing;
mod exhaustion;
mod files;
mod foreign;
mod polling;
mod receiving;
pub mod rig;
mod sending;
mod waiting;
mod waking;
