//! Sending and closing: one request in flight, short sends continued, files through `sendfile(2)`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use io_uring::{cqueue, opcode, types};

use super::conn::bit;
use super::{Op, Uring};
use crate::backend::{Completion, Token};
use crate::out::{Advance, Out, closed_while_sending};
use crate::sys;

impl Uring {
    /// Queues the request that sends what is left.
    ///
    /// Without MSG_WAITALL: a short send comes back and is continued, so that `send_progress` sees it.
    pub(super) fn push_send(&mut self, token: Token) {
        let Some(conn) = self.live(token) else { return };
        let Some(entry) = conn.send_entry() else { return };
        conn.in_flight |= bit::SEND;
        // SAFETY: see `Conn::send_entry`: what it points at stays in place until `out` is taken, and that happens in
        // `on_send`, when the request is over, or after the ring is gone.
        unsafe { self.push(Op::Send, token, entry) };
    }

    /// The completion of a send.
    pub(super) fn on_send(&mut self, token: Token, entry: &cqueue::Entry) -> Option<Completion> {
        let conn = self.conns.get_mut(token)?;
        conn.in_flight &= !bit::SEND;
        let Some(Out::Buf { buf, sent }) = &mut conn.out else {
            return None;
        };
        let went = entry.result();
        let result = match u32::try_from(went) {
            Ok(went) => {
                *sent += went as usize;
                conn.progress += u64::from(went);
                if *sent == buf.len() { Some(Ok(())) } else { None }
            }
            Err(_) => Some(Err(io::Error::from_raw_os_error(-went))),
        };
        let result = match result {
            Some(Err(error)) if is_passing(&error) && !conn.is_closing() => None,
            None if conn.is_closing() => Some(Err(closed_while_sending())),
            None if went == 0 => Some(Err(io::ErrorKind::WriteZero.into())),
            result => result,
        };
        let Some(result) = result else {
            self.push_send(token);
            return None;
        };
        let completion = self.take_out(token, result);
        self.finish_after_out(token);
        self.done.extend(completion);
        self.finish_close(token);
        self.done.pop_front() // the `Sent`, unless something was there before
    }

    /// Ends what is being sent.
    fn take_out(&mut self, token: Token, result: io::Result<()>) -> Option<Completion> {
        let out = self.conns.get_mut(token)?.out.take()?;
        Some(out.over(token, result))
    }

    fn finish_after_out(&mut self, token: Token) {
        let Some(conn) = self.live(token) else { return };
        if let (true, Some(socket)) = (conn.finish, &conn.socket) {
            sys::shutdown_write(socket.as_fd());
            conn.finish = false;
        }
    }

    /// Sends some of a file, if one is being sent and the socket is not known to be full.
    pub(super) fn step_file(&mut self, token: Token) {
        let Some(conn) = self.live(token) else { return };
        if conn.has(bit::ROOM) {
            return;
        }
        let (Some(socket), Some(Out::File(file))) = (&conn.socket, &mut conn.out) else {
            return;
        };
        let before = file.sent;
        let result = without_blocking(socket.as_fd(), |socket| file.advance(socket));
        conn.progress += file.sent - before;
        match result {
            Ok(Advance::Done) => self.finish_file(token, Ok(())),
            Ok(Advance::Turn) => self.again.push_back(token),
            Ok(Advance::Full) => {
                conn.in_flight |= bit::ROOM;
                let fd = types::Fd(conn.fd());
                let entry = opcode::PollAdd::new(fd, libc::POLLOUT.cast_unsigned().into()).build();
                // SAFETY: the entry points at no memory.
                unsafe { self.push(Op::Room, token, entry) };
            }
            Err(error) => self.finish_file(token, Err(error)),
        }
    }

    fn finish_file(&mut self, token: Token, result: io::Result<()>) {
        let completion = self.take_out(token, result);
        self.done.extend(completion);
        self.finish_after_out(token);
    }

    /// The completion of the poll for room: the next try tells what there is, room or an error.
    pub(super) fn on_room(&mut self, token: Token) {
        let Some(conn) = self.conns.get_mut(token) else { return };
        conn.in_flight &= !bit::ROOM;
        if conn.is_closing() {
            self.finish_close(token);
        } else {
            self.step_file(token);
        }
    }

    /// Closes a connection, after what makes the close a FIN or a reset.
    pub(super) fn start_close(&mut self, token: Token, ending: fn(BorrowedFd<'_>)) {
        if self.live(token).is_none() {
            return;
        }
        self.drop_held(token);
        let Some(conn) = self.live(token) else { return };
        conn.ending = Some(ending);
        conn.receiving = false;
        let fd = types::Fd(conn.fd());
        let file_is_out = matches!(conn.out, Some(Out::File(_)));
        let must_cancel = conn.in_flight != 0;
        if must_cancel {
            conn.in_flight |= bit::CANCEL;
        }
        if file_is_out {
            let completion = self.take_out(token, Err(closed_while_sending()));
            self.done.extend(completion);
        }
        if must_cancel {
            let entry = opcode::AsyncCancel2::new(types::CancelBuilder::fd(fd).all()).build();
            // SAFETY: the entry points at no memory; the socket stays open until this has completed too.
            unsafe { self.push(Op::Cancel, token, entry) };
        }
        self.finish_close(token);
    }

    /// The completion of a close's cancel.
    pub(super) fn on_cancel(&mut self, token: Token, entry: &cqueue::Entry) {
        let Some(conn) = self.conns.get_mut(token) else { return };
        conn.in_flight &= !bit::CANCEL;
        if let (true, Some(socket)) = (entry.result() < 0 && entry.result() != -libc::ENOENT, &conn.socket) {
            // Something runs on a worker thread and could not be cancelled (EALREADY): end it through the socket.
            sys::shutdown_both(socket.as_fd());
        }
        self.finish_close(token);
    }

    /// Closes the socket once nothing is in flight for a connection that its owner has closed.
    pub(super) fn finish_close(&mut self, token: Token) {
        let creator = self.creator;
        let Some(conn) = self.conns.get_mut(token) else { return };
        let Some(ending) = conn.ending.filter(|_| conn.in_flight == 0) else {
            return;
        };
        if let Some(socket) = conn.socket.take() {
            // Not in a child: it is the parent's connection.
            if !sys::is_other_process(creator) {
                ending(socket.as_fd());
            }
            self.done.push_back(Completion::Closed { token });
        }
    }
}

/// Calls `f` with the socket non-blocking meanwhile. Nothing else uses the socket in this time: its requests run on this thread
/// only, inside an enter.
fn without_blocking<R>(socket: BorrowedFd<'_>, f: impl FnOnce(BorrowedFd<'_>) -> io::Result<R>) -> io::Result<R> {
    sys::set_nonblocking(socket, true)?;
    let result = f(socket);
    sys::set_nonblocking(socket, false)?;
    result
}

/// Errors of a send that trying again cures.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN))
}
