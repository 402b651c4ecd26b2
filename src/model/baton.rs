//! The baton: one loop, several threads that may run it, and views that run on whichever has it.
//!
//! A handler thread that holds the baton runs turns of the loop, and runs views inline between them. While it is inside
//! a view the loop is lent: the sentinel, a thread of ours that never attaches to the interpreter, may take it, so that
//! a view that does not return keeps nobody waiting. Ownership is one word:
//!
//! | state      | who may touch the loop | left by                                                                       |
//! |------------|------------------------|-------------------------------------------------------------------------------|
//! | OWNED(h, n)| h                      | h lends it for a view → LENT(h, n + 1); h retires → OFFERED                   |
//! | LENT(h, n) | nobody                 | h is back → OWNED(h, n); the sentinel takes it → TAKEN(h, n); h is about to   |
//! |            |                        | wait where we see it → OFFERED                                                |
//! | OFFERED    | nobody                 | the sentinel takes it → LOOSE                                                 |
//! | TAKEN(h, n)| the sentinel           | h is back → BACK(h); h waits, or computes for long → LOOSE                    |
//! | BACK(h)    | the sentinel           | the sentinel gives it back → OWNED(h, 0)                                      |
//! | LOOSE      | the sentinel           | the sentinel gives it to an idle u that is ready → OWNED(u, 0)                |
//! | ENDED      | nobody                 | never: a turn has said that the loop is over, and who ran it has closed it    |
//!
//! `n` counts views, so that the sentinel, which looks once a [`TICK`], and for a while after a view that waited once a
//! [`QUICK_TICK`], knows a view that it has seen before from the next one of the same thread: no clock is read for a view.
//!
//! In TAKEN the right to start views stays with h, which computes: more threads on the GIL would only preempt it. Requests
//! queue in the loop, h finds them when it is back. In LOOSE it has passed on, and with no thread idle requests queue too:
//! that is the pump. A thread that is called takes the GIL first, which may last, and then says that it is ready: until
//! then the sentinel goes on serving. A thread that comes back from its view first has the GIL already, and claims the
//! loop; the one that was called is sent back to sleep.
//!
//! Every hand-over stores the word with release after the last touch of the loop, and is read with acquire before the
//! next. LENT → OWNED and LENT → TAKEN are compare-and-swaps on the same word, so one of h and the sentinel has it, never
//! both. The sentinel sleeps while nothing runs (R5): a handler lends the loop, then looks whether the sentinel watches;
//! the sentinel says that it does not watch, then looks at the word again; each with a sequentially consistent fence
//! between. Checked by loom in this file's tests.

use std::time::Duration;

use m0_platform::Sleeper;
use m0_platform::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use m0_platform::sync::cell::UnsafeCell;
use m0_platform::sync::{Mutex, MutexGuard};

/// How often the sentinel looks while views run: a view that it sees twice loses the loop.
pub const TICK: Duration = Duration::from_millis(1);
/// How often after a view that waited: where views wait for a database, say, the next will as well, and each that starts
/// only when the one before was found waiting would have to wait for a tick or two.
const QUICK_TICK: Duration = Duration::from_micros(100);
/// For so many looks.
const QUICK_LOOKS: u32 = 64;

/// Who has the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Owned(u8, u64),
    Lent(u8, u64),
    Offered,
    Taken(u8, u64),
    Back(u8),
    Loose,
    Ended,
}

impl State {
    /// Kind in the low byte, thread in the next, count of views in the rest.
    fn word(self) -> u64 {
        let (kind, thread, views) = match self {
            State::Owned(thread, views) => (0, thread, views),
            State::Lent(thread, views) => (1, thread, views),
            State::Offered => (2, 0, 0),
            State::Taken(thread, views) => (3, thread, views),
            State::Back(thread) => (4, thread, 0),
            State::Loose => (5, 0, 0),
            State::Ended => (6, 0, 0),
        };
        views << 16 | u64::from(thread) << 8 | kind
    }

    fn of(word: u64) -> State {
        let thread = (word >> 8) as u8;
        match word & 0xff {
            0 => State::Owned(thread, word >> 16),
            1 => State::Lent(thread, word >> 16),
            2 => State::Offered,
            3 => State::Taken(thread, word >> 16),
            4 => State::Back(thread),
            5 => State::Loose,
            6 => State::Ended,
            kind => unreachable!("no state is written as {kind}"),
        }
    }
}

/// Whether a thread has the loop after its view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// It has.
    Kept,
    /// The sentinel has it for this thread, and gives it back: [`Baton::wait_for_return`].
    Returning,
    /// Others have it.
    Lost,
}

