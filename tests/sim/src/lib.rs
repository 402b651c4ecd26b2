//! The simulator: the real engine, links and `http1`, between a network and clients that a seed decides and a host
//! without an interpreter, on a clock of its own. `docs/notes/simulator.md` says how to read it.
//!
//! Nothing of it is part of what is shipped.

#![deny(unsafe_code)]
// R10 is about what serves; the simulator owns its files and its one lock.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod backend;
pub mod canaries;
pub mod client;
pub mod costs;
pub mod host;
pub mod kernel;
pub mod lines;
pub mod listener;
pub mod pattern;
pub mod plan;
pub mod random;
pub mod reader;
pub mod run;
pub mod side;
pub mod task;
pub mod wire;
pub mod world;
