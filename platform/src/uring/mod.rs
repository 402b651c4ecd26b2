//! The completion backend: io_uring with multishot accept and receive, provided buffers, deferred task work.
//!
//! Sockets stay blocking (a non-blocking one would complete with EAGAIN instead of waiting). Everything that is asked
//! for is queued and leaves with the next wait, so a saturated turn costs one system call for all of its connections;
//! a wait of zero with nothing queued and nothing pending costs none.
//!
//! What the kernel still has of a connection is counted in [`conn::bit`]s: `close` cancels it, and the socket is
//! closed and the slot freed only after the last completion (R3, R4). Pausing a receive is lazy: the receive stays
//! armed, and is cancelled only when something arrives, which is then held as a copy; past [`MAX_HELD`] bytes in all,
//! pausing cancels at once (R7). Rules kept here: R1, R3, R4, R7, R9.

mod backend;
mod buffers;
mod conn;
mod handle;
mod outer;
pub(crate) mod probe;
mod receive;
mod ring;
mod send;

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::{cqueue, opcode, squeue, types};

use crate::backend::{Backend, Completion, ListenerId, Token};
use crate::foreign::Foreign;
use crate::listener::Listener;
use crate::probe::{Failure, Options};
use crate::readiness::{Event, Poller, epoll::Epoll};
use crate::slots::Slots;
use crate::sys;
use crate::waker::{Bell, Waker};
use buffers::Buffers;
use conn::Conn;
use outer::Outer;
use ring::Ring;

/// Completions handed out between two waits; what is left over comes after the next (R7).
const MAX_COMPLETIONS: u32 = 4096;
/// Completions reaped and not yet handed out; beyond that the kernel keeps them.
const MAX_REAPED: usize = 16 * 1024;
/// Enters of one wait, while deferred work is left over from the one before.
const MAX_ENTERS: u32 = 512;
/// An enter runs about twenty pieces of deferred work. One that gave fewer completions than this has run all there was:
/// what is pending again has only just arrived, and the next wait takes it, together with more.
const FULL_BATCH: usize = 16;
/// Bytes held for paused connections before pausing cancels at once.
const MAX_HELD: usize = 8 << 20;
/// [`Chunk::buffer`] of bytes that were held rather than lying in a provided buffer.
const HELD: u32 = u32::MAX;

/// What a completion is about: the top byte of its user data. The rest is slot (24 bits) and generation (32 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Op {
    Accept = 1,
    Receive,
    Send,
    Broken,
    Room,
    Cancel,
    Ignored,
    Foreign,
    Waker,
}

const OPS: [Op; 9] = [
    Op::Accept,
    Op::Receive,
    Op::Send,
    Op::Broken,
    Op::Room,
    Op::Cancel,
    Op::Ignored,
    Op::Foreign,
    Op::Waker,
];

fn user_data(op: Op, token: Token) -> u64 {
    debug_assert!(token.index < 1 << 24, "sixteen million connections");
    u64::from(op as u8) << 56 | u64::from(token.index) << 32 | u64::from(token.generation)
}

fn decode(user_data: u64) -> Option<(Op, Token)> {
    let op = *OPS.get(usize::try_from(user_data >> 56).ok()?.checked_sub(1)?)?;
    let index = (user_data >> 32) as u32 & 0x00ff_ffff;
    Some((
        op,
        Token {
            index,
            generation: user_data as u32,
        },
    ))
}

/// Of requests that belong to no connection.
const NOBODY: Token = Token {
    index: 0,
    generation: 0,
};

/// A listener and what is in flight for it.
struct Listening {
    listener: Listener,
    armed: bool,
    /// A cancel is on its way.
    cancelling: bool,
    /// The owner has let it go; closed after its last completion.
    closing: bool,
}

/// The io_uring backend.
pub(crate) struct Uring {
    /// `None` after `shutdown`. Before `buffers`, so that it is dropped first.
    ring: Option<Ring>,
    buffers: Option<Buffers>,
    creator: u32,
    conns: Slots<Conn>,
    listeners: Vec<Option<Listening>>,
    foreign: Foreign,
    /// The nested set of foreign descriptors, polled one-shot by the ring.
    nested: Epoll,
    nested_armed: bool,
    nested_events: Vec<Event>,
    waker: Waker,
    waker_armed: bool,
    /// Reaped and not yet looked at.
    reaped: VecDeque<cqueue::Entry>,
    /// Completions that are known already.
    done: VecDeque<Completion>,
    /// Connections that hold bytes and receive again.
    resume: VecDeque<Token>,
    /// Connections whose receive ran out of buffers.
    starved: VecDeque<Token>,
    /// Accepted since the last wait: watched for a reset if they are not received on.
    fresh: Vec<Token>,
    /// Connections whose file goes on in this round, and in the next.
    round: VecDeque<Token>,
    again: VecDeque<Token>,
    /// Bytes in all `held`.
    held_bytes: usize,
    /// The held piece that is lent out as a chunk.
    lent_piece: Vec<u8>,
    /// Whether a chunk is lent out.
    lent: bool,
    budget: u32,
    /// For an outer loop.
    outer: Option<Outer>,
}

