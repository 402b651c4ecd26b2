//! The pump: the loop thread, asyncio's side at the other end of the rings, and a crew of handler threads beside it.

use std::fs::File;
use std::os::fd::OwnedFd;

use m0_platform::sync::atomic::{AtomicBool, Ordering};
use m0_platform::sync::{Arc, Condvar, Mutex};
use m0_platform::thread::{JoinHandle, spawn};
use m0_platform::{Clock, Waker};
use m0serve::config::LogLevel;
use m0serve::engine::{Engine, Mounts, Settings, Stats};
use m0serve::handoff::{Crew, Frame, Job, Lane, Link, Outlet, RingLoop, Routes, Seat, Stop, Work, crew, rings_for};
use m0serve::log::Logger;
use m0serve::model::pump::LoopThread;
use shuttle::rand::{Rng, thread_rng};

use super::application::Task;
use super::check;
use super::client::{Ask, Client};
use super::network::Network;

/// An application of asyncio's side, and two of the crew's.
const MOUNTS: [&str; 3] = ["", "/wsgi", "/other"];
/// Handler threads.
pub const THREADS: usize = 2;

/// An engine over a network of clients, on a clock that goes on when it is looked at.
pub fn engine(network: &Network, mounts: &[&str]) -> (Engine, Clock) {
    let (clock, hand) = Clock::manual();
    let settings = Settings {
        date: false,
        server: None,
        mounts: Mounts::new(mounts.iter().copied()),
        ..Settings::default()
    };
    let log = Logger::to(LogLevel::Error, false, clock.clone(), -1, -1);
    let mut engine = Engine::new(network.backend(hand), settings, clock.clone(), log);
    let socket = File::open("/dev/null").expect("there is always one");
    engine.listen(OwnedFd::from(socket)).expect("a scripted listener");
    (engine, clock)
}

/// What [`LoopThread::run`] does, and the counters at its end.
fn run_to_its_end(mut run: LoopThread) -> Stats {
    while run.turn(None, &|| false).expect("a scripted wait does not fail") {}
    let stats = run.stats();
    run.end();
    stats
}

/// asyncio's thread: takes jobs, lets its applications go on, and parks as its selector does.
pub struct Host {
    link: Link,
    waker: Waker,
    /// A signal has come.
    told: Arc<AtomicBool>,
    tasks: Vec<Task>,
    stopping: bool,
    stopped: u32,
}

/// Sends that signal.
pub struct Signal {
    told: Arc<AtomicBool>,
    waker: Waker,
}

impl Signal {
    pub fn send(&self) {
        self.told.store(true, Ordering::Relaxed);
        self.waker.wake();
    }
}

impl Host {
    /// A host, the loop's end of its rings, and how to tell it that the server is to stop.
    pub fn new(network: &Network) -> (Host, RingLoop, Signal) {
        let (waker, told) = (Waker::model(), Arc::new(AtomicBool::new(false)));
        let (jobs, frames) = (1 << thread_rng().gen_range(0..3), 4 << thread_rng().gen_range(0..3));
        let (end, at_loop) = rings_for(jobs, frames, network.waker.clone(), waker.clone());
        let host = Host {
            link: Link::Ring(end),
            waker: waker.clone(),
            told: told.clone(),
            tasks: Vec::new(),
            stopping: false,
            stopped: 0,
        };
        (host, at_loop, Signal { told, waker })
    }

    /// Until the drain is over, or everything was told to stop at once. Gives its end of the link back.
    pub fn run(mut self, how: Stop) -> Link {
        loop {
            while let Some(job) = self.link.next_job() {
                self.hear(job);
            }
            let link = &mut self.link;
            self.tasks.retain_mut(|task| !task.advance(link));
            if !self.stopping && self.told.load(Ordering::Relaxed) {
                self.stopping = true;
                self.link.push(Frame::Stop(how));
            }
            let over = self.stopped == 1 || self.stopping && how == Stop::Now;
            self.link.flush().expect("rings do not fail");
            if over && !self.link.needs_flush() {
                assert!(
                    how == Stop::Now || self.tasks.is_empty(),
                    "a drain ends after the last request (R11)"
                );
                return self.link;
            }
            self.park();
        }
    }

    fn hear(&mut self, job: Job) {
        let Some(id) = job.exchange() else {
            self.stopped += 1;
            return assert!(self.stopping && self.stopped == 1, "the end of a drain is said once");
        };
        if let Job::Request(request) = job {
            assert!(self.tasks.iter().all(|task| task.id.index != id.index), "R4");
            return self.tasks.push(Task::new(*request));
        }
        if let Some(task) = self.tasks.iter_mut().find(|task| task.id == id) {
            task.hear(job);
        }
    }

    fn park(&mut self) {
        self.waker.announce();
        if !self.link.has_jobs() && (self.stopping || !self.told.load(Ordering::Relaxed)) {
            self.waker.block();
        }
        self.waker.retract();
    }
}

/// Two views that meet: the first to come waits within its view, where nobody sees it, for the second.
#[derive(Default)]
pub struct Meeting {
    came: Mutex<u32>,
    changed: Condvar,
}

impl Meeting {
    fn attend(&self) {
        let mut came = self.came.lock().expect("no panic");
        *came += 1;
        self.changed.notify_all();
        while *came % 2 == 1 {
            came = self.changed.wait(came).expect("no panic");
        }
    }
}