/// The loop, and who has it.
pub struct Baton<T> {
    word: AtomicU64,
    /// The loop; who may touch it says the table above.
    turn: UnsafeCell<T>,
    /// Handler threads with nothing to do, the last to come at the end.
    idle: Mutex<Idle>,
    /// Idle threads are sent home. Written under the lock of `idle`.
    closed: AtomicBool,
    /// The sentinel looks at the word at every tick.
    watching: AtomicBool,
    sentinel: Mutex<Option<Sleeper>>,
}

#[derive(Default)]
struct Idle {
    threads: Vec<(u8, Sleeper)>,
    /// Every handler thread, by its number.
    all: Vec<Option<Sleeper>>,
    /// A thread that has been called and does not have the GIL yet.
    called: Option<u8>,
    /// It has.
    ready: Option<u8>,
}

impl Idle {
    /// Whether a sentinel that has the loop to itself would do something about it.
    fn has_news(&self, closed: bool) -> bool {
        self.ready.is_some() || (!closed && self.called.is_none() && !self.threads.is_empty())
    }
}

// SAFETY: `turn` is touched by one thread at a time, as the table at the head says, and moves between threads with
// release and acquire of the word.
unsafe impl<T: Send> Send for Baton<T> {}
// SAFETY: as above: a shared reference reaches `turn` only through `with`, which checks the word, and in `hold` and
// `hold_or_end`, which the sentinel alone runs and which have checked it.
unsafe impl<T: Send> Sync for Baton<T> {}

impl<T> Baton<T> {
    /// A baton that the sentinel holds, with no handler thread yet.
    pub fn new(turn: T) -> Baton<T> {
        Baton {
            word: AtomicU64::new(State::Offered.word()),
            turn: UnsafeCell::new(turn),
            idle: Mutex::new(Idle::default()),
            closed: AtomicBool::new(false),
            watching: AtomicBool::new(false),
            sentinel: Mutex::new(None),
        }
    }

    fn state(&self) -> State {
        State::of(self.word.load(Ordering::Acquire))
    }

    fn store(&self, state: State) {
        self.word.store(state.word(), Ordering::Release);
    }

