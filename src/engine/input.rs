//! What comes in: bytes become requests and body pieces, and those become jobs.

use bytes::Bytes;
use m0_platform::{Token, canary};

use super::conn::{Conn, Phase, Timer};
use super::core::{Core, Who};
use super::exchange::{Exchange, Expect, RequestLine, Response, Untold};
use super::mounts::Found;
use crate::handoff::{ExchangeId, Framing, Job, Request, RequestHead, Upgrade, Version, Why};
use crate::http1::Event;

/// Body bytes of a request that was answered early which are read and thrown away to keep the connection.
const DISCARD_LIMIT: usize = 1024 * 1024;

impl Core {
    /// Bytes came in on a connection (or, with none, it may go on with what it kept). Whether that is enough for now: it
    /// is to be settled before more of the same pass comes in (R7).
    pub fn input(&mut self, token: Token, bytes: &[u8]) -> bool {
        let mut full = false;
        self.with_conn(token, |core, conn| {
            if conn.phase != Phase::Open {
                conn.thrown_away += bytes.len() as u64; // refused or finished
                return;
            }
            conn.touched |= conn.timer == Timer::Body;
            if conn.pending.is_empty() {
                let mut rest = bytes;
                core.decode(conn, &mut rest);
                if !rest.is_empty() && conn.phase == Phase::Open {
                    conn.pending.extend_from_slice(rest);
                }
            } else {
                let mut kept = std::mem::take(&mut conn.pending);
                kept.extend_from_slice(bytes);
                let mut rest = &kept[..];
                core.decode(conn, &mut rest);
                let done = kept.len() - rest.len();
                if conn.phase == Phase::Open && done < kept.len() {
                    kept.drain(..done);
                    conn.pending = kept;
                }
            }
            core.after_decode(conn);
            full = conn.receiving && !core.wants_input(conn);
        });
        full
    }

    /// Takes events out of `input` until it is used up or the connection is busy.
    fn decode(&mut self, conn: &mut Conn, input: &mut &[u8]) {
        let mut opening: Option<Box<Request>> = None;
        let mut body = Vec::new();
        while conn.phase == Phase::Open && self.may_decode(conn) {
            match conn.decoder.decode(input) {
                Ok(None) => break,
                Ok(Some(Event::Head(head))) => {
                    debug_assert!(opening.is_none());
                    opening = self.begin(conn, head);
                }
                Ok(Some(Event::Body(bytes))) => self.take_body(conn, bytes, &mut body),
                Ok(Some(Event::BodyEnd)) => {
                    self.did_not_wait(conn);
                    self.deliver(conn, opening.take(), std::mem::take(&mut body), true);
                    self.request_read(conn);
                }
                Err(refusal) => {
                    // What was dispatched of it is told by the reset; a request that was not is never told.
                    let untold = opening.take().map(|_| self.forget(conn)).unwrap_or_default();
                    body.clear();
                    self.refuse(conn, refusal.status(), refusal.reason(), Why::Refused, untold);
                }
            }
        }
        if conn.phase == Phase::Open && (opening.is_some() || !body.is_empty()) {
            self.deliver(conn, opening, body, false);
        }
    }

    fn may_decode(&mut self, conn: &Conn) -> bool {
        match conn.exchange {
            None => conn.may_start(),
            Some(id) => self.exchanges.get(id).is_some_and(|exchange| !exchange.request_done),
        }
    }

