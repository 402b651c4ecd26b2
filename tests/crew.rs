//! Handler threads beside the loop, for several applications, with a host at the other end of the rings (R2, R5, R7), and
//! a lock that is shared as the interpreter's is.

// R10 is about what serves; these tests own their sockets and threads.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod backends;

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use m0_platform::{Backend, Clock, Kind, Waker};
use m0serve::config::LogLevel;
use m0serve::engine::{Engine, Mounts, Settings, SharedStats};
use m0serve::handoff::{
    Crew, ExchangeId, Frame, Job, Lane, Link, Outlet, Request, ResponseHead, Routes, Seat, Stop, crew, rings,
};
use m0serve::log::Logger;
use m0serve::model::pump::LoopThread;

const PATIENCE: Duration = Duration::from_secs(30);
/// Views of one application that run at once.
const EACH: usize = 2;

/// How long a thread waits for the GIL before it asks for it, and how long a view computes.
const INTERVAL: Duration = Duration::from_millis(5);
const COMPUTES: Duration = Duration::from_micros(300);

/// A lock that is shared as CPython shares its own (`ceval_gil.c`): who has waited for an interval asks for it; who has it
/// lets it go where it hears of that, and goes on once another has had it.
#[derive(Default)]
struct Gil {
    /// Whether it is held, and how often it was taken.
    state: Mutex<(bool, u64)>,
    changed: Condvar,
    wanted: AtomicBool,
    /// How often a view lost it in its middle.
    forced: AtomicU64,
}

impl Gil {
    fn take(&self) {
        let mut state = self.state.lock().expect("no panic");
        while state.0 {
            let (after, waited) = self.changed.wait_timeout(state, INTERVAL).expect("no panic");
            state = after;
            if waited.timed_out() && state.0 {
                self.wanted.store(true, Ordering::Relaxed);
            }
        }
        *state = (true, state.1 + 1);
        self.wanted.store(false, Ordering::Relaxed);
        self.changed.notify_all();
    }

    fn release(&self) -> u64 {
        let mut state = self.state.lock().expect("no panic");
        state.0 = false;
        self.changed.notify_all();
        state.1
    }

    /// Holds it for so long in all.
    fn compute(&self, time: Duration) {
        let mut left = time;
        while let Some(rest) = left.checked_sub(Duration::from_micros(20)) {
            let start = Instant::now();
            while start.elapsed() < Duration::from_micros(20) {
                std::hint::spin_loop();
            }
            left = rest;
            if self.wanted.load(Ordering::Relaxed) {
                self.forced.fetch_add(1, Ordering::Relaxed);
                let taken = self.release();
                let state = self.state.lock().expect("no panic");
                drop(
                    self.changed
                        .wait_while(state, |state| state.1 == taken)
                        .expect("no panic"),
                );
                self.take();
            }
        }
    }
}

/// Two applications for the crew, at / and /b, and one for the host at the other end, at /host.
struct Server {
    address: SocketAddr,
    link: Link,
    own: Box<dyn Backend>,
    stats: m0_platform::sync::Arc<SharedStats>,
    crew: m0_platform::sync::Arc<Crew>,
    /// Views that wait say so, and each goes on when it is told to.
    waiting: Receiver<()>,
    go_on: Sender<()>,
    gil: Arc<Gil>,
    threads: Vec<JoinHandle<()>>,
    run: JoinHandle<std::io::Result<()>>,
}

fn lane() -> Lane {
    Lane::new(3, EACH, Clock::new(), false)
}

fn open(kind: Kind) -> Box<dyn Backend> {
    backends::open(kind).expect("it was there a moment ago")
}

on_every_backend! {
    an_application_whose_views_all_wait_takes_no_thread_from_another
    a_thread_that_says_more_than_its_ring_holds_loses_nothing
    a_host_that_takes_nothing_holds_no_thread_up
}

impl Server {
    fn start(kind: Kind, lane: Lane) -> Server {
        let clock = Clock::new();
        let settings = Settings {
            date: false,
            server: None,
            mounts: Mounts::new(["", "/b", "/host"]),
            ..Settings::default()
        };
        let log = Logger::new(LogLevel::Error, false, clock.clone());
        let mut engine = Engine::new(open(kind), settings, clock.clone(), log);
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = listener.local_addr().expect("it is bound");
        listener.set_nonblocking(true).expect("a socket");
        engine.listen(OwnedFd::from(listener)).expect("a listener");
        let (own, stats) = (open(kind), engine.published());
        let (host, at_loop) = rings(engine.backend().waker(), own.waker());
        let (crew, side) = crew(2 * EACH, lane, engine.backend().waker(), clock);
        let run = LoopThread::new(engine, at_loop, Routes::new(side, vec![true, true, false]), false);
        let run = m0_platform::thread::spawn("loop", move || run.run()).expect("a thread");
        let (say_waiting, waiting) = channel();
        let (go_on, wait) = channel();
        let (wait, gil) = (Arc::new(Mutex::new(wait)), Arc::new(Gil::default()));
        let threads = (0..2 * EACH).map(|_| {
            let (crew, say_waiting, wait, gil) = (crew.clone(), say_waiting.clone(), wait.clone(), gil.clone());
            std::thread::spawn(move || work(&crew, &say_waiting, &wait, &gil))
        });
        let threads = threads.collect();
        Server {
            address,
            link: Link::Ring(host),
            own,
            stats,
            crew,
            waiting,
            go_on,
            gil,
            threads,
            run,
        }
    }

