//! The machine: its CPUs, and the threads on them.
//!
//! Each thread has a time of its own. With a CPU each, the one whose time is behind steps next; on one CPU a thread runs
//! until it parks.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use m0_platform::{Chunk, Completion, Hand, ListenerId, SendBuf, Token, Waker};

use super::asyncio::Asyncio;
use super::clients::Clients;
use super::ledger::{Cost, Ledger, Thread};
use super::profile::{Handoff, Profile};
use crate::plan::Nanos;

/// What a browser would send, roughly.
pub const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost:8000\r\naccept: text/html\r\naccept-language: en\r\n\
    accept-encoding: gzip\r\nconnection: keep-alive\r\nuser-agent: simulated\r\ncache-control: no-cache\r\n\r\n";

/// The machine.
pub struct Machine {
    /// What things cost.
    pub costs: Profile,
    handoff: Handoff,
    cpus: usize,
    hand: Hand,
    shown: Nanos,
    /// The loop's thread, which is asyncio's when the loop is inverted.
    thread: Thread,
    /// The loop's own waker.
    waker: Waker,
    /// The other thread, under the pump.
    pub asyncio: Option<Box<Asyncio>>,
    /// Clients.
    pub clients: Clients,
    accepted: bool,
    done: VecDeque<Completion>,
    /// When the last wait ended: what comes later is for the next.
    waited: Nanos,
    /// Both threads when the warm-up had ended.
    began: [Ledger; 2],
}

impl Machine {
    /// A machine at rest.
    pub fn new(costs: Profile, handoff: Handoff, cpus: usize, clients: Clients, hand: Hand, waker: Waker) -> Machine {
        Machine {
            costs,
            handoff,
            cpus,
            hand,
            shown: 0,
            thread: Thread::default(),
            waker,
            asyncio: None,
            clients,
            accepted: false,
            done: VecDeque::new(),
            waited: 0,
            began: Default::default(),
        }
    }

    /// The loop's thread takes this time; what the other does meanwhile is done.
    pub fn spend(&mut self, cost: Cost, time: Nanos) {
        self.with_asyncio(Machine::mind);
        self.thread.spend(cost, time);
        self.catch_up();
    }

    fn with_asyncio(&mut self, act: impl FnOnce(&mut Machine, &mut Asyncio)) {
        if let Some(mut asyncio) = self.asyncio.take() {
            act(self, &mut asyncio);
            self.asyncio = Some(asyncio);
        }
    }

    fn catch_up(&mut self) {
        self.show();
        self.with_asyncio(Machine::let_run);
    }

    /// The other thread does what it has done by now, if it has a CPU.
    fn let_run(&mut self, asyncio: &mut Asyncio) {
        while self.cpus > 1 && !asyncio.parked && asyncio.is_behind(self.thread.at(), &self.costs) {
            // The loop that has announced that it parks is on its way to sleep.
            asyncio.step(&self.costs, &self.waker, self.loop_bell(false));
        }
    }

    /// The engine's clock shows the loop's time.
    fn show(&mut self) {
        let at = self.thread.at();
        if at > self.shown {
            self.hand.advance(Duration::from_nanos(at - self.shown));
            self.shown = at;
        }
    }

    /// What the loop has just said reaches the other thread.
    fn mind(&mut self, asyncio: &mut Asyncio) {
        let wake = if self.cpus == 1 { 0 } else { self.costs.wake };
        match self.handoff {
            Handoff::Memory => {
                if asyncio.is_rung_for() {
                    self.thread.spend(Cost::Bell, self.bell());
                    asyncio.wake(self.thread.at(), wake);
                }
            }
            Handoff::Datagrams => {
                let about = asyncio.collect();
                if about.is_empty() {
                    return;
                }
                self.thread
                    .spend(Cost::Datagram, self.costs.datagram_of(about.len() as u64));
                self.let_run(asyncio);
                asyncio.deliver(self.thread.at(), about);
                if asyncio.parked {
                    let sleeps = asyncio.thread.at() <= self.thread.at();
                    if sleeps {
                        self.thread.spend(Cost::Bell, self.datagram_bell());
                    }
                    asyncio.wake(self.thread.at(), if sleeps { wake } else { 0 });
                }
            }
        }
    }

    fn bell(&self) -> Nanos {
        if self.cpus == 1 {
            self.costs.bell_here
        } else {
            self.costs.bell
        }
    }

    /// What a datagram takes more that wakes a thread on an idle CPU: a bell but for its own system call.
    fn datagram_bell(&self) -> Nanos {
        self.bell() - self.costs.bell_here
    }

    /// What calling the loop takes more, when it sleeps. (A bell is only rung for a loop that parks.)
    fn loop_bell(&self, sleeps: bool) -> Nanos {
        match self.handoff {
            Handoff::Memory => self.bell(),
            Handoff::Datagrams if sleeps => self.datagram_bell(),
            Handoff::Datagrams => 0,
        }
    }

