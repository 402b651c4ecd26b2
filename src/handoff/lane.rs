//! The lane: requests on their way to any of several handler threads, and who of those is awake.
//!
//! Its length is bounded by the connections that are open: each works on one request. The engine accepts no more while
//! many wait (R7), and a request must not hold up the bodies behind it that the threads may be waiting for.
//!
//! One lock guards the queue and the list of parked threads, so a thread that finds the queue empty and parks cannot
//! miss a push (R5): both happen under it. The critical sections are a few instructions and call nothing. Words that are
//! written under it are also read without it: `len` by the one thread that spins, `popped` by the loop that looks for a
//! stall, `waiting` by the loop that accepts.
//!
//! Several applications have a queue each, and of each at most so many views run at once: the threads are shared, but there
//! are enough of them that views of one that never return take none from another. One crew rather than one for each
//! application, since only one thread at a time can run the loop: with a baton for each crew they would have to pass one
//! loop among them. What it costs is that over time more threads may run views of one application than of it run at once,
//! and keep a database connection each.
//!
//! How many threads work follows the load:
//! - a push wakes nobody while any thread of the lane is awake: it will look at the queue before it parks;
//! - with all of them parked a push wakes one, the one that parked last (its caches are the warmest);
//! - a lane that has work and from which nothing was popped for [`STALL`] is stalled: every awake thread is inside a
//!   view. If they all wait, one more is woken. If one of them computes, more threads on the GIL would only preempt it
//!   and each other: one more is woken only when each has gone on for [`LONG`]. How old the oldest request is
//!   says less: a long queue that moves is not stalled.

use std::collections::VecDeque;
use std::time::Duration;

use m0_platform::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use m0_platform::sync::{Arc, Mutex, MutexGuard};
use m0_platform::{Clock, Instant, Sleeper};

use super::mailbox::Mailbox;
use super::message::Request;

/// Nothing was popped for so long although there is something: another thread is woken.
pub const STALL: Duration = Duration::from_micros(200);
/// A view that has computed for so long may have given up the GIL (a library that calculates); if it has not, it is
/// time for the interpreter to share it.
pub const LONG: Duration = Duration::from_millis(5);
/// How long the one thread spins that found nothing to do.
const SPIN: Duration = Duration::from_micros(10);

/// A request, and where what follows for it will arrive.
#[derive(Debug)]
pub struct Work {
    /// The request.
    pub request: Box<Request>,
    /// Body, credit and ends.
    pub mailbox: Arc<Mailbox>,
}

/// Queues with several threads at their end.
#[derive(Debug)]
pub struct Lane {
    state: Mutex<State>,
    /// Requests that could be taken now.
    len: AtomicUsize,
    /// Requests that wait, also those whose application has as many views running as it may.
    waiting: AtomicUsize,
    /// Views of one application that run at once, at most.
    most: usize,
    /// Threads that do not sleep.
    awake: AtomicUsize,
    /// Requests popped, ever.
    popped: AtomicU64,
    /// A thread spins.
    spinning: AtomicBool,
    clock: Clock,
    /// Spinning pays: more than one CPU is usable.
    spin: bool,
}

#[derive(Debug)]
struct State {
    /// One for each application, by its number.
    queues: Vec<Queue>,
    /// Whose turn it is.
    next: usize,
    /// Threads that sleep, the last to do so at the end.
    parked: Vec<Sleeper>,
    closed: bool,
}

/// What one application has to do.
#[derive(Debug, Default)]
struct Queue {
    requests: VecDeque<Work>,
    /// Its views that run.
    running: usize,
}

impl State {
    /// Requests that could be taken now.
    fn ready(&self, most: usize) -> usize {
        let free = self.queues.iter().filter(|queue| queue.running < most);
        free.map(|queue| queue.requests.len()).sum()
    }

    /// The oldest request of the next application that has one and may run it.
    fn take(&mut self, most: usize) -> Option<Work> {
        let count = self.queues.len();
        for _ in 0..count {
            let queue = &mut self.queues[self.next];
            self.next = (self.next + 1) % count;
            if queue.running < most
                && let Some(work) = queue.requests.pop_front()
            {
                queue.running += 1;
                return Some(work);
            }
        }
        None
    }
}

/// What the loop remembers of a lane between two looks.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    popped: u64,
    since: Instant,
}

