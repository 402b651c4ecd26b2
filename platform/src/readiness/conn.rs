//! One connection of a readiness backend: its flags, and the steps that try a system call.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::backend::{Completion, EndOfReceive, SendBuf, Token};
use crate::out::{Advance, Out, closed_while_sending};
use crate::sys;

/// Tries of a send that goes out in pieces, before others get their turn.
const MAX_TRIES: u32 = 8;

/// A connection. Without a socket it has been closed by its owner and waits for its `Closed` to be delivered.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) socket: Option<OwnedFd>,
    /// What is being sent.
    pub(super) out: Option<Out>,
    /// Bytes that left, ever.
    pub(super) progress: u64,
    /// The owner wants to receive.
    pub(super) receiving: bool,
    /// A receive may find something.
    pub(super) readable: bool,
    /// A send may go.
    pub(super) writable: bool,
    /// The peer has finished: read on to the end of file.
    pub(super) hangup: bool,
    /// Both directions are over, or there is an error to be taken.
    pub(super) broken: bool,
    /// Why the kernel would not watch it.
    pub(super) refused: Option<io::Error>,
    /// `ReceiveEnded` was delivered.
    pub(super) ended: bool,
    /// It is in the backend's `round` or `again` list.
    pub(super) queued: bool,
    /// FIN goes out once `out` has gone.
    finish: bool,
}

/// What looking at the receiving side gave.
pub(super) enum Step {
    Nothing,
    /// Bytes at the start of the scratch buffer.
    Bytes(u32),
    End(EndOfReceive),
}

impl Conn {
    pub(super) fn new(socket: OwnedFd) -> Conn {
        Conn {
            socket: Some(socket),
            out: None,
            progress: 0,
            receiving: false,
            readable: false,
            // A new connection has room; should it not, the first send finds out.
            writable: true,
            hangup: false,
            broken: false,
            refused: None,
            ended: false,
            queued: false,
            finish: false,
        }
    }

    /// Whether it must be looked at again without waiting for an edge.
    pub(super) fn has_more(&self) -> bool {
        (self.receiving && self.readable && !self.ended) || (self.out.is_some() && self.writable)
    }

    /// Its descriptor, when what is being sent goes on only after an event.
    pub(super) fn waits_to_send(&self) -> Option<RawFd> {
        let waits = self.out.is_some() && !self.writable;
        self.socket.as_ref().filter(|_| waits).map(AsRawFd::as_raw_fd)
    }

    /// One receive, if it is wanted and may find something. A break is reported also when it is not wanted.
    pub(super) fn receive_step(&mut self, scratch: &mut [u8]) -> Step {
        let Some(socket) = self.socket.as_ref().map(AsFd::as_fd) else {
            return Step::Nothing;
        };
        if self.ended {
            return Step::Nothing;
        }
        if let Some(error) = self.refused.take() {
            return self.end(EndOfReceive::Failed(error));
        }
        if !self.receiving {
            if !self.broken {
                return Step::Nothing;
            }
            // Hung up in both directions without an error is an end of file: it waits behind the bytes before it.
            self.broken = false;
            return match sys::take_error(socket) {
                Some(error) => self.end(EndOfReceive::Failed(error)),
                None => Step::Nothing,
            };
        }
        if !self.readable {
            return Step::Nothing;
        }
        match sys::recv(socket, scratch) {
            Ok(0) => self.end(EndOfReceive::Eof),
            Ok(len) => {
                // A short read has drained the socket (epoll(7)), unless the peer's FIN lies behind the bytes: that
                // edge has been spent.
                self.readable = len == scratch.len() || self.hangup;
                Step::Bytes(u32::try_from(len).expect("the scratch buffer is far smaller"))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.readable = false;
                Step::Nothing
            }
            Err(error) => self.end(EndOfReceive::Failed(error)),
        }
    }

    fn end(&mut self, end: EndOfReceive) -> Step {
        self.ended = true;
        Step::End(end)
    }

    /// Goes on with what is being sent, until it is over, the socket is full, or others should get their turn.
    pub(super) fn advance(&mut self, token: Token) -> Option<Completion> {
        let socket = self.socket.as_ref()?.as_fd();
        let result = match self.out.as_mut()? {
            Out::Buf { buf, sent } => advance_buf(socket, buf, sent, &mut self.progress),
            Out::File(file) => {
                let before = file.sent;
                let result = file.advance(socket);
                self.progress += file.sent - before;
                result
            }
        };
        match result {
            Ok(Advance::Done) => self.finish_out(token, Ok(())),
            Ok(Advance::Full) => {
                self.writable = false; // an edge says when it is not
                None
            }
            Ok(Advance::Turn) => None,
            Err(error) => self.finish_out(token, Err(error)),
        }
    }

    fn finish_out(&mut self, token: Token, result: io::Result<()>) -> Option<Completion> {
        let completion = self.out.take()?.over(token, result);
        if self.finish {
            self.finish_after_out();
        }
        Some(completion)
    }

    /// The owner closed the connection: what is being sent fails.
    pub(super) fn abort_out(&mut self, token: Token) -> Option<Completion> {
        self.finish = false;
        self.finish_out(token, Err(closed_while_sending()))
    }

    /// Sends FIN, once nothing is being sent.
    pub(super) fn finish_after_out(&mut self) {
        self.finish = true;
        if let (None, Some(socket)) = (&self.out, &self.socket) {
            self.finish = false;
            sys::shutdown_write(socket.as_fd());
        }
    }
}

fn advance_buf(socket: BorrowedFd<'_>, buf: &SendBuf, sent: &mut usize, progress: &mut u64) -> io::Result<Advance> {
    for _ in 0..MAX_TRIES {
        let first = buf.bytes.get(*sent..).unwrap_or(&[]);
        let second = &buf.body[sent.saturating_sub(buf.bytes.len())..];
        match sys::send(socket, first, second) {
            Ok(went) => {
                *sent += went;
                *progress += went as u64;
                if *sent == buf.len() {
                    return Ok(Advance::Done);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Advance::Full),
            Err(error) => return Err(error),
        }
    }
    Ok(Advance::Turn)
}
