//! The pump's loop thread over real sockets and a real backend, with a host on the other end of the rings (R2, R5, R11).

// R10 is about what serves; these tests own their sockets.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod backends;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use m0_platform::{Backend, Clock, Kind, Waker};
use m0serve::config::LogLevel;
use m0serve::engine::{Engine, Settings, SharedStats, Stats};
use m0serve::handoff::{
    ExchangeId, Frame, Job, Link, Outlet, ResponseHead, RingHost, RingLoop, Routes, Stop, Why, rings, rings_for,
};
use m0serve::log::Logger;
use m0serve::model::pump::LoopThread;

/// Nothing that is expected takes this long, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running loop thread and the host's end of its link.
struct Pump {
    link: Link,
    /// What the host waits on, as asyncio's selector does.
    own: Box<dyn Backend>,
    /// By what the loop parks.
    at_loop: Waker,
    thread: Option<JoinHandle<std::io::Result<()>>>,
    address: SocketAddr,
    stats: std::sync::Arc<SharedStats>,
    stopped: u32,
    /// Chunks of each response, and what each is.
    chunks: usize,
    chunk: &'static str,
    seen: u64,
}

fn open(kind: Kind) -> Box<dyn Backend> {
    backends::open(kind).expect("it was there a moment ago")
}

on_every_backend! {
    requests_are_answered_one_after_another_and_no_wake_is_lost
    full_rings_both_ways_lose_nothing_and_do_not_deadlock
    a_drain_of_an_empty_server_is_over_at_once
    a_drain_of_an_idle_server_is_over_at_once_and_the_thread_ends_at_once
    a_drain_finishes_what_is_in_flight
    a_request_behind_the_last_one_cost_its_response
    a_reset_behind_more_than_is_kept_is_noticed
    requests_before_a_half_close_are_all_answered_however_many
    stop_now_ends_the_thread_at_once_and_tells_what_was_in_flight
    stop_now_without_connections_says_the_end_too
    a_job_that_found_the_ring_full_before_the_park_is_handed_over
    a_host_with_kept_frames_and_room_for_them_has_something_to_do
}

impl Pump {
    fn start(kind: Kind, spin: bool) -> Pump {
        Pump::over(kind, spin, rings)
    }

    fn with_rings(kind: Kind, jobs: usize, frames: usize) -> Pump {
        Pump::over(kind, false, |to_loop, to_host| {
            rings_for(jobs, frames, to_loop, to_host)
        })
    }

    fn over(kind: Kind, spin: bool, rings: impl FnOnce(Waker, Waker) -> (RingHost, RingLoop)) -> Pump {
        Pump::told(kind, spin, Settings::default(), rings)
    }

