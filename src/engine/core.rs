//! The engine without its backend: connections, exchanges, and the jobs that wait for the host.
//!
//! Keeps R3 and R4 for what it holds. Handlers take a connection out of the table while they work on it and note it in
//! `dirty`; nothing here makes a system call.

use std::collections::VecDeque;
use std::net::SocketAddr;

use m0_platform::{Clock, Instant, Token, canary};

use super::conn::{Conn, LINGER_LIMIT, Phase, Timer};
use super::exchange::{Exchanges, Expect, RequestLine, Response, Untold};
use super::output::BufPool;
use super::settings::{Settings, Stats};
use super::timers::{NEVER, Wheel};
use crate::handoff::{Job, Why};
use crate::http1::{self, DateCache};
use crate::log::Logger;

/// What the access log says of a request that got no answer, because its client had gone or the server was ended: the
/// number that nginx uses for it.
const UNANSWERED: u16 = 499;
/// How often a connection with a send in flight is looked at until its time-out.
const LOOKS_AT_A_SEND: u64 = 8;

/// A client's name in the log.
pub struct Who(pub Option<SocketAddr>);

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(peer) => write!(f, "{peer}"),
            None => f.write_str("a client"),
        }
    }
}

/// State of an engine.
#[derive(Debug)]
pub struct Core {
    /// By the token's index.
    pub conns: Vec<Option<Box<Conn>>>,
    /// Requests and their responses.
    pub exchanges: Exchanges,
    /// What the host is to be told, in order (R2). Bounded by the windows of the exchanges (R7).
    pub jobs: VecDeque<Job>,
    /// Connections whose backend must be brought in line.
    pub dirty: Vec<Token>,
    /// Connections that have undecoded input and may go on with it.
    pub again: Vec<Token>,
    /// Spare output buffers.
    pub pool: BufPool,
    /// Deadlines.
    pub wheel: Wheel,
    /// Time.
    pub clock: Clock,
    /// Time as of this pass.
    pub now: Instant,
    /// The wall clock, in seconds, as of this pass or batch of frames.
    pub unix: u64,
    /// The `date` field.
    pub date: DateCache,
    /// Limits and times.
    pub settings: Settings,
    /// Counters.
    pub stats: Stats,
    /// Connections that were not refused at the door, and are open.
    pub admitted: usize,
    /// Descriptors are short until then: none is kept for long by a connection that only lingers.
    pub short_until: Option<Instant>,
    /// No further connection is accepted, and none goes on after its response.
    pub draining: bool,
    /// The log.
    pub log: Logger,
}

impl Core {
    /// An engine's state, with nothing open.
    pub fn new(settings: Settings, clock: Clock, log: Logger) -> Self {
        let (now, unix) = (clock.now(), clock.unix_seconds());
        Core {
            conns: Vec::new(),
            exchanges: Exchanges::default(),
            jobs: VecDeque::new(),
            dirty: Vec::new(),
            again: Vec::new(),
            pool: BufPool::default(),
            wheel: Wheel::new(now),
            clock,
            now,
            unix,
            date: DateCache::default(),
            settings,
            stats: Stats::default(),
            admitted: 0,
            short_until: None,
            draining: false,
            log,
        }
    }

    /// Takes the connection out, lets `f` work on it, puts it back and notes it as dirty. Nothing happens when the
    /// token names no connection (R3).
    pub fn with_conn(&mut self, token: Token, f: impl FnOnce(&mut Core, &mut Conn)) {
        let Some(mut conn) = self.take(token) else { return };
        f(self, &mut conn);
        self.put(conn);
    }

    fn take(&mut self, token: Token) -> Option<Box<Conn>> {
        let slot = self.conns.get_mut(token.index as usize)?;
        if slot.as_ref()?.token != token && !canary!("r3-any-token") {
            return None;
        }
        slot.take()
    }

    fn put(&mut self, mut conn: Box<Conn>) {
        if !conn.dirty {
            conn.dirty = true;
            self.dirty.push(conn.token);
        }
        let index = conn.token.index as usize;
        self.conns[index] = Some(conn);
    }

    /// Files a new connection.
    pub fn insert(&mut self, conn: Conn) {
        let index = conn.token.index as usize;
        if self.conns.len() <= index {
            self.conns.resize_with(index + 1, || None);
        }
        assert!(
            self.conns[index].is_none(),
            "a backend reuses a slot only after its Closed (R4)"
        );
        self.stats.accepted += 1;
        self.stats.connections += 1;
        self.log
            .debug("connected", format_args!("{} connected", Who(conn.peer)));
        self.put(Box::new(conn));
    }

