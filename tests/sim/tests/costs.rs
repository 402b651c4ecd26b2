//! The costs of a machine give the same figures each time, each of them is booked, and the two models differ as the record of
//! the original says they do.

use m0_sim::costs::{Cost, Handoff, MAC, Profile, RECORD, VIRTUAL, breakdown, figures, record};
use m0_sim::plan::Model;

const HANDOFFS: [Handoff; 2] = [Handoff::Memory, Handoff::Datagrams];

/// Answers of a cell, which are enough to tell the models apart.
const ANSWERS: usize = 4_000;

/// Requests a second of the inversion for each of the pump.
fn ratio(profile: Profile, handoff: Handoff, cpus: usize, connections: usize) -> f64 {
    let rate = |model| figures(profile, handoff, model, connections, cpus, ANSWERS).rate;
    rate(Model::Inverted) / rate(Model::Pump)
}

#[test]
fn figures_are_the_same_each_time() {
    for handoff in HANDOFFS {
        let first = figures(VIRTUAL, handoff, Model::Pump, 256, 2, ANSWERS);
        assert_eq!(figures(VIRTUAL, handoff, Model::Pump, 256, 2, ANSWERS), first);
        assert!(first.cores > 1.2 && first.p50 <= first.p99, "{first:?}");
    }
}

/// The seven cells of the record: one usable CPU favours the inversion, several the pump, but where few connections leave the
/// threads asleep and waking them is dear.
#[test]
fn each_model_wins_where_the_record_says() {
    let mut near = 0;
    for (profile, connections, cpus, said) in RECORD {
        let simulated = ratio(profile, Handoff::Datagrams, cpus, connections);
        let name = profile.name;
        assert_eq!(
            simulated > 1.0,
            said > 1.0,
            "{name}, {cpus} × {connections}: {simulated}"
        );
        near += u32::from((simulated / said - 1.0).abs() <= 0.2);
    }
    assert!(near >= 5, "{near} of seven are within a fifth");
}

/// By rings the loop answers while the application goes on, and does not wait for it to have done all of its part: the two
/// cells of a virtual machine that the record has even are the pump's, although waking a thread takes as long.
#[test]
fn by_rings_the_pump_wins_wherever_it_has_a_second_cpu() {
    for (profile, connections, cpus, _) in RECORD {
        let simulated = ratio(profile, Handoff::Memory, cpus, connections);
        let name = profile.name;
        assert_eq!(
            simulated > 1.0,
            cpus == 1,
            "{name}, {cpus} × {connections}: {simulated}"
        );
    }
}

/// The two machines differ in much, but only in one thing that decides which model is ahead.
#[test]
fn by_datagrams_at_few_connections_waking_a_thread_decides_on_either_machine() {
    for profile in [VIRTUAL, MAC] {
        let if_waking_took = |both| ratio(profile.with_wake(both), Handoff::Datagrams, 2, 16);
        assert!(if_waking_took(MAC.bell + MAC.wake) < 0.9, "{}", profile.name);
        assert!(if_waking_took(VIRTUAL.bell + VIRTUAL.wake) > 1.1, "{}", profile.name);
    }
}

#[test]
fn what_is_booked_is_all_that_was_spent() {
    for (handoff, model, cpus) in [
        (Handoff::Memory, Model::Inverted, 2),
        (Handoff::Memory, Model::Pump, 1),
        (Handoff::Memory, Model::Pump, 2),
        (Handoff::Datagrams, Model::Pump, 1),
        (Handoff::Datagrams, Model::Pump, 2),
    ] {
        let figures = figures(VIRTUAL, handoff, model, 16, cpus, ANSWERS);
        let answers = figures.answers as f64;
        let [at_loop, other] = figures.spent;
        let time = answers * 1e9 / figures.rate;
        assert!(
            (at_loop.total() as f64 - time).abs() < 1.0,
            "the loop's time is the cell's"
        );
        let busy = at_loop.busy() + other.busy();
        assert!((busy as f64 - figures.cores * time).abs() < 1.0);
        assert!(cpus > 1 || busy <= at_loop.total(), "one CPU is one CPU");
        // Each request is received, answered and sent once, but for those under way at either end.
        let [receive, app, send] = [Cost::Receive, Cost::App, Cost::Send].map(|cost| at_loop.of(cost) + other.of(cost));
        for (spent, each) in [(receive, VIRTUAL.receive), (app, VIRTUAL.app), (send, VIRTUAL.send)] {
            assert!(
                (spent as f64 / each as f64 - answers).abs() <= 16.0,
                "{handoff:?}, {model:?}: {spent}"
            );
        }
        let rings = at_loop.of(Cost::Cross) + at_loop.of(Cost::Bell);
        let datagrams = at_loop.of(Cost::Datagram) + at_loop.of(Cost::Sweep);
        match (model, handoff) {
            (Model::Inverted, _) => assert_eq!((rings, datagrams), (0, 0), "there is nobody to hand over to"),
            (Model::Pump, Handoff::Memory) => assert!(rings > 0 && datagrams == 0),
            (Model::Pump, Handoff::Datagrams) => assert!(at_loop.of(Cost::Cross) == 0 && datagrams > 0),
        }
    }
}

/// What stands after `<!-- sim --costs ... -->` in a document, up to the next empty line.
fn quoted<'a>(document: &'a str, form: &str) -> Vec<&'a str> {
    let (_, rest) = document
        .split_once(&format!("<!-- sim --costs {form} -->\n"))
        .expect("a quotation");
    let lines = rest.lines().take_while(|line| !line.is_empty());
    lines.filter(|line| !line.starts_with("```")).collect()
}

#[test]
fn documents_quote_what_the_simulator_says() {
    let platforms = include_str!("../../../docs/platforms.md");
    let note = include_str!("../../../docs/notes/simulator.md");
    let record = record();
    for document in [platforms, note] {
        assert_eq!(quoted(document, "--record"), record.lines().collect::<Vec<_>>());
    }
    let breakdown = breakdown();
    let lines = quoted(note, "--breakdown");
    assert!(lines.len() > 10);
    for line in lines {
        assert!(breakdown.lines().any(|said| said == line), "{line}");
    }
}
