//! The replay behind `make cost` answers every request of every recorded stream, and leaves nothing behind (R8, R9).

use std::path::Path;

use m0_bench::host::{Host, Tally};
use m0_bench::scripted::{Progress, Scripted};
use m0_platform::Clock;
use m0serve::config::LogLevel;
use m0serve::engine::{Engine, Settings};
use m0serve::log::Logger;

const DELIVERIES: u64 = 100;

fn replay(recorded: Vec<u8>, connections: u32) -> (Tally, Progress, u64) {
    let (scripted, gauge) = Scripted::new(recorded, connections, DELIVERIES).expect("a backend in memory");
    let clock = Clock::new();
    let log = Logger::new(LogLevel::Error, false, clock.clone());
    let mut host = Host::new(Engine::new(Box::new(scripted), Settings::default(), clock, log));
    let tally = host.run().expect("the scripted wait does not fail");
    (tally, gauge.read(), host.exchanges())
}

/// Body bytes of one request of a recorded stream.
fn body_of(name: &str) -> u64 {
    match name {
        "api-post" => 1001,
        "chunked-post" => 901,
        _ => 0,
    }
}

#[test]
fn every_stream_is_answered() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("streams");
    let mut streams = 0;
    for entry in std::fs::read_dir(folder).expect("the streams are in the repository") {
        let path = entry.expect("a readable folder").path();
        let name = path.file_stem().expect("a file").to_string_lossy().into_owned();
        for connections in [1, 16, 256] {
            let recorded = std::fs::read(&path).expect("a readable file");
            let (tally, progress, exchanges) = replay(recorded, connections);
            assert_eq!(tally.requests, DELIVERIES, "{name} on {connections}");
            assert_eq!(tally.body_bytes, DELIVERIES * body_of(&name), "{name} on {connections}");
            assert_eq!(
                (progress.delivered, progress.sends),
                (DELIVERIES, DELIVERIES),
                "{name} on {connections}"
            );
            assert_eq!(exchanges, 0, "{name} on {connections}");
        }
        streams += 1;
    }
    assert_eq!(streams, 4, "streams in bench/streams");
}

#[test]
fn pipelined_requests_are_each_answered() {
    let two = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(2);
    let (tally, progress, exchanges) = replay(two, 1);
    assert_eq!((tally.requests, exchanges), (2 * DELIVERIES, 0));
    assert_eq!(progress.delivered, DELIVERIES);
}