/// Serves a request to its end, as `host/wsgi` does.
pub fn view(crew: &Crew, work: Work, seat: &mut Seat, meeting: &Meeting) {
    let Work { request, mailbox } = work;
    let mount = request.mount;
    let mut task = Task::new(*request);
    crew.begin(seat.index, [b"GET", task.path.as_bytes()]);
    if task.path.ends_with("/meet") {
        meeting.attend();
    }
    let mut heard = 0;
    while !task.advance(seat) {
        seat.about_to_wait();
        mailbox.wait(heard);
        while let Some(job) = mailbox.take() {
            heard += 1;
            task.hear(job);
        }
    }
    mailbox.close();
    crew.end(seat.index, mount);
}

/// A handler thread's life while another thread runs the loop.
fn work_at_the_lane(crew: &Crew, meeting: &Meeting) {
    let mut seat = crew.sit().expect("a seat for each");
    loop {
        match crew.lane.pop() {
            Some(work) => {
                view(crew, work, &mut seat, meeting);
                seat.flush();
            }
            None if crew.lane.idle() => {}
            None => return,
        }
    }
}

/// Starts every client on a thread of its own.
pub fn start_clients(network: &Network, clients: &[Client]) -> Vec<JoinHandle<()>> {
    let clients = clients.iter().cloned().map(|client| {
        let network = network.clone();
        spawn("client", move || client.run(&network)).expect("a thread")
    });
    clients.collect()
}

/// Runs a server until its clients have left, or until it is told to stop before that.
fn serve(clients: &[Client], how: Stop, hurried: bool) {
    let network = Network::new();
    let (engine, clock) = engine(&network, &MOUNTS);
    let spin = thread_rng().r#gen();
    let (host, at_loop, signal) = Host::new(&network);
    let lane = Lane::new(MOUNTS.len(), THREADS, clock.clone(), spin);
    let (crew, side) = crew(THREADS, lane, network.waker.clone(), clock);
    let routes = Routes::new(side, vec![false, true, true]);
    let run = LoopThread::new(engine, at_loop, routes, spin);
    let run = spawn("loop", move || run_to_its_end(run)).expect("a thread");
    let meeting = Arc::new(Meeting::default());
    let handlers: Vec<_> = (0..THREADS)
        .map(|_| {
            let (crew, meeting) = (crew.clone(), meeting.clone());
            spawn("handler", move || work_at_the_lane(&crew, &meeting)).expect("a thread")
        })
        .collect();
    let host = spawn("host", move || host.run(how)).expect("a thread");
    let clients = start_clients(&network, clients);
    if hurried {
        signal.send();
    }
    clients
        .into_iter()
        .for_each(|client| client.join().expect("what clients compare"));
    signal.send();
    let mut link = host.join().expect("what the host asserts");
    // Threads go home before the loop ends, unless they are cut off.
    let go_home = || {
        crew.lane.close();
        for handler in handlers {
            handler.join().expect("no panic");
        }
    };
    let stats = if how == Stop::Now {
        let stats = run.join().expect("no panic");
        go_home();
        stats
    } else {
        go_home();
        link.push(Frame::Stop(Stop::Now));
        link.flush().expect("rings do not fail");
        run.join().expect("no panic")
    };
    assert_eq!(stats.connections, 0, "what is made is freed (R9)");
    assert!(how == Stop::Now || stats.exchanges == 0, "what is made is freed (R9)");
}

pub fn client(asks: &[Ask], pipelined: bool) -> Client {
    Client {
        asks: asks.to_vec(),
        pipelined,
        hurried: false,
    }
}

/// Small requests, some with bodies, to asyncio's side: nearly every one of them finds somebody who parks.
#[test]
fn requests_to_the_host_are_answered_once_and_in_order() {
    let clients = [
        client(&[Ask::get("/a"), Ask::post("/b", 3), Ask::get("/c")], false),
        client(&[Ask::get("/d"), Ask::get("/e"), Ask::post("/f", 2)], true),
    ];
    check(move || serve(&clients, Stop::Drain, false));
}

/// To the crew: views that wait for their bodies, more clients than threads.
#[test]
fn requests_to_the_crew_are_answered_once_and_in_order() {
    let clients = [
        client(&[Ask::post("/wsgi/a", 3), Ask::get("/wsgi/b")], false),
        client(&[Ask::get("/wsgi/c"), Ask::post("/other/d", 2)], true),
        client(&[Ask::get("/other/e")], false),
    ];
    check(move || serve(&clients, Stop::Drain, false));
}

/// Responses that are larger than a window: those who make them wait for credit.
#[test]
fn large_responses_of_both_kinds_arrive_whole() {
    let clients = [
        client(&[Ask::get("/large"), Ask::get("/a")], true),
        client(&[Ask::get("/wsgi/large"), Ask::get("/b")], true),
    ];
    check(move || serve(&clients, Stop::Drain, false));
}

/// A view that waits for another request's, where the loop does not see it: the loop finds the lane stalled.
#[test]
fn a_view_that_waits_for_the_next_request_meets_it() {
    let clients = [
        client(&[Ask::get("/wsgi/meet")], false),
        client(&[Ask::get("/wsgi/a"), Ask::get("/wsgi/meet")], false),
    ];
    check(move || serve(&clients, Stop::Drain, false));
}

fn hurried() -> [Client; 2] {
    let mut clients = [
        client(&[Ask::get("/a"), Ask::post("/wsgi/b", 3)], false),
        client(&[Ask::post("/wsgi/c", 2), Ask::get("/d")], true),
    ];
    clients.iter_mut().for_each(|client| client.hurried = true);
    clients
}

/// Told to drain at any moment: whatever a client gets is right, and all of it ends.
#[test]
fn a_drain_ends_whenever_it_comes() {
    let clients = hurried();
    check(move || serve(&clients, Stop::Drain, true));
}

#[test]
fn stop_now_ends_whenever_it_comes() {
    let clients = hurried();
    check(move || serve(&clients, Stop::Now, true));
}
