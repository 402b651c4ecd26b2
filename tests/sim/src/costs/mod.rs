//! What the two models cost on a machine that a profile describes: the real engine, links and loop thread, with virtual
//! time for each thing that a machine would take time for. The same figures each time, on any machine.
//!
//! Owns no faults: clients keep so many connections busy, each with the next request as soon as it has its answer. See
//! `docs/notes/simulator.md` for what follows from the figures, and what does not.

mod calibrate;
mod machine;
mod profile;
mod run;
mod table;

pub use calibrate::calibrate;
pub use profile::{MAC, Profile, VIRTUAL};
pub use run::{Figures, measure};
pub use table::{as_json, print_tables};
