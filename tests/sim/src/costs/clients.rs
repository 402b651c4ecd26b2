//! Clients that keep so many connections busy, and are never what is measured.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::profile::Profile;
use crate::plan::Nanos;

/// Answers before anything is counted.
const WARM_UP: usize = 2_000;

/// All of them.
pub struct Clients {
    /// Requests on their way to the server.
    coming: BinaryHeap<Reverse<(Nanos, u32)>>,
    sent_at: Vec<Nanos>,
    /// When each thread has time for the next answer.
    free: Vec<Nanos>,
    latencies: Vec<Nanos>,
    most: usize,
    net: Nanos,
    each: Nanos,
}

impl Clients {
    /// Clients that will have had so many answers after a warm-up.
    pub fn new(costs: &Profile, connections: usize, answers: usize) -> Clients {
        Clients {
            coming: BinaryHeap::new(),
            sent_at: vec![0; connections],
            free: vec![0; costs.client_threads],
            latencies: Vec::with_capacity(answers + WARM_UP),
            most: answers + WARM_UP,
            net: costs.net,
            each: costs.client,
        }
    }

    /// How many connections.
    pub fn len(&self) -> u32 {
        self.sent_at.len() as u32
    }

    /// A connection has been accepted: its client asks.
    pub fn ask(&mut self, index: u32, at: Nanos) {
        self.coming.push(Reverse((at, index)));
    }

    /// When the next request reaches the server.
    pub fn next_at(&self) -> Option<Nanos> {
        self.coming.peek().map(|Reverse((at, _))| *at)
    }

    /// The next request that was there at that time.
    pub fn take(&mut self, by: Nanos) -> Option<u32> {
        if self.next_at()? > by {
            return None;
        }
        self.coming.pop().map(|Reverse((_, index))| index)
    }

    /// An answer leaves the server; its client asks again. Whether the warm-up has just ended.
    pub fn answer(&mut self, index: u32, at: Nanos) -> bool {
        let threads = self.free.len();
        let free = &mut self.free[index as usize % threads];
        let read = (*free).max(at + self.net) + self.each;
        *free = read;
        let sent_at = std::mem::replace(&mut self.sent_at[index as usize], read);
        self.latencies.push(read - sent_at);
        self.ask(index, read + self.net);
        self.latencies.len() == WARM_UP
    }

    /// Whether they have had enough.
    pub fn are_over(&self) -> bool {
        self.latencies.len() >= self.most
    }

    /// Latencies after the warm-up, in order.
    pub fn latencies(&self) -> Vec<Nanos> {
        let mut latencies = self.latencies[WARM_UP..].to_vec();
        latencies.sort_unstable();
        latencies
    }
}
