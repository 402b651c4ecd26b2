//! The server's kernel: listeners and sockets as the simulated backend finds them, and the wires to the clients.
//!
//! Owns every byte that is on its way. Keeps the backend's contract (R3, R4: `Closed` is last, a slot's generation rises)
//! and fails the world when the engine breaks its own side of it: two sends at once, a call on what is closed, a chunk
//! that was not given back (R9).

use std::collections::VecDeque;
use std::io;

use bytes::Bytes;
use m0_platform::{Chunk, Completion, EndOfReceive, ListenerId, SendBuf, Token};

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
    pub(crate) asked: u64,
    pub(crate) queued: bool,
}

/// One TCP connection, both ends.
#[derive(Debug)]
pub struct Conn {
    /// Whose.
    pub client: usize,
    pub(crate) token: Option<Token>,
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

/// Something that a wait may hand out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    Accept(usize),
    AcceptFailed,
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
    slots: Vec<Option<usize>>,
    free: Vec<Token>,
    gone: Vec<Token>,
    /// Connections are taken.
    pub listening: bool,
    paused: bool,
    pub(crate) backlog: VecDeque<usize>,
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
        !self.ready.is_empty() || !self.batch.is_empty() || (self.listening && !self.paused && !self.backlog.is_empty())
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
        if found.is_none() {
            self.fail(format!("R3: {what} on {token:?}, which is not open"));
        }
        found
    }

    pub(crate) fn pause_accept(&mut self, paused: bool) {
        self.note(|| format!("engine: accepting {}", if paused { "pauses" } else { "goes on" }));
        self.kernel.paused = paused;
    }

    pub(crate) fn unlisten(&mut self) {
        self.note(|| "engine: no longer listens".into());
        self.kernel.listening = false;
        for id in std::mem::take(&mut self.kernel.backlog) {
            self.send_down(id, Packet::Rst);
        }
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
        if !std::mem::replace(&mut self.kernel.conns[id].receiving, false) {
            self.fail("a pause of what does not receive".into());
        }
    }

    pub(crate) fn start_send(&mut self, token: Token, buf: Option<SendBuf>, left: Vec<u8>, asked: u64) {
        let Some(id) = self.named(token, "a send") else { return };
        let conn = &mut self.kernel.conns[id];
        if conn.sending.is_some() || conn.fin_said {
            return self.fail("a send beside another, or after FIN".into());
        }
        if asked == 0 {
            return self.fail("an empty send".into());
        }
        self.kernel.sends_out += 1;
        conn.sending = Some(Sending {
            buf,
            left,
            at: 0,
            asked,
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
        if conn.sending.is_some() || std::mem::replace(&mut conn.fin_said, true) {
            return self.fail("FIN before the end of a send, or twice".into());
        }
        let client = self.kernel.conns[id].client;
        self.note(|| format!("engine: FIN to client {client}"));
        self.send_down(id, Packet::Fin);
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
        let rest = conn.sending.as_mut().filter(|_| anyway && !reset).map(|sending| {
            let rest = sending.left.split_off(sending.at);
            sending.left.truncate(sending.at);
            rest
        });
        if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
            self.send_down(id, Packet::Bytes(rest));
        }
        self.kernel.conns[id].reset_by_kernel = unread && !reset;
        self.send_down(id, if reset || unread { Packet::Rst } else { Packet::Fin });
        self.kernel.ready.push(Ready::Close(id));
    }

    /// Gathers for the engine what is ready.
    pub(crate) fn gather(&mut self) {
        self.take_backlog();
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

    fn take_backlog(&mut self) {
        while self.kernel.listening && !self.kernel.paused && !self.kernel.backlog.is_empty() {
            if self.random.once_in(self.weather.accept_fails) {
                self.kernel.paused = true;
                self.kernel.ready.push(Ready::AcceptFailed);
                return;
            }
            let Some(id) = self.kernel.backlog.pop_front() else {
                return;
            };
            let slots = &mut self.kernel.slots;
            let token = self.kernel.free.pop().unwrap_or_else(|| {
                slots.push(None);
                let index = u32::try_from(slots.len() - 1).expect("few connections");
                Token { index, generation: 0 }
            });
            slots[token.index as usize] = Some(id);
            self.kernel.conns[id].token = Some(token);
            self.kernel.ready.push(Ready::Accept(id));
        }
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
                Some(Completion::Accepted {
                    listener: ListenerId(0),
                    token: self.kernel.conns[id].token?,
                    peer: Some(([127, 0, 0, 1], 40_000).into()),
                    local: Some(([127, 0, 0, 1], 8000).into()),
                })
            }
            Ready::AcceptFailed => Some(Completion::AcceptFailed {
                listener: ListenerId(0),
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
        let bytes: Vec<u8> = conn.inbox.drain(..len).collect();
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
        let result = if whole && !conn.broken {
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
