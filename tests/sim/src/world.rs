//! A world: time, what happens next, and what went wrong. Everything in it is decided by its seed.
//!
//! The engine runs in a thread's ordinary way; it is the simulated backend's `wait` that lets the world go on, until
//! something happens that the engine waits for. The pump's other side is a part of the world, and steps while the loop
//! waits or at the places within its turn where a thread of its own could interfere (see [`World::interleave`]).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::time::Duration;

use m0_platform::{Hand, Waker};
use m0serve::engine::Settings;
use m0serve::handoff::Stop;

use crate::client::Client;
use crate::kernel::Kernel;
use crate::plan::{Ask, Caller, Model, Nanos, Plan, SECOND, Weather};
use crate::random::Random;
use crate::side::Side;

/// Things that happen after which there are no more faults, and after which everything must have ended.
const FAULTS: u64 = 4_000;
const MOST: u64 = 400_000;

/// Something that will happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A packet arrives at the server.
    Up(usize),
    /// A packet arrives at a client.
    Down(usize),
    /// The kernel goes on with a send.
    Push(usize),
    /// A client steps, unless it has thought better of it.
    Client(usize, u32),
    /// The pump's host steps, likewise.
    Host(u32),
}

/// A world.
pub struct World {
    now: Nanos,
    hand: Hand,
    queue: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    order: u64,
    /// Decides.
    pub random: Random,
    /// Faults.
    pub weather: Weather,
    /// Sockets.
    pub kernel: Kernel,
    clients: Vec<Option<Box<Client>>>,
    callers: Vec<Caller>,
    done: usize,
    limited: bool,
    /// A fault may hold everybody up.
    held_up: bool,
    /// A connection may go on for ever.
    endless: bool,
    /// The pump's host.
    pub side: Option<Box<Side>>,
    /// By what the pump's loop parks.
    parks: Option<Waker>,
    /// The next wait may block.
    pub may_block: bool,
    /// Without an engine and without clients of its own: the contract suite asks all that a backend allows, also what no
    /// engine of ours does, and its clients are threads that step by themselves.
    pub(crate) bare: bool,
    /// The end of a wait that is not the backend's business.
    signalled: bool,
    steps: u64,
    answers: u64,
    digest: u64,
    trace: Option<Vec<String>>,
    failure: Option<String>,
}

impl World {
    /// A world at its beginning.
    #[must_use]
    pub fn new(plan: &Plan, random: Random, hand: Hand, trace: bool) -> World {
        let clients = plan.callers.iter().enumerate();
        let mut world = World {
            now: 0,
            hand,
            queue: BinaryHeap::new(),
            order: 0,
            random,
            weather: plan.weather.clone(),
            kernel: Kernel::default(),
            clients: clients
                .map(|(id, caller)| Some(Box::new(Client::new(id, caller.clone()))))
                .collect(),
            callers: plan.callers.clone(),
            done: 0,
            limited: plan.settings.max_connections != 0,
            held_up: plan.weather.accept_fails != 0 || plan.weather.jumps != 0,
            endless: plan.settings.max_connections == 0 && plan.settings.max_requests == 0,
            side: None,
            parks: None,
            may_block: false,
            bare: false,
            signalled: false,
            steps: 0,
            answers: 0,
            digest: 0,
            trace: trace.then(Vec::new),
            failure: None,
        };
        for id in 0..plan.callers.len() {
            world.step_client_at(id, plan.callers[id].at);
        }
        world
    }

    /// A world of sockets alone, whose backend is woken by `parks`.
    #[must_use]
    pub fn bare(weather: Weather, random: Random, hand: Hand, parks: Waker) -> World {
        let plan = Plan {
            model: Model::Inverted,
            weather,
            settings: Settings::default(),
            rings: (1, 1),
            callers: Vec::new(),
            stop: None,
        };
        let mut world = World::new(&plan, random, hand, false);
        world.bare = true;
        world.parks = Some(parks);
        world
    }

    /// Gives it the pump's host, and the waker by which the loop parks.
    pub fn join(&mut self, side: Side, parks: Waker) {
        self.side = Some(Box::new(side));
        self.parks = Some(parks);
        self.later(0, Event::Host(0));
    }

    // --- what it says ----------------------------------------------------------------------------------------------