    /// A head is complete. Gives the request when it is not dispatched yet because a body follows.
    fn begin(&mut self, conn: &mut Conn, head: RequestHead) -> Option<Box<Request>> {
        let mount = self.settings.mounts.find(head.get(head.path));
        let refusal = if head.upgrade == Upgrade::WebSocket {
            Some((501, "WebSocket connections are not supported by this server yet."))
        } else if mount == Found::Unclear {
            Some((400, "The path can be read as that of more than one application."))
        } else {
            None
        };
        if let Some((status, text)) = refusal {
            let untold = Untold {
                line: self.settings.access_log.then(|| self.request_line(conn, &head)),
                is_head: head.is_head(),
            };
            self.refuse(conn, status, text, Why::Refused, untold);
            return None;
        }
        let last = self.settings.max_requests != 0 && conn.served + 1 >= self.settings.max_requests;
        let mut exchange = Exchange::new(conn.token, head.version, head.keep_alive && !last);
        exchange.is_head = head.is_head();
        exchange.request_done = head.framing == Framing::Empty;
        if head.expect_continue && !exchange.request_done {
            exchange.expect = Expect::Waiting;
        }
        if self.settings.access_log {
            exchange.line = Some(self.request_line(conn, &head));
        }
        let done = exchange.request_done;
        let id = self.exchanges.open(exchange);
        conn.exchange = Some(id);
        self.stats.requests += 1;
        let Found::Mount(mount) = mount else {
            self.nothing_there(conn, id);
            return None;
        };
        let request = Box::new(Request {
            id,
            head,
            mount,
            connection: conn.token,
            peer: conn.peer,
            local: conn.local,
            body: Bytes::new(),
            body_complete: false,
        });
        if !done {
            return Some(request);
        }
        self.deliver(conn, Some(request), Vec::new(), true);
        None
    }

    /// A request that was refused before the host heard of it.
    fn forget(&mut self, conn: &mut Conn) -> Untold {
        let id = conn.exchange.take().expect("a request that opens has an exchange");
        let exchange = self.exchanges.get(id).expect("an attached exchange is open");
        let untold = Untold {
            line: exchange.line.take(),
            is_head: exchange.is_head,
        };
        self.exchanges.detach(id);
        self.exchanges.release(id);
        self.stats.requests -= 1;
        untold
    }

    /// The body, or its end, comes although the client might have waited for `100 Continue`.
    fn did_not_wait(&mut self, conn: &Conn) {
        let id = conn.exchange.expect("a body belongs to an exchange");
        let exchange = self.exchanges.get(id).expect("an attached exchange is open");
        if exchange.expect == Expect::Waiting {
            exchange.expect = Expect::Nothing;
        }
    }

    fn take_body(&mut self, conn: &mut Conn, bytes: &[u8], body: &mut Vec<u8>) {
        self.did_not_wait(conn);
        let id = conn.exchange.expect("body bytes belong to an exchange");
        let exchange = self.exchanges.get(id).expect("an attached exchange is open");
        if exchange.response == Response::Complete {
            exchange.discarded += bytes.len();
            if exchange.discarded > DISCARD_LIMIT {
                self.leave(conn, id);
                conn.finish();
            }
            return;
        }
        body.extend_from_slice(bytes);
    }

    /// Hands the host a request, or more of its body; small pieces that came together go together.
    fn deliver(&mut self, conn: &Conn, opening: Option<Box<Request>>, body: Vec<u8>, end: bool) {
        let id = conn.exchange.expect("what is delivered belongs to an exchange");
        let exchange = self.exchanges.get(id).expect("an attached exchange is open");
        exchange.credit -= i64::from(crate::handoff::charge(body.len())) * i64::from(!body.is_empty());
        if exchange.response == Response::Complete {
            return;
        }
        if let Some(mut request) = opening {
            request.body = Bytes::from(body);
            request.body_complete = end;
            self.jobs.push_back(Job::Request(request));
        } else {
            if !body.is_empty() {
                self.jobs.push_back(Job::Body(id, Bytes::from(body)));
            }
            if end {
                self.jobs.push_back(Job::BodyEnd(id));
            }
        }
    }

    /// The request has been read to its end.
    fn request_read(&mut self, conn: &mut Conn) {
        let id = conn.exchange.expect("a body's end belongs to an exchange");
        let exchange = self.exchanges.get(id).expect("an attached exchange is open");
        exchange.request_done = true;
        if exchange.response == Response::Complete {
            self.finish_exchange(conn);
        }
    }

    /// The response is complete and the request read: on to the next, or to the end.
    pub fn finish_exchange(&mut self, conn: &mut Conn) {
        let id = conn.exchange.expect("an exchange finishes on its connection");
        let exchange = self.exchanges.get(id).expect("an attached exchange is open");
        let promised = exchange.keep_alive;
        let keep_alive = self.goes_on(conn, promised);
        self.leave(conn, id);
        conn.served += 1;
        conn.touched = true;
        if !keep_alive {
            conn.finish();
        } else if !conn.pending.is_empty() || conn.input_over {
            self.again.push(conn.token);
        }
    }

