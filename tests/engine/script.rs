//! A network in memory: a backend whose every byte, completion and fault the test decides.
//!
//! It keeps the contract of `m0_platform::Backend`, and asserts that the engine keeps its side of it: one send in flight,
//! no empty sends, every chunk given back before the next completion, closed once. The test holds a [`Net`], the engine
//! the [`Script`] over it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use m0_platform::{Backend, Chunk, Completion, EndOfReceive, Kind, ListenerId, SendBuf, Token, Waker};

use super::peer::Sending;
pub use super::peer::{End, Flow, Peer};

enum Ready {
    Accept(Token),
    AcceptFailed,
    Input(Token),
    Sent(Token),
    Closed(Token),
    /// Whatever the test made up: late completions of older generations.
    Made(Completion, Vec<u8>),
}

#[derive(Default)]
struct State {
    peers: Vec<Peer>,
    /// Free slots with the generation that is next.
    free: Vec<Token>,
    slots: u32,
    arriving: Vec<usize>,
    accept_fails: u32,
    made: Vec<(Completion, Vec<u8>)>,
    ready: VecDeque<Ready>,
    accept_paused: bool,
    resumes: u32,
    listening: bool,
    /// The time-out of the last wait.
    waited: Option<Duration>,
    /// Completions delivered and bytes moved: rises while anything goes on.
    activity: u64,
}

/// The test's hold on the network.
#[derive(Clone, Default)]
pub struct Net(Arc<Mutex<State>>);

/// The engine's.
pub struct Script {
    net: Net,
    waker: Waker,
    kernel: Option<Box<dyn Kernel>>,
    chunk: Option<Vec<u8>>,
}

/// What waits, where clients are threads. Without one a wait finds nothing and is over.
pub trait Kernel: Send {
    /// Waits for the waker, or until [`Net::poll`] finds something.
    fn wait(&mut self, timeout: Option<Duration>);
    /// Something may have happened to clients.
    fn moved(&mut self);
}

impl Net {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The backend over this network; with a kernel it may wait.
    pub fn backend(&self, waker: Waker, kernel: Option<Box<dyn Kernel>>) -> Box<dyn Backend> {
        Box::new(Script {
            net: self.clone(),
            waker,
            kernel,
            chunk: None,
        })
    }

    /// Sees what has happened, unless it has seen something. Whether there is something to be delivered.
    pub fn poll(&self) -> bool {
        let mut state = self.lock();
        if state.ready.is_empty() {
            state.gather();
        }
        !state.ready.is_empty()
    }

    /// A client connects; the number by which the test names it.
    pub fn connect(&self) -> usize {
        let mut state = self.lock();
        let token = state.free.pop().unwrap_or_else(|| {
            state.slots += 1;
            Token {
                index: state.slots - 1,
                generation: 0,
            }
        });
        let id = state.peers.len();
        state.peers.push(Peer {
            token,
            inbox: VecDeque::new(),
            end: None,
            end_told: false,
            out: Vec::new(),
            flow: Flow::Free,
            sending: None,
            progress: 0,
            receiving: false,
            pauses: 0,
            sends: 0,
            bodies: Vec::new(),
            fin: false,
            reset: false,
            close_said: false,
            closed: false,
        });
        state.arriving.push(id);
        id
    }

    /// A client that the kernel took while the listener was being closed.
    pub fn slip_in(&self) -> usize {
        let id = self.connect();
        let mut state = self.lock();
        state.arriving.pop();
        let token = state.peers[id].token;
        state.ready.push_back(Ready::Accept(token));
        id
    }

    pub fn peer_count(&self) -> usize {
        self.lock().peers.len()
    }

    /// Looks at a client.
    pub fn peer<R>(&self, id: usize, look: impl FnOnce(&mut Peer) -> R) -> R {
        look(&mut self.lock().peers[id])
    }

    /// The client sends one segment.
    pub fn send(&self, id: usize, bytes: &[u8]) {
        assert!(!bytes.is_empty(), "a segment has bytes");
        self.peer(id, |peer| peer.inbox.push_back(bytes.to_vec()));
    }

    /// The client ends its side. A reset after a FIN that was told shows in sends only, as the contract says.
    pub fn end(&self, id: usize, end: End) {
        self.peer(id, |peer| {
            if peer.end != Some(End::Reset) {
                peer.end = Some(end);
            }
            if end == End::Reset {
                peer.flow = Flow::Broken;
            }
        });
    }

    /// A completion that nothing led to (of an older generation, say); with bytes when it is a `Received`.
    pub fn make(&self, completion: Completion, bytes: &[u8]) {
        self.lock().made.push((completion, bytes.to_vec()));
    }