    /// A line of the trace.
    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let line = format!("{:>14.3} µs  {}", self.now as f64 / 1000.0, line());
            trace.push(line);
        }
    }

    /// A rule is broken: the world ends. The first is what counts.
    pub fn fail(&mut self, what: String) {
        self.note(|| format!("BROKEN: {what}"));
        self.failure.get_or_insert(what);
    }

    /// What went wrong.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// The trace, if it was asked for.
    pub fn take_trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }

    /// A number that two runs of a seed share, whatever happened in them.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Responses that reached their clients in full, and things that happened.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.answers, self.steps)
    }

    /// A response was complete.
    pub fn count_answer(&mut self) {
        self.answers += 1;
    }

    /// What a client asked.
    #[must_use]
    pub fn ask(&self, client: usize, number: usize) -> Option<&Ask> {
        self.callers.get(client)?.asks.get(number)
    }

    /// Whether some fault of this world may hold up everybody: accepting is tried again only after a second.
    #[must_use]
    pub fn may_be_late(&self) -> bool {
        self.held_up
    }

    /// Whether nothing excuses the server from answering a client: else it may read and throw away what comes. Only of
    /// those that ask much and send no bodies, which have windows of their own.
    #[must_use]
    pub fn must_bound(&self, client: usize) -> bool {
        if self.bare || self.callers[client].asks[0].padding == 0 {
            return false;
        }
        let client = self.clients.get(client).and_then(Option::as_ref);
        self.endless && client.is_some_and(|client| client.excuse.is_none() && !client.draining)
    }

    /// Whether connections beyond a limit are refused.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.limited
    }

    /// Whether faults still happen.
    #[must_use]
    pub fn faults(&self) -> bool {
        self.steps < FAULTS
    }

    /// A client whose connection may end at any time from now on.
    pub fn excuse(&mut self, client: usize, why: &'static str) {
        if let Some(Some(client)) = self.clients.get_mut(client) {
            client.excuse.get_or_insert(why);
        }
    }

    /// The server was told to stop.
    pub fn told_to_stop(&mut self, how: Stop) {
        for client in self.clients.iter_mut().flatten() {
            client.draining = true;
            if how == Stop::Now {
                client.excuse.get_or_insert("the server was stopped");
            }
        }
    }

    /// The host has seen a request: what the engine had read until its end is no longer kept (R7).
    pub fn seen(&mut self, client: usize, number: usize) {
        if let Some(Some(client)) = self.clients.get(client)
            && let (Some(conn), Some(end)) = (client.conn, client.ends.get(number))
        {
            self.kernel.conns[conn].accounted = *end;
        }
    }

    /// Whether every client has left.
    #[must_use]
    pub fn clients_are_done(&self) -> bool {
        self.done == self.clients.len()
    }

    // --- time ------------------------------------------------------------------------------------------------------

    /// Nanoseconds since the world began.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    fn go_to(&mut self, at: Nanos) {
        if at > self.now {
            self.hand.advance(Duration::from_nanos(at - self.now));
            self.now = at;
        }
    }

    /// Something happens after this time.
    pub fn later(&mut self, after: Nanos, event: Event) {
        self.at(self.now + after, event);
    }

    /// Something happens then.
    pub fn at(&mut self, at: Nanos, event: Event) {
        self.order += 1;
        self.queue.push(Reverse((at, self.order, event)));
    }

    /// Lets happen what does until then.
    fn run_to(&mut self, until: Nanos) {
        while self.failure.is_none() && self.queue.peek().is_some_and(|Reverse((at, ..))| *at <= until) {
            self.happen();
        }
        self.go_to(until);
    }

    /// The next thing happens, if there is one.
    pub fn happen(&mut self) -> bool {
        let Some(Reverse((at, _, event))) = self.queue.pop() else {
            return false;
        };
        self.go_to(at);
        self.count_step(match event {
            Event::Up(id) | Event::Down(id) | Event::Push(id) | Event::Client(id, _) => id as u64,
            Event::Host(_) => 99,
        });
        match event {
            Event::Up(id) => self.arrive_up(id),
            Event::Down(id) => self.arrive_down(id),
            Event::Push(id) => self.push(id),
            Event::Client(id, stamp) => self.step_client(id, stamp),
            Event::Host(stamp) => self.step_host(Some(stamp)),
        }
        true
    }

    fn count_step(&mut self, word: u64) {
        self.digest = (self.digest ^ self.now ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        self.steps += 1;
        if self.steps == FAULTS && !self.bare {
            self.note(|| "there are no more faults".into());
            self.weather.calm();
        }
        if self.steps == MOST && !self.bare {
            self.fail("liveness: it does not come to an end".into());
        }
    }

    // --- clients ---------------------------------------------------------------------------------------------------

    /// A client finds something new.
    pub fn wake_client(&mut self, id: usize) {
        let Some(Some(client)) = self.clients.get(id) else {
            return;
        };
        let pace = client.pace();
        let at = self.now + self.random.below(pace + 1);
        self.step_client_at(id, at);
    }

    fn step_client_at(&mut self, id: usize, at: Nanos) {
        let Some(Some(client)) = self.clients.get_mut(id) else {
            return;
        };
        if client.done || client.due.is_some_and(|due| due <= at) {
            return;
        }
        client.due = Some(at);
        client.stamp += 1;
        let stamp = client.stamp;
        self.at(at, Event::Client(id, stamp));
    }

    fn step_client(&mut self, id: usize, stamp: u32) {
        let Some(mut client) = self.clients[id].take() else {
            return;
        };
        if client.stamp != stamp || client.done {
            self.clients[id] = Some(client);
            return;
        }
        client.due = None;
        let result = client.step(self);
        self.done += usize::from(client.done);
        self.clients[id] = Some(client);
        if self.clients_are_done() {
            self.signal();
        }
        match result {
            Ok(Some(at)) => self.step_client_at(id, at.max(self.now)),
            Ok(None) => {}
            Err(error) => self.fail(error),
        }
    }

    /// Whoever operates the server sees that there is nothing more to serve: the host is made to look.
    fn signal(&mut self) {
        self.signalled = true;
        if let Some(mut side) = self.side.take() {
            side.signal(self);
            self.side = Some(side);
        }
    }

    // --- the other side --------------------------------------------------------------------------------------------

    fn step_host(&mut self, stamp: Option<u32>) {
        let Some(mut side) = self.side.take() else { return };
        side.step(self, stamp);
        self.side = Some(side);
    }

    /// A side that was woken will run.
    fn mind_host(&mut self) {
        let Some(mut side) = self.side.take() else { return };
        side.mind_wake(self);
        self.side = Some(side);
    }

    /// A place in the loop's turn where its other side may have done something meanwhile.
    pub fn interleave(&mut self) {
        self.mind_host();
        if self.side.is_some() && self.random.once_in(self.weather.interleaved) {
            self.step_host(None);
        }
    }

    // --- the engine's waits ----------------------------------------------------------------------------------------

    /// What the backend's wait is. False when it has to go on, since a bare world stands still.
    ///
    /// # Errors
    /// When the world has ended.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        self.mind_host();
        self.count_step(100);
        let may_block = std::mem::take(&mut self.may_block);
        let blocks = timeout != Some(Duration::ZERO);
        if blocks && !may_block && !self.bare {
            self.fail(format!("R1: a wait of {timeout:?} where none may block"));
        }
        let turn = self.random.below(self.weather.turn + 1);
        self.run_to(self.now + turn);
        if self.faults() && self.random.once_in(self.weather.jumps) {
            self.jump();
        }
        let rung = self.parks.as_ref().is_some_and(Waker::has_rung);
        if blocks && !self.block(rung, timeout.map(|time| self.now + time.as_nanos() as Nanos)) {
            return Ok(false);
        }
        self.gather();
        match &self.failure {
            Some(what) => Err(io::Error::other(what.clone())),
            None => Ok(true),
        }
    }

    /// Lets the world go on until there is something for the engine. False when a bare one stands still.
    fn block(&mut self, mut rung: bool, deadline: Option<Nanos>) -> bool {
        let mut spurious = self.random.once_in(self.weather.spurious).then(|| self.random.below(5));
        while self.failure.is_none() && !self.kernel.has_ready() {
            if std::mem::take(&mut self.signalled) && self.parks.is_none() {
                return true;
            }
            rung |= self.parks.as_ref().is_some_and(Waker::has_rung);
            if rung {
                let late = self.random.below(self.weather.wake + 1);
                self.note(|| format!("loop: woken, {late} ns late"));
                self.run_to(self.now + late);
                return true;
            }
            if let Some(left) = &mut spurious {
                if *left == 0 {
                    return true;
                }
                *left -= 1;
            }
            match (self.queue.peek(), deadline) {
                (Some(Reverse((at, ..))), deadline) if deadline.is_none_or(|deadline| *at <= deadline) => {
                    self.happen();
                }
                (_, Some(deadline)) => {
                    self.go_to(deadline);
                    return true;
                }
                (_, None) if self.bare => return false,
                (_, None) => self.stands_still(),
            }
        }
        true
    }

    fn stands_still(&mut self) {
        if let Some(mut side) = self.side.take() {
            self.note(|| side.describe());
            self.side = Some(side);
        }
        self.fail("R5: it stands still, and nothing more will happen".into());
    }

    /// Time leaps, as when a machine is suspended.
    fn jump(&mut self) {
        let by = self.random.below(60 * SECOND);
        self.note(|| format!("time leaps by {} ms", by / 1_000_000));
        for client in self.clients.iter_mut().flatten() {
            client.excuse.get_or_insert("time leapt");
        }
        self.go_to(self.now + by);
    }

    // --- the end ---------------------------------------------------------------------------------------------------

    /// What the world still holds (R9).
    pub fn check_end(&mut self) {
        if self.failure.is_some() {
            return;
        }
        if self.kernel.open != 0 || self.kernel.sends_out != 0 {
            let what = format!(
                "R9: {} connections and {} sends are left",
                self.kernel.open, self.kernel.sends_out
            );
            self.fail(what);
        }
        if !self.clients_are_done() && self.clients.iter().flatten().any(|client| client.excuse.is_none()) {
            self.fail("liveness: the server has ended before its clients".into());
        }
    }
}
