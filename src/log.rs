//! Lines for people: messages on stderr, the access log on stdout.
//!
//! R12: each kind of message has a bounded rate; what exceeds it is counted, and the count is said. R11: a reader that
//! does not read never hangs the thread that logs. Before each write the descriptor is asked whether it takes bytes
//! (`poll(2)` without waiting), and a line is at most `PIPE_BUF` long, so that a pipe with any room takes it whole
//! (`pipe(7)`); without room the line is dropped and counted, and the count is said once there is room again. What is
//! left open: a second process that fills the same pipe between the two calls. O_NONBLOCK would close it, but belongs to
//! the open file, which we share with whoever started us.
//!
//! Nothing here panics on a closed stderr or stdout, and a number that was closed when the logger was made is never
//! written to: it may be a client's socket by now.

use std::fmt::{self, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use m0_platform::sync::{Arc, Mutex, MutexGuard};
use m0_platform::{Clock, Instant};

pub use crate::config::LogLevel;

/// Messages of one kind in one second; the rest of that second is counted.
pub const BURST: u32 = 10;
/// The longest line in bytes, its end included. POSIX lets no pipe take fewer than 512 bytes whole; Linux takes 4096.
const LINE: usize = if cfg!(target_os = "linux") { 4096 } else { 512 };
/// Kinds of message that are told apart; the programme has a few dozen.
const KINDS: usize = 256;

/// Writes lines. Cheap to clone; clones share their rates.
#[derive(Clone)]
pub struct Logger {
    shared: Arc<Shared>,
}

struct Shared {
    level: LogLevel,
    access: bool,
    clock: Clock,
    state: Mutex<State>,
}

struct State {
    messages: Sink,
    requests: Sink,
    rates: Vec<Rate>,
    line: String,
}

/// How much of one kind was said in the current second.
struct Rate {
    kind: &'static str,
    level: LogLevel,
    since: Instant,
    said: u32,
    held_back: u64,
}

/// A descriptor, and what could not be written to it.
struct Sink {
    fd: Option<i32>,
    dropped: u64,
}

impl fmt::Debug for Logger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logger")
            .field("level", &self.shared.level)
            .finish_non_exhaustive()
    }
}

impl Logger {
    /// A logger to stderr and stdout.
    #[must_use]
    pub fn new(level: LogLevel, access: bool, clock: Clock) -> Logger {
        Logger::to(level, access, clock, libc::STDERR_FILENO, libc::STDOUT_FILENO)
    }

    /// A logger to descriptors of the caller's, which stay open for as long as it is used.
    #[must_use]
    pub fn to(level: LogLevel, access: bool, clock: Clock, messages: i32, requests: i32) -> Logger {
        let state = State {
            messages: Sink::new(messages),
            requests: Sink::new(requests),
            rates: Vec::new(),
            line: String::new(),
        };
        Logger {
            shared: Arc::new(Shared {
                level,
                access,
                clock,
                state: Mutex::new(state),
            }),
        }
    }

    /// Whether a message of this level is written.
    #[must_use]
    pub fn enabled(&self, level: LogLevel) -> bool {
        level <= self.shared.level
    }

    /// The server cannot do what it is for.
    pub fn error(&self, kind: &'static str, message: impl fmt::Display) {
        self.say(LogLevel::Error, kind, &message);
    }

    /// Something was dropped or refused against expectation.
    pub fn warn(&self, kind: &'static str, message: impl fmt::Display) {
        self.say(LogLevel::Warn, kind, &message);
    }

    /// What an operator wants to know once.
    pub fn info(&self, kind: &'static str, message: impl fmt::Display) {
        self.say(LogLevel::Info, kind, &message);
    }

    /// What somebody who looks for a fault wants to know.
    pub fn debug(&self, kind: &'static str, message: impl fmt::Display) {
        self.say(LogLevel::Debug, kind, &message);
    }

    /// One request in the access log: `127.0.0.1:1234 - "GET /path?query HTTP/1.1" 200`.
    ///
    /// `version` is what follows `HTTP/`. A peer on a UNIX socket is written as `-`.
    pub fn access(&self, peer: Option<SocketAddr>, method: &[u8], target: &[u8], version: &str, status: u16) {
        self.access_line(peer, status, |line| {
            push_escaped(line, method);
            line.push(' ');
            push_escaped(line, target);
            let _ = write!(line, " HTTP/{version}");
        });
    }

    /// A request that was refused before it was understood: what came of its first line, as it came, or `-`.
    pub fn access_refused(&self, peer: Option<SocketAddr>, first_line: &[u8], status: u16) {
        self.access_line(peer, status, |line| match first_line {
            [] => line.push('-'),
            bytes => push_escaped(line, bytes),
        });
    }

    fn access_line(&self, peer: Option<SocketAddr>, status: u16, put_request: impl FnOnce(&mut String)) {
        if !self.shared.access {
            return;
        }
        let mut state = self.lock();
        let State { requests, line, .. } = &mut *state;
        line.clear();
        match peer {
            Some(peer) => drop(write!(line, "{peer}")),
            None => line.push('-'),
        }
        line.push_str(" - \"");
        put_request(line);
        let _ = write!(line, "\" {status}");
        requests.write(line);
    }

