//! A seeded walk over everything that can happen, in any order: no panic, responses in order, nothing left.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use m0serve::engine::Settings;
use m0serve::handoff::{ExchangeId, Frame, Job, Stop, Why};

use crate::rig::{Rig, get, head, settings};
use crate::script::{End, Flow};

/// Marsaglia's xorshift64 (Journal of Statistical Software 8, 14).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// One exchange as a host sees it.
struct Live {
    name: String,
    started: bool,
    complete: bool,
    gone: bool,
    outstanding: u32,
}

struct Walk {
    rig: Rig,
    random: Random,
    /// Clients that still do something, with the number of requests that they have sent.
    clients: Vec<(usize, u32)>,
    live: HashMap<ExchangeId, Live>,
    all_clients: usize,
}

impl Walk {
    fn new(seed: u64) -> Walk {
        let rig = Rig::new(Settings {
            max_connections: 12,
            max_requests: 40,
            ..settings()
        });
        Walk {
            rig,
            random: Random(seed | 1),
            clients: Vec::new(),
            live: HashMap::new(),
            all_clients: 0,
        }
    }

    fn step(&mut self) {
        match self.random.below(12) {
            0 => self.connect(),
            1..=4 => self.client(),
            5..=9 => self.host(),
            10 => self.rig.pass_time(Duration::from_millis(250)),
            _ => self.rig.turn(),
        }
        self.listen();
    }

    fn connect(&mut self) {
        if self.clients.len() < 16 {
            let id = self.rig.net.connect();
            self.clients.push((id, 0));
            self.all_clients += 1;
        }
    }

    fn client(&mut self) {
        if self.clients.is_empty() {
            return;
        }
        let at = self.random.below(self.clients.len() as u64) as usize;
        let (id, sent) = self.clients[at];
        match self.random.below(40) {
            0 => self.leave(at, End::Fin),
            1 => self.leave(at, End::Reset),
            2..=4 => {
                let flow = self
                    .random
                    .pick(&[Flow::Free, Flow::Held, Flow::Trickle(7), Flow::Trickle(5000)]);
                self.rig.net.peer(id, |peer| peer.flow = flow);
            }
            5 => {
                self.rig.net.send(id, b"\x01nonsense");
                self.clients.swap_remove(at);
            }
            _ => {
                self.clients[at].1 += 1;
                self.request(id, sent);
            }
        }
    }

    fn leave(&mut self, at: usize, how: End) {
        let (id, _) = self.clients.swap_remove(at);
        self.rig.net.end(id, how);
    }

    /// A request, cut into segments anywhere.
    fn request(&mut self, id: usize, number: u32) {
        let length = self.random.pick(&[0, 1, 100, 3000, 70_000]);
        let path = format!("/{id}/{number}");
        let bytes = match self.random.below(4) {
            0 => get(&path),
            1 => {
                let half = "x".repeat(length / 2 + 1);
                let size = half.len();
                format!(
                    "POST {path} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
                     {size:x}\r\n{half}\r\n{size:X}\r\n{half}\r\n0\r\n\r\n"
                )
            }
            2 => crate::rig::post(&path, length, "expect: 100-continue\r\n") + &"y".repeat(length),
            _ => crate::rig::post(&path, length, "") + &"z".repeat(length),
        };
        let mut rest = bytes.as_bytes();
        while !rest.is_empty() {
            let most = rest.len().min(20_000) as u64;
            let (front, back) = rest.split_at(1 + self.random.below(most) as usize);
            self.rig.net.send(id, front);
            rest = back;
        }
    }