impl Uring {
    pub(crate) fn new(options: &Options) -> Result<Uring, Failure> {
        probe::probe()?;
        let nested = Epoll::new().map_err(|error| probe::failure("epoll_create1", &error))?;
        let bell = Bell::eventfd().map_err(|error| probe::failure("eventfd", &error))?;
        let ring = Ring::new(options.ring_entries).map_err(|error| probe::setup_failure(&error))?;
        // Last: what fails after it would drop it before the ring that points at it.
        let buffers = Buffers::new(&ring, options.recv_buffers, options.recv_buffer_size)
            .map_err(|error| probe::failure("registering receive buffers", &error))?;
        Ok(Uring {
            ring: Some(ring),
            buffers: Some(buffers),
            creator: sys::process_generation(),
            conns: Slots::new(),
            listeners: Vec::new(),
            foreign: Foreign::default(),
            nested,
            nested_armed: false,
            nested_events: Vec::new(),
            waker: Waker::new(bell),
            waker_armed: false,
            reaped: VecDeque::new(),
            done: VecDeque::new(),
            resume: VecDeque::new(),
            starved: VecDeque::new(),
            fresh: Vec::new(),
            round: VecDeque::new(),
            again: VecDeque::new(),
            held_bytes: 0,
            lent_piece: Vec::new(),
            lent: false,
            budget: MAX_COMPLETIONS,
            outer: None,
        })
    }

    /// A connection that has not been closed by its owner.
    fn live(&mut self, token: Token) -> Option<&mut Conn> {
        self.conns.get_mut(token).filter(|conn| !conn.is_closing())
    }

    /// The ring, unless it is shut down or another process's: its memory does not exist in a forked child.
    fn ring(&mut self) -> Option<&mut Ring> {
        self.ring.as_mut().filter(|_| !sys::is_other_process(self.creator))
    }

    /// Queues a request. After `shutdown` there is nobody to queue it for.
    ///
    /// # Safety
    /// Whatever memory the entry points at stays valid and in place until its last completion has been reaped.
    unsafe fn push(&mut self, op: Op, token: Token, entry: squeue::Entry) {
        if let Some(ring) = self.ring() {
            // SAFETY: the caller's promise.
            unsafe { ring.push(entry.user_data(user_data(op, token))) };
        }
    }

    /// Queues the cancel of one request; what becomes of it is told by that request's own completion.
    fn push_cancel(&mut self, op: Op, token: Token) {
        let entry = opcode::AsyncCancel::new(user_data(op, token)).build();
        // SAFETY: the entry points at no memory.
        unsafe { self.push(Op::Ignored, NOBODY, entry) };
    }

    fn listener_token(id: ListenerId) -> Token {
        Token {
            index: id.0,
            generation: 0,
        }
    }

    fn arm_accept(&mut self, id: ListenerId) {
        let Some(Some(found)) = self.listeners.get_mut(id.0 as usize) else {
            return;
        };
        if found.armed || found.closing || found.listener.paused {
            return;
        }
        found.armed = true;
        found.cancelling = false;
        let fd = types::Fd(found.listener.socket.as_raw_fd());
        let entry = opcode::AcceptMulti::new(fd).flags(libc::SOCK_CLOEXEC).build();
        // SAFETY: the entry points at no memory; the listener's descriptor stays open until `armed` is false.
        unsafe { self.push(Op::Accept, Self::listener_token(id), entry) };
    }

    fn cancel_accept(&mut self, id: ListenerId) {
        let Some(Some(found)) = self.listeners.get_mut(id.0 as usize) else {
            return;
        };
        if found.armed && !found.cancelling {
            found.cancelling = true;
            self.push_cancel(Op::Accept, Self::listener_token(id));
        }
    }