    /// The backend's wait.
    ///
    /// # Errors
    /// When the clients have had enough, which ends the loop.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if self.asyncio.is_some() && self.handoff == Handoff::Datagrams {
            self.spend(Cost::Sweep, self.costs.sweep);
        }
        self.spend(Cost::Wait, self.costs.wait);
        if timeout != Some(Duration::ZERO) && !self.has_news() {
            self.block();
        }
        if self.clients.are_over() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        self.waited = self.thread.at();
        self.receive_answers();
        Ok(())
    }

    /// Whether a wait finds something at once.
    fn has_news(&self) -> bool {
        let now = self.thread.at();
        let answered = || {
            let asyncio = self.asyncio.as_ref()?;
            asyncio.has_called(&self.waker)
        };
        !self.accepted
            || !self.done.is_empty()
            || self.clients.next_at().is_some_and(|at| at <= now)
            || self.handoff == Handoff::Datagrams && answered().is_some_and(|at| at <= now)
    }

    /// By datagrams: the loop receives those that its wait has found.
    fn receive_answers(&mut self) {
        if self.handoff == Handoff::Datagrams {
            while let Some(answers) = self
                .asyncio
                .as_mut()
                .and_then(|asyncio| asyncio.receive_answers(self.waited))
            {
                self.spend(Cost::Datagram, self.costs.datagram_of(answers));
            }
        }
    }

    /// The loop's thread sleeps until it is called or a request comes.
    fn block(&mut self) {
        if self.cpus == 1 {
            self.with_asyncio(Machine::lend_cpu);
        }
        self.with_asyncio(Machine::outlast);
        let called = self.asyncio.as_ref().and_then(|other| other.has_called(&self.waker));
        let comes = self.clients.next_at();
        let until = match (called, comes) {
            (Some(called), Some(comes)) => called.min(comes),
            (called, comes) => called
                .or(comes)
                .expect("somebody waits for an answer, and nothing is on its way"),
        };
        // On one CPU it was not idle if the other had it until now.
        if self.cpus > 1 || until > self.thread.at() {
            self.thread.sleep(until);
            self.thread.spend(Cost::Wake, self.costs.wake);
        }
        self.catch_up();
    }

    /// On one CPU the other thread has it until it parks, whoever is woken meanwhile.
    fn lend_cpu(&mut self, asyncio: &mut Asyncio) {
        if asyncio.parked {
            return;
        }
        asyncio.thread.sleep(self.thread.at());
        asyncio.thread.spend(Cost::Switch, self.costs.switch);
        while !asyncio.parked {
            asyncio.step(&self.costs, &self.waker, self.loop_bell(true));
        }
        self.thread.sleep(asyncio.thread.at());
        if asyncio.has_called(&self.waker).is_some() || self.has_news() {
            self.thread.spend(Cost::Switch, self.costs.switch);
        }
    }

    /// With a CPU of its own the other thread goes on until it calls the loop, or a request comes first.
    fn outlast(&mut self, asyncio: &mut Asyncio) {
        let comes = self.clients.next_at().unwrap_or(Nanos::MAX);
        while !asyncio.parked && asyncio.thread.at() <= comes && asyncio.has_called(&self.waker).is_none() {
            asyncio.step(&self.costs, &self.waker, self.loop_bell(true));
        }
    }

    /// The next completion.
    pub fn next(&mut self) -> Option<Completion> {
        if !std::mem::replace(&mut self.accepted, true) {
            for index in 0..self.clients.len() {
                self.done.push_back(Completion::Accepted {
                    listener: ListenerId(0),
                    token: Token { index, generation: 0 },
                    peer: None,
                    local: None,
                });
                self.clients.ask(index, self.thread.at() + Nanos::from(index) * 100);
            }
        }
        if let Some(completion) = self.done.pop_front() {
            return Some(completion);
        }
        let index = self.clients.take(self.waited)?;
        self.spend(Cost::Receive, self.costs.receive);
        self.spend(Cost::Parse, self.costs.parse);
        Some(Completion::Received {
            token: Token { index, generation: 0 },
            chunk: Chunk::new(0, REQUEST.len() as u32),
        })
    }

    /// A response leaves, and its client asks again.
    pub fn send(&mut self, token: Token, buf: SendBuf) {
        if self.asyncio.is_some() && self.handoff == Handoff::Memory {
            self.spend(Cost::Cross, self.costs.cross);
        }
        self.spend(Cost::Send, self.costs.send);
        let result = Ok(());
        self.done.push_back(Completion::Sent { token, result, buf });
        if self.clients.answer(token.index, self.thread.at()) {
            self.began = self.ledgers();
        }
    }

    fn ledgers(&self) -> [Ledger; 2] {
        let other = self.asyncio.as_ref().map(|other| other.thread.ledger());
        [self.thread.ledger(), other.unwrap_or_default()]
    }

    /// Where the time of both threads went after the warm-up.
    pub fn spent(&self) -> [Ledger; 2] {
        let now = self.ledgers();
        [0, 1].map(|side| now[side].since(&self.began[side]))
    }
}
