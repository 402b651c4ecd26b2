//! The table of exchanges: one request and its response each.
//!
//! A slot has two holders: the connection (until the response is complete and the request read, or the connection is
//! gone) and the host (until its `Released`). It is reused when both have let go (R4), under the next generation (R3).

use std::net::SocketAddr;

use m0_platform::{Token, canary};

use crate::handoff::{ExchangeId, Version};
use crate::http1::BodyMode;

/// Whether the client waits for `100 Continue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// It does not.
    Nothing,
    /// It does, and has not got it.
    Waiting,
    /// It has got it.
    Sent,
}

/// How far the response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    /// No head yet.
    NotStarted,
    /// The head is out; the body is framed like this, with so many bytes to go when its length is known.
    Body(BodyMode, u64),
    /// All of it is queued.
    Complete,
}

/// What is known of a request that is refused before the host has heard of it.
#[derive(Debug, Default)]
pub struct Untold {
    /// Its line for the access log, if there is one.
    pub line: Option<Box<RequestLine>>,
    /// It was HEAD: its refusal has no body.
    pub is_head: bool,
}

/// What the access log says of a request.
#[derive(Debug)]
pub struct RequestLine {
    /// Where it comes from: the peer, or whom a trusted proxy names.
    pub source: Option<SocketAddr>,
    /// Method.
    pub method: Vec<u8>,
    /// Path and query.
    pub target: Vec<u8>,
    /// `1.0` or `1.1`.
    pub version: &'static str,
}

/// One exchange.
#[derive(Debug)]
pub struct Exchange {
    generation: u32,
    /// The connection it came on.
    pub conn: Token,
    /// The connection still works on it.
    pub attached: bool,
    /// The host has not released it.
    host_open: bool,
    /// The method is HEAD.
    pub is_head: bool,
    /// The request's version.
    pub version: Version,
    /// The connection may go on after it.
    pub keep_alive: bool,
    /// 100-continue.
    pub expect: Expect,
    /// The request has been read to its end.
    pub request_done: bool,
    /// The request will never be complete.
    pub request_aborted: bool,
    /// The host has been told that the peer has finished.
    pub finish_said: bool,
    /// Body bytes that the host is ready to take; below zero by at most one chunk.
    pub credit: i64,
    /// Body bytes thrown away because the response was complete already.
    pub discarded: usize,
    /// How far the response is.
    pub response: Response,
    /// Status, for the access log.
    pub status: u16,
    /// Method, target and version, for the access log when there is one.
    pub line: Option<Box<RequestLine>>,
}

/// All exchanges of an engine.
#[derive(Debug, Default)]
pub struct Exchanges {
    slots: Vec<Exchange>,
    free: Vec<u32>,
}

impl Exchanges {
    /// Opens one, held by both sides.
    pub fn open(&mut self, mut exchange: Exchange) -> ExchangeId {
        exchange.attached = true;
        exchange.host_open = true;
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            exchange.generation = slot.generation.wrapping_add(1);
            *slot = exchange;
            return ExchangeId {
                index,
                generation: slot.generation,
            };
        }
        let index = u32::try_from(self.slots.len()).expect("fewer exchanges than fit an index");
        exchange.generation = 0;
        self.slots.push(exchange);
        ExchangeId { index, generation: 0 }
    }

    /// The exchange of that name, unless it is over (R3).
    pub fn get(&mut self, id: ExchangeId) -> Option<&mut Exchange> {
        let exchange = self.slots.get_mut(id.index as usize)?;
        let same = exchange.generation == id.generation || canary!("r3-any-exchange");
        let current = same && (exchange.attached || exchange.host_open);
        current.then_some(exchange)
    }

    /// The connection lets go.
    pub fn detach(&mut self, id: ExchangeId) {
        let exchange = self.get(id).expect("a connection holds an exchange that is open");
        assert!(exchange.attached, "an exchange is detached once");
        exchange.attached = false;
        if !exchange.host_open || canary!("r4-early-reuse") {
            self.free.push(id.index);
        }
    }

    /// The host lets go. A second release is a host's defect and does nothing.
    pub fn release(&mut self, id: ExchangeId) {
        let Some(exchange) = self.get(id) else { return };
        if !exchange.host_open {
            return;
        }
        exchange.host_open = false;
        if !exchange.attached {
            self.free.push(id.index);
        }
    }

    /// Slots in use (R9).
    pub fn in_use(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl Exchange {
    /// A new exchange of a connection. Its generation is set by [`Exchanges::open`].
    pub fn new(conn: Token, version: Version, keep_alive: bool) -> Self {
        Exchange {
            generation: 0,
            conn,
            attached: true,
            host_open: true,
            is_head: false,
            version,
            keep_alive,
            expect: Expect::Nothing,
            request_done: false,
            request_aborted: false,
            finish_said: false,
            credit: i64::from(crate::handoff::WINDOW),
            discarded: 0,
            response: Response::NotStarted,
            status: 0,
            line: None,
        }
    }

    /// Whether the response has begun and only the connection's end would show its own (RFC 9112, 6.3).
    pub fn ends_by_closing(&self) -> bool {
        matches!(self.response, Response::Body(BodyMode::UntilClose, _))
    }
}

#[cfg(all(test, not(feature = "modelled")))]
mod tests {
    use super::*;

    fn exchange() -> Exchange {
        Exchange::new(
            Token {
                index: 0,
                generation: 0,
            },
            Version::Http11,
            true,
        )
    }

    #[test]
    fn a_slot_is_reused_only_when_both_sides_let_go() {
        let mut table = Exchanges::default();
        let first = table.open(exchange());
        table.detach(first);
        let second = table.open(exchange());
        assert_ne!(first.index, second.index, "the host still holds the first");
        table.release(first);
        assert!(table.get(first).is_none());
        let third = table.open(exchange());
        assert_eq!(third.index, first.index);
        assert_ne!(third.generation, first.generation);
        assert!(table.get(first).is_none(), "an older generation names nothing");
        table.release(first);
        assert!(table.get(third).is_some());
        assert_eq!(table.in_use(), 2);
    }

    #[test]
    fn a_second_release_frees_nothing_twice() {
        let mut table = Exchanges::default();
        let id = table.open(exchange());
        table.release(id);
        table.release(id);
        table.detach(id);
        assert_eq!(table.in_use(), 0);
        assert_eq!(table.free.len(), 1);
    }
}
