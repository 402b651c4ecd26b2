//! The server's kernel: listeners and sockets as the simulated backend finds them, and the wires to the clients.
//!
//! Owns every byte that is on its way. Keeps the backend's contract (R3, R4: `Closed` is last, a slot's generation rises)
//! and fails the world when the engine breaks its own side of it: two sends at once, a call on what is closed, a chunk
//! that was not given back (R9).

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use m0_platform::{Chunk, Completion, EndOfReceive, ListenerId, SendBuf, Token};

use crate::listener::Listener;
use crate::world::World;

/// Bytes of further requests that the engine may keep of a connection, beside a receive and a head that is not complete.
const KEPT: usize = 32 * 1024 + 2048;

/// What travels.
#[derive(Debug)]
pub enum Packet {
    /// Bytes of the stream.
    Bytes(Vec<u8>),
    /// No more of them.
    Fin,
    /// The connection is gone.
    Rst,
}

/// One direction of a wire: packets arrive in order.
#[derive(Debug, Default)]
pub struct Wire {
    /// On their way.
    pub packets: VecDeque<Packet>,
    /// Bytes of them.
    pub flying: usize,
    /// When the last one arrives.
    pub last: u64,
    /// Nothing can be sent any more.
    pub over: bool,
}

/// A send that the engine has asked for.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) buf: Option<SendBuf>,
    pub(crate) left: Vec<u8>,
    pub(crate) at: usize,
    /// Why nothing of it can be sent.
    pub(crate) refused: Option<io::Error>,
    /// What the socket had room for when it was asked: so much reaches the peer, also when the connection is closed.
    pub(crate) sure: usize,
    pub(crate) asked: u64,
    pub(crate) queued: bool,
}

/// One connection, both ends.
#[derive(Debug, Default)]
pub struct Conn {
    /// Whose.
    pub client: usize,
    /// Which listener took it.
    pub listener: usize,
    /// The client's and the server's, unless it is a UNIX socket.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
    pub(crate) token: Option<Token>,
    /// The engine was told of it.
    pub(crate) accepted: bool,
    pub(crate) up: Wire,
    pub(crate) inbox: VecDeque<u8>,
    pub(crate) fin_in: bool,
    pub(crate) broken: bool,
    pub(crate) end_told: bool,
    pub(crate) receiving: bool,
    pub(crate) received: usize,
    /// Bytes that the engine has received and passed on, as far as the host's requests tell.
    pub accounted: usize,
    pub(crate) input_queued: bool,
    pub(crate) sending: Option<Sending>,
    pub(crate) pushing: bool,
    pub(crate) progress: u64,
    pub(crate) fin_said: bool,
    pub(crate) closing: bool,
    pub(crate) closed: bool,
    /// To the client.
    pub down: Wire,
    /// Arrived at the client.
    pub arrived: VecDeque<u8>,
    /// The server has finished.
    pub fin: bool,
    /// The connection is gone for the client.
    pub reset: bool,
    /// The server's kernel reset it because bytes came that nobody read.
    pub reset_by_kernel: bool,
    /// The client has closed its end.
    pub left: bool,
}

impl Conn {
    /// Bytes that the server's end has room for, of so many.
    pub(crate) fn room(&self, socket: usize) -> usize {
        socket.saturating_sub(self.down.flying + self.arrived.len())
    }
}

/// Something that a wait may hand out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    Accept(usize),
    AcceptFailed(usize),
    Input(usize),
    Sent(usize),
    Close(usize),
    Ghost(Token, u8),
}

/// All sockets.
#[derive(Debug, Default)]
pub struct Kernel {
    /// By number, also those that are over.
    pub conns: Vec<Conn>,
    pub(crate) slots: Vec<Option<usize>>,
    pub(crate) free: Vec<Token>,
    gone: Vec<Token>,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) ready: Vec<Ready>,
    batch: VecDeque<Ready>,
    chunk: Option<Vec<u8>>,
    /// Sends that were not given back.
    pub sends_out: usize,
    /// Connections that the engine has and has not seen closed.
    pub open: usize,
}