    fn ask(&self, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        stream
    }

    /// So many views have begun to wait.
    fn are_waiting(&self, count: usize) {
        for _ in 0..count {
            self.waiting.recv_timeout(PATIENCE).expect("a view waits");
        }
    }

    fn end(mut self) {
        self.crew.lane.close();
        for thread in self.threads {
            thread.join().expect("no panic");
        }
        self.link.push(Frame::Stop(Stop::Now));
        self.link.flush().expect("rings do not fail");
        self.run.join().expect("no panic").expect("no error");
        let stats = self.stats.load();
        assert_eq!(
            (stats.connections, stats.exchanges),
            (0, 0),
            "what is made is freed (R9)"
        );
    }
}

/// A server that is told to stop at once does not wait for its views: one with much to say must not wait for it either.
#[test]
fn a_thread_that_speaks_to_a_loop_that_has_ended_is_not_held() {
    let clock = Clock::new();
    let (crew, side) = crew(1, Lane::new(1, 1, clock.clone(), false), Waker::silent(), clock);
    let mut seat = crew.sit().expect("a seat");
    side.end();
    let id = ExchangeId {
        index: 0,
        generation: 0,
    };
    for _ in 0..3000 {
        assert!(seat.has_room(16));
        seat.push(Frame::Chunk(id, Bytes::from_static(b"a")));
    }
}

/// A handler thread's life.
fn work(crew: &Crew, say_waiting: &Sender<()>, wait: &Mutex<Receiver<()>>, gil: &Gil) {
    let mut seat = crew.sit().expect("a seat for each");
    gil.take();
    loop {
        let Some(work) = crew.lane.pop() else {
            gil.release();
            if !crew.lane.idle() {
                return;
            }
            gil.take();
            continue;
        };
        let path = String::from_utf8_lossy(work.request.head.get(work.request.head.path)).into_owned();
        crew.begin(seat.index, [b"GET", path.as_bytes()]);
        if path.ends_with("/wait") {
            gil.release();
            say_waiting.send(()).expect("the test runs");
            let told = wait.lock().expect("no panic").recv_timeout(PATIENCE);
            told.expect("told to go on");
            gil.take();
        } else if path.ends_with("/compute") {
            gil.compute(COMPUTES);
        }
        respond(&mut seat, &work.request, if path.ends_with("/many") { 3000 } else { 1 });
        crew.end(seat.index, work.request.mount);
        seat.flush();
    }
}

fn respond(seat: &mut Seat, request: &Request, chunks: usize) {
    let body = body(chunks);
    let mut head = ResponseHead::new(200).expect("a status");
    head.push(b"content-length", body.len().to_string().as_bytes())
        .expect("a field");
    seat.push(Frame::Head(request.id, Box::new(head)));
    for line in body.split_inclusive('\n') {
        seat.push(Frame::Chunk(request.id, Bytes::copy_from_slice(line.as_bytes())));
    }
    seat.push(Frame::End(request.id));
    seat.push(Frame::Released(request.id));
}

fn body(chunks: usize) -> String {
    (0..chunks).fold(String::new(), |mut body, number| {
        writeln!(body, "{number}").expect("a string takes it");
        body
    })
}

fn answer(mut stream: TcpStream) -> String {
    stream.shutdown(Shutdown::Write).expect("a half-close");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("the response");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    body.to_owned()
}

fn an_application_whose_views_all_wait_takes_no_thread_from_another(kind: Kind) {
    let server = Server::start(kind, lane());
    let stuck: Vec<TcpStream> = (0..EACH + 2).map(|_| server.ask("/wait")).collect();
    server.are_waiting(EACH);
    for _ in 0..50 {
        assert_eq!(answer(server.ask("/b/x")), "0\n");
    }
    assert!(
        server.waiting.try_recv().is_err(),
        "no more than {EACH} of its views run at once"
    );
    // Both of the other application as well: then nobody is left, and what waits is served as they go on.
    let more: Vec<TcpStream> = (0..EACH).map(|_| server.ask("/b/wait")).collect();
    server.are_waiting(EACH);
    let late = (server.ask("/x"), server.ask("/b/x"));
    for _ in 0..2 * EACH + 2 {
        server.go_on.send(()).expect("they wait");
    }
    for stream in stuck.into_iter().chain(more).chain([late.0, late.1]) {
        assert_eq!(answer(stream), "0\n");
    }
    server.end();
}

