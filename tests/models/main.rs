//! The pump as a whole under shuttle: the real loop thread, links, lane and crew between a scripted network and
//! applications without an interpreter, each thread of it a thread of shuttle's, which decides who runs at every atomic
//! and every lock (R10).
//!
//! Where loom tries all interleavings of a few steps, this tries some of many steps: schedules with few but well-placed
//! preemptions (PCT). A lost wake is a deadlock, which shuttle reports; what clients receive is compared to the byte. What
//! shuttle cannot see is a fence that is missing: that is loom's (`src/handoff/loom_tests.rs`).
//!
//! Runs with `cargo test -p m0serve --no-default-features --features shuttle --profile ci --test models`. `M0_ITERATIONS` is
//! how many schedules each test tries. One that fails prints its schedule: `M0_SCHEDULE` replays it.

// R10 is about what serves; these tests own their files and descriptors.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod application;
mod baton;
mod client;
mod network;
#[allow(dead_code)]
#[path = "../engine/peer.rs"]
mod peer;
mod pump;
#[allow(dead_code)] // what other tests script
#[path = "../engine/script.rs"]
mod script;

use shuttle::scheduler::PctScheduler;
use shuttle::{Config, MaxSteps, Runner};

/// Schedules of a test, unless `M0_ITERATIONS` says otherwise.
const ITERATIONS: usize = 3000;
/// Preemptions that a schedule has, beside those where a thread waits.
const DEPTH: usize = 5;
/// More steps than this are a server that does not come to an end.
const STEPS: usize = 200_000;

/// Tries a scenario under many schedules, or the one that is to be replayed.
fn check(scenario: impl Fn() + Send + Sync + 'static) {
    if let Ok(schedule) = std::env::var("M0_SCHEDULE") {
        return shuttle::replay(scenario, &schedule);
    }
    let iterations = std::env::var("M0_ITERATIONS").map_or(ITERATIONS, |text| text.parse().expect("a number"));
    let mut config = Config::new();
    config.stack_size = 512 * 1024;
    config.max_steps = MaxSteps::FailAfter(STEPS);
    config.silence_warnings = true;
    Runner::new(PctScheduler::new(DEPTH, iterations), config).run(scenario);
}
