//! Receiving: arming, pausing, what arrives meanwhile, running out of buffers.

use std::io;
use std::os::fd::AsFd;

use io_uring::{cqueue, opcode, squeue, types};

use super::buffers::{Buffers, GROUP};
use super::conn::{Held, bit};
use super::{HELD, MAX_HELD, Op, Uring};
use crate::backend::{Chunk, Completion, EndOfReceive, Token};
use crate::sys;

impl Uring {
    pub(super) fn start_receive(&mut self, token: Token) {
        let Some(conn) = self.live(token) else { return };
        conn.receiving = true;
        if conn.held.is_some() && !conn.resuming {
            conn.resuming = true;
            self.resume.push_back(token);
        }
        self.settle_receive(token);
    }

    pub(super) fn stop_receive(&mut self, token: Token) {
        let eager = self.held_bytes >= MAX_HELD;
        let Some(conn) = self.live(token) else { return };
        conn.receiving = false;
        if eager {
            self.cancel_receive(token);
        }
    }

    /// Arms what the connection's state asks for: a receive while it is wanted, else a watch for a broken connection.
    pub(super) fn settle_receive(&mut self, token: Token) {
        let much_is_held = self.held_bytes >= MAX_HELD;
        let Some(conn) = self.live(token) else { return };
        if conn.ended && conn.held.is_none() || conn.starved || conn.has(bit::RECV) {
            return;
        }
        let fd = types::Fd(conn.fd());
        // While something is held nothing more is asked for: a peer that is faster than its reader would add to it each
        // time the connection is resumed, without end (R7).
        if conn.receiving && !conn.ended && conn.held.is_none() {
            conn.in_flight |= bit::RECV;
            conn.cancelling = false;
            let entry = if much_is_held {
                // One buffer at a time: what a multishot receive delivers between a pause and its cancel is held too.
                opcode::Recv::new(fd, std::ptr::null_mut(), 0)
                    .buf_group(GROUP)
                    .build()
                    .flags(squeue::Flags::BUFFER_SELECT)
            } else {
                opcode::RecvMulti::new(fd, GROUP).build()
            };
            // SAFETY: it writes to provided buffers only, which live as long as the ring; the socket is closed only
            // after the last completion.
            unsafe { self.push(Op::Receive, token, entry) };
        } else if !conn.has(bit::BROKEN) {
            conn.in_flight |= bit::BROKEN;
            let wanted = (libc::POLLERR | libc::POLLHUP).cast_unsigned().into();
            // SAFETY: the entry points at no memory.
            unsafe { self.push(Op::Broken, token, opcode::PollAdd::new(fd, wanted).multi(true).build()) };
        }
    }

    fn cancel_receive(&mut self, token: Token) {
        let Some(conn) = self.live(token) else { return };
        if conn.has(bit::RECV) && !conn.cancelling {
            conn.cancelling = true;
            self.push_cancel(Op::Receive, token);
        }
    }

    /// Gives a provided buffer back to the kernel.
    pub(super) fn give_back(&mut self, index: Option<u16>) {
        if let (Some(index), Some(buffers)) = (index, &mut self.buffers) {
            buffers.give_back(index);
        }
    }

    /// A completion of a multishot receive.
    pub(super) fn on_receive(&mut self, token: Token, entry: &cqueue::Entry) -> Option<Completion> {
        let index = cqueue::buffer_select(entry.flags());
        let Some(conn) = self.conns.get_mut(token) else {
            self.give_back(index); // R3
            return None;
        };
        if !cqueue::more(entry.flags()) {
            conn.in_flight &= !bit::RECV;
            conn.cancelling = false;
        }
        if conn.is_closing() || conn.ended {
            self.give_back(index);
            self.finish_close(token);
            return None;
        }
        let completion = match (entry.result(), index) {
            (len @ 1.., Some(index)) => self.on_bytes(token, index, len.cast_unsigned()),
            (result, index) => {
                self.give_back(index);
                self.on_no_bytes(token, result)
            }
        };
        self.settle_receive(token);
        completion
    }

    fn on_bytes(&mut self, token: Token, index: u16, len: u32) -> Option<Completion> {
        let conn = self.conns.get_mut(token)?;
        if conn.is_open_to_bytes() {
            self.lent = true;
            return Some(Completion::Received {
                token,
                chunk: Chunk {
                    buffer: u32::from(index),
                    len,
                },
            });
        }
        let piece = self
            .buffers
            .as_ref()
            .map(|buffers: &Buffers| buffers.bytes(index, len as usize).to_vec());
        conn.held.get_or_insert_default().pieces.extend(piece);
        self.give_back(Some(index));
        let before = self.held_bytes;
        self.held_bytes += len as usize;
        self.cancel_receive(token);
        if before < MAX_HELD && self.held_bytes >= MAX_HELD {
            self.cancel_paused();
        }
        None
    }