impl Lane {
    /// A lane without threads, for so many applications, of each of which at most so many views run at once.
    #[must_use]
    pub fn new(applications: usize, most: usize, clock: Clock, spin: bool) -> Lane {
        Lane {
            state: Mutex::new(State {
                queues: (0..applications).map(|_| Queue::default()).collect(),
                next: 0,
                parked: Vec::new(),
                closed: false,
            }),
            len: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            most,
            awake: AtomicUsize::new(0),
            popped: AtomicU64::new(0),
            spinning: AtomicBool::new(false),
            clock,
            spin,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds a lane")
    }

    /// A thread joins, awake; or is back from a view that had not seemed to end.
    pub fn join(&self) {
        self.awake.fetch_add(1, Ordering::Relaxed);
    }

    /// A thread is found in a view that does not end: it looks for no request for a while.
    pub fn leave(&self) {
        self.awake.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many threads do not sleep: they look for requests or are within a view.
    #[must_use]
    pub fn awake(&self) -> usize {
        self.awake.load(Ordering::Relaxed)
    }

    /// Adds a request, and wakes a thread if none is awake.
    pub fn push(&self, work: Work) {
        let mut state = self.lock();
        state.queues[usize::from(work.request.mount)].requests.push_back(work);
        self.len.store(state.ready(self.most), Ordering::Relaxed);
        self.waiting.store(self.waiting() + 1, Ordering::Relaxed);
        let woken = if self.awake() == 0 {
            self.wake_last(&mut state)
        } else {
            None
        };
        drop(state);
        woken.iter().for_each(Sleeper::wake);
    }

    /// Requests that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether there is none that could be taken now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// A request: of each application the oldest, of several applications one after another. The thread says when its
    /// view is over ([`Lane::done`]).
    pub fn pop(&self) -> Option<Work> {
        if self.is_empty() {
            return None;
        }
        let mut state = self.lock();
        let work = state.take(self.most)?;
        self.len.store(state.ready(self.most), Ordering::Relaxed);
        self.waiting.store(self.waiting() - 1, Ordering::Relaxed);
        let popped = self.popped.load(Ordering::Relaxed);
        self.popped.store(popped + 1, Ordering::Relaxed);
        Some(work)
    }

    /// A view of this application is over. Its thread looks for the next one itself, so nobody is woken.
    pub fn done(&self, application: u16) {
        let mut state = self.lock();
        state.queues[usize::from(application)].running -= 1;
        self.len.store(state.ready(self.most), Ordering::Relaxed);
    }

    /// The calling thread has found nothing: it spins for a moment if no other does, and then sleeps until there is
    /// something, or the lane is closed. Returns whether it is open.
    pub fn idle(&self) -> bool {
        if self.spin && !self.spinning.swap(true, Ordering::Relaxed) {
            let until = self.clock.now().plus(SPIN);
            while self.is_empty() && self.clock.now() < until {
                m0_platform::sync::hint::spin_loop();
            }
            self.spinning.store(false, Ordering::Relaxed);
        }
        let mut state = self.lock();
        if state.closed || state.ready(self.most) > 0 {
            return !state.closed;
        }
        let me = Sleeper::current();
        self.awake.fetch_sub(1, Ordering::Relaxed);
        state.parked.push(me.clone());
        while state.parked.contains(&me) {
            drop(state);
            Sleeper::sleep();
            state = self.lock();
        }
        !state.closed
    }

    /// Wakes one more thread if the lane is stalled since `look` was taken. Called by the loop, whose wait ends after
    /// [`STALL`] as long as this returns true. With no thread asleep there is none to wake, and none falls asleep before the
    /// lane is empty.
    pub fn look_for_stall(&self, look: &mut Option<Look>, is_computing: impl FnOnce() -> bool) -> bool {
        if self.is_empty() {
            *look = None;
            return false;
        }
        let (now, popped) = (self.clock.now(), self.popped.load(Ordering::Relaxed));
        match look {
            Some(before) if before.popped == popped => {
                if now.since(before.since) < STALL || is_computing() {
                    return true;
                }
                *look = Some(Look { popped, since: now });
                let woken = self.wake_last(&mut self.lock());
                woken.iter().for_each(Sleeper::wake);
                woken.is_some()
            }
            _ => {
                *look = Some(Look { popped, since: now });
                true
            }
        }
    }

    /// Ends it: sleeping threads wake up, none sleeps any more. What is queued can still be popped.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let mut woken = Vec::new();
        while let Some(sleeper) = self.wake_last(&mut state) {
            woken.push(sleeper);
        }
        drop(state);
        woken.iter().for_each(Sleeper::wake);
    }

    /// Takes the thread that parked last out of the list, for the caller to wake without the lock. Counted under the lock
    /// like everything that a push decides by.
    fn wake_last(&self, state: &mut State) -> Option<Sleeper> {
        let sleeper = state.parked.pop()?;
        self.awake.fetch_add(1, Ordering::Relaxed);
        Some(sleeper)
    }
}
