//! The shared core of the readiness backends: it tries the system call first and turns "would block" into waiting.
//!
//! [`Readiness`] is generic over a [`Poller`], which is all that differs between epoll and kqueue. Each connection is
//! registered once, edge-triggered in both directions, so nothing is registered per request: the core remembers
//! whether it is readable and writable, from edges and from what its calls return.
//!
//! Reading is lazy: `wait` only gathers which connections are ready; `next` receives on the next of them, into one
//! scratch buffer. A connection is read once a wait (fairness); what is left over goes to the `again` list, and then
//! the next wait does not block (R1). Rules kept here: R1, R3, R4, R7 (a wait hands out at most [`MAX_COMPLETIONS`]),
//! R9.

mod backend;
mod conn;
#[cfg(target_os = "linux")]
pub(crate) mod epoll;
#[cfg(any(not(target_os = "linux"), feature = "emulated-kqueue"))]
pub(crate) mod kqueue;
#[cfg(all(test, target_os = "linux", feature = "emulated-kqueue"))]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::backend::{Backend, Chunk, Completion, Interest, Kind, ListenerId, Token};
use crate::foreign::{FOREIGN, Foreign};
use crate::listener::Listener;
use crate::slots::Slots;
use crate::sys;
use crate::waker::{Bell, Waker};
use conn::{Conn, Step};

/// The scratch buffer: one read takes at most this much.
const SCRATCH: usize = 64 * 1024;
/// Connections taken from one listener in one wait.
const MAX_ACCEPTS: u32 = 64;
/// Completions handed out between two waits; what is left over comes after the next (R7).
const MAX_COMPLETIONS: u32 = 4096;

/// Data of the waker's registration.
const WAKER: u64 = 0xffff_ffff;
/// Set in the data of a listener's registration, together with [`FOREIGN`]; the low bits are its number.
const LISTENER: u64 = 0x4000_0000;

/// What a poller found of one descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    /// As it was registered.
    pub(crate) data: u64,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The peer has finished sending, or worse: a short read does not mean that nothing more is to be read.
    pub(crate) hangup: bool,
    /// Both directions are over, or there is an error to be taken.
    pub(crate) broken: bool,
    /// The kernel would not watch it (errno): nothing will ever be found of it.
    pub(crate) refused: Option<i32>,
}

/// What differs between the readiness backends.
pub(crate) trait Poller: Sized + Send {
    const KIND: Kind;
    fn new() -> io::Result<Self>;
    /// Makes what the waker rings; a ring is found as an event of `data`, once.
    fn bell(&mut self, data: u64) -> io::Result<Bell>;
    /// Watches a connection until it is closed: for edges of reading, and of writing at least where
    /// [`Poller::await_writable`] asks for one. An error may also come later, as [`Event::refused`].
    fn add_connection(&mut self, fd: RawFd, data: u64) -> io::Result<()>;
    /// A send would have blocked: an event says when it would not. Nothing to do where edges come unasked.
    fn await_writable(&mut self, _fd: RawFd, _data: u64) {}
    /// A connection's descriptor is about to be closed: what has not been said of it yet is not to be said of whoever
    /// gets the number next.
    fn forget_connection(&mut self, _fd: RawFd) {}
    /// Watches for levels. `old` is what the caller believes it is watched for already.
    fn set_level(&mut self, fd: RawFd, data: u64, interest: Interest, old: Option<Interest>) -> io::Result<()>;
    /// Stops watching; the descriptor may be closed already.
    fn clear_level(&mut self, fd: RawFd, old: Interest);
    /// Tells the kernel what it has not been told yet.
    fn submit(&mut self) -> io::Result<()> {
        Ok(())
    }
    /// Tells the kernel what it has not been told yet, and appends what is found to `events`. EINTR finds nothing.
    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()>;
    /// Readable when a wait would find something.
    fn fd(&self) -> RawFd;
    /// Closes it; every later call gives EBADF or does nothing.
    fn close(&mut self);
}

