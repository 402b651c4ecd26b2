//! The contract between the engine and a platform: one trait, its tokens and its completions.
//!
//! A backend owns its sockets. It names each accepted connection by a [`Token`]; everything about that connection
//! goes by the token until [`Completion::Closed`], which is the last completion of that token, ever (R4). A call with
//! a token whose connection is closed (or of an older generation) does nothing and returns nothing (R3).

use std::io;
use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::time::Duration;

use bytes::Bytes;

/// Names one connection for its whole life: a slot, and how often the slot has been reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    /// Slot in the backend's table; dense, starts at zero, reused after `Closed`.
    pub index: u32,
    /// Bumped each time the slot is reused.
    pub generation: u32,
}

/// Names one listening socket of a backend. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(pub u32);

/// Which implementation serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Linux 6.1+, where kernel and container allow it.
    IoUring,
    /// Every Linux.
    Epoll,
    /// macOS and the BSDs; on Linux an emulation, for tests, in builds with the feature `emulated-kqueue`.
    Kqueue,
}

impl Kind {
    /// The name used on the command line, in the ready line and in `--doctor`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::IoUring => "io_uring",
            Kind::Epoll => "epoll",
            Kind::Kqueue => "kqueue",
        }
    }

    /// Whether it waits for readiness. Then the thread that waits may change; an io_uring request completes on the thread
    /// that armed it.
    #[must_use]
    pub fn is_readiness(self) -> bool {
        match self {
            Kind::IoUring => false,
            Kind::Epoll | Kind::Kqueue => true,
        }
    }

    /// Whether it is not the kernel's own, but made of something else for tests.
    #[must_use]
    pub fn is_emulated(self) -> bool {
        self == Kind::Kqueue && cfg!(target_os = "linux")
    }
}

/// What was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The best that works here.
    #[default]
    Auto,
    /// The best one of readiness ([`Kind::is_readiness`]).
    Readiness,
    /// This one or none.
    Only(Kind),
}

/// What a foreign descriptor is watched for, or is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Interest {
    /// Readable (also: hung up or in error, so that a reader finds out).
    pub read: bool,
    /// Writable (also: hung up or in error, so that a writer finds out).
    pub write: bool,
}

impl Interest {
    /// Reading alone.
    pub const READ: Interest = Interest {
        read: true,
        write: false,
    };
}

/// Bytes on their way out. At most two pieces, sent in order: what was composed, then one shared body.
///
/// The completion of the send gives it back, so that `bytes`' allocation can be used again.
#[derive(Debug, Default)]
pub struct SendBuf {
    /// Heads, chunk framing and small bodies.
    pub bytes: Vec<u8>,
    /// A large body that is not copied again; may be empty.
    pub body: Bytes,
}

impl SendBuf {
    /// Bytes in both pieces.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() + self.body.len()
    }

    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.body.is_empty()
    }
}

/// Received bytes that still lie in the backend's own memory. Read with [`Backend::bytes`], then give it back with
/// [`Backend::recycle`] before the next call of [`Backend::next`] or [`Backend::wait`].
#[derive(Debug)]
#[must_use = "a chunk that is not recycled is a receive buffer lost"]
pub struct Chunk {
    /// Which buffer; the meaning is the backend's.
    pub(crate) buffer: u32,
    /// How many bytes of it, from its start.
    pub(crate) len: u32,
}

impl Chunk {
    /// Names bytes in the memory of a backend that is not in this crate (a scripted one, say). Not zero bytes.
    pub fn new(buffer: u32, len: u32) -> Chunk {
        debug_assert!(len > 0, "an end of file is no chunk");
        Chunk { buffer, len }
    }

    /// Which buffer; only the backend that made the chunk can tell what it means.
    #[must_use]
    pub fn buffer(&self) -> u32 {
        self.buffer
    }

    /// Bytes received; never zero.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len as usize
    }
}

/// Why a connection receives no more.
#[derive(Debug)]
pub enum EndOfReceive {
    /// The peer finished sending (FIN); it may still read.
    Eof,
    /// The connection is broken (reset, timed out); sending will fail too.
    Failed(io::Error),
}

/// Something that happened.
#[derive(Debug)]
pub enum Completion {
    /// A connection came in. It does not receive until [`Backend::receive`] is called.
    Accepted {
        /// Where.
        listener: ListenerId,
        /// Its name from now on.
        token: Token,
        /// The peer's address; `None` on UNIX sockets.
        peer: Option<SocketAddr>,
        /// Our address as the peer sees it; `None` on UNIX sockets.
        local: Option<SocketAddr>,
    },
    /// Accepting failed with something that will not pass by itself (EMFILE, ENFILE, ENOBUFS, ENOMEM; EINVAL of a socket that
    /// another process has shut down; EPERM of a filter). The backend has paused this listener, as by [`Backend::pause_accept`];
    /// [`Backend::resume_accept`] tries again.
    AcceptFailed {
        /// Where.
        listener: ListenerId,
        /// Why.
        error: io::Error,
    },
    /// Bytes came in; at least one.
    Received {
        /// On which connection.
        token: Token,
        /// Where the bytes are.
        chunk: Chunk,
    },
    /// No more will be received. Comes at most once a connection, also while receiving is paused when the connection
    /// broke (a reset is noticed), after all bytes that came before it when it is an end of file.
    ReceiveEnded {
        /// On which connection.
        token: Token,
        /// Why.
        end: EndOfReceive,
    },
    /// A send is over: all of it was handed to the kernel, or it failed. Partial sends are continued by the backend.
    Sent {
        /// On which connection.
        token: Token,
        /// `Err` when the peer is gone; how much went out before that is unknown.
        result: io::Result<()>,
        /// The buffers, given back (`body` emptied).
        buf: SendBuf,
    },
    /// A file send is over.
    FileSent {
        /// On which connection.
        token: Token,
        /// Bytes sent: less than asked when the file was shorter.
        result: io::Result<u64>,
    },
    /// The connection is closed, everything of it has been given back, its slot may be reused. The last completion.
    Closed {
        /// Which.
        token: Token,
    },
    /// A foreign descriptor is ready (level-triggered: reported on every wait while it is).
    Foreign {
        /// Which.
        fd: RawFd,
        /// For what; limited to what it is watched for.
        ready: Interest,
    },
}

