//! The contract suite over the simulated kernel: the tests of `platform/tests/contract/`, so that what the simulator
//! gives the engine is what real backends give it.

#![allow(missing_docs, clippy::disallowed_methods, clippy::disallowed_types)]

mod site;
#[path = "../../../../platform/tests/contract/suite.rs"]
mod suite;

use suite::rig;

/// What a world cannot express, and why.
const NOT_HERE: &[(&str, &[&str])] = &[
    (
        "a world has no descriptors but its own connections, so none that an event loop could watch",
        &[
            "foreign::level_triggered",
            "foreign::ends_a_long_wait",
            "foreign::modify",
            "foreign::unwatch_before_delivery",
            "foreign::hang_up",
            "foreign::closed_behind_our_back",
            "foreign::refused",
            "foreign::closed_behind_our_back_and_accepted",
            "foreign::many_at_once",
            "waiting::with_a_foreign_descriptor_that_stays_ready",
        ],
    ),
    (
        "no event loop outside of a world waits for it by a descriptor",
        &[
            "polling::connections_and_large_transfers",
            "polling::foreign_descriptors",
            "polling::wakes",
        ],
    ),
    (
        "its connections are no sockets, which could have options",
        &["accepting::options_of_accepted_sockets"],
    ),
    (
        "its clients are all on a network, where a reset is heard",
        &["closing::with_a_reset_of_a_unix_socket"],
    ),
];

/// Tests of this binary run beside each other.
fn guard() -> impl Sized {}

/// What is skipped is skipped by its name: each of them is that of a test.
#[test]
fn what_is_not_here_is_in_the_suite() {
    let suite = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../platform/tests/contract");
    for name in NOT_HERE.iter().flat_map(|(_, names)| *names) {
        let (module, test) = name.split_once("::").expect("a module and a test");
        let source = std::fs::read_to_string(suite.join(module).with_extension("rs")).expect("a module of the suite");
        assert!(
            source.contains(&format!("    fn {test}(rig) {{")),
            "no test is called {name}"
        );
    }
}