    /// Queues what must be armed before every wait, also one that does not block.
    fn arm_for_wait(&mut self) {
        if !self.waker_armed {
            self.waker_armed = true;
            let fd = types::Fd(self.waker.fd());
            let entry = opcode::PollAdd::new(fd, libc::POLLIN.cast_unsigned().into())
                .multi(true)
                .build();
            // SAFETY: the entry points at no memory; our handle on the waker keeps its descriptor open.
            unsafe { self.push(Op::Waker, NOBODY, entry) };
        }
        if !self.nested_armed && !self.foreign.is_empty() {
            self.nested_armed = true;
            let fd = types::Fd(self.nested.fd());
            let entry = opcode::PollAdd::new(fd, libc::POLLIN.cast_unsigned().into()).build();
            // SAFETY: the entry points at no memory; the nested set stays open as long as the ring.
            unsafe { self.push(Op::Foreign, NOBODY, entry) };
        }
        for token in std::mem::take(&mut self.fresh) {
            self.settle_receive(token);
        }
        // All buffers but those of completions not yet looked at are the kernel's again, so each of these finds one.
        let buffers = self.buffers.as_ref().map_or(0, Buffers::count);
        for _ in 0..buffers.min(self.starved.len()) {
            if let Some(token) = self.starved.pop_front() {
                if let Some(conn) = self.conns.get_mut(token) {
                    conn.starved = false;
                }
                self.settle_receive(token);
            }
        }
    }

    /// Enters the kernel as often as deferred work is left, and reaps.
    fn gather(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let may_block = timeout != Some(Duration::ZERO) && !self.is_ready() && self.starved.is_empty();
        let may_block = may_block && self.again.is_empty();
        let full = self.reaped.len() >= MAX_REAPED;
        let Some(ring) = &mut self.ring else {
            return Err(gone());
        };
        if full {
            return ring.submit();
        }
        if may_block && !ring.has_completion() {
            ring.wait(timeout)?;
        } else if ring.queued() > 0 || ring.has_work() {
            ring.poll()?;
        }
        let mut before = self.reaped.len();
        ring.reap(&mut self.reaped);
        if let Some(outer) = &mut self.outer {
            outer.take_edges();
        }
        let polled = self.outer.is_some();
        for _ in 0..MAX_ENTERS {
            // The edges were taken: nothing that they told of may stay behind.
            let is_full = polled || self.reaped.len() - before >= FULL_BATCH;
            if !is_full || self.reaped.len() >= MAX_REAPED || !ring.has_work() {
                break;
            }
            before = self.reaped.len();
            ring.poll()?;
            ring.reap(&mut self.reaped);
        }
        Ok(())
    }

    /// Whether a wait is due that no completion of the kernel will ask for.
    fn wants_another_wait(&self) -> bool {
        self.is_ready() || !self.again.is_empty() || !self.starved.is_empty()
    }

    fn next_inner(&mut self) -> Option<Completion> {
        loop {
            if let Some(completion) = self.done.pop_front() {
                if let Completion::Closed { token } = completion {
                    self.conns.remove(token);
                }
                return Some(completion);
            }
            if let Some(completion) = self.next_held() {
                return Some(completion);
            }
            if let Some((fd, ready)) = self.foreign.next() {
                return Some(Completion::Foreign { fd, ready });
            }
            if let Some(entry) = self.reaped.pop_front() {
                let completion = self.handle(&entry);
                if completion.is_some() {
                    return completion;
                }
                continue;
            }
            let token = self.round.pop_front()?;
            self.step_file(token);
        }
    }

    /// Whether something is still in flight that would go on using sockets or buffers.
    fn is_busy(&self) -> bool {
        self.conns.len() > 0 || self.listeners.iter().flatten().any(|found| found.armed)
    }

    /// Cancels everything and waits, for a bounded time, until the kernel has let go of it.
    fn cancel_all(&mut self) {
        for index in 0..self.listeners.len() {
            self.unlisten(ListenerId(u32::try_from(index).unwrap_or(u32::MAX)));
        }
        let open: Vec<Token> = self.conns.tokens().collect();
        open.iter().for_each(|token| self.close(*token));
        for _ in 0..100 {
            if !self.is_busy() || self.wait(Some(Duration::from_millis(10))).is_err() {
                break;
            }
            while let Some(completion) = self.next() {
                match completion {
                    Completion::Received { chunk, .. } => self.recycle(chunk),
                    Completion::Accepted { token, .. } => self.close(token),
                    _ => {}
                }
            }
        }
    }
}

/// Of a backend that is shut down, or in a forked child.
fn gone() -> io::Error {
    io::Error::from_raw_os_error(libc::EBADF)
}

impl Drop for Uring {
    fn drop(&mut self) {
        self.shutdown();
    }
}