impl Kernel {
    /// Whether a wait would find something.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty() || !self.batch.is_empty() || self.listeners.iter().any(Listener::has_ready)
    }

    /// Whether the last wait found something that was not handed out.
    pub fn has_batch(&self) -> bool {
        !self.batch.is_empty()
    }

    fn find(&self, token: Token) -> Option<usize> {
        let id = (*self.slots.get(token.index as usize)?)?;
        (self.conns[id].token == Some(token)).then_some(id)
    }
}

// --- what the engine calls -----------------------------------------------------------------------------------------

impl World {
    /// The open connection that the engine names; it must be one.
    fn named(&mut self, token: Token, what: &str) -> Option<usize> {
        let found = self.kernel.find(token).filter(|id| !self.kernel.conns[*id].closing);
        if found.is_none() && !self.bare {
            self.fail(format!("R3: {what} on {token:?}, which is not open"));
        }
        found
    }

    pub(crate) fn receive(&mut self, token: Token) {
        let Some(id) = self.named(token, "a receive") else {
            return;
        };
        self.kernel.conns[id].receiving = true;
        self.note(|| format!("engine: receives of slot {}", token.index));
        self.queue_input(id);
    }

    pub(crate) fn pause_receive(&mut self, token: Token) {
        let Some(id) = self.named(token, "a pause") else { return };
        self.note(|| format!("engine: pauses slot {}", token.index));
        if !std::mem::replace(&mut self.kernel.conns[id].receiving, false) && !self.bare {
            self.fail("a pause of what does not receive".into());
        }
    }