/// Serves clients that compute while a view comes back from a wait. How often a view lost the GIL in its middle.
fn convoy(lane: Lane) -> u64 {
    const CLIENTS: usize = 64;
    const ASKS: usize = 16;
    let server = Server::start(backends::ANY, lane);
    let waits = ["/wait", "/b/wait", "/b/wait"].map(|path| server.ask(path));
    server.are_waiting(waits.len());
    let visit = |mut stream: TcpStream, path: &str| {
        for number in 1..=ASKS {
            let mut text = Vec::new();
            while !text.ends_with(b"\r\n\r\n0\n") {
                let mut piece = [0; 1024];
                let len = stream.read(&mut piece).expect("it answers");
                assert_ne!(len, 0, "it stays open");
                text.extend_from_slice(&piece[..len]);
            }
            if number < ASKS {
                let next = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
                stream.write_all(next.as_bytes()).expect("it reads");
            }
        }
    };
    std::thread::scope(|scope| {
        for path in ["/compute", "/b/compute"].repeat(CLIENTS / 2) {
            let stream = server.ask(path);
            scope.spawn(move || visit(stream, path));
        }
        while server.stats.load().requests < 100 {
            std::thread::sleep(Duration::from_millis(1));
        }
        for _ in &waits {
            server.go_on.send(()).expect("it waits");
        }
    });
    for stream in waits {
        assert_eq!(answer(stream), "0\n");
    }
    let forced = server.gil.forced.load(Ordering::Relaxed);
    server.end();
    forced
}

#[test]
fn threads_whose_views_compute_do_not_take_the_gil_from_each_other() {
    let (with, without) = (convoy(lane()), convoy(lane().without_barrier()));
    // Each of these costs the view an interval, and without the barrier they go on as long as there is work.
    assert!(3 * with < without, "{with} with the barrier, {without} without");
}

fn a_thread_that_says_more_than_its_ring_holds_loses_nothing(kind: Kind) {
    let server = Server::start(kind, lane());
    let streams: Vec<TcpStream> = (0..4).map(|_| server.ask("/many")).collect();
    for stream in streams {
        assert_eq!(answer(stream), body(3000), "in order (R2)");
    }
    server.end();
}

fn a_host_that_takes_nothing_holds_no_thread_up(kind: Kind) {
    const CLIENTS: u64 = 600;
    m0_platform::thread::raise_open_files().expect("enough descriptors");
    let mut server = Server::start(kind, lane());
    let start = Instant::now();
    let mut clients = Vec::new();
    while server.stats.load().requests < CLIENTS {
        assert!(start.elapsed() < PATIENCE, "requests: in vain");
        // No more at once than the listener's backlog holds.
        if server.stats.load().requests == clients.len() as u64 {
            clients.extend((0..100).map(|_| server.ask("/host")));
            for client in &clients[clients.len() - 100..] {
                client.shutdown(Shutdown::Write).expect("a half-close"); // a second job for each
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    const { assert!(2 * CLIENTS > 1024, "more than the ring of jobs holds") };
    for _ in 0..20 {
        assert_eq!(answer(server.ask("/x")), "0\n");
    }
    // The host goes on: it is told everything, in order.
    let (mut asked, mut ended) = (Vec::new(), 0);
    while ended < CLIENTS {
        assert!(start.elapsed() < PATIENCE, "the host's jobs: in vain");
        match server.link.next_job() {
            Some(Job::Request(request)) => asked.push(request.id),
            Some(Job::BodyAborted(id, _)) => {
                assert!(asked.contains(&id), "after its request (R2)");
                server.link.push(Frame::Abort(id, m0serve::handoff::Why::HostError));
                server.link.push(Frame::Released(id));
                ended += 1;
            }
            Some(other) => panic!("no place for {other:?}"),
            None => {
                server.link.flush().expect("rings do not fail");
                server.own.wait(Some(Duration::from_millis(1))).expect("a wait");
            }
        }
    }
    server.link.flush().expect("rings do not fail");
    for mut client in clients {
        let mut text = String::new();
        client.read_to_string(&mut text).expect("a response");
        assert!(text.starts_with("HTTP/1.1 500 "), "{text}");
    }
    server.end();
}
