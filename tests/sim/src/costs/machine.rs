//! The machine: its CPUs, the threads on them, and clients that are never what is measured.
//!
//! Each thread has a time of its own. With a CPU each, the one whose time is behind steps next; on one CPU a thread runs
//! until it parks.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::time::Duration;

use bytes::Bytes;
use m0_platform::{Chunk, Completion, Hand, ListenerId, SendBuf, Token, Waker};
use m0serve::handoff::{ExchangeId, Frame, Job, Link, Outlet, ResponseHead};

use super::profile::Profile;
use crate::plan::{MICRO, Nanos};

/// What a browser would send, roughly.
pub const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost:8000\r\naccept: text/html\r\naccept-language: en\r\n\
    accept-encoding: gzip\r\nconnection: keep-alive\r\nuser-agent: simulated\r\ncache-control: no-cache\r\n\r\n";
/// No complete response waits for longer than this while the application runs (as the ASGI host has it).
const FLUSH_AFTER: Nanos = 200 * MICRO;

/// The application's thread under the pump.
pub struct Asyncio {
    /// Its end of the rings.
    pub link: Link,
    /// By which it parks.
    pub waker: Waker,
    at: Nanos,
    busy: Nanos,
    parked: bool,
    unflushed: Option<Nanos>,
}

impl Asyncio {
    /// A thread that has just begun.
    pub fn new(link: Link, waker: Waker) -> Asyncio {
        Asyncio {
            link,
            waker,
            at: 0,
            busy: 0,
            parked: false,
            unflushed: None,
        }
    }

    fn spend(&mut self, time: Nanos) {
        self.at += time;
        self.busy += time;
    }

    /// One job, or the end of an iteration. Whether it said something that may have woken the loop.
    fn step(&mut self, costs: &Profile) -> bool {
        let Some(job) = self.link.next_job() else {
            let said = self.flush();
            self.waker.announce();
            if self.link.has_jobs() {
                self.waker.retract();
            } else {
                self.parked = true;
            }
            return said;
        };
        self.spend(costs.cross);
        let Job::Request(request) = job else { return false };
        self.spend(costs.app + costs.cross);
        respond(request.id, &mut self.link);
        let first = *self.unflushed.get_or_insert(self.at);
        (!self.link.has_jobs() || self.at - first >= FLUSH_AFTER) && self.flush()
    }