    fn told(
        kind: Kind,
        spin: bool,
        settings: Settings,
        rings: impl FnOnce(Waker, Waker) -> (RingHost, RingLoop),
    ) -> Pump {
        let clock = Clock::new();
        let settings = Settings {
            date: false,
            server: None,
            ..settings
        };
        let log = Logger::new(LogLevel::Error, false, clock.clone());
        let mut engine = Engine::new(open(kind), settings, clock, log);
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = listener.local_addr().expect("it is bound");
        listener.set_nonblocking(true).expect("a socket");
        engine.listen(OwnedFd::from(listener)).expect("a listener");
        let (own, stats) = (open(kind), engine.published());
        let waker = engine.backend().waker();
        let (host, at_loop) = rings(waker.clone(), own.waker());
        let run = LoopThread::new(engine, at_loop, Routes::default(), spin);
        let thread = m0_platform::thread::spawn("loop", move || run.run()).expect("a thread");
        Pump {
            link: Link::Ring(host),
            own,
            at_loop: waker,
            thread: Some(thread),
            address,
            stats,
            stopped: 0,
            chunks: 1,
            chunk: "ok",
            seen: 0,
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        stream
    }

    /// Parks as R5 says, after a flush, but never for longer than what tells a test that a wake was lost.
    fn park(&mut self, most: Duration) {
        self.own.waker().announce();
        let timeout = if self.link.has_jobs() { Duration::ZERO } else { most };
        self.own.wait(Some(timeout)).expect("a wait");
        self.own.waker().retract();
        while self.own.next().is_some() {}
    }

    /// Runs jobs and parks until the condition holds. A lost wake would make it wait for all its patience.
    fn until(&mut self, what: &str, mut job: impl FnMut(&mut Pump, Job), done: impl Fn(&Pump) -> bool) {
        let start = Instant::now();
        while !done(self) {
            assert!(start.elapsed() < PATIENCE, "{what}: in vain");
            match self.link.next_job() {
                Some(Job::Stopped) => self.stopped += 1,
                Some(next) => job(self, next),
                None => {
                    self.link.flush().expect("rings do not fail");
                    if !done(self) {
                        self.park(PATIENCE);
                    }
                }
            }
        }
        self.link.flush().expect("rings do not fail");
    }

    /// Waits for the loop's counters, which nobody is woken for.
    fn counts(&mut self, what: &str, reached: impl Fn(&Stats) -> bool) {
        let start = Instant::now();
        while !reached(&self.stats.load()) {
            assert!(start.elapsed() < PATIENCE, "{what}: in vain: {:?}", self.stats.load());
            self.own.wait(Some(Duration::from_millis(1))).expect("a wait");
        }
    }

    fn respond(&mut self, id: ExchangeId) {
        let mut head = ResponseHead::new(200).expect("a status");
        let length = (self.chunk.len() * self.chunks).to_string();
        head.push(b"content-length", length.as_bytes()).expect("a field");
        self.link.push(Frame::Head(id, Box::new(head)));
        for _ in 0..self.chunks {
            self.link
                .push(Frame::Chunk(id, Bytes::from_static(self.chunk.as_bytes())));
        }
        self.link.push(Frame::End(id));
        self.link.push(Frame::Released(id));
    }

    fn say(&mut self, frame: Frame) {
        self.link.push(frame);
        self.link.flush().expect("rings do not fail");
    }

    /// The thread ends without anything else happening. What it said last, without the end and without credits: whether a
    /// chunk is sent before the end of its response is said, so that there is one, is chance.
    fn ends(&mut self) -> Vec<Job> {
        let thread = self.thread.take().expect("it runs");
        let start = Instant::now();
        while !thread.is_finished() {
            assert!(start.elapsed() < PATIENCE, "the loop thread goes on");
            self.own.wait(Some(Duration::from_millis(1))).expect("a wait");
        }
        thread.join().expect("no panic").expect("no error");
        let mut last: Vec<Job> = std::iter::from_fn(|| self.link.next_job()).collect();
        last.retain(|job| !matches!(job, Job::Credit(..)));
        let all = last.len();
        last.retain(|job| !matches!(job, Job::Stopped));
        assert_eq!(self.stopped as usize + all - last.len(), 1, "the end is said once");
        last
    }
}

fn echo(pump: &mut Pump, job: Job) {
    match job {
        Job::Request(request) => {
            pump.seen += 1;
            pump.respond(request.id);
        }
        Job::Credit(..) | Job::BodyAborted(_, Why::PeerFinished) => {}
        other => panic!("no place for {other:?}"),
    }
}

fn read_exactly(stream: &mut TcpStream, expected: &str) {
    let mut bytes = vec![0; expected.len()];
    stream.read_exact(&mut bytes).expect("the response");
    assert_eq!(String::from_utf8_lossy(&bytes), expected);
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn requests_are_answered_one_after_another_and_no_wake_is_lost(kind: Kind) {
    for spin in [false, true] {
        let mut pump = Pump::start(kind, spin);
        let mut client = pump.connect();
        for round in 1..=500 {
            client.write_all(GET).expect("it reads");
            pump.until("a request", echo, |pump| pump.seen == round);
            read_exactly(&mut client, OK);
        }
        pump.say(Frame::Stop(Stop::Now));
        assert!(pump.ends().is_empty());
    }
}

/// More jobs than the ring holds, then more frames than the ring holds, while neither side waits for the other.
fn full_rings_both_ways_lose_nothing_and_do_not_deadlock(kind: Kind) {
    const CLIENTS: u64 = 600;
    m0_platform::thread::raise_open_files().expect("enough descriptors");
    let mut pump = Pump::start(kind, false);
    pump.chunks = 6;
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| pump.connect()).collect();
    for client in &mut clients {
        client.write_all(GET).expect("it reads");
        client.shutdown(Shutdown::Write).expect("a half-close"); // a second job for each
    }
    pump.counts("requests", |stats| stats.requests == CLIENTS);
    const { assert!(2 * CLIENTS > 1024, "more than the ring of jobs holds") };
    // The host says all of it without a flush: more than the ring of frames holds.
    let mut ids = Vec::new();
    pump.until(
        "requests",
        |pump, job| match job {
            Job::Request(request) => {
                ids.push(request.id);
                pump.seen += 1;
            }
            Job::BodyAborted(id, Why::PeerFinished) => {
                assert!(ids.contains(&id), "after its request (R2)");
                pump.seen += 1;
            }
            other => panic!("no place for {other:?}"),
        },
        |pump| pump.seen == 2 * CLIENTS,
    );
    assert_eq!(ids.len() as u64, CLIENTS, "each once");
    for id in ids {
        pump.respond(id);
    }
    assert!(pump.link.needs_flush());
    pump.until("room for the frames", echo, |pump| !pump.link.needs_flush());
    pump.counts("responses", |stats| stats.responses == CLIENTS);
    for mut client in clients {
        let mut text = String::new();
        client.read_to_string(&mut text).expect("the response");
        assert_eq!(text, "HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\nokokokokokok");
    }
    pump.counts("closed", |stats| (stats.connections, stats.exchanges) == (0, 0));
    pump.say(Frame::Stop(Stop::Now));
    assert!(pump.ends().is_empty());
}

/// The loop once parked before it noticed that nothing was left to wait for.
fn a_drain_of_an_empty_server_is_over_at_once(kind: Kind) {
    // Whether the loop is parked when it hears of the drain is chance: often enough it is.
    for _ in 0..20 {
        let mut pump = Pump::start(kind, false);
        pump.say(Frame::Stop(Stop::Drain)); // no connection, no deadline: nothing else would end the loop's wait
        pump.until("the drain", echo, |pump| pump.stopped == 1);
        pump.say(Frame::Stop(Stop::Now));
        assert!(pump.ends().is_empty());
    }
}

fn a_drain_of_an_idle_server_is_over_at_once_and_the_thread_ends_at_once(kind: Kind) {
    let mut pump = Pump::start(kind, false);
    let mut idle = pump.connect();
    pump.counts("a connection", |stats| stats.connections == 1);
    pump.say(Frame::Stop(Stop::Drain));
    pump.until("the drain", echo, |pump| pump.stopped == 1);
    assert_eq!(idle.read(&mut [0]).expect("the server's FIN"), 0);
    pump.say(Frame::Stop(Stop::Now));
    assert!(pump.ends().is_empty());
}

fn a_drain_finishes_what_is_in_flight(kind: Kind) {
    let mut pump = Pump::start(kind, false);
    let mut client = pump.connect();
    client.write_all(GET).expect("it reads");
    let mut busy = None;
    pump.counts("a request", |stats| stats.requests == 1);
    while busy.is_none() {
        match pump.link.next_job() {
            Some(Job::Request(request)) => busy = Some(request.id),
            Some(other) => panic!("no place for {other:?}"),
            None => pump.park(PATIENCE),
        }
    }
    pump.say(Frame::Stop(Stop::Drain));
    assert_eq!(pump.stopped, 0);
    pump.respond(busy.expect("a request"));
    pump.link.flush().expect("rings do not fail");
    let mut text = String::new();
    client.read_to_string(&mut text).expect("the response");
    assert!(text.ends_with("connection: close\r\n\r\nok"), "{text}");
    drop(client);
    pump.until("the drain", echo, |pump| pump.stopped == 1);
    pump.say(Frame::Stop(Stop::Now));
    assert!(pump.ends().is_empty());
}

/// The kernel answers what comes for a closed socket with a reset, and throws away what it had to send.
fn a_request_behind_the_last_one_cost_its_response(kind: Kind) {
    let settings = Settings {
        max_requests: 1,
        ..Settings::default()
    };
    const LARGE: &str = match std::str::from_utf8(&[b'x'; 200_000]) {
        Ok(text) => text,
        Err(_) => unreachable!(),
    };
    let mut pump = Pump::told(kind, false, settings, rings);
    let mut client = pump.connect();
    client.write_all(GET).expect("it reads");
    // More than reaches a client that does not read, and no more than the kernel takes from us.
    pump.chunk = LARGE;
    pump.until("a request", echo, |pump| pump.seen == 1);
    pump.counts("the response", |stats| stats.responses == 1);
    for _ in 0..20 {
        client.write_all(GET).expect("the connection lingers");
        pump.own.wait(Some(Duration::from_millis(1))).expect("a wait");
    }
    let mut text = String::new();
    client.read_to_string(&mut text).expect("the response");
    assert!(text.ends_with(LARGE), "{} bytes", text.len());
    drop(client);
    pump.counts("closed", |stats| (stats.connections, stats.exchanges) == (0, 0));
    pump.say(Frame::Stop(Stop::Now));
    assert!(pump.ends().is_empty());
}

/// So much is pipelined behind a request that waits that its socket is not read any more.
fn pipelined(pump: &Pump) -> TcpStream {
    let mut client = pump.connect();
    client.write_all(&GET.repeat(BEHIND + 1)).expect("the kernel takes it");
    client
}

/// 80 KB.
const BEHIND: usize = 3000;

fn a_reset_behind_more_than_is_kept_is_noticed(kind: Kind) {
    let mut pump = Pump::start(kind, false);
    let client = pipelined(&pump);
    pump.counts("a request", |stats| stats.requests == 1);
    socket2::SockRef::from(&client)
        .set_linger(Some(Duration::ZERO))
        .expect("a socket");
    drop(client);
    let told = |pump: &mut Pump, job| match job {
        Job::Request(_) => {}
        Job::Reset(_, Why::PeerGone) => pump.seen = 1,
        other => panic!("no place for {other:?}"),
    };
    pump.until("the reset", told, |pump| pump.seen == 1);
    pump.say(Frame::Stop(Stop::Now));
    assert!(pump.ends().is_empty());
}

/// That the client has finished says nothing of whether it reads.
fn requests_before_a_half_close_are_all_answered_however_many(kind: Kind) {
    let mut pump = Pump::start(kind, false);
    let mut client = pipelined(&pump);
    client.shutdown(Shutdown::Write).expect("a half-close");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        client.read_to_string(&mut text).map(|_| text)
    });
    pump.until("all requests", echo, |pump| pump.seen == BEHIND as u64 + 1);
    let text = reader.join().expect("no panic").expect("all responses");
    assert_eq!(text.matches(OK).count(), BEHIND + 1);
    pump.say(Frame::Stop(Stop::Now));
    let last = pump.ends();
    assert!(
        matches!(&last[..], [] | [Job::BodyAborted(_, Why::PeerFinished)]),
        "{last:?}"
    );
}

