//! The inverted model of WSGI: no loop thread, but handler threads that pass the loop among them, and a sentinel.

use std::time::Duration;

use m0_platform::sync::Arc;
use m0_platform::thread::spawn;
use m0serve::handoff::{Crew, Frame, Lane, Outlet, Routes, Seat, Stop, Work, crew};
use m0serve::model::baton::Baton;
use m0serve::model::inline::{self, Between};
use m0serve::model::pump::LoopThread;
use shuttle::rand::{Rng, thread_rng};

use super::check;
use super::client::{Ask, Client};
use super::network::Network;
use super::pump::{Host, Meeting, THREADS, client, engine, start_clients, view};

const MOUNTS: [&str; 2] = ["", "/other"];

/// A handler thread without an interpreter.
struct Handler<'a> {
    crew: &'a Crew,
    meeting: &'a Meeting,
}

impl Between for Handler<'_> {
    fn detached<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        f()
    }

    fn patience(&self) -> Duration {
        Duration::ZERO
    }

    fn is_late(&mut self) -> bool {
        thread_rng().r#gen() // a clock decides that in life
    }

    fn left(&mut self) {}

    fn view(&mut self, work: Work, mut seat: Seat) -> Seat {
        view(self.crew, work, &mut seat, self.meeting);
        seat
    }

    fn viewed(&mut self, _index: usize) {}
}

/// Runs a server until its clients have left, or until it is told to stop before that.
fn serve(clients: &[Client], how: Stop, hurried: bool) {
    let network = Network::new();
    let (engine, clock) = engine(&network, &MOUNTS);
    let stats = engine.published();
    let spin = thread_rng().r#gen();
    let (host, at_loop, signal) = Host::new(&network);
    let lane = Lane::new(MOUNTS.len(), THREADS, clock.clone(), spin).without_barrier();
    let (crew, side) = crew(THREADS, lane, network.waker.clone(), clock);
    let run = LoopThread::new(engine, at_loop, Routes::new(side.inline(), vec![true, true]), spin);
    let baton = Arc::new(Baton::new(run));
    let watched = baton.clone();
    let sentinel = spawn("sentinel", move || watched.watch()).expect("a thread");
    let meeting = Arc::new(Meeting::default());
    let handlers: Vec<_> = (0..THREADS)
        .map(|_| {
            let (crew, baton, meeting) = (crew.clone(), baton.clone(), meeting.clone());
            spawn("handler", move || {
                let seat = crew.sit().expect("a seat for each");
                let mut handler = Handler {
                    crew: &crew,
                    meeting: &meeting,
                };
                inline::serve(&crew, &baton, seat, &mut handler).expect("a scripted wait does not fail");
            })
            .expect("a thread")
        })
        .collect();
    let host = spawn("host", move || host.run(how)).expect("a thread");
    let clients = start_clients(&network, clients);
    if hurried {
        signal.send();
    }
    for client in clients {
        client.join().expect("what clients compare");
    }
    signal.send();
    let mut link = host.join().expect("what the host asserts");
    crew.lane.close();
    baton.close();
    crew.ring();
    for handler in handlers {
        handler.join().expect("no panic");
    }
    if how == Stop::Drain {
        link.push(Frame::Stop(Stop::Now));
        link.flush().expect("rings do not fail");
    }
    sentinel.join().expect("no panic").expect("no error");
    assert_eq!(stats.load().connections, 0, "what is made is freed (R9)");
}

/// Views that end, and views that wait for their bodies where the server sees it.
#[test]
fn requests_are_answered_once_and_in_order_whoever_has_the_loop() {
    let clients = [
        client(&[Ask::post("/a", 3), Ask::get("/b")], false),
        client(&[Ask::get("/other/c"), Ask::post("/d", 2)], true),
    ];
    check(move || serve(&clients, Stop::Drain, false));
}

/// The credit that a view waits for comes by a loop that it has given up.
#[test]
fn large_responses_arrive_whole_whoever_has_the_loop() {
    let clients = [
        client(&[Ask::get("/large"), Ask::get("/a")], true),
        client(&[Ask::get("/b")], false),
    ];
    check(move || serve(&clients, Stop::Drain, false));
}

/// A view that waits for another's where the server does not see it: the sentinel takes the loop from it.
#[test]
fn a_view_that_keeps_the_loop_loses_it() {
    let clients = [
        client(&[Ask::get("/meet")], false),
        client(&[Ask::get("/a"), Ask::get("/meet")], false),
    ];
    check(move || serve(&clients, Stop::Drain, false));
}

fn hurried() -> [Client; 2] {
    let mut clients = [
        client(&[Ask::get("/a"), Ask::post("/b", 3)], false),
        client(&[Ask::post("/other/c", 2), Ask::get("/d")], true),
    ];
    clients.iter_mut().for_each(|client| client.hurried = true);
    clients
}

#[test]
fn a_drain_ends_whoever_has_the_loop() {
    let clients = hurried();
    check(move || serve(&clients, Stop::Drain, true));
}

/// The loop is over before the threads are sent home: views come back to it, and nobody is there to give it.
#[test]
fn stop_now_ends_whoever_has_the_loop() {
    let clients = hurried();
    check(move || serve(&clients, Stop::Now, true));
}