    /// Forgets a connection whose `Closed` has come.
    pub fn remove(&mut self, token: Token) {
        let Some(mut conn) = self.take(token) else { return };
        self.detach(&mut conn, Why::PeerGone);
        conn.output.clear(&mut self.pool);
        self.stats.connections -= 1;
        let (who, served) = (Who(conn.peer), conn.served);
        self.log.debug(
            "closed",
            format_args!("the connection of {who} is closed, responses: {served}"),
        );
        self.leave_place(&mut conn);
    }

    /// It takes the place of none that could be served.
    pub fn leave_place(&mut self, conn: &mut Conn) {
        self.admitted -= usize::from(std::mem::take(&mut conn.admitted));
    }

    /// Accepting failed for want of descriptors: what lingers has less time from here on, and for a while. Whether this is
    /// the first that is felt of it.
    pub fn note_shortage(&mut self) -> bool {
        let begins = self.short_until.is_none_or(|until| self.now > until);
        if begins {
            let conns = self.conns.iter().flatten();
            let lingering: Vec<Token> = conns
                .filter(|conn| conn.phase == Phase::Linger)
                .map(|conn| conn.token)
                .collect();
            for token in lingering {
                self.with_conn(token, |_, conn| conn.touched = true);
            }
        }
        self.short_until = Some(self.now.plus(super::SHORT_OVER));
        begins
    }

    /// The connection works on its exchange no longer; a host that is not done with the response is told why.
    pub fn detach(&mut self, conn: &mut Conn, why: Why) {
        let Some(id) = conn.exchange.take() else { return };
        let exchange = self.exchanges.get(id).expect("an attached exchange is open");
        if exchange.response != Response::Complete {
            conn.cut |= exchange.ends_by_closing();
            let (line, status) = (exchange.line.take(), exchange.status);
            self.jobs.push_back(Job::Reset(id, why));
            self.stats.abandoned += u64::from(why == Why::PeerGone);
            self.log_access(line, if status == 0 { UNANSWERED } else { status });
        }
        self.exchanges.detach(id);
    }

    /// The connection is of no more use: nothing queued is sent, it closes.
    pub fn kill(&mut self, conn: &mut Conn, why: Why) {
        self.detach(conn, why);
        // The response that it belongs to may be complete and gone: what arrived of it must not look whole.
        conn.cut |= !conn.output.is_empty();
        conn.output.clear(&mut self.pool);
        conn.pending = Vec::new();
        conn.phase = Phase::Closed;
    }

    /// Answers with an error of our own, if nothing of a response is out yet, and serves nothing further. `untold` is what
    /// is known of the request when it has no exchange that knows it.
    pub fn refuse(&mut self, conn: &mut Conn, status: u16, text: &str, why: Why, untold: Untold) {
        let exchange = conn.exchange.and_then(|id| self.exchanges.get(id));
        let (response, is_head) = match exchange {
            Some(exchange) => {
                let line = exchange.line.take();
                let (response, sent, is_head) = (exchange.response, exchange.status, exchange.is_head);
                self.log_access(line, if sent == 0 { status } else { sent });
                (response, is_head)
            }
            None => {
                let said = conn.decoder.request_line();
                let is_head = untold.is_head || said.starts_with(b"HEAD ");
                match untold.line {
                    Some(_) => self.log_access(untold.line, status),
                    None => self.log.access_refused(conn.peer, said, status),
                }
                (Response::NotStarted, is_head)
            }
        };
        self.stats.refused += 1;
        let who = Who(conn.peer);
        if !canary!("r12-refused-silently") {
            self.log
                .warn("refused", format_args!("refused {who} with {status}: {text}"));
        }
        self.detach(conn, why);
        if response == Response::NotStarted {
            self.write_refusal(conn, status, text, is_head);
        }
        // A response that had begun is cut short by closing, which is all that is left to say.
        conn.finish();
    }

    /// The line of a request in the access log, unless it has been written.
    pub fn log_access(&self, line: Option<Box<RequestLine>>, status: u16) {
        if let Some(line) = line {
            self.log
                .access(line.source, &line.method, &line.target, line.version, status);
        }
    }

    /// A whole response of our own.
    pub fn write_refusal(&mut self, conn: &mut Conn, status: u16, text: &str, is_head: bool) {
        let date = self.settings.date.then(|| self.date.get(self.unix));
        let server = self.settings.server.as_deref();
        let out = conn.output.tail(&mut self.pool);
        http1::write_refusal(out, status, text, is_head, date, server);
    }

