//! Replays a recorded request through decoder, engine, link and a scripted host, for callgrind to count.
//!
//! `cost STREAM DELIVERIES [CONNECTIONS [PREFIX...]]`, with applications mounted at / and at each prefix. bench/cost.sh runs it twice, with N and 2N deliveries: the difference is what
//! N requests cost, without the start. Checks what came out, so that a replay cannot become cheap by failing (R8, R9).

#![forbid(unsafe_code)]

use std::process::ExitCode;

use m0_bench::host::Host;
use m0_bench::scripted::Scripted;
use m0_platform::Clock;
use m0serve::config::LogLevel;
use m0serve::engine::{Engine, Mounts, Settings};
use m0serve::log::Logger;

const CONNECTIONS: u32 = 16;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (Some(stream), Some(Ok(deliveries))) = (arguments.first(), arguments.get(1).map(|text| text.parse())) else {
        eprintln!("usage: cost STREAM DELIVERIES [CONNECTIONS [PREFIX...]]");
        return ExitCode::from(2);
    };
    let connections = arguments
        .get(2)
        .and_then(|text| text.parse().ok())
        .unwrap_or(CONNECTIONS);
    let prefixes = arguments.iter().skip(3).map(String::as_str);
    let mounts = Mounts::new(std::iter::once("").chain(prefixes));
    match replay(stream, deliveries, connections, mounts) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn replay(stream: &str, deliveries: u64, connections: u32, mounts: Mounts) -> Result<String, String> {
    let recorded = std::fs::read(stream).map_err(|error| format!("{stream}: {error}"))?;
    let (scripted, gauge) = Scripted::new(recorded, connections, deliveries).map_err(|error| error.to_string())?;
    let clock = Clock::new();
    let log = Logger::new(LogLevel::Warn, false, clock.clone());
    let settings = Settings {
        mounts,
        ..Settings::default()
    };
    let mut host = Host::new(Engine::new(Box::new(scripted), settings, clock, log));
    let tally = host.run().map_err(|error| error.to_string())?;
    let progress = gauge.read();
    if progress.delivered != deliveries || tally.requests != deliveries {
        return Err(format!(
            "{} delivered, {} answered of {deliveries}",
            progress.delivered, tally.requests
        ));
    }
    if host.exchanges() != 0 {
        return Err(format!("{} exchanges are still in use", host.exchanges()));
    }
    Ok(format!(
        "{} requests, {} sends, {} bytes sent, {} body bytes, {} turns",
        tally.requests, progress.sends, progress.sent_bytes, tally.body_bytes, tally.turns
    ))
}