    fn change(&self, from: State, to: State) -> bool {
        self.word
            .compare_exchange(from.word(), to.word(), Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    fn is_owner(&self, thread: u8) -> bool {
        matches!(self.state(), State::Owned(owner, _) if owner == thread)
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().expect("nothing panics while it holds the list")
    }

    // --- handler threads ---------------------------------------------------------------------------------------

    /// A handler thread says that it is there, once.
    pub fn join(&self, thread: u8) {
        let mut idle = self.idle();
        let index = usize::from(thread);
        if idle.all.len() <= index {
            idle.all.resize(index + 1, None);
        }
        idle.all[index] = Some(Sleeper::current());
    }

    /// The holder retires: the sentinel has the loop from here on, or whoever is idle.
    pub fn retire(&self, thread: u8) {
        assert!(self.is_owner(thread), "only its holder gives the loop away");
        self.store(State::Offered);
        self.wake_sentinel();
    }

    /// Whether idle threads are sent home.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Lets the thread that holds the loop at it.
    ///
    /// # Panics
    /// When `thread` does not hold it.
    pub fn with<R>(&self, thread: u8, f: impl FnOnce(&mut T) -> R) -> R {
        assert!(self.is_owner(thread), "only its holder touches the loop");
        // SAFETY: OWNED of this thread is left by this thread alone, which is in here, and does not come here again from
        // `f`: a loop knows no baton, and what a turn is given to ask (`stay`) looks at the word and at the lists only.
        self.turn.with_mut(|turn| f(unsafe { &mut *turn }))
    }

    /// The holder goes into a view. `views` counts the thread's views and never repeats.
    pub fn lend(&self, thread: u8, views: u64) {
        debug_assert!(self.is_owner(thread));
        self.store(State::Lent(thread, views));
        fence(Ordering::SeqCst);
        if !self.watching.load(Ordering::Relaxed) {
            self.wake_sentinel();
        }
    }

    /// The thread would have the loop for a moment within its view, to let out what it has said. Whether it has it; then it
    /// lends it again.
    pub fn borrow(&self, thread: u8, views: u64) -> bool {
        self.change(State::Lent(thread, views), State::Owned(thread, views))
    }

    /// The view is over.
    pub fn reclaim(&self, thread: u8, views: u64) -> After {
        if self.change(State::Lent(thread, views), State::Owned(thread, views)) {
            return After::Kept;
        }
        if self.change(State::Taken(thread, views), State::Back(thread)) {
            return After::Returning;
        }
        After::Lost
    }

    /// Sleeps until the sentinel has given the loop back, which it does as soon as it is woken (by the loop's waker). Whether
    /// it has: a loop that is over is given to nobody.
    pub fn wait_for_return(&self, thread: u8) -> bool {
        loop {
            match self.state() {
                State::Owned(owner, _) if owner == thread => return true,
                State::Ended => return false,
                _ => Sleeper::sleep(),
            }
        }
    }

    /// The thread is about to wait within its view: the loop, and the right to start views, go to another. Returns whether
    /// the loop's waker must be rung, since whoever has the loop by now, the sentinel or another thread, may sleep in it.
    pub fn give_up(&self, thread: u8, views: u64) -> bool {
        if self.change(State::Lent(thread, views), State::Offered) {
            self.wake_sentinel();
            return false;
        }
        self.change(State::Taken(thread, views), State::Loose);
        true
    }

    /// The thread has nothing to do: sleeps until it is called. Returns false when the baton is closed. `ring` is called
    /// once the thread can be found, for a sentinel that has the loop and sleeps in it.
    pub fn wait_for_call(&self, thread: u8, ring: impl FnOnce()) -> bool {
        {
            let mut idle = self.idle();
            if self.is_closed() {
                return false;
            }
            idle.threads.push((thread, Sleeper::current()));
        }
        ring();
        loop {
            {
                let idle = self.idle();
                if idle.called == Some(thread) {
                    return true;
                }
                if self.is_closed() {
                    return false;
                }
            }
            Sleeper::sleep();
        }
    }

    /// The thread that was called can take the loop: waits until it has it, which is as soon as the sentinel hears of it
    /// (by `ring`). Whether it has: another may have claimed it, or it may be over.
    pub fn accept(&self, thread: u8, ring: impl FnOnce()) -> bool {
        {
            let mut idle = self.idle();
            let called = idle.called.take();
            assert_eq!(called, Some(thread), "only a thread that was called is ready");
            if !self.make_ready(&mut idle, thread) {
                return false;
            }
        }
        ring();
        self.wait_for_return(thread)
    }

    /// The thread has lost the loop within its view and is back: it takes it again if no handler thread has it. As above.
    pub fn claim(&self, thread: u8, ring: impl FnOnce()) -> bool {
        {
            let mut idle = self.idle();
            if self.is_closed() || !self.make_ready(&mut idle, thread) {
                return false;
            }
        }
        ring();
        self.wait_for_return(thread)
    }

    /// Makes the thread the next to have the loop, unless another is or has it. LOOSE ends under the lock that is held.
    fn make_ready(&self, idle: &mut Idle, thread: u8) -> bool {
        let is_free = idle.ready.is_none() && matches!(self.state(), State::Loose | State::Offered);
        if is_free {
            idle.ready = Some(thread);
        }
        is_free
    }

    /// No idle thread waits any longer, and none will.
    pub fn close(&self) {
        let woken: Vec<Sleeper> = {
            let idle = self.idle();
            self.closed.store(true, Ordering::Relaxed);
            idle.threads.iter().map(|(_, sleeper)| sleeper.clone()).collect()
        };
        woken.iter().for_each(Sleeper::wake);
        self.wake_sentinel();
    }

    /// The loop is over, and closed: whoever waits for it, or watches it, is told. Nobody becomes ready for it after that,
    /// since the list is locked; and who comes back to it finds that it is lost.
    fn over(&self) {
        let all = {
            let idle = self.idle();
            // A swap comes after a BACK that it may meet in every order of the word's values, and the thread of that sees it.
            self.word.swap(State::Ended.word(), Ordering::AcqRel);
            idle.all.clone()
        };
        all.iter().flatten().for_each(Sleeper::wake);
        self.wake_sentinel();
    }

    fn wake_sentinel(&self) {
        let sentinel = self.sentinel.lock().expect("nothing panics while it holds the handle");
        if let Some(sleeper) = &*sentinel {
            sleeper.wake();
        }
    }
}

// --- the sentinel -------------------------------------------------------------------------------------------------

/// What the sentinel needs of a loop.
pub trait Loop {
    /// One turn, which waits at most `limit` (`None`: without limit) unless `stay` says, after the wait has been announced
    /// (R5), that there is no time for it. Returns false when the loop has ended.
    ///
    /// # Errors
    /// What the loop cannot go on from.
    fn turn(&mut self, limit: Option<Duration>, stay: &dyn Fn() -> bool) -> std::io::Result<bool>;
    /// Whether the thread that is in its `n`th view keeps the right to start views: it computes, and has not for long.
    fn computes(&mut self, thread: u8, n: u64) -> bool;
    /// Closes what is left: no turn follows.
    fn end(&mut self);
}

impl<T: Loop> Baton<T> {
    /// A turn of its holder has said that the loop is over: closes it, and nobody has it from here on.
    pub fn end(&self, thread: u8) {
        self.with(thread, Loop::end);
        self.over();
    }

    /// The sentinel's life, until the loop has ended.
    ///
    /// # Errors
    /// What the loop cannot go on from.
    pub fn watch(&self) -> std::io::Result<()> {
        *self.sentinel.lock().expect("nothing panics while it holds the handle") = Some(Sleeper::current());
        let mut last = 0;
        let mut quick = 0;
        loop {
            self.watching.store(true, Ordering::Relaxed);
            let word = self.word.load(Ordering::Acquire);
            let taken = match State::of(word) {
                State::Offered => self.change(State::Offered, State::Loose),
                State::Lent(thread, n) if word == last => self.change(State::Lent(thread, n), State::Taken(thread, n)),
                State::Ended => return Ok(()),
                _ => false,
            };
            if taken {
                if !self.hold_or_end(&mut quick)? {
                    return Ok(());
                }
                last = 0;
            } else if word == last && matches!(State::of(word), State::Owned(..)) {
                self.sleep_until_lent(word);
            } else {
                last = word;
                Sleeper::sleep_for(if quick > 0 { QUICK_TICK } else { TICK });
                quick = quick.saturating_sub(1);
            }
        }
    }

    /// Nothing has run for a tick: sleeps until a view begins.
    fn sleep_until_lent(&self, word: u64) {
        self.watching.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.word.load(Ordering::Relaxed) == word {
            Sleeper::sleep();
        }
    }

    /// In LOOSE: gives the loop to the thread that is ready, and returns whom to wake for it; or else calls an idle one.
    fn give_or_call(&self) -> Option<Sleeper> {
        let mut idle = self.idle();
        if let Some(thread) = idle.ready.take() {
            let sleeper = idle.all[usize::from(thread)].clone();
            self.store(State::Owned(thread, 0));
            return sleeper;
        }
        if !self.is_closed()
            && idle.called.is_none()
            && let Some((thread, sleeper)) = idle.threads.pop()
        {
            idle.called = Some(thread);
            drop(idle);
            sleeper.wake();
        }
        None
    }

    /// As [`Baton::hold`], and closes a loop that has ended.
    fn hold_or_end(&self, quick: &mut u32) -> std::io::Result<bool> {
        let held = self.hold(quick);
        if !matches!(held, Ok(true)) {
            // SAFETY: `hold` leaves the loop to a handler thread only when it returns true.
            self.turn.with_mut(|turn| unsafe { (*turn).end() });
            self.over();
        }
        held
    }

    /// Runs the loop until a handler thread can. Returns false when the loop has ended. Says in `quick` that a view was found
    /// to wait.
    fn hold(&self, quick: &mut u32) -> std::io::Result<bool> {
        let mut is_first = true;
        loop {
            let limit = match self.state() {
                State::Back(thread) => {
                    let sleeper = self.idle().all[usize::from(thread)].clone();
                    self.store(State::Owned(thread, 0));
                    sleeper.expect("a thread joins before it runs views").wake();
                    return Ok(true);
                }
                State::Loose => {
                    if let Some(sleeper) = self.give_or_call() {
                        sleeper.wake();
                        return Ok(true);
                    }
                    None
                }
                State::Taken(thread, n) => {
                    // SAFETY: TAKEN is ours: its thread can change it to BACK or LOOSE, which are ours as well.
                    let computes = self.turn.with_mut(|turn| unsafe { (*turn).computes(thread, n) });
                    if !computes {
                        if is_first {
                            *quick = QUICK_LOOKS; // later it may be that it has computed for long
                        }
                        self.change(State::Taken(thread, n), State::Loose);
                        continue; // or BACK, a moment before
                    }
                    is_first = false;
                    Some(TICK)
                }
                state => unreachable!("{state:?} is not the sentinel's"),
            };
            let stay = || match self.state() {
                State::Back(_) => true,
                State::Loose => limit.is_some() || self.idle().has_news(self.is_closed()),
                _ => false,
            };
            // SAFETY: BACK, LOOSE and TAKEN are left by this thread alone, or changed among themselves.
            if !self.turn.with_mut(|turn| unsafe { (*turn).turn(limit, &stay) })? {
                return Ok(false);
            }
        }
    }
}

#[cfg(all(test, feature = "loom"))]
#[path = "baton_loom.rs"]
mod loom_tests;