    /// Too much is held: from here on no paused connection may add to it.
    fn cancel_paused(&mut self) {
        let paused: Vec<Token> = self.conns.tokens().filter(|token| self.is_paused(*token)).collect();
        paused.into_iter().for_each(|token| self.cancel_receive(token));
    }

    fn is_paused(&self, token: Token) -> bool {
        self.conns
            .get(token)
            .is_some_and(|conn| !conn.receiving && !conn.is_closing())
    }

    fn on_no_bytes(&mut self, token: Token, result: i32) -> Option<Completion> {
        let conn = self.conns.get_mut(token)?;
        match -result {
            0 if conn.is_open_to_bytes() => {
                conn.ended = true;
                Some(Completion::ReceiveEnded {
                    token,
                    end: EndOfReceive::Eof,
                })
            }
            0 => {
                conn.ended = true;
                conn.held.get_or_insert_default().eof = true;
                None
            }
            // Re-arming at once would only spin: buffers come back while completions are handed out.
            libc::ENOBUFS => {
                conn.starved = true;
                self.starved.push_back(token);
                None
            }
            // Cancelled (by a pause), or ended for a reason that arming it again cures.
            libc::ECANCELED | libc::EINTR | libc::EAGAIN => None,
            errno => self.on_broken_connection(token, io::Error::from_raw_os_error(errno)),
        }
    }

    fn on_broken_connection(&mut self, token: Token, error: io::Error) -> Option<Completion> {
        self.drop_held(token);
        let conn = self.conns.get_mut(token)?;
        conn.ended = true;
        Some(Completion::ReceiveEnded {
            token,
            end: EndOfReceive::Failed(error),
        })
    }

    /// A completion of the watch for broken connections.
    pub(super) fn on_broken(&mut self, token: Token, entry: &cqueue::Entry) -> Option<Completion> {
        let conn = self.conns.get_mut(token)?;
        if !cqueue::more(entry.flags()) {
            conn.in_flight &= !bit::BROKEN;
        }
        if conn.is_closing() {
            self.finish_close(token);
            return None;
        }
        let found = entry.result();
        let is_broken = found > 0 && found & i32::from(libc::POLLERR | libc::POLLHUP) != 0;
        // An armed receive reports the break itself; an end of file that is held waits behind the bytes before it,
        // but a reset does not wait.
        let is_ours = !conn.has(bit::RECV) && (!conn.ended || conn.held.is_some());
        if is_broken && is_ours {
            let error = conn.socket.as_ref().and_then(|socket| sys::take_error(socket.as_fd()));
            if let Some(error) = error {
                return self.on_broken_connection(token, error);
            }
        }
        if !is_broken {
            self.settle_receive(token);
        }
        None
    }

    pub(super) fn drop_held(&mut self, token: Token) {
        if let Some(held) = self.conns.get_mut(token).and_then(|conn| conn.held.take()) {
            self.held_bytes -= held.pieces.iter().map(Vec::len).sum::<usize>();
        }
    }

    /// The next held piece, or held end, of a connection that receives again.
    pub(super) fn next_held(&mut self) -> Option<Completion> {
        while let Some(token) = self.resume.front().copied() {
            let completion = self.pop_held(token);
            if completion.is_some() {
                return completion;
            }
            self.resume.pop_front();
            if let Some(conn) = self.conns.get_mut(token) {
                conn.resuming = false;
            }
        }
        None
    }

    fn pop_held(&mut self, token: Token) -> Option<Completion> {
        let conn = self
            .conns
            .get_mut(token)
            .filter(|conn| conn.receiving && !conn.is_closing())?;
        let held: &mut Held = conn.held.as_mut()?;
        if let Some(piece) = held.pieces.pop_front() {
            if held.pieces.is_empty() && !held.eof {
                conn.held = None;
                self.fresh.push(token); // receives again from the next wait on, unless it is paused until then
            }
            self.held_bytes -= piece.len();
            let len = u32::try_from(piece.len()).expect("a piece was one receive buffer");
            self.lent_piece = piece;
            self.lent = true;
            return Some(Completion::Received {
                token,
                chunk: Chunk { buffer: HELD, len },
            });
        }
        conn.held = None;
        Some(Completion::ReceiveEnded {
            token,
            end: EndOfReceive::Eof,
        })
    }
}
