//! The engine: one pass turns completions into jobs, frames become sends.
//!
//! Owns the backend and, in [`core::Core`], the connections and exchanges. It runs unchanged under both models: whoever
//! drives it calls [`Engine::apply`] for each frame, [`Engine::flush`], [`Engine::wait`], [`Engine::pass`], and takes
//! the jobs. It never calls a host and never blocks but in `wait` (R11).
//!
//! Handlers (`input.rs`, `response.rs`) only change the state of a connection and note it as dirty; [`Engine::settle`]
//! is the one place that brings the backend in line with it.

mod conn;
mod core;
mod drain;
mod exchange;
mod input;
mod mounts;
mod output;
mod response;
mod settings;
mod timers;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use m0_platform::sync::Arc;
use m0_platform::{Backend, Clock, Completion, EndOfReceive, Instant, ListenerId, Token, canary};

pub use self::mounts::{Found, Mounts};
pub use self::settings::{Settings, SharedStats, Stats};

use self::conn::{Conn, Phase, Timer};
use self::core::Core;
use self::exchange::Untold;
use self::output::Piece;
use self::timers::NEVER;
use crate::handoff::{Frame, Job, Why};
use crate::log::Logger;

/// How long a connection may linger after our FIN.
const LINGER_TIME: Duration = Duration::from_secs(2);
/// How long what was said has to arrive before a reset that could overtake it, of a response that was cut short and of one
/// behind which a connection closes; and what a connection may linger while descriptors are short, or in a drain.
const CUT_TIME: Duration = Duration::from_millis(500);
/// How long the rest of a request that is answered already is awaited, at most.
const DISCARD_TIME: Duration = Duration::from_secs(5);
/// Jobs that may wait for the host before no further connection is accepted.
const BACKLOG: usize = 4096;
/// Accepting that failed is tried again after this, or when a connection closes.
const ACCEPT_RETRY: Duration = Duration::from_secs(1);
/// A want of descriptors is over when none was felt for so long. At the limit each connection that ends lets one in, and the
/// next one out: that is one line in the log, and not one a connection.
const SHORT_OVER: Duration = Duration::from_secs(10);
/// How often the wall clock is read.
const UNIX_EVERY: Duration = Duration::from_millis(20);
/// A pass that comes so long after the one before may find time-outs that are over while their bytes wait in the socket.
const AWAY: Duration = Duration::from_millis(200);
/// For so long, and so many passes, deadlines are put off for that reason at most. Afterwards they are looked at before
/// they are put off again: under a load that never lets up time-outs must fire all the same.
const CATCH_UP: (Duration, u32) = (Duration::from_secs(1), 4);

/// An event loop's state: a backend, and what is served over it.
pub struct Engine {
    backend: Box<dyn Backend>,
    core: Core,
    listeners: Vec<ListenerId>,
    /// Accepting has failed, and is paused until then.
    accept_again: Option<Instant>,
    /// Accepting is paused because the host does not take its jobs.
    backlogged: bool,
    /// Requests that have left the engine and wait for a host's thread.
    at_host: usize,
    /// The host has been told that the drain is over.
    stopped_said: bool,
    /// The last pass.
    passed: Instant,
    /// When the wall clock is read again.
    unix_until: Instant,
    /// Deadlines are put off, since then and for so many passes.
    behind: Option<(Instant, u32)>,
    due: Vec<(Token, u64)>,
    published: Arc<SharedStats>,
}

impl Engine {
    /// An engine over a backend, with nothing open.
    #[must_use]
    pub fn new(backend: Box<dyn Backend>, settings: Settings, clock: Clock, log: Logger) -> Self {
        let core = Core::new(settings, clock, log);
        Engine {
            backend,
            passed: core.now,
            unix_until: core.now,
            core,
            listeners: Vec::new(),
            accept_again: None,
            backlogged: false,
            at_host: 0,
            stopped_said: false,
            behind: None,
            due: Vec::new(),
            published: Arc::new(SharedStats::default()),
        }
    }

