//! What crosses between the engine and a host: [`Job`]s one way, [`Frame`]s the other.
//!
//! Both name an exchange (one request and its response), not a connection. Everything that one side says about an
//! exchange travels in one FIFO (R2). No Python object crosses, and no slice of a receive buffer: a head is one owned
//! buffer with spans, a body piece is owned bytes.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use bytes::Bytes;
use m0_platform::Token;

use super::head::{RequestHead, ResponseHead};

/// Names one request and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExchangeId {
    /// Slot in the engine's table; dense, reused after `Released` (R4).
    pub index: u32,
    /// Bumped each time the slot is reused (R3).
    pub generation: u32,
}

/// Why nothing more of a request will come, or of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The peer finished sending (FIN). What we say may still be read.
    PeerFinished,
    /// The connection is gone.
    PeerGone,
    /// What the peer sent broke the protocol or a limit; it has been answered or closed.
    Refused,
    /// A time-out of ours.
    TimedOut,
    /// The server is stopping at once.
    Stopping,
    /// The host broke the protocol of frames (a second head, a body that does not fit its length).
    HostError,
}

/// A request as it is handed to a host.
#[derive(Debug)]
pub struct Request {
    /// Its name in all that follows.
    pub id: ExchangeId,
    /// Method, target and fields.
    pub head: RequestHead,
    /// The number of the application that it is for.
    pub mount: u16,
    /// The connection, so that a host can keep what belongs to it (its address as an object, say).
    pub connection: Token,
    /// The peer; `None` on UNIX sockets.
    pub peer: Option<SocketAddr>,
    /// Our side; `None` on UNIX sockets.
    pub local: Option<SocketAddr>,
    /// What had arrived of the body with the head.
    pub body: Bytes,
    /// Whether `body` is all of it: then no `Body`, `BodyEnd` follows.
    pub body_complete: bool,
}

/// What the engine says to a host.
#[derive(Debug)]
pub enum Job {
    /// A new exchange.
    Request(Box<Request>),
    /// More of its body.
    Body(ExchangeId, Bytes),
    /// The body is complete.
    BodyEnd(ExchangeId),
    /// No more of the request comes, complete or not; the response may still be written. After `BodyEnd` (or a request
    /// that came complete) it says that the peer has finished.
    BodyAborted(ExchangeId, Why),
    /// Body bytes have left: gives back exactly what their frames were charged.
    Credit(ExchangeId, u32),
    /// A `File` frame is done, well or not.
    FileSent(ExchangeId, bool),
    /// The connection is gone; every later frame but `Released` is dropped.
    Reset(ExchangeId, Why),
    /// The drain that a `Frame::Stop` began is over: nothing is open any more.
    Stopped,
}

impl Job {
    /// The exchange that it is about; none where it is about the whole server.
    #[must_use]
    pub fn exchange(&self) -> Option<ExchangeId> {
        match self {
            Job::Request(request) => Some(request.id),
            Job::Body(id, _)
            | Job::BodyEnd(id)
            | Job::BodyAborted(id, _)
            | Job::Credit(id, _)
            | Job::FileSent(id, _)
            | Job::Reset(id, _) => Some(*id),
            Job::Stopped => None,
        }
    }
}

/// How to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Accept no more, finish what is in flight, close what is idle.
    Drain,
    /// Close everything.
    Now,
}

/// What a host says to the engine.
#[derive(Debug)]
pub enum Frame {
    /// The application wants (more of) the body: the window grows by this many bytes. The first one also sends
    /// `100 Continue` where the client asked for it.
    WantBody(ExchangeId, u32),
    /// The head of the response.
    Head(ExchangeId, Box<ResponseHead>),
    /// Some of its body. Charged with [`charge`] of its length.
    Chunk(ExchangeId, Bytes),
    /// A range of a file as its body. Answered by `FileSent`.
    File(ExchangeId, OwnedFd, u64, u64),
    /// The response is complete.
    End(ExchangeId),
    /// The response cannot be completed: the connection closes, with a 500 before it when nothing was sent.
    Abort(ExchangeId, Why),
    /// The host holds nothing of this exchange any more: its slot may be reused (R4). The last frame of an exchange.
    Released(ExchangeId),
    /// Of the whole server, not of an exchange.
    Stop(Stop),
}

/// What a body frame of this length is charged against its window: small frames cost memory too (R7).
#[must_use]
pub fn charge(len: usize) -> u32 {
    u32::try_from(len.max(64)).unwrap_or(u32::MAX)
}

/// Body bytes that may be on their way to a host, and response bytes on their way to a client, per exchange.
///
/// Two of the pieces that hosts and applications commonly hand over, so that one can leave while the next is made: with
/// one, each piece would wait for the answer to the last.
pub const WINDOW: u32 = 128 * 1024;
