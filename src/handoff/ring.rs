//! A bounded ring between two threads: one pushes, one pops, neither ever waits for the other.
//!
//! | word      | written by | meaning                                                                     |
//! |-----------|------------|-----------------------------------------------------------------------------|
//! | `tail`    | producer   | items pushed; slots `head..tail` are full and belong to the consumer         |
//! | `head`    | consumer   | items popped; slots `tail..head + capacity` are empty, the producer's        |
//! | `starved` | both       | the producer found the ring full; whoever pops next owes it a wake           |
//!
//! A push writes its slot and then publishes it by storing `tail` (release); a pop reads `tail` (acquire) before the
//! slot, takes the item out and gives the slot back by storing `head` (release), which the producer reads (acquire)
//! before it writes that slot again. So no slot is ever touched from both sides. Both words count without wrapping
//! into the capacity, and are compared by wrapping subtraction.
//!
//! `starved`: the producer stores it and then reads `head` again, the consumer stores `head` and then reads it, each
//! with a sequentially consistent fence between; so either the producer finds room, or the consumer finds the mark.
//! Parking and waking themselves are [`m0_platform::Waker`]'s (R5). Checked by loom in this file's tests and, with
//! both sides of a link, in `loom_tests.rs`.

use std::mem::MaybeUninit;

use m0_platform::sync::Arc;
use m0_platform::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use m0_platform::sync::cell::UnsafeCell;

/// Keeps two words that are written by different threads off one cache line.
#[repr(align(128))]
struct Padded<T>(T);

struct Ring<T> {
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    tail: Padded<AtomicUsize>,
    head: Padded<AtomicUsize>,
    starved: Padded<AtomicBool>,
}

// SAFETY: a slot is accessed by one side at a time, as the table at the head of this file says; items are moved from
// one thread to the other, so they must be Send and need not be Sync.
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: as above; the words are atomics.
unsafe impl<T: Send> Sync for Ring<T> {}

/// The side that pushes.
pub struct Producer<T> {
    ring: Arc<Ring<T>>,
    tail: usize,
    /// `head` as last seen: never ahead of the truth.
    head: usize,
}

/// The side that pops.
pub struct Consumer<T> {
    ring: Arc<Ring<T>>,
    head: usize,
    /// `tail` as last seen: never ahead of the truth.
    tail: usize,
}

/// A ring for `capacity` items, a power of two.
///
/// # Panics
/// When it is not.
#[must_use]
pub fn ring<T>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    assert!(capacity.is_power_of_two(), "a ring's capacity is a power of two");
    let ring = Arc::new(Ring {
        slots: (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
        tail: Padded(AtomicUsize::new(0)),
        head: Padded(AtomicUsize::new(0)),
        starved: Padded(AtomicBool::new(false)),
    });
    let producer = Producer {
        ring: ring.clone(),
        tail: 0,
        head: 0,
    };
    (producer, Consumer { ring, head: 0, tail: 0 })
}

impl<T> Producer<T> {
    /// Pushes an item.
    ///
    /// # Errors
    /// Gives it back when the ring is full; the consumer then owes a wake ([`Consumer::producer_starved`]).
    pub fn push(&mut self, item: T) -> Result<(), T> {
        if !self.has_room() {
            self.ring.starved.0.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if !self.has_room() {
                return Err(item);
            }
        }
        let slot = &self.ring.slots[self.tail & (self.ring.slots.len() - 1)];
        // SAFETY: there is room, so this slot is outside `head..tail` and the producer's alone.
        slot.with_mut(|slot| unsafe { (*slot).write(item) });
        self.tail = self.tail.wrapping_add(1);
        self.ring.tail.0.store(self.tail, Ordering::Release);
        Ok(())
    }

    /// Whether a push would succeed.
    pub fn has_room(&mut self) -> bool {
        self.has_room_for(1)
    }

    /// Whether so many pushes would succeed.
    pub fn has_room_for(&mut self, items: usize) -> bool {
        let capacity = self.ring.slots.len();
        if self.tail.wrapping_sub(self.head) + items <= capacity {
            return true;
        }
        self.head = self.ring.head.0.load(Ordering::Acquire);
        self.tail.wrapping_sub(self.head) + items <= capacity
    }
}