    /// Accepting fails with EMFILE at the next wait.
    pub fn fail_accept(&self) {
        self.lock().accept_fails += 1;
    }

    /// Whether the listener is paused, and how often it was resumed.
    pub fn accepting(&self) -> (bool, u32) {
        let state = self.lock();
        (state.listening && !state.accept_paused, state.resumes)
    }

    /// Connections whose `Closed` has not come.
    pub fn open(&self) -> usize {
        let state = self.lock();
        state.peers.iter().filter(|peer| !peer.closed).count() - state.arriving.len()
    }

    /// Whether a client has connected and was not accepted.
    pub fn is_arriving(&self, id: usize) -> bool {
        self.lock().arriving.contains(&id)
    }

    /// Bytes of a client that the engine has not taken.
    pub fn unread(&self, id: usize) -> usize {
        self.peer(id, |peer| peer.inbox.iter().map(Vec::len).sum())
    }

    /// A number that rises while anything goes on.
    pub fn activity(&self) -> u64 {
        self.lock().activity
    }

    /// The time-out of the last wait.
    pub fn waited(&self) -> Option<Duration> {
        self.lock().waited
    }
}

impl State {
    fn find(&mut self, token: Token) -> Option<&mut Peer> {
        self.peers.iter_mut().find(|peer| peer.token == token && !peer.closed)
    }

    fn gather(&mut self) {
        if self.accept_fails > 0 && self.listening && !self.accept_paused {
            self.accept_fails -= 1;
            self.accept_paused = true;
            self.ready.push_back(Ready::AcceptFailed);
        }
        if !self.accept_paused && self.listening {
            for id in self.arriving.drain(..) {
                self.ready.push_back(Ready::Accept(self.peers[id].token));
            }
        }
        for (completion, bytes) in self.made.drain(..) {
            self.ready.push_back(Ready::Made(completion, bytes));
        }
        for peer in &mut self.peers {
            if peer.closed || peer.close_said {
                continue;
            }
            if peer.sending.is_some() {
                let before = peer.progress;
                if peer.move_bytes() {
                    self.ready.push_back(Ready::Sent(peer.token));
                }
                self.activity += peer.progress - before;
            }
            let events = peer.inbox.len() + usize::from(peer.end.is_some() && !peer.end_told);
            if peer.receiving || peer.end == Some(End::Reset) && !peer.end_told {
                self.ready.extend((0..events).map(|_| Ready::Input(peer.token)));
            }
        }
    }
}

impl Script {
    fn input(&mut self, token: Token) -> Option<Completion> {
        let mut state = self.net.lock();
        let peer = state.find(token)?;
        let broken = peer.end == Some(End::Reset) && !peer.end_told;
        if peer.close_said || !(peer.receiving || broken) {
            return None;
        }
        if peer.receiving
            && let Some(bytes) = peer.inbox.pop_front()
        {
            let chunk = Chunk::new(7, u32::try_from(bytes.len()).expect("a small segment"));
            self.chunk = Some(bytes);
            return Some(Completion::Received { token, chunk });
        }
        let end = peer.end.filter(|_| !std::mem::replace(&mut peer.end_told, true))?;
        let end = match end {
            End::Fin => EndOfReceive::Eof,
            End::Reset => EndOfReceive::Failed(io::Error::from_raw_os_error(libc::ECONNRESET)),
        };
        Some(Completion::ReceiveEnded { token, end })
    }

    fn deliver(&mut self, ready: Ready) -> Option<Completion> {
        match ready {
            Ready::Input(token) => self.input(token),
            Ready::Accept(token) => Some(Completion::Accepted {
                listener: ListenerId(0),
                token,
                peer: Some(([127, 0, 0, 1], 40_000).into()),
                local: Some(([127, 0, 0, 1], 8000).into()),
            }),
            Ready::AcceptFailed => Some(Completion::AcceptFailed {
                listener: ListenerId(0),
                error: io::Error::from_raw_os_error(libc::EMFILE),
            }),
            Ready::Sent(token) => {
                let mut state = self.net.lock();
                state
                    .find(token)
                    .filter(|peer| peer.sending.is_some())
                    .map(Peer::take_sent)
            }
            Ready::Closed(token) => {
                let mut state = self.net.lock();
                let peer = state.find(token).expect("closed once");
                peer.closed = true;
                state.free.push(Token {
                    generation: token.generation + 1,
                    ..token
                });
                Some(Completion::Closed { token })
            }
            Ready::Made(completion, bytes) => {
                self.chunk = matches!(completion, Completion::Received { .. }).then_some(bytes);
                Some(completion)
            }
        }
    }
}

