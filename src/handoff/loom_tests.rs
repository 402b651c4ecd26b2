//! Models of what stands between two threads that park (R5): a link with both of its sides, a mailbox, the lane.
//!
//! Whoever is never woken makes a model deadlock, which loom reports. Threads are not joined while somebody may still
//! wake them: loom lets nobody be woken from a join.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use loom::thread;
use m0_platform::sync::Arc;
use m0_platform::sync::atomic::{AtomicU32, Ordering};
use m0_platform::{Clock, Token, Waker};

use super::*;

const ID: ExchangeId = ExchangeId {
    index: 0,
    generation: 0,
};

/// A request for an application.
pub(super) fn work(mount: u16) -> Work {
    let nothing = Span::default();
    let head = RequestHead {
        buf: Vec::new(),
        method: nothing,
        path: nothing,
        query: nothing,
        version: Version::Http11,
        fields: Vec::new(),
        framing: Framing::Empty,
        keep_alive: true,
        expect_continue: false,
        upgrade: Upgrade::None,
    };
    let request = Request {
        id: ID,
        head,
        mount,
        connection: Token {
            index: 0,
            generation: 0,
        },
        peer: None,
        local: None,
        body: Bytes::new(),
        body_complete: true,
    };
    Work {
        request: Box::new(request),
        mailbox: Arc::new(Mailbox::default()),
    }
}

// --- a link ---------------------------------------------------------------------------------------------------------

/// The loop's end, with the steps of `LoopThread::turn` in their order: says `jobs` things, and hears as many.
fn run_loop(mut link: RingLoop, waker: &Waker, jobs: u32) {
    let mut left: VecDeque<u32> = (0..jobs).collect();
    let mut heard = 0;
    loop {
        while let Some(frame) = link.frames.pop() {
            assert!(matches!(frame, Frame::WantBody(_, n) if n == heard), "in order (R2)");
            heard += 1;
        }
        if link.frames.producer_starved() {
            link.host.wake();
        }
        let mut pushed = false;
        while let Some(n) = left.pop_front() {
            if link.jobs.push(Job::Credit(ID, n)).is_err() {
                left.push_front(n);
                break;
            }
            pushed = true;
        }
        if pushed {
            link.host.wake();
        }
        if heard == jobs {
            return;
        }
        let mut is_busy = || !link.frames.is_empty() || (!left.is_empty() && link.jobs.has_room());
        if is_busy() {
            continue;
        }
        waker.announce();
        if !is_busy() {
            waker.block();
        }
        waker.retract();
    }
}

/// The host's end: answers each job, and parks as asyncio's thread does.
fn run_host(mut link: Link, waker: &Waker, jobs: u32) {
    let mut heard = 0;
    while heard < jobs || link.needs_flush() {
        match link.next_job() {
            Some(Job::Credit(_, n)) => {
                assert_eq!(n, heard, "in order (R2)");
                heard += 1;
                link.push(Frame::WantBody(ID, n));
            }
            Some(other) => panic!("nobody said {other:?}"),
            None => {
                link.flush().expect("rings do not fail");
                if heard == jobs && !link.needs_flush() {
                    return;
                }
                waker.announce();
                if !link.has_jobs() {
                    waker.block();
                }
                waker.retract();
            }
        }
    }
}

fn both_sides(jobs: u32, room_for_jobs: usize, room_for_frames: usize) {
    loom::model(move || {
        let (at_loop, at_host) = (Waker::model(), Waker::model());
        let (host, link) = rings_for(room_for_jobs, room_for_frames, at_loop.clone(), at_host.clone());
        let side = thread::spawn(move || run_host(Link::Ring(host), &at_host, jobs));
        run_loop(link, &at_loop, jobs);
        side.join().unwrap();
    });
}

#[test]
fn loom_link_wakes_each_side_that_parks() {
    both_sides(2, 2, 2);
}

/// The loop finds no room for its jobs, and is owed a wake by a host that takes one.
#[test]
fn loom_link_with_full_jobs_wakes_the_loop() {
    both_sides(2, 1, 2);
}

/// The host keeps what finds no room, and is owed a wake by a loop that takes one.
#[test]
fn loom_link_with_full_frames_wakes_the_host() {
    both_sides(2, 2, 1);
}

