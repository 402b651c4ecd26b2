//! Parts of the benchmarks that run without an interpreter: a scripted backend and a scripted host around the engine.
//!
//! Owns no sockets. What runs between the two scripts is what serves in production: decoder, engine, link (R2, R4, R9
//! are checked at the end of a replay).

#![forbid(unsafe_code)]
// R10 is about what serves; a bench reads files and counts as it likes.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod host;
pub mod scripted;
