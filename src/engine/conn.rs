//! One connection: where it is in its life, and what it wants from the backend next.
//!
//! Handlers of events only change this state; [`super::Engine`] then brings the backend in line with it (send, receive
//! or pause, shut down, close), so no handler needs the backend and every state has one place that acts on it.

use std::net::SocketAddr;

use m0_platform::{Token, canary};

use super::output::Output;
use super::timers::NEVER;
use crate::handoff::ExchangeId;
use crate::http1::{Limits, RequestDecoder};

/// Bytes of further requests that are kept while one is being answered; past it the socket is not read.
pub const PENDING_LIMIT: usize = 32 * 1024;

/// Bytes that are read and thrown away of a connection on which nothing further is served.
pub const LINGER_LIMIT: u64 = 256 * 1024 * 1024;

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Requests are read and answered.
    Open,
    /// No further request is served: what is queued goes out, then it closes, or lingers first.
    Flush {
        /// Input may still be on its way: closing at once would reset the connection and could destroy the answer.
        linger: bool,
    },
    /// FIN is sent (of a response that was cut short: nothing is, a reset follows); input is thrown away until the peer's
    /// FIN, or until its time or [`LINGER_LIMIT`] is used up.
    Linger,
    /// Handed to the backend to close; only its `Closed` is awaited.
    Closed,
}

/// Which time-out runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// None: we are the ones to act.
    Off,
    /// A connection without a byte yet.
    Fresh,
    /// Between requests.
    Idle,
    /// A head has begun.
    Head,
    /// Body bytes are awaited.
    Body,
    /// The client does not take what is sent.
    Write,
    /// The rest of a request that is answered already is awaited.
    Discard,
    /// FIN is sent, the peer's is awaited.
    Linger,
}

/// One connection.
#[derive(Debug)]
pub struct Conn {
    /// Its name at the backend.
    pub token: Token,
    /// The peer's address.
    pub peer: Option<SocketAddr>,
    /// Our address.
    pub local: Option<SocketAddr>,
    /// Finds requests in what comes in.
    pub decoder: RequestDecoder,
    /// Input that has not been decoded: further requests while one is answered.
    pub pending: Vec<u8>,
    /// The exchange it works on.
    pub exchange: Option<ExchangeId>,
    /// What is to be sent.
    pub output: Output,
    /// Where it is in its life.
    pub phase: Phase,
    /// It has one of the places that `max_connections` allows.
    pub admitted: bool,
    /// Requests served.
    pub served: u32,
    /// Bytes that were thrown away since nothing further is served.
    pub thrown_away: u64,
    /// The backend receives for it.
    pub receiving: bool,
    /// The peer has finished sending, or the connection is broken.
    pub input_over: bool,
    /// A response was cut short, and only the close would show its end or what was queued of it is dropped: the
    /// connection ends with a reset.
    pub cut: bool,
    /// The backend has been told to close it.
    pub close_said: bool,
    /// It waits in the engine's list of connections to settle.
    pub dirty: bool,
    /// Which time-out runs, and until which tick.
    pub timer: Timer,
    /// The tick at which it is over.
    pub deadline: u64,
    /// The tick at which the wheel looks at it next.
    pub filed: u64,
    /// The time-out starts anew although its kind is the same (bytes moved).
    pub touched: bool,
    /// The backend's count of progress when the write time-out was last looked at.
    pub progress: u64,
}

impl Conn {
    /// A connection that was just accepted.
    pub fn new(token: Token, peer: Option<SocketAddr>, local: Option<SocketAddr>, limits: &Limits) -> Self {
        Conn {
            token,
            peer,
            local,
            decoder: RequestDecoder::new(limits),
            pending: Vec::new(),
            exchange: None,
            output: Output::default(),
            phase: Phase::Open,
            admitted: false,
            served: 0,
            thrown_away: 0,
            receiving: false,
            input_over: false,
            cut: false,
            close_said: false,
            dirty: false,
            timer: Timer::Off,
            deadline: NEVER,
            filed: NEVER,
            touched: false,
            progress: 0,
        }
    }

    /// Whether the next request may be looked for.
    pub fn may_start(&self) -> bool {
        self.phase == Phase::Open && self.exchange.is_none() && !self.output.is_high()
    }

    /// Whether it is open, works on nothing and has not begun to receive a request.
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Open && self.exchange.is_none() && self.pending.is_empty() && !self.decoder.in_head()
    }

    /// Leaves the open phase: what is queued goes out, nothing further is served. The client need not have heard of that:
    /// a request of its that finds the socket closed would be answered by a reset, and take with it what the client has
    /// not read yet. So what still comes is read and thrown away for a while (RFC 9112, 9.6).
    pub fn finish(&mut self) {
        self.leave_open(!canary!("r8-closes-at-once"));
    }

    /// The same where nothing that was said can be on its way still: then it closes at once.
    pub fn finish_at_once(&mut self) {
        self.leave_open(false);
    }

    fn leave_open(&mut self, linger: bool) {
        if self.phase == Phase::Open {
            self.phase = Phase::Flush { linger };
            self.pending = Vec::new();
            self.decoder.forget();
        }
    }

    /// Whether it lingers once its output has left, or may do so for longer.
    pub fn may_linger(&self) -> bool {
        let is_of_use = if self.cut {
            !canary!("r8-reset-overtakes")
        } else {
            !self.input_over
        };
        is_of_use && self.thrown_away < LINGER_LIMIT
    }
}
