//! What goes out: a host's frames become bytes in the connection's queue.
//!
//! Keeps R8: one head an exchange, no byte of a body beyond its length, and a response that cannot be completed ends
//! with its connection. A frame of an exchange whose connection has gone on, or has gone, is dropped (R3).

use std::os::fd::OwnedFd;

use bytes::Bytes;
use m0_platform::canary;

use super::conn::Conn;
use super::core::Core;
use super::exchange::{Expect, Response};
use super::output::Owner;
use crate::handoff::{ExchangeId, Frame, Job, ResponseHead, Why, charge};
use crate::http1::{self, BodyMode, ResponseContext};

impl Core {
    /// Takes one frame of an exchange.
    pub fn frame(&mut self, frame: Frame) {
        match frame {
            Frame::WantBody(id, window) => self.on_exchange(id, |core, conn| core.want_body(conn, id, window)),
            Frame::Head(id, head) => self.on_exchange(id, |core, conn| core.head(conn, id, &head)),
            Frame::Chunk(id, bytes) => self.on_exchange(id, |core, conn| core.chunk(conn, id, bytes)),
            Frame::File(id, file, offset, len) => {
                self.on_exchange(id, |core, conn| core.file(conn, id, file, offset, len));
            }
            Frame::End(id) => self.on_exchange(id, |core, conn| core.end(conn, id)),
            Frame::Abort(id, why) => self.on_exchange(id, |core, conn| core.abort(conn, id, why)),
            Frame::Released(id) => {
                self.on_exchange(id, |core, conn| core.unfinished(conn, id));
                if !canary!("r9-exchange-is-kept") || self.exchanges.get(id).is_some_and(|exchange| exchange.attached) {
                    self.exchanges.release(id);
                }
            }
            Frame::Stop(_) => unreachable!("the engine takes this frame itself"),
        }
    }

