//! m0serve: serves Python web applications from a native event loop.
//!
//! A request's way through the tree: `engine` turns bytes into jobs (with `http1`), `handoff` carries them to a `host`,
//! the host calls the application and its frames come back the same way. `model` says which thread runs what, `python`
//! is the skin that the package's Python side holds.

#![deny(unsafe_op_in_unsafe_fn)]

pub mod config;
pub mod doctor;
pub mod engine;
pub mod forwarded;
pub mod handoff;
pub mod host;
pub mod http1;
pub mod log;
pub mod model;
#[cfg(feature = "python")]
mod python;
#[cfg(feature = "python")]
mod python_config;