    /// Says something about an exchange; now and then what a host must not say.
    fn host(&mut self) {
        let ids: Vec<ExchangeId> = self.live.keys().copied().collect();
        if ids.is_empty() {
            return;
        }
        let id = *ids
            .iter()
            .min_by_key(|id| (id.index ^ (self.random.0 as u32 & 15), id.generation))
            .expect("one");
        let live = self.live.get_mut(&id).expect("a live exchange");
        if live.complete || live.gone {
            self.live.remove(&id);
            return self.rig.push(Frame::Released(id));
        }
        match self.random.below(60) {
            0 => {
                live.complete = true;
                self.rig.push(Frame::Abort(id, Why::HostError));
            }
            1 => {
                // Cuts the response short: no such length.
                let fields = [("content-length", "99999999"), ("x-request", &live.name)];
                self.rig.push(Frame::Head(id, head(200, &fields)));
                self.rig.push(Frame::End(id));
                live.complete = true;
            }
            2 => {
                let stale = ExchangeId {
                    generation: id.generation.wrapping_sub(1),
                    ..id
                };
                self.rig.push(Frame::Chunk(stale, Bytes::from_static(b"ghost")));
                self.rig.push(Frame::End(stale));
                self.rig.push(Frame::Released(stale));
            }
            3..=14 => self.rig.push(Frame::WantBody(id, 30_000)),
            15..=40 if !live.started => {
                live.started = true;
                let name = live.name.clone();
                self.rig.push(Frame::Head(id, head(200, &[("x-request", &name)])));
            }
            15..=40 => {
                let size = self.random.pick(&[0, 1, 500, 9000, 30_000]);
                if live.outstanding < m0serve::handoff::WINDOW {
                    live.outstanding += m0serve::handoff::charge(size);
                    self.rig.push(Frame::Chunk(id, Bytes::from(vec![b'b'; size])));
                }
            }
            _ if live.started => {
                live.complete = true;
                self.rig.push(Frame::End(id));
            }
            _ => {}
        }
    }

    /// Hears what the engine has said.
    fn listen(&mut self) {
        while let Some(job) = self.rig.jobs.pop_front() {
            let (id, gone) = match &job {
                Job::Request(request) => {
                    let name = String::from_utf8_lossy(request.head.get(request.head.path)).into_owned();
                    let live = Live {
                        name,
                        started: false,
                        complete: false,
                        gone: false,
                        outstanding: 0,
                    };
                    assert!(
                        self.live.insert(request.id, live).is_none(),
                        "never two of one name (R4)"
                    );
                    continue;
                }
                Job::Credit(id, charged) => {
                    if let Some(live) = self.live.get_mut(id) {
                        live.outstanding = live
                            .outstanding
                            .checked_sub(*charged)
                            .expect("no more than was charged (R7)");
                    }
                    continue;
                }
                Job::Reset(id, _) => (*id, true),
                Job::Body(id, _) | Job::BodyEnd(id) | Job::BodyAborted(id, _) | Job::FileSent(id, _) => (*id, false),
                Job::Stopped => unreachable!("counted by the rig"),
            };
            if let Some(live) = self.live.get_mut(&id) {
                assert!(!live.gone, "nothing follows a reset (R2)");
                live.gone = gone;
            }
        }
    }

    /// Each client got whole heads, in the order of its requests and no request twice.
    fn check(&mut self) {
        for id in 0..self.all_clients {
            let mut out = self.rig.out(id);
            out.truncate(out.rfind('\n').map_or(0, |end| end + 1)); // the last line may be cut
            let numbers: Vec<u32> = out
                .lines()
                .filter_map(|line| line.strip_prefix(&format!("x-request: /{id}/")))
                .map(|number| number.parse().expect("a number"))
                .collect();
            assert!(numbers.is_sorted_by(|a, b| a < b), "client {id}: {numbers:?}");
            let foreign = out.matches("x-request: ").count() - numbers.len();
            assert_eq!(foreign, 0, "client {id} got another's response (R8): {out}");
            assert!(!out.contains("ghost"), "client {id}");
        }
    }
}

fn walk(seed: u64, steps: u32) {
    let mut walk = Walk::new(seed);
    for _ in 0..steps {
        walk.step();
    }
    walk.rig.push(Frame::Stop(if seed.is_multiple_of(2) {
        Stop::Drain
    } else {
        Stop::Now
    }));
    for _ in 0..steps / 10 {
        walk.step();
    }
    for id in 0..walk.all_clients {
        walk.rig.net.peer(id, |peer| peer.flow = Flow::Free);
        walk.rig.net.end(id, End::Fin);
    }
    walk.rig.settle();
    walk.listen();
    for (id, _) in std::mem::take(&mut walk.live) {
        walk.rig.push(Frame::Abort(id, Why::HostError));
        walk.rig.push(Frame::Released(id));
    }
    walk.rig.settle();
    walk.listen();
    for (id, _) in std::mem::take(&mut walk.live) {
        walk.rig.push(Frame::Released(id));
    }
    walk.rig.settle();
    walk.check();
    assert_eq!(walk.rig.stopped(), 1, "seed {seed}");
    walk.rig.over();
}

#[test]
fn forty_walks_of_a_thousand_steps() {
    for seed in 1..=40 {
        walk(0x9e37_79b9_7f4a_7c15_u64.rotate_left(seed), 1000);
    }
}

#[test]
fn one_long_walk() {
    walk(20_260, 20_000);
}