fn stop_now_ends_the_thread_at_once_and_tells_what_was_in_flight(kind: Kind) {
    let mut pump = Pump::start(kind, false);
    let mut client = pump.connect();
    client.write_all(GET).expect("it reads");
    pump.counts("a request", |stats| stats.requests == 1);
    pump.say(Frame::Stop(Stop::Now));
    match &pump.ends()[..] {
        [Job::Request(request), Job::Reset(id, Why::Stopping)] if request.id == *id => {}
        other => panic!("{other:?}"),
    }
    assert!(client.read(&mut [0]).map_or(true, |read| read == 0));
}

fn stop_now_without_connections_says_the_end_too(kind: Kind) {
    let mut pump = Pump::start(kind, false);
    pump.say(Frame::Stop(Stop::Now));
    assert!(pump.ends().is_empty());
}

/// What a frame made the engine say, while the ring of jobs was exactly full, was once kept by a loop that parked without
/// having marked that it wants room: nobody woke it (R5).
fn a_job_that_found_the_ring_full_before_the_park_is_handed_over(kind: Kind) {
    let mut pump = Pump::with_rings(kind, 1, 64);
    let mut client = pump.connect();
    client.write_all(GET).expect("it reads");
    pump.counts("a request", |stats| stats.requests == 1);
    let id = ExchangeId {
        index: 0,
        generation: 0,
    };
    pump.link
        .push(Frame::Head(id, Box::new(ResponseHead::new(304).expect("a status"))));
    pump.say(Frame::Chunk(id, Bytes::from_static(b"of no use")));
    let mut head = vec![0; 29];
    client.read_exact(&mut head).expect("the loop has heard of it");
    let start = Instant::now();
    while !pump.at_loop.is_parked() {
        assert!(start.elapsed() < PATIENCE, "the loop does not park");
        std::thread::yield_now();
    }
    let mut credit = false;
    for what in ["the request", "the credit"] {
        pump.seen = 0;
        pump.until(
            what,
            |pump, job| {
                credit |= matches!(job, Job::Credit(of, 64) if of == id);
                pump.seen = 1;
            },
            |pump| pump.seen == 1,
        );
    }
    assert!(credit);
    pump.link.push(Frame::End(id));
    pump.link.push(Frame::Released(id));
    pump.say(Frame::Stop(Stop::Now));
    assert!(pump.ends().is_empty());
}

