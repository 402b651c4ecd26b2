//! One connection of an io_uring backend: what is in flight for it, and what it holds.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use io_uring::{opcode, squeue, types};

use crate::out::Out;
use crate::sys;

/// Requests of a connection that the kernel may still complete, as bits of [`Conn::in_flight`].
pub(super) mod bit {
    /// Multishot receive.
    pub(in super::super) const RECV: u8 = 1;
    /// Send or sendmsg.
    pub(in super::super) const SEND: u8 = 2;
    /// Multishot poll for errors, while no receive is armed.
    pub(in super::super) const BROKEN: u8 = 4;
    /// One-shot poll for room, while a file is being sent.
    pub(in super::super) const ROOM: u8 = 8;
    /// The cancel of a close.
    pub(in super::super) const CANCEL: u8 = 16;
}

/// A connection.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)]
pub(super) struct Conn {
    /// `None` once closed, while `Closed` waits to be delivered.
    pub(super) socket: Option<OwnedFd>,
    /// See [`bit`]. The socket is closed, and the slot reused, only when this is zero (R4).
    pub(super) in_flight: u8,
    /// The owner wants to receive.
    pub(super) receiving: bool,
    /// A cancel of the receive is on its way.
    pub(super) cancelling: bool,
    /// The receive ran out of buffers and waits in the `starved` list.
    pub(super) starved: bool,
    /// It is in the `resume` list.
    pub(super) resuming: bool,
    /// The end came, delivered or held.
    pub(super) ended: bool,
    /// The owner has closed it: what then makes the close of the socket a FIN or a reset.
    pub(super) ending: Option<fn(BorrowedFd<'_>)>,
    /// FIN goes out once `out` has gone.
    pub(super) finish: bool,
    /// What arrived while the owner did not want to receive.
    pub(super) held: Option<Box<Held>>,
    pub(super) out: Option<Out>,
    /// Bytes that left, ever.
    pub(super) progress: u64,
    /// For sends of two pieces; made at the first one.
    message: Option<Box<Message>>,
}

/// What arrived while receiving was paused: own copies, so that no receive buffer is kept.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) pieces: VecDeque<Vec<u8>>,
    /// An end of file came after them.
    pub(super) eof: bool,
}

/// What a sendmsg in flight points at.
struct Message {
    header: libc::msghdr,
    pieces: [libc::iovec; 2],
}

// SAFETY: the pointers are only followed by the kernel, for a request that points at this box; the box and what it
// points at move between threads together, inside the connection.
unsafe impl Send for Message {}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Message")
    }
}

impl Conn {
    pub(super) fn new(socket: OwnedFd) -> Conn {
        Conn {
            socket: Some(socket),
            in_flight: 0,
            receiving: false,
            cancelling: false,
            starved: false,
            resuming: false,
            ended: false,
            ending: None,
            finish: false,
            held: None,
            out: None,
            progress: 0,
            message: None,
        }
    }

    /// Whether its owner has closed it.
    pub(super) fn is_closing(&self) -> bool {
        self.ending.is_some()
    }

    pub(super) fn has(&self, bit: u8) -> bool {
        self.in_flight & bit != 0
    }

    pub(super) fn fd(&self) -> RawFd {
        self.socket.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Whether what arrives now may be delivered at once.
    pub(super) fn is_open_to_bytes(&self) -> bool {
        self.receiving && self.held.is_none()
    }

    /// The request that sends what is left of `out`.
    ///
    /// It points at the buffers in `out` and, for two pieces, at `message`: heap memory that stays in place until
    /// `out` is taken, which happens when the request has completed.
    pub(super) fn send_entry(&mut self) -> Option<squeue::Entry> {
        let fd = types::Fd(self.fd());
        let Some(Out::Buf { buf, sent }) = &self.out else {
            return None;
        };
        let first = buf.bytes.get(*sent..).unwrap_or(&[]);
        let second = &buf.body[sent.saturating_sub(buf.bytes.len())..];
        let one = match (first.is_empty(), second.is_empty()) {
            (false, true) => first,
            (true, _) => second,
            (false, false) => {
                let message = self.message.get_or_insert_with(Message::boxed);
                message.pieces = [sys::iovec(first), sys::iovec(second)];
                message.header.msg_iov = message.pieces.as_mut_ptr();
                message.header.msg_iovlen = 2;
                let flags = libc::MSG_NOSIGNAL.cast_unsigned();
                return Some(opcode::SendMsg::new(fd, &raw const message.header).flags(flags).build());
            }
        };
        let len = u32::try_from(one.len()).unwrap_or(1 << 30);
        Some(
            opcode::Send::new(fd, one.as_ptr(), len)
                .flags(libc::MSG_NOSIGNAL)
                .build(),
        )
    }
}

impl Message {
    fn boxed() -> Box<Message> {
        // SAFETY: all-zero is a valid msghdr: null pointers with zero lengths.
        let header: libc::msghdr = unsafe { std::mem::zeroed() };
        Box::new(Message {
            header,
            pieces: [sys::iovec(&[]), sys::iovec(&[])],
        })
    }
}
