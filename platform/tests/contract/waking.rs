//! R5 over a real backend: wakes from other threads, none lost, none sent to a side that is awake.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::contract;
use crate::rig::{PATIENCE, Rig};

/// The owner's side: parks as R5 says until `items` were pushed. Returns how often it announced.
fn own(rig: &mut Rig, pushed: &AtomicUsize, popped: &AtomicUsize, items: usize) -> usize {
    let waker = rig.backend.waker();
    let mut announced = 0;
    loop {
        let seen = pushed.load(Ordering::Relaxed);
        popped.store(seen, Ordering::Release);
        if seen == items {
            return announced;
        }
        waker.announce();
        announced += 1;
        // Without a limit: a wake that is lost hangs, and the watchdog says so.
        let timeout = if pushed.load(Ordering::Relaxed) == seen {
            None
        } else {
            Some(Duration::ZERO)
        };
        rig.turn(timeout);
        waker.retract();
    }
}

contract! {
    /// A hundred thousand pushes by a producer that waits for each to be taken, so that the owner parks all the time.
    fn none_lost_one_by_one(rig) {
        let (pushed, popped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let waker = rig.backend.waker();
        let producer = std::thread::spawn({
            let (pushed, popped) = (pushed.clone(), popped.clone());
            move || {
                let mut rung = 0;
                for number in 1..=100_000 {
                    pushed.store(number, Ordering::Relaxed);
                    rung += usize::from(waker.wake());
                    while popped.load(Ordering::Acquire) < number {
                        std::thread::yield_now();
                    }
                }
                rung
            }
        });
        let announced = own(rig, &pushed, &popped, 100_000);
        let rung = producer.join().unwrap();
        assert!(rung <= announced, "{rung} rings for {announced} announcements");
    }

    /// The same by two producers that never wait.
    fn none_lost_in_a_flood(rig) {
        let (pushed, popped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let producers: Vec<_> = (0..2)
            .map(|_| {
                let (waker, pushed) = (rig.backend.waker(), pushed.clone());
                std::thread::spawn(move || {
                    (0..50_000)
                        .filter(|_| {
                            pushed.fetch_add(1, Ordering::Relaxed);
                            waker.wake()
                        })
                        .count()
                })
            })
            .collect();
        let announced = own(rig, &pushed, &popped, 100_000);
        let rung: usize = producers.into_iter().map(|producer| producer.join().unwrap()).sum();
        assert!(rung <= announced, "{rung} rings for {announced} announcements");
    }

    /// An owner that has announced nothing is never rung, and its waits are not shortened.
    fn none_sent_to_an_awake_side(rig) {
        let waker = rig.backend.waker();
        let producer = std::thread::spawn(move || (0..10_000).filter(|_| waker.wake()).count());
        rig.until("the producer is done", |_| producer.is_finished());
        assert_eq!(producer.join().unwrap(), 0);
        rig.turns_for(Duration::from_millis(20));
        let start = rig.now();
        rig.turn(Some(Duration::from_millis(50)));
        assert!(rig.now().since(start) >= Duration::from_millis(49));
    }

    /// A wake that came between the announcement and the wait ends the wait, once.
    fn a_wake_before_the_wait_counts(rig) {
        rig.turns_for(Duration::from_millis(20));
        let waker = rig.backend.waker();
        for _ in 0..10 {
            waker.announce();
            assert!(waker.wake());
            assert!(!waker.wake(), "one ring an announcement");
            let start = rig.now();
            rig.turn(Some(Duration::from_secs(100)));
            assert!(rig.now().since(start) < PATIENCE);
            waker.retract();
            let start = rig.now();
            rig.turn(Some(Duration::from_millis(20)));
            assert!(rig.now().since(start) >= Duration::from_millis(19), "the bell rings once");
        }
    }

    /// A wake ends a wait that is under way.
    fn a_wake_during_the_wait(rig) {
        rig.turns_for(Duration::from_millis(20)); // what opening it left over would end the wait as well
        let waker = rig.backend.waker();
        let other = waker.clone();
        let ringer = std::thread::spawn(move || {
            while !other.wake() {
                std::thread::yield_now();
            }
        });
        waker.announce();
        rig.turn(None);
        waker.retract();
        ringer.join().unwrap();
    }
}