impl<T> Consumer<T> {
    /// Pops the oldest item.
    pub fn pop(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let slot = &self.ring.slots[self.head & (self.ring.slots.len() - 1)];
        // SAFETY: the ring is not empty, so this slot is within `head..tail`: it was written before `tail` was stored,
        // which `is_empty` has read with acquire, and the producer leaves it alone until `head` has passed it.
        let item = slot.with_mut(|slot| unsafe { (*slot).assume_init_read() });
        self.head = self.head.wrapping_add(1);
        self.ring.head.0.store(self.head, Ordering::Release);
        Some(item)
    }

    /// Whether there is nothing to pop.
    pub fn is_empty(&mut self) -> bool {
        if self.head != self.tail {
            return false;
        }
        self.tail = self.ring.tail.0.load(Ordering::Acquire);
        self.head == self.tail
    }

    /// Whether the producer found the ring full since this was last asked. Called after popping: it is then owed a
    /// wake.
    pub fn producer_starved(&self) -> bool {
        fence(Ordering::SeqCst);
        self.ring.starved.0.load(Ordering::Relaxed) && self.ring.starved.0.swap(false, Ordering::Relaxed)
    }
}

impl<T> Drop for Consumer<T> {
    /// Items that were never popped are freed (R9). What is pushed after this is never freed: both sides of a link end
    /// together, the producer first.
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

#[cfg(all(test, not(feature = "modelled")))]
mod tests {
    use super::*;
    use std::sync::Arc as StdArc;

    #[test]
    fn items_come_out_in_order_and_a_full_ring_gives_them_back() {
        let (mut producer, mut consumer) = ring(4);
        for round in 0..10 {
            for n in 0..4 {
                assert_eq!(producer.push(round * 4 + n), Ok(()));
            }
            assert_eq!(producer.push(99), Err(99));
            assert_eq!(consumer.pop(), Some(round * 4));
            assert!(consumer.producer_starved());
            assert!(!consumer.producer_starved());
            assert_eq!(
                std::iter::from_fn(|| consumer.pop()).collect::<Vec<_>>(),
                (1..4).map(|n| round * 4 + n).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn items_that_were_never_popped_are_freed() {
        let item = StdArc::new(());
        let (mut producer, consumer) = ring(4);
        for _ in 0..3 {
            assert!(producer.push(item.clone()).is_ok());
        }
        drop(producer);
        drop(consumer);
        assert_eq!(StdArc::strong_count(&item), 1);
    }

    #[test]
    fn a_million_items_cross_two_threads() {
        let (mut producer, mut consumer) = ring(64);
        let pusher = m0_platform::thread::spawn("pusher", move || {
            for n in 0..1_000_000_u64 {
                while producer.push(n).is_err() {
                    std::thread::yield_now();
                }
            }
        })
        .expect("a thread");
        let mut next = 0;
        while next < 1_000_000 {
            match consumer.pop() {
                Some(n) => {
                    assert_eq!(n, next);
                    next += 1;
                }
                None => std::thread::yield_now(),
            }
        }
        pusher.join().expect("the pusher ends");
    }
}

#[cfg(all(test, feature = "loom"))]
mod loom_tests {
    use super::*;

    #[test]
    fn loom_ring_hands_over_every_item_in_order() {
        loom::model(|| {
            let (mut producer, mut consumer) = ring(2);
            let pusher = loom::thread::spawn(move || {
                for n in 0..3_u32 {
                    while producer.push(n).is_err() {
                        loom::thread::yield_now();
                    }
                }
            });
            let mut next = 0;
            while next < 3 {
                match consumer.pop() {
                    Some(n) => {
                        assert_eq!(n, next);
                        next += 1;
                    }
                    None => loom::thread::yield_now(),
                }
            }
            pusher.join().unwrap();
        });
    }

    /// A producer that found the ring full either finds room when it looks again, or is owed a wake.
    #[test]
    fn loom_ring_starved_producer_is_owed_a_wake() {
        loom::model(|| {
            let (mut producer, mut consumer) = ring(1);
            assert!(producer.push(1_u32).is_ok());
            let popper = loom::thread::spawn(move || {
                assert_eq!(consumer.pop(), Some(1));
                let owed = consumer.producer_starved();
                (consumer, owed)
            });
            let pushed = producer.push(2).is_ok();
            let (consumer, owed) = popper.join().unwrap();
            assert!(pushed || owed || consumer.producer_starved(), "the producer is stuck");
        });
    }
}