    /// Lets go of a complete exchange.
    pub fn leave(&mut self, conn: &mut Conn, id: ExchangeId) {
        debug_assert_eq!(conn.exchange, Some(id));
        conn.exchange = None;
        self.exchanges.detach(id);
    }

    /// Nothing more can be decoded now. If nothing more will come either, that may be the end.
    fn after_decode(&mut self, conn: &mut Conn) {
        if self.draining && conn.served > 0 && conn.is_idle() {
            conn.finish(); // what had come behind its last request was none
        }
        if !conn.input_over || conn.phase != Phase::Open {
            return;
        }
        match conn.exchange {
            Some(id) => self.half_closed(conn, id),
            // What is kept may hold whole requests that wait for the output to go down; else it is the end.
            None if conn.output.is_high() => {}
            None => conn.finish(),
        }
    }

    /// The peer has finished sending, or the connection broke.
    pub fn input_ended(&mut self, token: Token, broken: bool) {
        self.with_conn(token, |core, conn| {
            conn.input_over = true;
            if broken {
                core.kill(conn, Why::PeerGone);
                return;
            }
            match conn.phase {
                Phase::Closed | Phase::Flush { .. } => {}
                Phase::Linger if conn.cut => {} // its reset comes in time
                Phase::Linger => core.kill(conn, Why::PeerGone),
                // What is kept waited for the output, and nothing has happened since that was taken.
                Phase::Open if conn.may_start() && !conn.pending.is_empty() && !canary!("r8-fin-loses-requests") => {
                    core.again.push(token);
                }
                Phase::Open => core.after_decode(conn),
            }
        });
    }

    /// The peer has finished, and the connection works on an exchange, perhaps since this moment.
    fn half_closed(&mut self, conn: &mut Conn, id: ExchangeId) {
        let exchange = self.exchanges.get(id).expect("an attached exchange is open");
        if exchange.response == Response::Complete {
            // Only the rest of its request was awaited, and that will not come.
            self.leave(conn, id);
            conn.finish();
            return;
        }
        if !exchange.request_done {
            exchange.request_aborted = true;
            exchange.keep_alive = false;
        }
        if !std::mem::replace(&mut exchange.finish_said, true) {
            self.jobs.push_back(Job::BodyAborted(id, Why::PeerFinished));
        }
    }

    /// A deadline has passed.
    pub fn timed_out(&mut self, conn: &mut Conn) {
        self.stats.timed_out += u64::from(conn.timer != Timer::Linger);
        match conn.timer {
            Timer::Off => unreachable!("no deadline without a timer"),
            Timer::Fresh | Timer::Idle => {
                let who = Who(conn.peer);
                self.log
                    .debug("idle", format_args!("{who} has said nothing for too long"));
                self.finish_idle(conn);
            }
            Timer::Head => self.too_slow(conn, "The request head did not arrive in time."),
            Timer::Body => self.too_slow(conn, "The request body did not arrive in time."),
            Timer::Discard => {
                let id = conn.exchange.expect("the rest of a request belongs to its exchange");
                self.leave(conn, id);
                conn.finish();
            }
            Timer::Write => {
                let who = Who(conn.peer);
                self.log
                    .warn("not read", format_args!("cut {who} off: it did not read its response"));
                self.kill(conn, Why::TimedOut);
            }
            Timer::Linger => self.kill(conn, Why::TimedOut),
        }
    }

    fn too_slow(&mut self, conn: &mut Conn, text: &str) {
        self.refuse(conn, 408, text, Why::TimedOut, Untold::default());
    }

    /// What the access log will say of a request.
    fn request_line(&self, conn: &Conn, head: &RequestHead) -> Box<RequestLine> {
        let mut target = head.get(head.path).to_vec();
        if !head.get(head.query).is_empty() {
            target.push(b'?');
            target.extend_from_slice(head.get(head.query));
        }
        Box::new(RequestLine {
            source: self.settings.trust.source(head, conn.peer),
            method: head.get(head.method).to_vec(),
            target,
            version: match head.version {
                Version::Http10 => "1.0",
                Version::Http11 => "1.1",
            },
        })
    }
}