impl Backend for Script {
    fn kind(&self) -> Kind {
        Kind::Epoll
    }
    fn listen(&mut self, _socket: OwnedFd) -> io::Result<ListenerId> {
        self.net.lock().listening = true;
        Ok(ListenerId(0))
    }
    fn pause_accept(&mut self, _listener: ListenerId) {
        self.net.lock().accept_paused = true;
    }
    fn resume_accept(&mut self, _listener: ListenerId) {
        let mut state = self.net.lock();
        state.accept_paused = false;
        state.resumes += 1;
    }
    fn unlisten(&mut self, _listener: ListenerId) {
        let mut state = self.net.lock();
        state.listening = false;
        state.activity += 1;
    }
    fn receive(&mut self, token: Token) {
        let mut state = self.net.lock();
        let peer = state.find(token).expect("receives on what is open");
        assert!(!peer.close_said, "nothing is received on what was closed");
        peer.receiving = true;
    }
    fn pause_receive(&mut self, token: Token) {
        let mut state = self.net.lock();
        let peer = state.find(token).expect("pauses what is open");
        assert!(peer.receiving, "pauses what receives");
        peer.receiving = false;
        peer.pauses += 1;
    }
    fn send(&mut self, token: Token, buf: SendBuf) {
        assert!(!buf.is_empty(), "an empty send breaks the contract");
        let left = [&buf.bytes[..], &buf.body[..]].concat();
        let mut state = self.net.lock();
        state.find(token).expect("sends on what is open").start(Sending {
            asked: left.len() as u64,
            found: Ok(left.len() as u64),
            left,
            buf: Some(buf),
        });
    }
    fn send_file(&mut self, token: Token, file: OwnedFd, offset: u64, len: u64) {
        let mut left = vec![0; usize::try_from(len).expect("a small file")];
        let found = std::fs::File::from(file).read_at(&mut left, offset);
        left.truncate(*found.as_ref().unwrap_or(&0));
        let mut state = self.net.lock();
        state.find(token).expect("sends on what is open").start(Sending {
            buf: None,
            left,
            asked: len,
            found: found
                .map(|found| found as u64)
                .map_err(|error| error.raw_os_error().expect("the kernel's")),
        });
    }
    fn send_progress(&self, token: Token) -> u64 {
        self.net.lock().find(token).map_or(0, |peer| peer.progress)
    }
    fn shutdown_write(&mut self, token: Token) {
        let mut state = self.net.lock();
        let peer = state.find(token).expect("shuts down what is open");
        assert!(peer.sending.is_none() && !peer.fin, "FIN once, after the last send");
        peer.fin = true;
        state.activity += 1;
    }
    fn close(&mut self, token: Token) {
        let mut state = self.net.lock();
        let peer = state.find(token).expect("closes what is open");
        assert!(!peer.close_said, "closed once");
        peer.close_said = true;
        if peer.sending.is_some() {
            state.ready.push_back(Ready::Sent(token));
        }
        state.ready.push_back(Ready::Closed(token));
    }
    fn reset(&mut self, token: Token) {
        self.net.lock().find(token).expect("resets what is open").reset = true;
        self.close(token);
    }
    fn submit(&mut self) -> io::Result<()> {
        Ok(())
    }
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.net.lock().waited = timeout;
        let Some(kernel) = &mut self.kernel else {
            self.net.lock().gather();
            return Ok(());
        };
        let found = self.net.poll();
        kernel.moved();
        kernel.wait(if found { Some(Duration::ZERO) } else { timeout });
        self.net.poll();
        kernel.moved();
        Ok(())
    }
    fn is_ready(&self) -> bool {
        !self.net.lock().ready.is_empty()
    }
    fn next(&mut self) -> Option<Completion> {
        assert!(self.chunk.is_none(), "a chunk was kept across a call of next (R9)");
        loop {
            let ready = self.net.lock().ready.pop_front()?;
            if let Some(completion) = self.deliver(ready) {
                self.net.lock().activity += 1;
                return Some(completion);
            }
        }
    }
    fn bytes(&self, chunk: &Chunk) -> &[u8] {
        let bytes = self.chunk.as_ref().expect("a chunk that was delivered");
        assert_eq!(chunk.len(), bytes.len());
        bytes
    }
    fn recycle(&mut self, _chunk: Chunk) {
        assert!(self.chunk.take().is_some(), "a chunk is given back once");
    }
    fn waker(&self) -> Waker {
        self.waker.clone()
    }
    fn open_connections(&self) -> usize {
        self.net.open()
    }
    fn shutdown(&mut self) {
        self.kernel = None;
    }
}