/// A platform. See the module's description for tokens, and `tests/contract/` for what every backend must do.
///
/// All calls are made by the thread that owns the backend: the first one that calls [`Backend::wait`] or
/// [`Backend::submit`]. Other threads reach it through its [`crate::Waker`] only.
pub trait Backend: Send {
    /// Which implementation this is.
    fn kind(&self) -> Kind;

    /// Takes a listening socket and starts to accept. The socket may be TCP or UNIX. TCP connections get TCP_NODELAY, and
    /// keep-alive probes that find out within two minutes that a silent peer is gone.
    ///
    /// # Errors
    /// What registering it gave.
    fn listen(&mut self, socket: OwnedFd) -> io::Result<ListenerId>;
    /// Stops accepting for a while; the backlog goes on filling. `Accepted` may still come for what was in flight.
    fn pause_accept(&mut self, listener: ListenerId);
    /// Accepts again.
    fn resume_accept(&mut self, listener: ListenerId);
    /// Closes a listening socket. `Accepted` may still come for what was in flight.
    fn unlisten(&mut self, listener: ListenerId);

    /// Starts or resumes receiving: `Received` comes as bytes do, until `pause_receive`, the end or `close`.
    /// Receiving already: nothing changes.
    fn receive(&mut self, token: Token);
    /// Stops reading the socket. From this return on no `Received` comes for this token until [`Backend::receive`]:
    /// what was on its way is kept and comes first then. A broken connection is still reported.
    fn pause_receive(&mut self, token: Token);

    /// Sends a non-empty buffer. One send (or file send) in flight a connection: asserted.
    fn send(&mut self, token: Token, buf: SendBuf);
    /// Sends `len` bytes of a file from `offset` without reading them into this process.
    fn send_file(&mut self, token: Token, file: OwnedFd, offset: u64, len: u64);
    /// A number that changes whenever bytes of this connection's send left for the peer (time-outs of slow readers).
    fn send_progress(&self, token: Token) -> u64;
    /// Sends FIN once what is in flight has gone; receiving goes on.
    fn shutdown_write(&mut self, token: Token);
    /// Closes: cancels what is in flight and gives everything back; a send in flight gives its `Sent` (with an error)
    /// first; then `Closed`, which is the last. No `Received` or `ReceiveEnded` comes after this call.
    /// The peer is told at once, also while a child that the application forked has the descriptor too.
    fn close(&mut self, token: Token);
    /// As `close`, with a reset (RST) in place of the FIN: the peer must not take what it got for the whole. What the
    /// kernel had not sent is thrown away (`SO_LINGER` of zero, socket(7)). A UNIX socket has no reset and just closes.
    fn reset(&mut self, token: Token);

    /// Watches a descriptor that is not ours (asyncio's), level-triggered, or changes what it is watched for.
    ///
    /// # Errors
    /// EBADF, EPERM (a regular file; the BSDs watch those too) and what else the kernel says of it. `Unsupported` of a
    /// backend in memory, which meets no other loop.
    fn watch(&mut self, _fd: RawFd, _interest: Interest) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Forgets a foreign descriptor, also one that is closed already.
    fn unwatch(&mut self, _fd: RawFd) {}

    /// Hands what is queued to the kernel. Never blocks, delivers nothing.
    ///
    /// # Errors
    /// The kernel refused (ENOMEM); what is queued stays queued.
    fn submit(&mut self) -> io::Result<()>;
    /// Submits what is queued and gathers what happened. `None` waits without limit; zero never blocks (R1); returns
    /// at once when anything is ready already. A signal (EINTR) or the waker ends it early, with nothing gathered.
    ///
    /// # Errors
    /// ENOMEM and EBADF-like faults that the process cannot go on from.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()>;
    /// Whether [`Backend::next`] may have something without another wait.
    fn is_ready(&self) -> bool;
    /// The next completion of the last wait. Bounded: work a peer makes endless comes in later waits.
    fn next(&mut self) -> Option<Completion>;
    /// The bytes of a chunk.
    fn bytes(&self, chunk: &Chunk) -> &[u8];
    /// Gives a chunk's buffer back.
    fn recycle(&mut self, chunk: Chunk);

    /// The handle by which another thread ends a wait.
    fn waker(&self) -> crate::Waker;
    /// A descriptor that becomes readable when a wait would find something, for a loop that is not ours (uvloop).
    /// Made at the first call.
    ///
    /// # Errors
    /// Out of descriptors; `Unsupported` as of [`Backend::watch`].
    fn poll_fd(&mut self) -> io::Result<RawFd> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Connections whose `Closed` has not been delivered (R9).
    fn open_connections(&self) -> usize;
    /// Closes every descriptor and ring of this backend. In a forked child (another process than the creator's) it
    /// does nothing to rings and shared memory. Dropping does the same.
    fn shutdown(&mut self);
}