// --- a mailbox ------------------------------------------------------------------------------------------------------

/// Two threads of an application wait for the same exchange, and one of them takes what both are woken for.
#[test]
fn loom_mailbox_wakes_everyone_who_waits() {
    loom::model(|| {
        let mailbox = Arc::new(Mailbox::default());
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let mailbox = mailbox.clone();
                thread::spawn(move || {
                    mailbox.wait(0);
                    mailbox.take().is_some()
                })
            })
            .collect();
        mailbox.put(Job::BodyEnd(ID));
        let taken = waiters.into_iter().map(|waiter| waiter.join().unwrap());
        assert_eq!(taken.filter(|taken| *taken).count(), 1);
    });
}

#[test]
fn loom_mailbox_that_closes_ends_a_wait() {
    loom::model(|| {
        let mailbox = Arc::new(Mailbox::default());
        let waiter = thread::spawn({
            let mailbox = mailbox.clone();
            move || mailbox.wait(0)
        });
        mailbox.close();
        waiter.join().unwrap();
    });
}

// --- the lane -------------------------------------------------------------------------------------------------------

/// A handler thread's life: takes requests until the lane is closed. Counts them.
fn run_views(lane: &Lane, taken: &AtomicU32) {
    loop {
        match lane.pop() {
            Some(work) => {
                taken.fetch_add(1, Ordering::Relaxed);
                lane.done(work.request.mount, false);
            }
            None if lane.idle() => {}
            None => return,
        }
    }
}

/// So many threads serve so many requests, some of which are there when they come, and go home when they are sent.
fn served(threads: usize, early: u32, late: u32, most: usize) {
    let mut model = loom::model::Builder::new();
    if threads > 1 {
        model.preemption_bound = Some(2); // with three, minutes
    }
    model.check(move || {
        let lane = Arc::new(Lane::new(1, most, Clock::manual().0, false));
        let taken = Arc::new(AtomicU32::new(0));
        for _ in 0..early {
            lane.push(work(0));
        }
        (0..threads).for_each(|_| lane.join()); // before the first runs: fewer histories
        let threads: Vec<_> = (0..threads)
            .map(|_| {
                let (lane, taken) = (lane.clone(), taken.clone());
                thread::spawn(move || run_views(&lane, &taken))
            })
            .collect();
        for _ in 0..late {
            lane.push(work(0));
        }
        while taken.load(Ordering::Relaxed) < early + late {
            thread::yield_now();
        }
        lane.close();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(lane.is_empty() && lane.waiting() == 0);
    });
}

#[test]
fn loom_lane_wakes_a_thread_that_parks() {
    served(1, 0, 2, 1);
}

#[test]
fn loom_lane_with_a_thread_awake_wakes_nobody_and_loses_nothing() {
    served(2, 0, 1, 2);
}

/// A request that found its application at its bound is taken by the thread whose view makes room.
#[test]
fn loom_lane_at_the_bound_of_an_application_is_gone_on_with() {
    served(2, 2, 0, 1);
}

/// A thread is in a view that waits for what comes after: the loop finds the lane stalled, and wakes another, which had parked
/// since the first was within a view.
#[test]
fn loom_lane_that_stalls_wakes_a_sleeping_thread() {
    loom::model(|| {
        let (clock, hand) = Clock::manual();
        let lane = Arc::new(Lane::new(1, 2, clock, false));
        let taken = Arc::new(AtomicU32::new(0));
        lane.join();
        lane.push(work(0));
        let stays = lane.pop(); // its thread is within a view from here on
        lane.join();
        let other = thread::spawn({
            let (lane, taken) = (lane.clone(), taken.clone());
            move || run_views(&lane, &taken)
        });
        lane.push(work(0));
        let (mut look, mut is_found) = (None, false);
        let find = |is_found: &mut bool| {
            if !std::mem::replace(is_found, true) {
                lane.leave();
            }
        };
        while lane.look_for_stall(&mut look, || find(&mut is_found)) {
            hand.advance(lane::STALL + Duration::from_nanos(1));
            thread::yield_now();
        }
        while taken.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        lane.close();
        other.join().unwrap();
        drop(stays);
    });
}