/// A readiness backend.
pub(crate) struct Readiness<P: Poller> {
    poller: P,
    waker: Waker,
    creator: u32,
    conns: Slots<Conn>,
    listeners: Vec<Option<Listener>>,
    foreign: Foreign,
    scratch: Box<[u8]>,
    /// Whether the scratch buffer is lent out.
    lent: bool,
    events: Vec<Event>,
    /// Completions that are known already.
    done: VecDeque<Completion>,
    /// Listeners that may have more, and how many more connections they may give before the next wait.
    accepting: VecDeque<(ListenerId, u32)>,
    /// Connections to be looked at before the next wait.
    round: VecDeque<Token>,
    /// Connections to be looked at after the next wait, which does not block.
    again: VecDeque<Token>,
    /// Completions that may be handed out before the next wait.
    budget: u32,
    /// Whether an outer loop polls our descriptor.
    polled: bool,
    /// Whether it has been told about `again`.
    told: bool,
}

impl<P: Poller> Readiness<P> {
    pub(crate) fn new() -> io::Result<Readiness<P>> {
        let mut poller = P::new()?;
        let waker = Waker::new(poller.bell(WAKER)?);
        Ok(Readiness {
            poller,
            waker,
            creator: sys::process_generation(),
            conns: Slots::new(),
            listeners: Vec::new(),
            foreign: Foreign::default(),
            scratch: vec![0; SCRATCH].into_boxed_slice(),
            lent: false,
            events: Vec::with_capacity(256),
            done: VecDeque::new(),
            accepting: VecDeque::new(),
            round: VecDeque::new(),
            again: VecDeque::new(),
            budget: MAX_COMPLETIONS,
            polled: false,
            told: false,
        })
    }

