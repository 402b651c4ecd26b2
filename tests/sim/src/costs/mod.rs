//! What the two models cost on a machine that a profile describes: the real engine, links and loop thread, with virtual
//! time for each thing that a machine would take time for. The same figures each time, on any machine.
//!
//! Owns no faults: clients keep so many connections busy, each with the next request as soon as it has its answer. See
//! `docs/notes/simulator.md` for what follows from the figures, and what does not.

mod asyncio;
mod calibrate;
mod clients;
mod ledger;
mod machine;
mod profile;
mod run;
mod table;

pub use calibrate::calibrate;
pub use ledger::{Cost, Ledger};
pub use profile::{Handoff, MAC, Profile, VIRTUAL};
pub use run::Figures;
pub use table::{RECORD, as_json, breakdown, figures, record, tables, wakes};