    pub(crate) fn start_send(&mut self, token: Token, buf: Option<SendBuf>, left: io::Result<Vec<u8>>, asked: u64) {
        let (left, refused) = match left {
            Ok(left) => (left, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let Some(id) = self.named(token, "a send") else { return };
        let conn = &mut self.kernel.conns[id];
        if conn.sending.is_some() || conn.fin_said {
            return self.fail("a send beside another, or after FIN".into());
        }
        if asked == 0 && buf.is_some() {
            return self.fail("an empty send".into());
        }
        self.kernel.sends_out += 1;
        conn.sending = Some(Sending {
            sure: conn.room(self.weather.socket).min(left.len()),
            buf,
            left,
            at: 0,
            asked,
            refused,
            queued: false,
        });
        let client = conn.client;
        self.note(|| format!("engine: sends {asked} bytes to client {client}"));
        if self.random.once_in(2) {
            self.push_on(id);
        } else {
            self.push_later(id);
        }
    }

    pub(crate) fn send_progress(&self, token: Token) -> u64 {
        self.kernel.find(token).map_or(0, |id| self.kernel.conns[id].progress)
    }

    pub(crate) fn shutdown_write(&mut self, token: Token) {
        let Some(id) = self.named(token, "a shutdown") else {
            return;
        };
        let conn = &mut self.kernel.conns[id];
        let waits = conn.sending.as_ref().is_some_and(|sending| !sending.queued);
        if std::mem::replace(&mut conn.fin_said, true) {
            return self.fail("FIN twice".into());
        }
        let client = conn.client;
        self.note(|| format!("engine: FIN to client {client}"));
        if !waits {
            self.send_down(id, Packet::Fin);
        } // else it follows the send
    }

    pub(crate) fn close(&mut self, token: Token, reset: bool) {
        let Some(id) = self.named(token, "a close") else { return };
        let client = self.kernel.conns[id].client;
        self.note(|| format!("engine: {} client {client}", if reset { "resets" } else { "closes" }));
        let anyway = self.weather.completes_anyway && self.random.once_in(2);
        let conn = &mut self.kernel.conns[id];
        conn.closing = true;
        conn.receiving = false;
        let unread = !conn.inbox.is_empty();
        conn.inbox.clear();
        let room = conn.room(self.weather.socket);
        if let Some(sending) = conn.sending.as_mut().filter(|_| !reset) {
            let fits = anyway && sending.left.len() - sending.at <= room;
            let to = if fits { sending.left.len() } else { sending.sure };
            if to > sending.at {
                let rest = sending.left[sending.at..to].to_vec();
                sending.at = to;
                self.send_down(id, Packet::Bytes(rest));
            }
        }
        self.kernel.conns[id].reset_by_kernel = unread && !reset;
        self.send_down(id, if reset || unread { Packet::Rst } else { Packet::Fin });
        self.kernel.ready.push(Ready::Close(id));
    }

    /// Everything is closed without a completion. An engine should have left nothing, and is not helped: what it left is
    /// looked at when its world ends (R9).
    pub(crate) fn shut_down(&mut self) {
        if !self.bare {
            return;
        }
        for number in 0..self.kernel.listeners.len() {
            self.unlisten(ListenerId(number as u32));
        }
        for id in self.kernel.slots.clone().into_iter().flatten() {
            if let Some(token) = self.kernel.conns[id].token.filter(|_| !self.kernel.conns[id].closing) {
                self.close(token, false);
            }
            self.kernel.conns[id].closed = true;
        }
        self.kernel.slots.fill(None);
        self.kernel.ready.clear();
        self.kernel.batch.clear();
        (self.kernel.open, self.kernel.sends_out) = (0, 0);
    }

    /// Gathers for the engine what is ready.
    pub(crate) fn gather(&mut self) {
        self.take_backlogs();
        if self.random.once_in(self.weather.ghosts)
            && let Some(token) = self.kernel.gone.last().copied()
        {
            let kind = self.random.below(3) as u8;
            self.kernel.ready.push(Ready::Ghost(token, kind));
        }
        let (mut later, mut now) = (Vec::new(), Vec::new());
        let mut inputs = 0;
        for ready in std::mem::take(&mut self.kernel.ready) {
            let is_input = matches!(ready, Ready::Input(_));
            inputs += usize::from(is_input);
            if is_input && inputs > self.weather.buffers || self.random.once_in(self.weather.late) {
                later.push(ready);
            } else {
                now.push(ready);
            }
        }
        if self.weather.shuffled {
            for at in (1..now.len()).rev() {
                now.swap(at, self.random.index(at + 1));
            }
        }
        self.kernel.ready = later;
        self.kernel.batch.extend(now);
    }

    /// The next completion.
    pub(crate) fn next_completion(&mut self) -> Option<Completion> {
        if self.kernel.chunk.is_some() {
            self.fail("R9: a chunk was not given back".into());
        }
        while let Some(ready) = self.kernel.batch.pop_front() {
            if let Some(completion) = self.complete(ready) {
                self.note(|| format!("kernel: {}", describe(&completion)));
                return Some(completion);
            }
        }
        None
    }

    fn complete(&mut self, ready: Ready) -> Option<Completion> {
        match ready {
            Ready::Accept(id) => {
                self.kernel.open += 1;
                let conn = &mut self.kernel.conns[id];
                conn.accepted = true;
                let accepted = Completion::Accepted {
                    listener: ListenerId(conn.listener as u32),
                    token: conn.token?,
                    peer: conn.addresses.map(|(peer, _)| peer),
                    local: conn.addresses.map(|(_, local)| local),
                };
                self.queue_input(id); // it may be broken already
                Some(accepted)
            }
            Ready::AcceptFailed(listener) => Some(Completion::AcceptFailed {
                listener: ListenerId(listener as u32),
                error: io::Error::from_raw_os_error(libc::EMFILE),
            }),
            Ready::Input(id) => self.complete_input(id),
            Ready::Sent(id) => {
                let conn = &self.kernel.conns[id];
                (!conn.closing && conn.sending.is_some()).then(|| self.complete_send(id))
            }
            Ready::Close(id) if self.kernel.conns[id].sending.is_some() => {
                self.kernel.batch.push_front(ready);
                Some(self.complete_send(id))
            }
            Ready::Close(id) => {
                let conn = &mut self.kernel.conns[id];
                conn.closed = true;
                let token = conn.token?;
                self.kernel.slots[token.index as usize] = None;
                self.kernel.open -= 1;
                self.kernel.gone.push(token);
                self.kernel.free.push(Token {
                    generation: token.generation + 1,
                    ..token
                });
                Some(Completion::Closed { token })
            }
            Ready::Ghost(token, kind) => Some(self.ghost(token, kind)),
        }
    }

    /// What would have come of a connection that is closed already (R3).
    fn ghost(&mut self, token: Token, kind: u8) -> Completion {
        match kind {
            0 => {
                let bytes = b"GET /ghost HTTP/1.1\r\nhost: ghost\r\n\r\n".to_vec();
                let chunk = Chunk::new(0, bytes.len() as u32);
                self.kernel.chunk = Some(bytes);
                Completion::Received { token, chunk }
            }
            1 => Completion::ReceiveEnded {
                token,
                end: EndOfReceive::Eof,
            },
            _ => Completion::FileSent { token, result: Ok(1) },
        }
    }

    fn complete_input(&mut self, id: usize) -> Option<Completion> {
        let most = self.random.from_to(1, self.weather.receive as u64) as usize;
        let bytes_first = self.random.once_in(2);
        let conn = &mut self.kernel.conns[id];
        conn.input_queued = false;
        if conn.closing || conn.end_told {
            return None;
        }
        let token = conn.token?;
        if conn.broken && !(conn.receiving && bytes_first && !conn.inbox.is_empty()) {
            conn.end_told = true;
            conn.inbox.clear();
            let end = EndOfReceive::Failed(io::Error::from_raw_os_error(libc::ECONNRESET));
            return Some(Completion::ReceiveEnded { token, end });
        }
        if !conn.receiving {
            return None;
        }
        if conn.inbox.is_empty() {
            conn.end_told = conn.fin_in;
            let end = EndOfReceive::Eof;
            return conn.fin_in.then_some(Completion::ReceiveEnded { token, end });
        }
        let len = conn.inbox.len().min(most);
        let bytes = take(&mut conn.inbox, len);
        let client = conn.client;
        let kept = conn.received.saturating_sub(conn.accounted);
        conn.received += len;
        if kept > KEPT + self.weather.receive && self.must_bound(client) {
            self.fail(format!(
                "R7: client {client}: {kept} bytes are kept, and more are received"
            ));
        }
        let chunk = Chunk::new(0, len as u32);
        self.kernel.chunk = Some(bytes);
        self.queue_input(id);
        self.wake_client(client); // there is room again
        Some(Completion::Received { token, chunk })
    }

    fn complete_send(&mut self, id: usize) -> Completion {
        self.kernel.sends_out -= 1;
        let conn = &mut self.kernel.conns[id];
        let sending = conn.sending.take().expect("looked at before");
        let token = conn.token.expect("only what was accepted sends");
        let whole = sending.at == sending.left.len();
        let result = if let Some(error) = sending.refused {
            Err(error)
        } else if whole && !conn.broken {
            Ok(sending.left.len() as u64)
        } else {
            Err(io::Error::from_raw_os_error(libc::EPIPE))
        };
        match sending.buf {
            Some(mut buf) => {
                buf.body = Bytes::new();
                let result = result.map(drop);
                Completion::Sent { token, result, buf }
            }
            None => Completion::FileSent {
                token,
                result: result.map(|sent| sent.min(sending.asked)),
            },
        }
    }

    /// The bytes of the chunk that was handed out last.
    pub(crate) fn take_chunk(&mut self) -> Vec<u8> {
        self.kernel.chunk.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(crate) fn recycle(&mut self) {
        if self.kernel.chunk.take().is_none() {
            self.fail("R9: a chunk was given back twice".into());
        }
    }
}

/// The first so many bytes of a queue, copied in pieces: a build without optimisations would take a byte at a time.
pub(crate) fn take(queue: &mut VecDeque<u8>, len: usize) -> Vec<u8> {
    let (front, back) = queue.as_slices();
    let of_front = len.min(front.len());
    let bytes = [&front[..of_front], &back[..len - of_front]].concat();
    queue.drain(..len);
    bytes
}

fn describe(completion: &Completion) -> String {
    match completion {
        Completion::Received { token, chunk } => format!("{} bytes received of {}", chunk.len(), name(*token)),
        Completion::Sent { token, result, .. } => format!("a send to {} is over: {result:?}", name(*token)),
        Completion::FileSent { token, result } => format!("a file to {} is over: {result:?}", name(*token)),
        Completion::Accepted { token, .. } => format!("{} accepted", name(*token)),
        Completion::ReceiveEnded { token, end } => format!("the input of {} ends: {end:?}", name(*token)),
        Completion::Closed { token } => format!("{} closed", name(*token)),
        other => format!("{other:?}"),
    }
}

fn name(token: Token) -> String {
    format!("slot {}.{}", token.index, token.generation)
}
