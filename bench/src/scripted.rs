//! A backend in memory: a fixed set of connections that send the same recorded request again and again.
//!
//! Like a load generator with so many connections: each request follows when the response to the one before has been
//! sent. All connections that are due are delivered by one wait, as a saturated server sees them. Makes no system call
//! after its start, so that a count of instructions is the engine's.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use bytes::Bytes;
use m0_platform::{Backend, Choice, Chunk, Completion, Kind, ListenerId, Options, SendBuf, Token, Waker};

/// How far a replay has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Times the recorded bytes were delivered.
    pub delivered: u64,
    /// Sends that were taken.
    pub sends: u64,
    /// Bytes in them.
    pub sent_bytes: u64,
}

/// One scripted client.
#[derive(Debug, Default)]
struct Client {
    receiving: bool,
    /// A response has been sent since the last delivery, or there has been none yet.
    due: bool,
}

/// The backend.
pub struct Scripted {
    /// Of the backend that lends its waker and descriptor.
    lender: Box<dyn Backend>,
    recorded: Vec<u8>,
    clients: Vec<Client>,
    accepted: bool,
    ready: VecDeque<Completion>,
    /// Sends that the next wait completes.
    sent: Vec<(Token, SendBuf)>,
    /// Deliveries that are left.
    left: u64,
    chunks_out: u32,
    open: usize,
    progress: std::sync::Arc<std::sync::Mutex<Progress>>,
}

/// Reads how far a replay has come, also once the backend belongs to an engine.
#[derive(Clone, Debug)]
pub struct Gauge(std::sync::Arc<std::sync::Mutex<Progress>>);

impl Gauge {
    /// As of the last wait.
    ///
    /// # Panics
    /// When the backend panicked.
    #[must_use]
    pub fn read(&self) -> Progress {
        *self.0.lock().expect("the backend does not panic while it counts")
    }
}

impl Scripted {
    /// `connections` clients that deliver `recorded` `deliveries` times in all.
    ///
    /// # Errors
    /// No descriptors are left for a waker.
    pub fn new(recorded: Vec<u8>, connections: u32, deliveries: u64) -> io::Result<(Scripted, Gauge)> {
        let (lender, _) = m0_platform::open(Choice::Readiness, &Options::default())
            .map_err(|refused| io::Error::other(refused.sentence))?;
        let progress = std::sync::Arc::default();
        let clients = (0..connections)
            .map(|_| Client {
                receiving: false,
                due: true,
            })
            .collect();
        let scripted = Scripted {
            lender,
            recorded,
            clients,
            accepted: false,
            ready: VecDeque::new(),
            sent: Vec::new(),
            left: deliveries,
            chunks_out: 0,
            open: connections as usize,
            progress: std::sync::Arc::clone(&progress),
        };
        Ok((scripted, Gauge(progress)))
    }

    fn accept_all(&mut self) {
        self.accepted = true;
        for index in 0..u32::try_from(self.clients.len()).expect("made from a u32") {
            let token = Token { index, generation: 0 };
            self.ready.push_back(Completion::Accepted {
                listener: ListenerId(0),
                token,
                peer: None,
                local: None,
            });
        }
    }

    fn deliver(&mut self) -> u64 {
        let len = u32::try_from(self.recorded.len()).expect("a recorded request is small");
        let mut delivered = 0;
        for (index, client) in (0u32..).zip(&mut self.clients) {
            if client.due && client.receiving && delivered < self.left {
                client.due = false;
                delivered += 1;
                let token = Token { index, generation: 0 };
                self.ready.push_back(Completion::Received {
                    token,
                    chunk: Chunk::new(0, len),
                });
            }
        }
        self.left -= delivered;
        delivered
    }
}

impl Backend for Scripted {
    fn kind(&self) -> Kind {
        Kind::Epoll
    }
    fn listen(&mut self, _socket: OwnedFd) -> io::Result<ListenerId> {
        Ok(ListenerId(0))
    }
    fn pause_accept(&mut self, _listener: ListenerId) {}
    fn resume_accept(&mut self, _listener: ListenerId) {}
    fn unlisten(&mut self, _listener: ListenerId) {}

    fn receive(&mut self, token: Token) {
        self.clients[token.index as usize].receiving = true;
    }
    fn pause_receive(&mut self, token: Token) {
        self.clients[token.index as usize].receiving = false;
    }
    fn send(&mut self, token: Token, buf: SendBuf) {
        assert!(!buf.is_empty(), "an empty send breaks the contract");
        self.sent.push((token, buf));
    }
    fn send_file(&mut self, _token: Token, _file: OwnedFd, _offset: u64, _len: u64) {
        unreachable!("the scripted host sends no files")
    }
    fn send_progress(&self, _token: Token) -> u64 {
        0
    }
    fn shutdown_write(&mut self, _token: Token) {}
    fn close(&mut self, token: Token) {
        self.open -= 1;
        self.ready.push_back(Completion::Closed { token });
    }
    fn reset(&mut self, token: Token) {
        self.close(token);
    }

    fn submit(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn wait(&mut self, _timeout: Option<Duration>) -> io::Result<()> {
        if !self.accepted {
            self.accept_all();
            return Ok(());
        }
        let (mut sends, mut bytes) = (0, 0);
        for (token, mut buf) in self.sent.drain(..) {
            sends += 1;
            bytes += buf.len() as u64;
            buf.bytes.clear();
            buf.body = Bytes::new();
            self.clients[token.index as usize].due = true;
            self.ready.push_back(Completion::Sent {
                token,
                result: Ok(()),
                buf,
            });
        }
        let delivered = self.deliver();
        let mut progress = self.progress.lock().expect("a gauge only reads");
        progress.delivered += delivered;
        progress.sends += sends;
        progress.sent_bytes += bytes;
        Ok(())
    }
    fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }
    fn next(&mut self) -> Option<Completion> {
        assert_eq!(self.chunks_out, 0, "a chunk was kept across a call of next");
        let completion = self.ready.pop_front();
        self.chunks_out += u32::from(matches!(completion, Some(Completion::Received { .. })));
        completion
    }
    fn bytes(&self, chunk: &Chunk) -> &[u8] {
        &self.recorded[..chunk.len()]
    }
    fn recycle(&mut self, _chunk: Chunk) {
        self.chunks_out -= 1;
    }

    fn waker(&self) -> Waker {
        self.lender.waker()
    }
    fn open_connections(&self) -> usize {
        self.open
    }
    fn shutdown(&mut self) {
        self.lender.shutdown();
    }
}
