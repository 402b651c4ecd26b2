//! R5 in every interleaving that loom can find: no wake is lost, and none is sent to a side that is awake.
//!
//! Runs with `cargo test -p m0-platform --features loom --profile ci --test loom_waker`.

#![allow(missing_docs)]

use loom::thread;
use m0_platform::Waker;
use m0_platform::sync::Arc;
use m0_platform::sync::atomic::{AtomicUsize, Ordering};

/// Pushes are counted with relaxed accesses: only the waker's own fences order them against the announcement.
#[derive(Clone)]
struct Queue(Arc<AtomicUsize>);

impl Queue {
    fn new() -> Queue {
        Queue(Arc::new(AtomicUsize::new(0)))
    }

    fn push(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn len(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// The owner's side: parks as R5 says until `items` were pushed. Returns how often it blocked.
fn own(waker: &Waker, queue: &Queue, items: usize) -> usize {
    let mut blocked = 0;
    while queue.len() < items {
        waker.announce();
        if queue.len() < items {
            waker.block();
            blocked += 1;
        }
        waker.retract();
    }
    blocked
}

#[test]
fn one_producer_wakes_a_parked_owner() {
    loom::model(|| {
        let (waker, queue) = (Waker::model(), Queue::new());
        let producer = thread::spawn({
            let (waker, queue) = (waker.clone(), queue.clone());
            move || {
                queue.push();
                waker.wake()
            }
        });
        let blocked = own(&waker, &queue, 1);
        let rang = producer.join().unwrap();
        assert!(rang || blocked == 0, "the owner was woken by nobody");
    });
}

#[test]
fn one_producer_pushes_twice() {
    loom::model(|| {
        let (waker, queue) = (Waker::model(), Queue::new());
        let producer = thread::spawn({
            let (waker, queue) = (waker.clone(), queue.clone());
            move || {
                for _ in 0..2 {
                    queue.push();
                    waker.wake();
                }
            }
        });
        own(&waker, &queue, 2);
        producer.join().unwrap();
    });
}

#[test]
fn two_producers_ring_at_most_once_an_announcement() {
    loom::model(|| {
        let (waker, queue) = (Waker::model(), Queue::new());
        waker.announce(); // once: with that, at most one of the two may ring
        let producers: Vec<_> = (0..2)
            .map(|_| {
                let (waker, queue) = (waker.clone(), queue.clone());
                thread::spawn(move || {
                    queue.push();
                    waker.wake()
                })
            })
            .collect();
        let rung = producers
            .into_iter()
            .map(|p| p.join().unwrap())
            .filter(|rang| *rang)
            .count();
        assert_eq!(rung, 1, "one of the two sees the announcement, and only one");
        waker.block();
    });
}

#[test]
fn an_awake_owner_is_not_rung() {
    loom::model(|| {
        let (waker, queue) = (Waker::model(), Queue::new());
        let producer = thread::spawn({
            let (waker, queue) = (waker.clone(), queue.clone());
            move || {
                queue.push();
                waker.wake()
            }
        });
        // The owner polls without ever announcing.
        let _ = queue.len();
        assert!(!producer.join().unwrap());
    });
}