    fn flush(&mut self) -> bool {
        self.unflushed = None;
        let owes = self.link.needs_flush();
        self.link.flush().expect("rings do not fail");
        owes
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

/// The machine.
pub struct Machine {
    /// What things cost.
    pub costs: Profile,
    cpus: usize,
    hand: Hand,
    shown: Nanos,
    at: Nanos,
    busy: Nanos,
    /// The loop's own waker.
    waker: Waker,
    /// The other thread, under the pump.
    pub asyncio: Option<Box<Asyncio>>,
    /// Requests on their way to the server.
    coming: BinaryHeap<Reverse<(Nanos, u32)>>,
    accepted: bool,
    done: VecDeque<Completion>,
    sent_at: Vec<Nanos>,
    clients: Vec<Nanos>,
    latencies: Vec<Nanos>,
    most: usize,
    began: (Nanos, Nanos),
}

/// Answers before anything is counted.
const WARM_UP: usize = 2_000;

impl Machine {
    /// A machine at rest, with clients that will have had so many answers.
    pub fn new(costs: Profile, cpus: usize, connections: usize, answers: usize, hand: Hand, waker: Waker) -> Machine {
        Machine {
            costs,
            cpus,
            hand,
            shown: 0,
            at: 0,
            busy: 0,
            waker,
            asyncio: None,
            coming: BinaryHeap::new(),
            accepted: false,
            done: VecDeque::new(),
            sent_at: vec![0; connections],
            clients: vec![0; costs.client_threads],
            latencies: Vec::with_capacity(answers + WARM_UP),
            most: answers + WARM_UP,
            began: (0, 0),
        }
    }

    /// The loop's thread takes this time; what the other does meanwhile is done.
    pub fn spend(&mut self, time: Nanos) {
        self.at += time;
        self.busy += time;
        self.catch_up();
    }

    /// Whether the clients have had enough.
    pub fn is_over(&self) -> bool {
        self.latencies.len() >= self.most
    }

    fn catch_up(&mut self) {
        self.show();
        if self.cpus == 1 {
            return;
        }
        let Some(mut asyncio) = self.asyncio.take() else { return };
        self.mind(&mut asyncio);
        while !asyncio.parked && asyncio.at < self.at {
            self.step(&mut asyncio);
        }
        self.asyncio = Some(asyncio);
    }

    /// The engine's clock shows the loop's time.
    fn show(&mut self) {
        if self.at > self.shown {
            self.hand.advance(Duration::from_nanos(self.at - self.shown));
            self.shown = self.at;
        }
    }

    /// The loop may have woken the other thread.
    fn mind(&mut self, asyncio: &mut Asyncio) {
        if asyncio.parked && !asyncio.waker.is_parked() {
            asyncio.parked = false;
            self.at += self.bell();
            self.busy += self.bell();
            let wake = if self.cpus == 1 { 0 } else { self.costs.wake };
            asyncio.at = asyncio.at.max(self.at + wake);
            asyncio.spend(self.costs.iteration);
        }
    }

    fn bell(&self) -> Nanos {
        if self.cpus == 1 {
            self.costs.bell_here
        } else {
            self.costs.bell
        }
    }

    /// Returns whether the loop was woken.
    fn step(&self, asyncio: &mut Asyncio) -> bool {
        let slept = self.waker.is_parked();
        asyncio.step(&self.costs);
        let woken = slept && !self.waker.is_parked();
        if woken {
            asyncio.spend(self.bell());
        }
        woken
    }

    /// The backend's wait.
    ///
    /// # Errors
    /// When the clients have had enough, which ends the loop.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.spend(self.costs.wait);
        if timeout != Some(Duration::ZERO) && !self.has_come() && self.done.is_empty() {
            self.block();
        }
        if self.is_over() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok(())
    }

    fn has_come(&self) -> bool {
        !self.accepted || self.coming.peek().is_some_and(|Reverse((at, _))| *at <= self.at)
    }

    /// The loop's thread sleeps until it is woken or a request comes.
    fn block(&mut self) {
        let mut asyncio = self.asyncio.take();
        let mut switched = false;
        if let Some(asyncio) = &mut asyncio {
            self.mind(asyncio);
        }
        loop {
            let comes = self.coming.peek().map_or(Nanos::MAX, |Reverse((at, _))| *at);
            let runs = asyncio.as_mut().filter(|other| !other.parked);
            if self.cpus == 1 {
                // It has the CPU until it parks, whoever is woken meanwhile.
                if let Some(other) = runs {
                    if !switched {
                        other.at = other.at.max(self.at);
                        other.spend(self.costs.switch);
                        switched = true;
                    }
                    self.step(other);
                    self.at = other.at;
                    continue;
                }
                let woken = asyncio.is_some() && !self.waker.is_parked();
                if !woken && comes > self.at {
                    self.at = comes + self.costs.wake;
                } else if switched {
                    self.at += self.costs.switch;
                    self.busy += self.costs.switch;
                }
                break;
            }
            if asyncio.is_some() && !self.waker.is_parked() {
                self.at += self.costs.wake; // rung before it slept
                break;
            }
            if let Some(other) = asyncio.as_mut().filter(|other| !other.parked && other.at <= comes) {
                if self.step(other) {
                    self.at = self.at.max(other.at + self.costs.wake);
                    break;
                }
                continue;
            }
            assert!(
                comes < Nanos::MAX,
                "somebody waits for an answer, and nothing is on its way"
            );
            self.at = self.at.max(comes + self.costs.wake);
            break;
        }
        self.asyncio = asyncio;
        self.catch_up();
    }

    /// The next completion.
    pub fn next(&mut self) -> Option<Completion> {
        if !std::mem::replace(&mut self.accepted, true) {
            for index in 0..self.sent_at.len() as u32 {
                self.done.push_back(Completion::Accepted {
                    listener: ListenerId(0),
                    token: Token { index, generation: 0 },
                    peer: None,
                    local: None,
                });
                self.coming.push(Reverse((self.at + Nanos::from(index) * 100, index)));
            }
        }
        if let Some(completion) = self.done.pop_front() {
            return Some(completion);
        }
        if !self.has_come() {
            return None;
        }
        let Reverse((_, index)) = self.coming.pop()?;
        self.spend(self.costs.receive + self.costs.parse);
        Some(Completion::Received {
            token: Token { index, generation: 0 },
            chunk: Chunk::new(0, REQUEST.len() as u32),
        })
    }

    /// A response leaves, and its client asks again.
    pub fn send(&mut self, token: Token, buf: SendBuf) {
        let cross = if self.asyncio.is_some() { self.costs.cross } else { 0 };
        self.spend(self.costs.send + cross);
        let result = Ok(());
        self.done.push_back(Completion::Sent { token, result, buf });
        let index = token.index as usize;
        let threads = self.clients.len();
        let free = &mut self.clients[index % threads];
        let read = (*free).max(self.at + self.costs.net) + self.costs.client;
        *free = read;
        self.latencies.push(read - self.sent_at[index]);
        self.sent_at[index] = read;
        self.coming.push(Reverse((read + self.costs.net, token.index)));
        if self.latencies.len() == WARM_UP {
            self.began = (self.at, self.all_busy());
        }
    }

    fn all_busy(&self) -> Nanos {
        self.busy + self.asyncio.as_ref().map_or(0, |other| other.busy)
    }

    /// Answers a second, CPUs in use, and latencies after the warm-up, in order.
    pub fn figures(&self) -> (f64, f64, Vec<Nanos>) {
        let (from, busy) = self.began;
        let time = (self.at - from) as f64;
        let mut latencies = self.latencies[WARM_UP..].to_vec();
        latencies.sort_unstable();
        let rate = latencies.len() as f64 * 1e9 / time;
        (rate, (self.all_busy() - busy) as f64 / time, latencies)
    }
}
