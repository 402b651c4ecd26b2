//! What the fuzz targets check, without libFuzzer: each target is an input that `arbitrary` makes of bytes, and a `check`
//! that panics when the server breaks a rule on it.
//!
//! The fuzz crate is built around this, and `tests/fuzz_corpus.rs` of the main crate replays the committed corpus with it.

pub mod chunked;
pub mod connection;
pub mod reference;
pub mod request;
pub mod wire;

#[path = "../../engine/peer.rs"]
#[allow(missing_docs, clippy::missing_panics_doc)]
pub mod peer;
#[path = "../../engine/rig.rs"]
#[allow(missing_docs, clippy::missing_panics_doc)]
pub mod rig;
#[path = "../../engine/script.rs"]
#[allow(missing_docs, clippy::missing_panics_doc)]
pub mod script;