    /// Which time-out a connection is under.
    pub fn timer_of(&mut self, conn: &Conn) -> Timer {
        if !conn.output.is_empty() {
            return if conn.phase == Phase::Closed {
                Timer::Off
            } else {
                Timer::Write
            };
        }
        match conn.phase {
            Phase::Closed => Timer::Off,
            Phase::Linger | Phase::Flush { .. } => Timer::Linger,
            Phase::Open => match conn.exchange {
                None if conn.decoder.in_head() => Timer::Head,
                None if conn.served > 0 => Timer::Idle,
                None => Timer::Fresh,
                Some(id) => {
                    let exchange = self.exchanges.get(id).expect("an attached exchange is open");
                    if exchange.request_done || exchange.request_aborted {
                        Timer::Off
                    } else if exchange.response == Response::Complete {
                        Timer::Discard
                    } else if exchange.credit > 0 && exchange.expect != Expect::Waiting {
                        Timer::Body
                    } else {
                        Timer::Off
                    }
                }
            },
        }
    }

    /// Ends a connection between two requests. What was answered of late may be on its way still, and a request that is on
    /// its way too would have it destroyed by a reset. Where descriptors are short, others need its descriptor more.
    pub fn finish_idle(&self, conn: &mut Conn) {
        let of_late = || {
            let before = self.settings.idle_timeout.checked_sub(super::CUT_TIME);
            before.is_none_or(|before| conn.deadline > self.wheel.tick_after(self.now, before))
        };
        if !conn.output.is_empty() || (conn.timer == Timer::Idle && of_late() && !self.is_short()) {
            conn.finish();
        } else {
            conn.finish_at_once();
        }
    }

    /// Whether descriptors are short.
    fn is_short(&self) -> bool {
        self.short_until.is_some_and(|until| self.now < until)
    }

    /// Whether others wait for what a lingering connection has: its descriptor, or the end of the drain.
    fn lingers_briefly(&self) -> bool {
        self.draining || self.is_short()
    }

    /// Starts, moves or stops the connection's time-out after something happened to it.
    pub fn rearm(&mut self, conn: &mut Conn) {
        let timer = self.timer_of(conn);
        if timer == conn.timer && !conn.touched {
            return;
        }
        conn.timer = timer;
        conn.touched = false;
        let after = match timer {
            Timer::Off => {
                conn.deadline = NEVER;
                return;
            }
            Timer::Idle => self.settings.idle_timeout,
            Timer::Fresh | Timer::Head => self.head_time(timer),
            Timer::Body | Timer::Write => self.settings.body_timeout,
            Timer::Discard => self.settings.body_timeout.min(super::DISCARD_TIME),
            Timer::Linger if conn.cut || self.lingers_briefly() => super::CUT_TIME,
            Timer::Linger => super::LINGER_TIME,
        };
        conn.deadline = self.wheel.tick_after(self.now, after);
        if self.next_look(conn) < conn.filed {
            self.file_anew(conn);
        }
    }

    /// Files a connection that has a deadline to be looked at.
    pub fn file_anew(&mut self, conn: &mut Conn) {
        conn.filed = self.wheel.file(conn.token, self.next_look(conn));
    }

    /// When to look at it: at its deadline. That a client has taken something of a send that is not over is only found
    /// out by looking, so while one is out that is done more often: the time then starts anew, and is over no later than
    /// this part of it after it should be.
    fn next_look(&self, conn: &Conn) -> u64 {
        match conn.timer {
            Timer::Write => self.wheel.part_of_the_way(conn.deadline, LOOKS_AT_A_SEND),
            _ => conn.deadline,
        }
    }

    /// Whether the backend should receive for the connection.
    pub fn wants_input(&mut self, conn: &Conn) -> bool {
        if conn.input_over {
            return false;
        }
        match conn.phase {
            Phase::Closed => false,
            Phase::Linger | Phase::Flush { .. } => conn.thrown_away < LINGER_LIMIT,
            Phase::Open => {
                let in_body = conn
                    .exchange
                    .and_then(|id| self.exchanges.get(id))
                    .filter(|e| !e.request_done);
                match in_body {
                    Some(exchange) => {
                        exchange.credit > 0 || exchange.response == Response::Complete || canary!("r7-no-window")
                    }
                    None => conn.pending.len() < super::conn::PENDING_LIMIT || canary!("r7-pending-without-end"),
                }
            }
        }
    }
}
