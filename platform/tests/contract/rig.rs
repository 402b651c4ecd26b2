//! Opens a backend, drives it as an engine would, and remembers everything that it said.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{OwnedFd, RawFd};
use std::time::{Duration, Instant};

use m0_platform::{Backend, Completion, EndOfReceive, Interest, ListenerId, SendBuf, Token};

use crate::site::{Client, Site};

/// Nothing that is expected takes this long, also on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What was said of one connection, in order and summed up.
#[derive(Debug, Default)]
pub struct Seen {
    pub peer: Option<SocketAddr>,
    pub local: Option<SocketAddr>,
    pub received: Vec<u8>,
    pub chunks: usize,
    /// `Some(Ok)`: end of file.
    pub ended: Option<Result<(), std::io::Error>>,
    pub sent: Vec<Result<(), std::io::Error>>,
    pub files: Vec<Result<u64, std::io::Error>>,
    pub closed: bool,
    /// R, E, S, F, C: the completions in their order.
    pub order: String,
}

/// A backend with a listener.
pub struct Rig {
    pub backend: Box<dyn Backend>,
    pub site: Site,
    pub listener: ListenerId,
    pub address: SocketAddr,
    pub seen: HashMap<Token, Seen>,
    pub accepted: Vec<Token>,
    pub accept_failures: Vec<std::io::Error>,
    pub foreign: Vec<(RawFd, Interest)>,
    /// Whether `receive` is called on what is accepted.
    pub receive_at_once: bool,
    /// Nothing may be received on these.
    pub paused: HashSet<Token>,
    pub closing: HashSet<Token>,
}

/// Runs a test on what opens, if it does, when this binary allows it, and with a watchdog.
pub fn run(open: impl FnOnce() -> Option<(Box<dyn Backend>, Site)>, test: impl FnOnce(&mut Rig)) {
    let _guard = crate::guard();
    let (_alive, watched) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        if watched.recv_timeout(Duration::from_secs(60)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            eprintln!("a test hangs: a wait has blocked that must not");
            std::process::abort();
        }
    });
    if let Some((backend, site)) = open() {
        let mut rig = Rig::new(backend, site);
        test(&mut rig);
        rig.finish();
    }
}

/// Says something past the harness, which swallows what passing tests print.
pub fn say(line: &str) {
    std::io::Write::write_all(&mut std::io::stderr(), format!("{line}\n").as_bytes()).unwrap();
}