    /// Says what was held back in seconds that are over. To be called now and then (once a second at most matters), and
    /// at the end with `all`, so that no count is lost.
    pub fn tick(&self, all: bool) {
        let now = self.shared.clock.now();
        let mut state = self.lock();
        for at in 0..state.rates.len() {
            let rate = &mut state.rates[at];
            if rate.held_back > 0 && (all || now.since(rate.since) >= Duration::from_secs(1)) {
                let (level, kind, more) = (rate.level, rate.kind, std::mem::take(&mut rate.held_back));
                state.write_message(level, &format_args!("and {more} more of the kind '{kind}'"));
            }
        }
    }

    fn say(&self, level: LogLevel, kind: &'static str, message: &dyn fmt::Display) {
        if !self.enabled(level) {
            return;
        }
        let now = self.shared.clock.now();
        let mut state = self.lock();
        let rate = state.rate(kind, level, now);
        if now.since(rate.since) >= Duration::from_secs(1) {
            rate.since = now;
            rate.said = 0;
        }
        if rate.said >= BURST {
            rate.held_back += 1;
            return;
        }
        rate.said += 1;
        let more = std::mem::take(&mut rate.held_back);
        if more > 0 {
            state.write_message(level, &format_args!("and {more} more of the kind '{kind}'"));
        }
        state.write_message(level, message);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while a line was put together leaves at worst half a line, which the next one clears.
        self.shared
            .state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl State {
    fn rate(&mut self, kind: &'static str, level: LogLevel, now: Instant) -> &mut Rate {
        let at = match self.rates.iter().position(|rate| rate.kind == kind) {
            Some(at) => at,
            None => {
                assert!(
                    self.rates.len() < KINDS,
                    "kinds of messages are constants of the programme, not data"
                );
                self.rates.push(Rate {
                    kind,
                    level,
                    since: now,
                    said: 0,
                    held_back: 0,
                });
                self.rates.len() - 1
            }
        };
        &mut self.rates[at]
    }

    fn write_message(&mut self, level: LogLevel, message: &dyn fmt::Display) {
        self.line.clear();
        self.line.push_str(match level {
            LogLevel::Error => "m0serve: error: ",
            LogLevel::Warn => "m0serve: warning: ",
            LogLevel::Info => "m0serve: ",
            LogLevel::Debug => "m0serve: debug: ",
        });
        let _ = write!(OneLine(&mut self.line), "{message}");
        self.messages.write(&mut self.line);
    }
}

impl Sink {
    fn new(fd: i32) -> Sink {
        // SAFETY: F_GETFD takes no pointer and changes nothing; a closed number gives -1.
        let open = unsafe { libc::fcntl(fd, libc::F_GETFD) } != -1;
        Sink {
            fd: open.then_some(fd),
            dropped: 0,
        }
    }

    /// Writes a line, or drops and counts it where it does not go out at once.
    fn write(&mut self, line: &mut String) {
        let Some(fd) = self.fd else { return };
        cut(line, LINE - 1);
        line.push('\n');
        if !takes_bytes(fd) {
            self.dropped += 1;
            return;
        }
        if self.dropped > 0 {
            let lost = format!(
                "m0serve: warning: {} lines were dropped: their reader did not keep up\n",
                self.dropped
            );
            self.dropped = 0;
            put(fd, lost.as_bytes());
            if !takes_bytes(fd) {
                self.dropped = 1;
                return;
            }
        }
        put(fd, line.as_bytes());
    }
}

/// Whether a write of a line would not block now. An error or a hang-up counts: then the write fails at once.
fn takes_bytes(fd: i32) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one valid pollfd that the call fills and does not keep; a time-out of zero does not block.
    let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
    ready == 1
}

/// One write. What fails or is cut short is gone: there is nobody left to tell.
fn put(fd: i32, bytes: &[u8]) {
    // SAFETY: the pointer and length are those of a live slice, which write(2) only reads.
    let _ = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
}

/// Shortens text to at most `most` bytes, at a character's boundary, and marks it.
fn cut(line: &mut String, most: usize) {
    if line.len() <= most {
        return;
    }
    let mut end = most - 3;
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    line.truncate(end);
    line.push_str("...");
}

/// Keeps a message on its line: control characters, some of which a peer may have chosen, are written as escapes.
struct OneLine<'a>(&'a mut String);

impl fmt::Write for OneLine<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // Lines are cut later; a message of megabytes is not gathered first.
        if self.0.len() > 2 * LINE {
            return Ok(());
        }
        for character in text.chars().take(2 * LINE) {
            if character.is_control() {
                self.0.extend(character.escape_default());
            } else {
                self.0.push(character);
            }
        }
        Ok(())
    }
}

/// Bytes of a request as text: what is not printable ASCII, and the quote, as `\xNN`.
fn push_escaped(line: &mut String, bytes: &[u8]) {
    for byte in bytes.iter().take(LINE) {
        match byte {
            b'"' | b'\\' | 0..=0x1f | 0x7f.. => drop(write!(line, "\\x{byte:02x}")),
            _ => line.push(char::from(*byte)),
        }
    }
}

#[cfg(all(test, not(feature = "modelled")))]
mod tests;