    /// Counts into what another engine has published until now, which serves no more.
    #[must_use]
    pub fn publishing(mut self, published: Arc<SharedStats>) -> Self {
        self.published = published;
        self
    }

    /// The backend alone, of an engine that has served nothing.
    #[must_use]
    pub fn into_backend(self) -> Box<dyn Backend> {
        assert!(
            self.listeners.is_empty() && self.core.stats.accepted == 0,
            "it has served"
        );
        self.backend
    }

    /// Accepts connections on a listening socket.
    ///
    /// # Errors
    /// What the backend gave.
    pub fn listen(&mut self, socket: OwnedFd) -> io::Result<()> {
        self.listeners.push(self.backend.listen(socket)?);
        Ok(())
    }

    /// The backend, for what is not HTTP: foreign descriptors, the waker.
    pub fn backend(&mut self) -> &mut dyn Backend {
        &mut *self.backend
    }

    /// The clock that it goes by.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.core.clock.clone()
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            exchanges: self.core.exchanges.in_use() as u64,
            ..self.core.stats
        }
    }

    /// The counters as of the last pass, for other threads.
    #[must_use]
    pub fn published(&self) -> Arc<SharedStats> {
        self.published.clone()
    }

    /// Reads the clock, for what is done until the next pass: once for a batch of frames, not for each. The wall clock, of
    /// which only seconds are told, is read seldom.
    pub fn look_at_clock(&mut self) {
        self.core.now = self.core.clock.now();
        if self.core.now < self.unix_until {
            return;
        }
        self.unix_until = self.core.now.plus(UNIX_EVERY);
        let unix = self.core.clock.unix_seconds();
        if std::mem::replace(&mut self.core.unix, unix) != unix {
            self.core.log.tick(false); // says what its rate held back
        }
    }

    /// Takes one frame of the host. Its effect on sockets comes with [`Engine::flush`].
    pub fn apply(&mut self, frame: Frame) {
        match frame {
            Frame::Stop(how) => self.stop(how),
            frame => self.core.frame(frame),
        }
    }

    /// Hands the backend what there is to do: sends, receives, closes.
    pub fn flush(&mut self) {
        // Each round decodes at most one further request of each connection that had kept some, and a connection is
        // in the list again only when that one was answered meanwhile, by a host or for want of one: so this ends.
        while let Some(token) = self.core.again.pop() {
            self.core.input(token, &[]);
        }
        while let Some(token) = self.core.dirty.pop() {
            self.settle(token);
        }
        if self.core.draining && !self.stopped_said && self.core.is_drained() {
            self.stopped_said = true;
            self.core.jobs.push_back(Job::Stopped);
        }
    }

    /// Whether frames have been applied that [`Engine::flush`] has not seen.
    #[must_use]
    pub fn needs_flush(&self) -> bool {
        !self.core.dirty.is_empty() || !self.core.again.is_empty() || (self.core.draining && !self.stopped_said)
    }

    /// Submits what is queued without waiting (R1).
    ///
    /// # Errors
    /// The kernel refused.
    pub fn submit(&mut self) -> io::Result<()> {
        self.backend.submit()
    }

    /// Waits for completions, at most as long as said and no longer than until the next deadline.
    ///
    /// # Errors
    /// What the backend cannot go on from.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = match timeout {
            Some(Duration::ZERO) if canary!("r1-zero-wait-blocks") => self.next_deadline(),
            Some(Duration::ZERO) => timeout,
            timeout => match (timeout, self.next_deadline()) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            },
        };
        self.backend.wait(timeout)
    }

    /// Whether a pass would find something without a wait.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.backend.is_ready()
    }

    fn next_deadline(&self) -> Option<Duration> {
        let now = self.core.clock.now();
        let accept = self.accept_again.map(|at| at.since(now));
        match (self.core.wheel.next(now), accept) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Turns what the last wait gathered into jobs. Calls `foreign` for each foreign descriptor that is ready.
    pub fn pass(&mut self, mut foreign: impl FnMut(std::os::fd::RawFd, m0_platform::Interest)) {
        self.look_at_clock();
        let was_away = self.core.now.since(self.passed) >= AWAY;
        self.passed = self.core.now;
        if was_away && self.behind.is_none() {
            self.behind = Some((self.core.now, 0));
        }
        let mut found = false;
        while let Some(completion) = self.backend.next() {
            found = true;
            match completion {
                Completion::Foreign { fd, ready } => foreign(fd, ready),
                other => self.complete(other),
            }
        }
        // After the application has kept the loop, what came meanwhile is worth more than a clock that went on: deadlines
        // are looked at when nothing more is found. One pass does not find everything (receive buffers run out).
        self.behind = self.behind.and_then(|(since, passes)| {
            let over = self.core.now.since(since) >= CATCH_UP.0 && passes >= CATCH_UP.1;
            (found && !over).then_some((since, passes + 1))
        });
        if self.behind.is_none() {
            self.expire();
        }
        self.flush();
        self.mind_backlog();
        self.published.store(&self.stats());
    }

    /// The next thing to tell the host.
    pub fn pop_job(&mut self) -> Option<Job> {
        let job = self.core.jobs.pop_front();
        self.mind_end_of_backlog();
        job
    }

    /// Tells the engine how many requests wait for a thread of a host: they count as its own waiting jobs do.
    pub fn note_waiting(&mut self, requests: usize) {
        self.at_host = requests;
        self.mind_end_of_backlog();
    }

    fn mind_end_of_backlog(&mut self) {
        if self.backlogged && self.core.jobs.len() + self.at_host < BACKLOG / 2 {
            self.backlogged = false;
            self.resume_accept();
        }
    }

    /// Accepts no more while this many jobs wait: a host that is stuck bounds what it is told by the connections that are
    /// open, but clients that come, ask and go would add to it without end (R7).
    fn mind_backlog(&mut self) {
        if !self.backlogged && self.core.jobs.len() + self.at_host >= BACKLOG {
            self.backlogged = true;
            for listener in &self.listeners {
                self.backend.pause_accept(*listener);
            }
        }
    }

    /// Puts back a job that had no room, to be the next again.
    pub fn unpop_job(&mut self, job: Job) {
        if canary!("r2-put-back-last") {
            return self.core.jobs.push_back(job);
        }
        self.core.jobs.push_front(job);
    }

    /// Jobs that wait for the host.
    #[must_use]
    pub fn jobs(&self) -> usize {
        self.core.jobs.len()
    }

    /// Closes the backend with all it owns. Nothing is sent any more.
    pub fn shutdown(&mut self) {
        self.backend.shutdown();
    }

    fn complete(&mut self, completion: Completion) {
        match completion {
            Completion::Accepted { token, peer, local, .. } => self.accepted(token, peer, local),
            Completion::AcceptFailed { error, .. } => self.accept_failed(&error),
            Completion::Received { token, chunk } => {
                let full = self.core.input(token, self.backend.bytes(&chunk));
                if !(full && canary!("r9-chunk-kept")) {
                    self.backend.recycle(chunk);
                }
                if full {
                    self.settle(token);
                }
            }
            Completion::ReceiveEnded { token, end } => {
                self.core.input_ended(token, matches!(end, EndOfReceive::Failed(_)));
            }
            Completion::Sent { token, result, buf } => {
                self.core.pool.give(buf.bytes);
                self.core.with_conn(token, |core, conn| core.sent(conn, result.is_ok()));
            }
            Completion::FileSent { token, result } => {
                self.core.with_conn(token, |core, conn| core.file_sent(conn, result));
            }
            Completion::Closed { token } => {
                self.core.remove(token);
                if self.accept_again.take().is_some() {
                    self.resume_accept();
                }
            }
            Completion::Foreign { .. } => unreachable!("handled by the pass"),
        }
    }

    fn accepted(&mut self, token: Token, peer: Option<SocketAddr>, local: Option<SocketAddr>) {
        let mut conn = Conn::new(
            token,
            peer.map(canonical),
            local.map(canonical),
            &self.core.settings.limits,
        );
        // Those that are refused linger for a while, and must not take the places of those that could be served.
        let most = self.core.settings.max_connections;
        let full = most != 0 && self.core.admitted >= most;
        conn.admitted = !full;
        self.core.admitted += usize::from(conn.admitted);
        self.core.insert(conn);
        if self.stopped_said {
            // The kernel took it while the listener was being closed; nobody is there to serve it any more.
            self.core.with_conn(token, |core, conn| core.kill(conn, Why::Stopping));
        } else if full {
            self.core.with_conn(token, |core, conn| {
                core.refuse(conn, 503, "Too many connections.", Why::Refused, Untold::default());
            });
        }
    }

    fn accept_failed(&mut self, error: &io::Error) {
        if self.core.note_shortage() {
            let why = match error.raw_os_error() {
                Some(libc::EINVAL) => "another process has shut the listening socket down",
                _ => "connections wait in the backlog",
            };
            self.core
                .log
                .warn("accept", format_args!("accepting is paused, {why}: {error}"));
        }
        self.accept_again = Some(self.core.now.plus(ACCEPT_RETRY));
    }

    fn resume_accept(&mut self) {
        if !self.backlogged && self.accept_again.is_none() {
            for listener in &self.listeners {
                self.backend.resume_accept(*listener);
            }
        }
    }

    /// Acts on deadlines that have passed.
    fn expire(&mut self) {
        if self.accept_again.is_some_and(|at| at <= self.core.now) {
            self.accept_again = None;
            self.resume_accept();
        }
        let mut due = std::mem::take(&mut self.due);
        self.core.wheel.expire(self.core.now, &mut due);
        for (token, tick) in due.drain(..) {
            let progress = self.backend.send_progress(token);
            self.core.with_conn(token, |core, conn| {
                if conn.filed != tick {
                    return; // filed anew for an earlier tick meanwhile
                }
                conn.filed = NEVER;
                // What this pass brought counts, also when it comes late because the application kept the loop.
                core.rearm(conn);
                let moved = std::mem::replace(&mut conn.progress, progress) != progress;
                if conn.timer == Timer::Write && moved {
                    conn.touched = true;
                } else if conn.deadline > tick {
                    if conn.deadline != NEVER {
                        core.file_anew(conn);
                    }
                } else {
                    core.timed_out(conn);
                }
            });
        }
        self.due = due;
    }

    /// Brings the backend in line with a connection's state.
    fn settle(&mut self, token: Token) {
        let Engine { backend, core, .. } = self;
        let Some(slot) = core.conns.get_mut(token.index as usize) else {
            return;
        };
        let Some(mut conn) = slot.take_if(|conn| conn.token == token) else {
            return;
        };
        conn.dirty = false;
        if conn.phase != Phase::Closed {
            match conn.output.start_next() {
                Some(Piece::Bytes(buf, _)) => backend.send(token, buf),
                Some(Piece::File { file, offset, len, .. }) => backend.send_file(token, file, offset, len),
                None => {}
            }
        }
        match conn.phase {
            Phase::Flush { linger } if conn.output.is_empty() => {
                if linger && conn.may_linger() {
                    conn.phase = Phase::Linger;
                    core.leave_place(&mut conn);
                    if !conn.cut {
                        backend.shutdown_write(token);
                    }
                } else {
                    conn.phase = Phase::Closed;
                }
            }
            Phase::Linger if !conn.may_linger() => conn.phase = Phase::Closed,
            _ => {}
        }
        if conn.phase == Phase::Closed {
            conn.receiving = false;
            if !std::mem::replace(&mut conn.close_said, true) {
                if conn.cut {
                    backend.reset(token);
                } else {
                    backend.close(token);
                }
            }
        }
        let wants = core.wants_input(&conn);
        if wants != conn.receiving {
            conn.receiving = wants;
            if wants {
                backend.receive(token);
            } else if !conn.input_over && conn.phase != Phase::Closed {
                backend.pause_receive(token);
            }
        }
        core.rearm(&mut conn);
        core.conns[token.index as usize] = Some(conn);
    }
}

/// An IPv4 address that came over an IPv6 socket is an IPv4 address to everyone who looks at it.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
