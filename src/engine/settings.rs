//! What an engine is told once, and what it counts.

use std::time::Duration;

use m0_platform::sync::atomic::{AtomicU64, Ordering};

use super::mounts::Mounts;
use crate::forwarded::Trust;
use crate::http1::Limits;

/// Limits and times of an engine. Zero means "no limit" where the field says so.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Sizes of heads and bodies.
    pub limits: Limits,
    /// From the first byte of a head (or the start of a connection) to the head's end.
    pub header_timeout: Duration,
    /// Of inactivity: of a body that we are ready to read, and of a client that does not read.
    pub body_timeout: Duration,
    /// Between requests of a connection.
    pub idle_timeout: Duration,
    /// Connections at once; 0 is no limit. One more is answered 503.
    pub max_connections: usize,
    /// Requests a connection; 0 is no limit.
    pub max_requests: u32,
    /// Whether responses carry `date`.
    pub date: bool,
    /// The `server` field of responses.
    pub server: Option<Vec<u8>>,
    /// Whether a line per response goes to the access log.
    pub access_log: bool,
    /// Whose word the access log takes for where a request comes from.
    pub trust: Trust,
    /// Where applications are mounted.
    pub mounts: Mounts,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            limits: Limits::default(),
            header_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            max_connections: 0,
            max_requests: 0,
            date: true,
            server: Some(b"m0serve".to_vec()),
            access_log: false,
            trust: Trust::default(),
            mounts: Mounts::default(),
        }
    }
}

/// Counters of an engine since its start. Races that are normal are counted here, not logged (R12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections open now.
    pub connections: u64,
    /// Requests handed to a host, or answered 404 where none is mounted.
    pub requests: u64,
    /// Responses completed.
    pub responses: u64,
    /// Requests refused by the engine itself.
    pub refused: u64,
    /// Connections that broke, or were left by the client, with a request in flight.
    pub abandoned: u64,
    /// Connections closed by a time-out of ours.
    pub timed_out: u64,
    /// Exchanges whose slot is in use now.
    pub exchanges: u64,
}

/// Counters as of the last pass, for any thread to read.
#[derive(Debug, Default)]
pub struct SharedStats {
    words: [AtomicU64; 8],
}

impl SharedStats {
    /// Publishes.
    pub fn store(&self, stats: &Stats) {
        let values = [
            stats.accepted,
            stats.connections,
            stats.requests,
            stats.responses,
            stats.refused,
            stats.abandoned,
            stats.timed_out,
            stats.exchanges,
        ];
        for (word, value) in self.words.iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Reads; the counters may be of different passes.
    #[must_use]
    pub fn load(&self) -> Stats {
        let word = |n: usize| self.words[n].load(Ordering::Relaxed);
        Stats {
            accepted: word(0),
            connections: word(1),
            requests: word(2),
            responses: word(3),
            refused: word(4),
            abandoned: word(5),
            timed_out: word(6),
            exchanges: word(7),
        }
    }
}
