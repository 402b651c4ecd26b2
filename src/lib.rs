//! m0serve: serves Python web applications from a native event loop.

#![deny(unsafe_op_in_unsafe_fn)]

pub mod handoff;