/// A host that keeps frames because the ring was full must not park once there is room: it was owed its wake before it
/// announced that it parks, and none will come (R5).
fn a_host_with_kept_frames_and_room_for_them_has_something_to_do(kind: Kind) {
    let (own, at_loop) = (open(kind), open(kind));
    let (host, mut other) = rings(at_loop.waker(), own.waker());
    let mut link = Link::Ring(host);
    let id = ExchangeId {
        index: 0,
        generation: 0,
    };
    let mut pushed = 0;
    while pushed < 5000 {
        link.push(Frame::WantBody(id, pushed));
        pushed += 1;
    }
    link.flush().expect("rings do not fail");
    assert!(!link.has_jobs(), "no room");
    let mut next = 0;
    let mut pop_all = |frames: &mut m0serve::handoff::ring::Consumer<Frame>| {
        while let Some(Frame::WantBody(_, number)) = frames.pop() {
            assert_eq!(number, next, "in order (R2)");
            next += 1;
        }
        next
    };
    assert!(pop_all(&mut other.frames) < pushed);
    assert!(other.frames.producer_starved(), "a wake is owed");
    assert!(link.has_jobs(), "kept frames and room");
    link.flush().expect("rings do not fail");
    assert_eq!(pop_all(&mut other.frames), pushed);
    assert!(!link.has_jobs());
    drop(link);
}
