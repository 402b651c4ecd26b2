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
//! - a thread whose view is found to wait, or to compute for [`LONG`], does not count as awake until it is back;
//! - a push wakes nobody while any thread of the lane is awake: it will look at the queue before it parks;
//! - with none awake a push wakes one, the one that parked last (its caches are the warmest);
//! - a lane that has work and from which nothing was popped for [`STALL`] is stalled: whoever is awake is inside a
//!   view. If that waits, one more is woken. If it computes, more threads on the GIL would only preempt it and each other:
//!   one more is woken only when it has gone on for [`LONG`], or when another computes as well. How old the oldest request
//!   is says less: a long queue that moves is not stalled;
//! - a thread that finds another one awake and within a view parks, whatever is queued (the barrier): two that both pop
//!   views that compute would take the GIL from each other in the middle of them, a switch interval at a time, for as long
//!   as there is work.

use std::collections::VecDeque;
use std::time::Duration;

use m0_platform::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use m0_platform::sync::{Arc, Mutex, MutexGuard};
use m0_platform::{Clock, Instant, Sleeper};

use super::mailbox::Mailbox;
use super::message::Request;

/// Nothing was popped for so long although there is something: another thread is woken.
pub const STALL: Duration = Duration::from_micros(200);
/// A view that has computed for so long may go on for longer. Another thread begins to ask for the GIL, which the interpreter
/// gives it five milliseconds later (or at once, where the view calculates without it). When the view ends before that, all
/// that was lost is a change of threads.
pub const LONG: Duration = Duration::from_millis(1);
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
    /// Threads that look for requests, or are within views that have not been found slow.
    awake: AtomicUsize,
    /// How many of those are within views.
    fresh: AtomicUsize,
    /// How many may be: one where they share a GIL.
    at_once: AtomicUsize,
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
    /// One that is awake, and sleeps for a moment.
    standing_by: Option<Sleeper>,
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

/// Changes a count that is written under the lane's lock alone.
fn add(count: &AtomicUsize, change: isize) {
    let before = count.load(Ordering::Relaxed);
    count.store(before.wrapping_add_signed(change), Ordering::Relaxed);
}

impl Lane {
    /// A lane without threads, for so many applications, of each of which at most so many views run at once. One thread at
    /// a time takes requests.
    #[must_use]
    pub fn new(applications: usize, most: usize, clock: Clock, spin: bool) -> Lane {
        Lane {
            state: Mutex::new(State {
                queues: (0..applications).map(|_| Queue::default()).collect(),
                next: 0,
                parked: Vec::new(),
                standing_by: None,
                closed: false,
            }),
            len: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            most,
            awake: AtomicUsize::new(0),
            fresh: AtomicUsize::new(0),
            at_once: AtomicUsize::new(1),
            popped: AtomicU64::new(0),
            spinning: AtomicBool::new(false),
            clock,
            spin,
        }
    }

    /// Every thread that is awake takes requests: something else sees to it that they do not get into each other's way.
    #[must_use]
    pub fn without_barrier(self) -> Lane {
        self.at_once.store(usize::MAX, Ordering::Relaxed);
        self
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds a lane")
    }

    /// A thread joins, awake.
    pub fn join(&self) {
        let _state = self.lock();
        add(&self.awake, 1);
    }

    /// A view is found slow: its thread looks for no request for a while.
    pub fn leave(&self) {
        let _state = self.lock();
        add(&self.awake, -1);
        add(&self.fresh, -1);
    }

    /// How many threads look for requests, or are within views that have not been found slow.
    #[must_use]
    pub fn awake(&self) -> usize {
        self.awake.load(Ordering::Relaxed)
    }

    /// Whether a thread that is in no view should leave what there is to others, which are.
    fn is_looked_after(&self) -> bool {
        self.fresh.load(Ordering::Relaxed) >= self.at_once.load(Ordering::Relaxed)
    }

