//! The application's thread under the pump.
//!
//! By rings it is as the product's ASGI host: it takes jobs one by one, and what it has said leaves when no job waits, or
//! 200 µs after the first. By datagrams it is as the record has the original's: an iteration takes what datagrams have come,
//! runs their jobs, and says all that they said in one datagram.

use std::collections::VecDeque;

use bytes::Bytes;
use m0_platform::Waker;
use m0serve::handoff::{ExchangeId, Frame, Job, Link, Outlet, ResponseHead};

use super::ledger::{Cost, Thread};
use super::profile::{Handoff, Profile};
use crate::plan::{MICRO, Nanos};

/// No complete response waits for longer than this while the application runs (as the ASGI host has it).
const FLUSH_AFTER: Nanos = 200 * MICRO;

/// Exchanges that a datagram is about, and when it was sent.
struct Datagram {
    at: Nanos,
    about: Vec<ExchangeId>,
}

impl Datagram {
    /// The first of them, if it was sent by that time.
    fn first(of: &mut VecDeque<Datagram>, by: Nanos) -> Option<Datagram> {
        if of.front()?.at > by {
            return None;
        }
        of.pop_front()
    }
}

/// The thread.
pub struct Asyncio {
    link: Link,
    waker: Waker,
    handoff: Handoff,
    /// Its time.
    pub thread: Thread,
    /// It sleeps, or is about to.
    pub parked: bool,
    /// By rings: it has not begun to run since.
    woken: bool,
    /// By rings: when the first of what has not left was said.
    unflushed: Option<Nanos>,
    /// By rings: when it last rang for the loop.
    rung: Nanos,
    /// By datagrams: those on their way to it, what the iteration has to do and has said, and those on their way from it.
    jobs: VecDeque<Datagram>,
    due: VecDeque<ExchangeId>,
    said: Vec<ExchangeId>,
    answers: VecDeque<Datagram>,
}

impl Asyncio {
    /// A thread that has just begun.
    pub fn new(link: Link, waker: Waker, handoff: Handoff) -> Asyncio {
        Asyncio {
            link,
            waker,
            handoff,
            thread: Thread::default(),
            parked: false,
            woken: false,
            unflushed: None,
            rung: 0,
            jobs: VecDeque::new(),
            due: VecDeque::new(),
            said: Vec::new(),
            answers: VecDeque::new(),
        }
    }

    /// By rings: the loop has rung for it.
    pub fn is_rung_for(&self) -> bool {
        self.parked && !self.waker.is_parked()
    }

    /// Wakes it at that time. An iteration begins when it has a CPU.
    pub fn wake(&mut self, at: Nanos, wake: Nanos) {
        self.parked = false;
        self.thread.sleep(at);
        self.thread.spend(Cost::Wake, wake);
        self.woken = true;
    }

    /// By datagrams: what the loop has just said, which is what one of them carries.
    pub fn collect(&mut self) -> Vec<ExchangeId> {
        let mut about = Vec::new();
        while let Some(job) = self.link.next_job() {
            if let Job::Request(request) = job {
                about.push(request.id);
            }
        }
        about
    }

    /// By datagrams: one has been sent to it.
    pub fn deliver(&mut self, at: Nanos, about: Vec<ExchangeId>) {
        self.jobs.push_back(Datagram { at, about });
    }

    /// When it called the loop, if it has: rang its bell, or sent a datagram that has not been received.
    pub fn has_called(&self, to_loop: &Waker) -> Option<Nanos> {
        match self.handoff {
            Handoff::Memory => (!to_loop.is_parked()).then_some(self.rung),
            Handoff::Datagrams => self.answers.front().map(|datagram| datagram.at),
        }
    }

    /// By datagrams: the loop receives the next that was there at that time. How many answers it carried.
    pub fn receive_answers(&mut self, by: Nanos) -> Option<u64> {
        let datagram = Datagram::first(&mut self.answers, by)?;
        for id in &datagram.about {
            respond(*id, &mut self.link);
        }
        self.link.flush().expect("rings do not fail");
        Some(datagram.about.len() as u64)
    }

    /// Whether its next step is in the loop's past by then. What a step says by rings is seen at once, so it must have been
    /// said by then; a datagram knows when it was sent.
    pub fn is_behind(&mut self, now: Nanos, costs: &Profile) -> bool {
        let at = self.thread.at();
        match self.handoff {
            Handoff::Memory if self.woken => at + costs.iteration <= now,
            Handoff::Memory if self.link.has_jobs() => at + costs.app + 2 * costs.cross <= now,
            Handoff::Memory | Handoff::Datagrams => at < now,
        }
    }

    /// One job, or the end of an iteration. Calling the loop takes `bell` more if it has to be woken.
    pub fn step(&mut self, costs: &Profile, to_loop: &Waker, bell: Nanos) {
        match self.handoff {
            Handoff::Memory => {
                let slept = to_loop.is_parked();
                self.step_by_rings(costs);
                if slept && !to_loop.is_parked() {
                    self.thread.spend(Cost::Bell, bell);
                    self.rung = self.thread.at();
                }
            }
            Handoff::Datagrams => self.step_by_datagrams(costs, bell),
        }
    }

    fn step_by_rings(&mut self, costs: &Profile) {
        if std::mem::take(&mut self.woken) {
            self.thread.spend(Cost::Iteration, costs.iteration);
            return;
        }
        let Some(job) = self.link.next_job() else {
            self.flush();
            self.waker.announce();
            if self.link.has_jobs() {
                self.waker.retract();
            } else {
                self.parked = true;
            }
            return;
        };
        self.thread.spend(Cost::Cross, costs.cross);
        let Job::Request(request) = job else { return };
        self.thread.spend(Cost::App, costs.app);
        self.thread.spend(Cost::Cross, costs.cross);
        respond(request.id, &mut self.link);
        let first = *self.unflushed.get_or_insert(self.thread.at());
        if !self.link.has_jobs() || self.thread.at() - first >= FLUSH_AFTER {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.unflushed = None;
        self.link.flush().expect("rings do not fail");
    }

    fn step_by_datagrams(&mut self, costs: &Profile, bell: Nanos) {
        if let Some(id) = self.due.pop_front() {
            self.thread.spend(Cost::App, costs.app);
            self.said.push(id);
            if self.due.is_empty() {
                let about = std::mem::take(&mut self.said);
                self.thread.spend(Cost::Datagram, costs.datagram_of(about.len() as u64));
                self.thread.spend(Cost::Bell, bell);
                let at = self.thread.at();
                self.answers.push_back(Datagram { at, about });
            }
            return;
        }
        let now = self.thread.at();
        if self.jobs.front().is_none_or(|first| first.at > now) {
            self.parked = true;
            return;
        }
        self.thread.spend(Cost::Iteration, costs.iteration);
        while let Some(datagram) = Datagram::first(&mut self.jobs, now) {
            let jobs = datagram.about.len() as u64;
            self.thread.spend(Cost::Datagram, costs.datagram_of(jobs));
            self.due.extend(datagram.about);
        }
    }
}

/// Says a small response.
pub fn respond(id: ExchangeId, out: &mut Link) {
    let mut head = ResponseHead::new(200).expect("a status");
    head.push(b"content-type", b"text/plain").expect("a field");
    head.push(b"content-length", b"13").expect("a field");
    out.push(Frame::Head(id, Box::new(head)));
    out.push(Frame::Chunk(id, Bytes::from_static(b"Hello, world!")));
    out.push(Frame::End(id));
    out.push(Frame::Released(id));
}