    /// Calls `f` when the exchange's connection still works on it and its response is not complete.
    fn on_exchange(&mut self, id: ExchangeId, f: impl FnOnce(&mut Core, &mut Conn)) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        if !exchange.attached || exchange.response == Response::Complete {
            return;
        }
        let token = exchange.conn;
        self.with_conn(token, f);
    }

    /// Answers a request that no application is mounted for, as a host would.
    #[cold]
    pub fn nothing_there(&mut self, conn: &mut Conn, id: ExchangeId) {
        const BODY: &[u8] = b"Not Found\n";
        let mut head = ResponseHead::new(404).expect("a status");
        for (name, value) in [
            (&b"content-type"[..], &b"text/plain; charset=utf-8"[..]),
            (b"content-length", b"10"),
        ] {
            head.push(name, value).expect("a field");
        }
        self.head(conn, id, &head);
        if !self.exchanges.get(id).expect("it was opened a moment ago").is_head {
            self.chunk(conn, id, Bytes::from_static(BODY));
        }
        self.end(conn, id);
        self.exchanges.release(id);
    }

    fn want_body(&mut self, conn: &mut Conn, id: ExchangeId, window: u32) {
        let exchange = self.exchanges.get(id).expect("on_exchange found it");
        exchange.credit = exchange.credit.saturating_add(i64::from(window));
        if exchange.expect == Expect::Waiting && exchange.response == Response::NotStarted {
            exchange.expect = Expect::Sent;
            conn.output.tail(&mut self.pool).extend_from_slice(http1::CONTINUE);
        }
    }

    #[inline(always)] // as chunk and end: called for want of a host too, they would not be otherwise (make cost)
    fn head(&mut self, conn: &mut Conn, id: ExchangeId, head: &ResponseHead) {
        let draining = self.draining;
        let exchange = self.exchanges.get(id).expect("on_exchange found it");
        if exchange.response != Response::NotStarted && !canary!("r8-two-heads") {
            return self.host_error(conn, "a second response head");
        }
        let date = self.settings.date.then(|| self.date.get(self.unix));
        let context = ResponseContext {
            version: exchange.version,
            is_head: exchange.is_head,
            keep_alive: exchange.keep_alive && exchange.expect != Expect::Waiting && !draining,
            date,
            server: self.settings.server.as_deref(),
        };
        let (mode, keep_alive) = http1::write_head(conn.output.tail(&mut self.pool), head, &context);
        exchange.keep_alive = keep_alive;
        exchange.status = head.status;
        let remaining = match mode {
            BodyMode::Length(length) => length,
            BodyMode::None | BodyMode::Chunked | BodyMode::UntilClose => 0,
        };
        exchange.response = Response::Body(mode, remaining);
    }

    /// Counts body bytes against the response's length: the mode, or an error when there are too many.
    fn account(&mut self, id: ExchangeId, len: u64) -> Result<BodyMode, &'static str> {
        let exchange = self.exchanges.get(id).expect("on_exchange found it");
        let Response::Body(mode, remaining) = &mut exchange.response else {
            return Err("body bytes before the response's head");
        };
        if matches!(mode, BodyMode::Length(_)) {
            *remaining = remaining
                .checked_sub(len)
                .or(canary!("r8-too-long").then_some(0))
                .ok_or("more body bytes than the response's content-length")?;
        }
        Ok(*mode)
    }

    #[inline(always)]
    fn chunk(&mut self, conn: &mut Conn, id: ExchangeId, bytes: Bytes) {
        let charged = charge(bytes.len());
        match self.account(id, bytes.len() as u64) {
            Err(error) => self.host_error(conn, error),
            Ok(BodyMode::None) => self.jobs.push_back(Job::Credit(id, charged)),
            Ok(_) if bytes.is_empty() => self.jobs.push_back(Job::Credit(id, charged)),
            Ok(BodyMode::Length(_) | BodyMode::UntilClose) => {
                conn.output.push_body(id, bytes, charged, &mut self.pool);
            }
            Ok(BodyMode::Chunked) => {
                http1::write_chunk_start(conn.output.tail(&mut self.pool), bytes.len());
                conn.output.push_body(id, bytes, charged, &mut self.pool);
                conn.output.tail(&mut self.pool).extend_from_slice(http1::CHUNK_END);
            }
        }
    }

    fn file(&mut self, conn: &mut Conn, id: ExchangeId, file: OwnedFd, offset: u64, len: u64) {
        match self.account(id, len) {
            Err(error) => self.host_error(conn, error),
            Ok(BodyMode::None) => self.jobs.push_back(Job::FileSent(id, true)),
            Ok(_) if len == 0 => self.jobs.push_back(Job::FileSent(id, true)),
            Ok(BodyMode::Length(_) | BodyMode::UntilClose) => conn.output.push_file(id, file, offset, len),
            Ok(BodyMode::Chunked) => {
                http1::write_chunk_start(
                    conn.output.tail(&mut self.pool),
                    usize::try_from(len).unwrap_or(usize::MAX),
                );
                conn.output.push_file(id, file, offset, len);
                conn.output.tail(&mut self.pool).extend_from_slice(http1::CHUNK_END);
            }
        }
    }

    #[inline(always)]
    fn end(&mut self, conn: &mut Conn, id: ExchangeId) {
        let exchange = self.exchanges.get(id).expect("on_exchange found it");
        match exchange.response {
            Response::NotStarted => return self.host_error(conn, "an end before the response's head"),
            Response::Complete => unreachable!("on_exchange lets no complete response through"),
            Response::Body(BodyMode::Length(_), remaining) if remaining > 0 => {
                return self.host_error(conn, "fewer body bytes than the response's content-length");
            }
            Response::Body(BodyMode::Chunked, _) => {
                conn.output.tail(&mut self.pool).extend_from_slice(http1::LAST_CHUNK);
            }
            Response::Body(..) => {}
        }
        exchange.response = Response::Complete;
        self.stats.responses += 1;
        let waits = exchange.expect == Expect::Waiting;
        let cut = exchange.request_aborted || waits || !exchange.keep_alive || self.draining;
        exchange.keep_alive &= exchange.request_done || !cut;
        let finished = exchange.request_done || cut;
        let (line, status) = (exchange.line.take(), exchange.status);
        self.log_access(line, status);
        if finished {
            self.finish_exchange(conn);
        }
        // Otherwise the rest of the request is read and thrown away, within a bound: then the connection goes on.
    }

    fn abort(&mut self, conn: &mut Conn, id: ExchangeId, why: Why) {
        let exchange = self.exchanges.get(id).expect("on_exchange found it");
        let started = exchange.response != Response::NotStarted;
        let is_head = exchange.is_head;
        conn.cut |= exchange.ends_by_closing();
        exchange.response = Response::Complete; // the host knows: it is not told again
        let (line, status) = (exchange.line.take(), if started { exchange.status } else { 500 });
        self.log_access(line, status);
        self.leave(conn, id);
        if !started && why != Why::Stopping {
            self.write_refusal(conn, 500, "Internal Server Error", is_head);
        }
        conn.finish();
    }

    /// The host lets go of a response that it has not completed: nobody else would, and the client would wait for ever.
    fn unfinished(&mut self, conn: &mut Conn, id: ExchangeId) {
        self.log.error(
            "response cut short",
            "a response was cut short: the application ended without completing it",
        );
        self.abort(conn, id, Why::HostError);
    }

    /// The host broke the protocol of frames. The connection is closed, so that nothing of this reaches the next
    /// response, and it is said in the log (R12).
    fn host_error(&mut self, conn: &mut Conn, what: &str) {
        self.log.error(
            "response cut short",
            format_args!("a response was cut short: the application sent {what}"),
        );
        let id = conn.exchange.expect("on_exchange found it");
        let exchange = self.exchanges.get(id).expect("on_exchange found it");
        if exchange.response == Response::NotStarted {
            self.jobs.push_back(Job::Reset(id, Why::HostError));
            self.abort(conn, id, Why::HostError);
        } else {
            self.detach(conn, Why::HostError);
            conn.finish();
        }
    }

    /// A send is over. Gives the exchange back what it was charged.
    pub fn sent(&mut self, conn: &mut Conn, ok: bool) {
        let owner = conn.output.finished();
        conn.touched = true;
        if !ok {
            self.kill(conn, Why::PeerGone);
            return;
        }
        if owner.charge > 0 && self.is_streaming(conn, owner) {
            let charge = owner.charge >> u32::from(canary!("r7-credit-is-short"));
            self.jobs
                .push_back(Job::Credit(owner.id.expect("a charge has an owner"), charge));
        }
        self.go_on(conn);
    }

    /// A send has made room: input that waited for it is decoded, or was the last.
    fn go_on(&mut self, conn: &Conn) {
        if conn.may_start() && (conn.input_over || !conn.pending.is_empty()) {
            self.again.push(conn.token);
        }
    }

    /// Whether the connection still works on this response and the host has more to say: only then is it told.
    fn is_streaming(&mut self, conn: &Conn, owner: Owner) -> bool {
        let Some(id) = owner.id.filter(|id| conn.exchange == Some(*id)) else {
            return false;
        };
        self.exchanges
            .get(id)
            .is_some_and(|exchange| exchange.response != Response::Complete)
    }

    /// A file send is over: short when the file was shorter than its length at the time it was opened.
    pub fn file_sent(&mut self, conn: &mut Conn, result: std::io::Result<u64>) {
        let owner = conn.output.finished();
        conn.touched = true;
        match result {
            Ok(sent) if Some(sent) == owner.file => {
                if self.is_streaming(conn, owner) {
                    self.jobs
                        .push_back(Job::FileSent(owner.id.expect("a file has an owner"), true));
                }
                self.go_on(conn);
            }
            Ok(_) => self.file_failed(conn, "a file became shorter while it was sent"),
            Err(error) if is_of_the_peer(&error) => self.kill(conn, Why::PeerGone),
            Err(error) => self.file_failed(conn, format_args!("a file could not be read: {error}")),
        }
    }

    /// The rest of a file will not come. A reset says so: where only the close ends a response, a FIN would make it whole.
    fn file_failed(&mut self, conn: &mut Conn, what: impl std::fmt::Display) {
        self.log
            .error("file cut short", format_args!("a response was cut short: {what}"));
        self.detach(conn, Why::HostError);
        conn.cut = true;
        conn.output.clear(&mut self.pool);
        conn.finish();
    }
}

/// Whether a file was not sent because its connection has ended, and not because of the file. The system call gives either
/// error, and the second is for the log (R12).
fn is_of_the_peer(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, HostUnreachable, NetworkDown, NetworkUnreachable, NotConnected,
        TimedOut,
    };
    matches!(
        error.kind(),
        BrokenPipe
            | ConnectionAborted
            | ConnectionReset
            | HostUnreachable
            | NetworkDown
            | NetworkUnreachable
            | NotConnected
            | TimedOut
    )
}