    /// Closes a connection, after what makes the close a FIN or a reset: not in a child, where it would be the parent's.
    fn close_with(&mut self, token: Token, ending: fn(BorrowedFd<'_>)) {
        let inherited = sys::is_other_process(self.creator);
        let Some(conn) = self.live(token) else { return };
        let socket = conn.socket.take();
        let aborted = conn.abort_out(token);
        if let Some(socket) = socket {
            self.poller.forget_connection(socket.as_raw_fd());
            if !inherited {
                ending(socket.as_fd());
            }
        }
        self.done.extend(aborted);
        self.done.push_back(Completion::Closed { token });
    }

    /// A connection that has not been closed by its owner.
    fn live(&mut self, token: Token) -> Option<&mut Conn> {
        self.conns.get_mut(token).filter(|conn| conn.socket.is_some())
    }

    fn note(&mut self, event: Event) {
        if event.data == WAKER {
            return; // it has ended the wait, and that is all
        }
        if event.data & FOREIGN == 0 {
            let token = Token {
                index: event.data as u32,
                generation: (event.data >> 32) as u32,
            };
            let Some(conn) = self.live(token) else { return };
            conn.readable |= event.readable || event.hangup;
            conn.writable |= event.writable || event.broken;
            conn.hangup |= event.hangup;
            conn.broken |= event.broken;
            if let Some(errno) = event.refused {
                conn.refused = Some(io::Error::from_raw_os_error(errno));
            }
            if !conn.queued {
                conn.queued = true;
                self.round.push_back(token);
            }
            return;
        }
        if event.data & LISTENER != 0 {
            let id = ListenerId((event.data & (LISTENER - 1)) as u32);
            self.accepting.push_back((id, MAX_ACCEPTS));
            return;
        }
        self.foreign.note(&event);
    }

    fn listener_data(id: ListenerId) -> u64 {
        FOREIGN | LISTENER | u64::from(id.0)
    }

    fn connection_data(token: Token) -> u64 {
        u64::from(token.generation) << 32 | u64::from(token.index)
    }

    fn next_accept(&mut self) -> Option<Completion> {
        while let Some((id, left)) = self.accepting.front_mut() {
            let listener = *id;
            let open = self.listeners[listener.0 as usize]
                .as_ref()
                .filter(|found| !found.paused);
            let Some(found) = open.filter(|_| *left > 0) else {
                self.accepting.pop_front();
                continue;
            };
            *left -= 1;
            match sys::accept(found.socket.as_fd()) {
                Ok(socket) => {
                    let (peer, local) = found.addresses(socket.as_fd());
                    return Some(match self.add_connection(socket) {
                        Ok(token) => Completion::Accepted {
                            listener,
                            token,
                            peer,
                            local,
                        },
                        Err(error) => self.accept_failed(listener, error),
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.accepting.pop_front();
                }
                Err(error) if sys::is_lasting(&error) => return Some(self.accept_failed(listener, error)),
                // That connection was gone before it was taken: the next one, please.
                Err(_) => {}
            }
        }
        None
    }

    fn accept_failed(&mut self, listener: ListenerId, error: io::Error) -> Completion {
        self.pause_accept(listener);
        Completion::AcceptFailed { listener, error }
    }

    fn add_connection(&mut self, socket: OwnedFd) -> io::Result<Token> {
        let fd = socket.as_raw_fd();
        // A watch of this number is of a file that was closed unseen: to forget it later would be to forget us.
        self.foreign.is_gone(fd);
        let token = self.conns.insert(Conn::new(socket));
        if let Err(error) = self.poller.add_connection(fd, Self::connection_data(token)) {
            self.conns.remove(token);
            return Err(error);
        }
        Ok(token)
    }

    /// Looks at one connection: goes on sending, reports a break, receives once.
    fn step(&mut self, token: Token) -> Option<Completion> {
        let scratch = &mut self.scratch;
        let conn = self.conns.get_mut(token).filter(|conn| conn.socket.is_some())?;
        conn.queued = false;
        if conn.writable && conn.out.is_some() {
            self.done.extend(conn.advance(token));
            if let Some(fd) = conn.waits_to_send() {
                self.poller.await_writable(fd, Self::connection_data(token));
            }
        }
        let completion = match conn.receive_step(scratch) {
            Step::Nothing => None,
            Step::Bytes(len) => {
                self.lent = true;
                Some(Completion::Received {
                    token,
                    chunk: Chunk { buffer: 0, len },
                })
            }
            Step::End(end) => Some(Completion::ReceiveEnded { token, end }),
        };
        if conn.has_more() {
            conn.queued = true;
            self.again.push_back(token);
        }
        completion
    }

    /// Starts what was just put into `out`, at once: most sends are over before this returns.
    fn start_out(&mut self, token: Token) {
        let Some(conn) = self.live(token) else { return };
        if !conn.writable {
            return; // an edge will say so
        }
        let completion = conn.advance(token);
        let waits = conn.waits_to_send();
        if conn.has_more() && !conn.queued {
            conn.queued = true;
            self.again.push_back(token);
        }
        if let Some(completion) = completion {
            self.done.push_back(completion);
        }
        if let Some(fd) = waits {
            self.poller.await_writable(fd, Self::connection_data(token));
        }
    }

    fn next_inner(&mut self) -> Option<Completion> {
        if let Some(completion) = self.done.pop_front() {
            if let Completion::Closed { token } = completion {
                self.conns.remove(token);
            }
            return Some(completion);
        }
        if let Some((fd, ready)) = self.foreign.next() {
            return Some(Completion::Foreign { fd, ready });
        }
        if let Some(completion) = self.next_accept() {
            return Some(completion);
        }
        while let Some(token) = self.round.pop_front() {
            let completion = self.step(token);
            if let Some(completion) = completion {
                return Some(completion);
            }
            if let Some(completion) = self.done.pop_front() {
                return Some(completion); // a send that went on; never `Closed`
            }
        }
        None
    }
}