    /// Adds a request, and wakes a thread if none is awake.
    pub fn push(&self, work: Work) {
        let mut state = self.lock();
        state.queues[usize::from(work.request.mount)].requests.push_back(work);
        self.len.store(state.ready(self.most), Ordering::Relaxed);
        self.waiting.store(self.waiting() + 1, Ordering::Relaxed);
        let woken = match state.standing_by.take() {
            None if self.awake() == 0 => self.wake_last(&mut state),
            standing_by => standing_by,
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
    /// view is over ([`Lane::done`]). None as well for a thread that should leave them to another.
    pub fn pop(&self) -> Option<Work> {
        if self.is_empty() || self.is_looked_after() {
            return None;
        }
        let mut state = self.lock();
        let work = state.take(self.most)?;
        add(&self.fresh, 1);
        self.len.store(state.ready(self.most), Ordering::Relaxed);
        self.waiting.store(self.waiting() - 1, Ordering::Relaxed);
        let popped = self.popped.load(Ordering::Relaxed);
        self.popped.store(popped + 1, Ordering::Relaxed);
        Some(work)
    }

    /// A view of this application is over, which had been found slow or not. Its thread looks for the next one itself, so
    /// nobody is woken.
    pub fn done(&self, application: u16, slow: bool) {
        let mut state = self.lock();
        state.queues[usize::from(application)].running -= 1;
        if slow {
            add(&self.awake, 1);
        } else {
            add(&self.fresh, -1);
        }
        self.len.store(state.ready(self.most), Ordering::Relaxed);
    }

    /// The calling thread has found nothing for it: it spins for a moment if no other does, and then sleeps until there is
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
        if state.closed || (state.ready(self.most) > 0 && !self.is_looked_after()) {
            return !state.closed;
        }
        let me = Sleeper::current();
        add(&self.awake, -1);
        state.parked.push(me.clone());
        while state.parked.contains(&me) {
            drop(state);
            Sleeper::sleep();
            state = self.lock();
        }
        !state.closed
    }

    /// As [`Lane::idle`], for a thread that keeps the GIL meanwhile, and so for a moment only. It stays awake, and the next
    /// push wakes it. Returns whether there is something for it.
    pub fn stand_by(&self, time: Duration) -> bool {
        let until = self.clock.now().plus(time);
        let mut state = self.lock();
        if state.closed || self.is_looked_after() {
            return false;
        }
        if state.ready(self.most) > 0 {
            return true;
        }
        state.standing_by = Some(Sleeper::current());
        while state.standing_by.is_some() {
            let now = self.clock.now();
            if now >= until {
                state.standing_by = None;
                return false;
            }
            drop(state);
            Sleeper::sleep_for(until.since(now));
            state = self.lock();
        }
        true
    }

    /// Wakes one more thread if the lane is stalled since `look` was taken and none is awake. `find_slow` is called before
    /// that, and says by [`Lane::leave`] who does not count as awake any more. Called by the loop, whose wait ends after
    /// [`STALL`] as long as this returns true. With none awake and none asleep there is nobody to wake; the next that is
    /// back wakes the loop.
    pub fn look_for_stall(&self, look: &mut Option<Look>, find_slow: impl FnOnce()) -> bool {
        if self.is_empty() {
            *look = None;
            return false;
        }
        let (now, popped) = (self.clock.now(), self.popped.load(Ordering::Relaxed));
        match look {
            Some(before) if before.popped == popped => {
                if now.since(before.since) < STALL {
                    return true;
                }
                find_slow();
                let mut state = self.lock();
                if self.awake() > 0 {
                    return true; // computes, or is on its way
                }
                *look = Some(Look { popped, since: now });
                let woken = self.wake_last(&mut state);
                drop(state);
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
        self.at_once.store(usize::MAX, Ordering::Relaxed);
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
        add(&self.awake, 1);
        Some(sleeper)
    }
}