/// Defines tests that run on every backend of the site.
#[macro_export]
macro_rules! contract {
    ($($(#[doc = $doc:literal])* $([options = $options:expr])? fn $name:ident($rig:ident) $body:block)*) => { $(
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $(#[doc = $doc])*
            fn check($rig: &mut $crate::rig::Rig) $body
            #[allow(unused_mut, unused_assignments)]
            fn options() -> m0_platform::Options {
                let mut options = m0_platform::Options::default();
                $(options = $options;)?
                options
            }
            $crate::on_each_backend!();
        }
    )* };
}

impl Rig {
    /// A backend with a listener on the loopback interface.
    pub fn new(mut backend: Box<dyn Backend>, site: Site) -> Rig {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let listener = backend.listen(OwnedFd::from(socket)).unwrap();
        Rig {
            backend,
            site,
            listener,
            address,
            seen: HashMap::new(),
            accepted: Vec::new(),
            accept_failures: Vec::new(),
            foreign: Vec::new(),
            receive_at_once: true,
            paused: HashSet::new(),
            closing: HashSet::new(),
        }
    }

    /// One wait, and everything that it gave.
    pub fn turn(&mut self, timeout: Option<Duration>) {
        self.backend.wait(timeout).unwrap();
        self.drain();
    }

    /// Everything that the last wait gave.
    pub fn drain(&mut self) {
        while let Some(completion) = self.backend.next() {
            self.note(completion);
        }
    }

    fn of(&mut self, token: Token, what: char) -> &mut Seen {
        let seen = self
            .seen
            .get_mut(&token)
            .expect("a completion of a token that was never accepted");
        assert!(!seen.closed, "{what} of {token:?} after Closed: {}", seen.order);
        seen.order.push(what);
        seen
    }

    pub fn note(&mut self, completion: Completion) {
        match completion {
            Completion::Accepted {
                listener: _,
                token,
                peer,
                local,
            } => {
                let old = self.seen.insert(
                    token,
                    Seen {
                        peer,
                        local,
                        ..Seen::default()
                    },
                );
                assert!(old.is_none(), "{token:?} was given out twice");
                self.accepted.push(token);
                if self.receive_at_once {
                    self.backend.receive(token);
                }
            }
            Completion::AcceptFailed { error, .. } => self.accept_failures.push(error),
            Completion::Received { token, chunk } => {
                let bytes = self.backend.bytes(&chunk).to_vec();
                assert_eq!(bytes.len(), chunk.len());
                assert!(!bytes.is_empty());
                self.backend.recycle(chunk);
                assert!(!self.paused.contains(&token), "bytes while paused");
                assert!(!self.closing.contains(&token), "bytes after close");
                let seen = self.of(token, 'R');
                assert!(seen.ended.is_none(), "bytes after the end");
                seen.received.extend_from_slice(&bytes);
                seen.chunks += 1;
            }
            Completion::ReceiveEnded { token, end } => {
                assert!(!self.closing.contains(&token), "an end after close");
                let broken = matches!(end, EndOfReceive::Failed(_));
                assert!(broken || !self.paused.contains(&token), "an end of file while paused");
                let seen = self.of(token, 'E');
                assert!(seen.ended.is_none(), "two ends");
                seen.ended = Some(match end {
                    EndOfReceive::Eof => Ok(()),
                    EndOfReceive::Failed(error) => Err(error),
                });
            }
            Completion::Sent { token, result, buf } => {
                assert!(buf.body.is_empty(), "the body is given back empty");
                self.of(token, 'S').sent.push(result);
            }
            Completion::FileSent { token, result } => self.of(token, 'F').files.push(result),
            Completion::Closed { token } => self.of(token, 'C').closed = true,
            Completion::Foreign { fd, ready } => self.foreign.push((fd, ready)),
        }
    }

    /// Turns until it holds.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Rig) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            assert!(
                start.elapsed() < PATIENCE,
                "gave up on: {what}; seen {:?}",
                Summary(self)
            );
            self.turn(Some(Duration::from_millis(20)));
        }
    }

    /// Turns for a while, for what must not happen.
    pub fn turns_for(&mut self, time: Duration) {
        let start = self.now();
        while self.now().since(start) < time {
            self.turn(Some(Duration::from_millis(5)));
        }
    }

    /// What time it is where the backend waits.
    pub fn now(&self) -> m0_platform::Instant {
        self.site.clock.now()
    }

    /// A client that has connected, and may not be accepted yet.
    pub fn dial(&self) -> std::io::Result<Client> {
        self.site.connect(self.address)
    }

    /// A client and its connection.
    #[track_caller]
    pub fn connect(&mut self) -> (Client, Token) {
        let client = self.dial().unwrap();
        let token = self.accept();
        (client, token)
    }

    /// The next connection that is accepted.
    #[track_caller]
    pub fn accept(&mut self) -> Token {
        let before = self.accepted.len();
        self.until("a connection is accepted", |rig| rig.accepted.len() > before);
        self.accepted[before]
    }

    #[track_caller]
    pub fn seen(&self, token: Token) -> &Seen {
        &self.seen[&token]
    }

    #[track_caller]
    pub fn until_received(&mut self, token: Token, bytes: usize) {
        self.until(&format!("{bytes} bytes on {token:?}"), |rig| {
            rig.seen(token).received.len() >= bytes
        });
    }

    #[track_caller]
    pub fn until_ended(&mut self, token: Token) {
        self.until(&format!("{token:?} ends"), |rig| rig.seen(token).ended.is_some());
    }

    #[track_caller]
    pub fn until_sent(&mut self, token: Token, sends: usize) {
        self.until(&format!("{sends} sends on {token:?}"), |rig| {
            rig.seen(token).sent.len() >= sends
        });
    }

    #[track_caller]
    pub fn until_closed(&mut self, token: Token) {
        self.until(&format!("{token:?} is closed"), |rig| rig.seen(token).closed);
    }

    /// Sends bytes and waits until they went.
    #[track_caller]
    pub fn send(&mut self, token: Token, bytes: &[u8]) {
        let before = self.seen(token).sent.len();
        self.backend.send(
            token,
            SendBuf {
                bytes: bytes.to_vec(),
                body: bytes::Bytes::new(),
            },
        );
        self.until_sent(token, before + 1);
        self.seen(token).sent[before].as_ref().expect("the send went");
    }

    pub fn pause(&mut self, token: Token) {
        self.backend.pause_receive(token);
        self.paused.insert(token);
    }

    pub fn receive(&mut self, token: Token) {
        self.paused.remove(&token);
        self.backend.receive(token);
    }

    pub fn close(&mut self, token: Token) {
        self.closing.insert(token);
        self.backend.close(token);
    }

    pub fn reset(&mut self, token: Token) {
        self.closing.insert(token);
        self.backend.reset(token);
    }

    /// Sends a large body to a peer that does not read, until nothing moves any more.
    pub fn block_sending(&mut self, token: Token) {
        self.backend.send(
            token,
            SendBuf {
                bytes: b"head".to_vec(),
                body: bytes::Bytes::from(pattern(32 << 20, 3)),
            },
        );
        let mut still = 0;
        while still < 20 {
            let before = self.backend.send_progress(token);
            self.turn(Some(Duration::from_millis(2)));
            still = if before != 0 && self.backend.send_progress(token) == before {
                still + 1
            } else {
                0
            };
        }
        assert!(self.seen(token).sent.is_empty(), "nobody has this much room");
    }

    /// Closes everything and checks that everything was given back (R9).
    pub fn finish(&mut self) {
        let open: Vec<Token> = self
            .seen
            .iter()
            .filter(|(_, seen)| !seen.closed)
            .map(|(token, _)| *token)
            .collect();
        for token in open {
            self.close(token);
        }
        self.backend.unlisten(self.listener);
        self.until("everything is closed", |rig| {
            let late: Vec<Token> = rig
                .seen
                .iter()
                .filter(|(_, seen)| !seen.closed)
                .map(|(t, _)| *t)
                .collect();
            late.iter().for_each(|token| rig.close(*token));
            rig.backend.open_connections() == 0
        });
        self.backend.shutdown();
    }
}

struct Summary<'a>(&'a Rig);

impl std::fmt::Debug for Summary<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for token in &self.0.accepted {
            let seen = &self.0.seen[token];
            let ended = &seen.ended;
            writeln!(
                f,
                "{token:?}: {} received {} ended {ended:?}",
                seen.order,
                seen.received.len()
            )?;
        }
        writeln!(f, "foreign {:?}", self.0.foreign.len())
    }
}

/// Whether a descriptor polls readable within a time.
#[must_use]
pub fn polls_readable(fd: RawFd, timeout: Duration) -> bool {
    let mut entry = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let millis = i32::try_from(timeout.as_millis()).unwrap();
    // SAFETY: one valid pollfd.
    unsafe { libc::poll(&raw mut entry, 1, millis) == 1 }
}

/// Bytes that tell where they belong.
#[must_use]
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Reads exactly this much on a thread of its own.
pub fn read_on_thread(mut client: Client, len: usize) -> std::thread::JoinHandle<(Client, Vec<u8>)> {
    std::thread::spawn(move || {
        let mut bytes = vec![0; len];
        client.read_exact(&mut bytes).unwrap();
        (client, bytes)
    })
}
