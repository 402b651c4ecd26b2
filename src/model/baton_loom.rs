//! Models of the baton: every interleaving of handler threads and the sentinel, for small histories.

use loom::sync::Arc;
use m0_platform::Waker;

use super::*;

/// A loop that counts its turns; loom sees when two threads touch it at once.
struct Counted {
    turns: u32,
    /// Turns that the sentinel may make before the loop ends.
    left: u32,
    /// Whether the thread in the view is said to compute.
    computes: bool,
}

impl Loop for Counted {
    fn turn(&mut self, _limit: Option<Duration>, stay: &dyn Fn() -> bool) -> std::io::Result<bool> {
        self.turns += 1;
        let _ = stay();
        loom::thread::yield_now();
        self.left -= 1;
        Ok(self.left > 0)
    }

    fn computes(&mut self, _thread: u8, _n: u64) -> bool {
        self.computes
    }

    fn end(&mut self) {}
}

fn baton(computes: bool) -> Arc<Baton<Counted>> {
    let baton = Baton::new(Counted {
        turns: 0,
        left: 3,
        computes,
    });
    baton.store(State::Owned(0, 0));
    Arc::new(baton)
}

/// The handler thread runs one view; the sentinel finds it overdue at any moment, or never.
fn one_view(computes: bool) {
    loom::model(move || {
        let baton = baton(computes);
        let (sentinel, over) = (baton.clone(), Arc::new(AtomicBool::new(false)));
        let done = over.clone();
        baton.join(0);
        let watching = loom::thread::spawn(move || {
            let taken = sentinel.change(State::Lent(0, 1), State::Taken(0, 1));
            let goes_on = !taken || sentinel.hold(&mut 0).expect("a counted loop does not fail");
            done.store(true, Ordering::Release);
            goes_on
        });
        baton.with(0, |turn| turn.turns += 1);
        baton.lend(0, 1);
        let after = baton.reclaim(0, 1);
        if after == After::Kept {
            baton.with(0, |turn| turn.turns += 1);
        }
        // Not in a join, from which loom lets nobody be woken.
        while !over.load(Ordering::Acquire) {
            loom::thread::yield_now();
        }
        // Unless the loop has ended, the sentinel has given it back.
        if watching.join().unwrap() && after == After::Returning {
            baton.wait_for_return(0);
            baton.with(0, |turn| turn.turns += 1);
        }
    });
}

#[test]
fn loom_baton_is_had_by_one_thread_while_a_view_computes() {
    one_view(true);
}

#[test]
fn loom_baton_is_had_by_one_thread_while_a_view_waits() {
    one_view(false);
}

/// A view that gives the loop up, and a sentinel that takes it by itself at the same time.
#[test]
fn loom_baton_given_up_is_taken_once() {
    loom::model(|| {
        let baton = baton(true);
        let sentinel = baton.clone();
        baton.join(0);
        baton.lend(0, 1);
        let watching = loom::thread::spawn(move || {
            let taken =
                sentinel.change(State::Lent(0, 1), State::Taken(0, 1)) || sentinel.change(State::Offered, State::Loose);
            if taken {
                sentinel.turn.with_mut(|turn| unsafe { (*turn).turns += 1 }); // SAFETY: as in `hold`
            }
            taken
        });
        baton.give_up(0, 1);
        let taken = watching.join().unwrap();
        let state = baton.state();
        assert!(matches!(state, State::Loose | State::Offered), "{state:?}");
        assert!(taken || state == State::Offered);
        assert_eq!(baton.reclaim(0, 1), After::Lost);
    });
}

/// A view that computed until the loop went to another thread, and then waits for what that loop is to tell it: nobody else
/// rings for what it has said.
#[test]
fn loom_view_that_waits_after_it_lost_the_loop_rings() {
    loom::model(|| {
        for lost in [State::Taken(0, 1), State::Loose, State::Owned(1, 0)] {
            let baton = baton(false);
            baton.store(lost);
            assert!(baton.give_up(0, 1), "{lost:?}");
        }
    });
}

/// A sentinel that goes to sleep sees a view that has begun, or is woken by it.
#[test]
fn loom_sentinel_that_sleeps_is_woken_by_a_view() {
    loom::model(|| {
        let baton = baton(true);
        let sentinel = baton.clone();
        baton.join(0);
        let watching = loom::thread::spawn(move || {
            *sentinel.sentinel.lock().unwrap() = Some(Sleeper::current());
            sentinel.watching.store(true, Ordering::Relaxed);
            let word = State::Owned(0, 0).word();
            if sentinel.word.load(Ordering::Acquire) == word {
                sentinel.sleep_until_lent(word);
            }
        });
        baton.lend(0, 1);
        watching.join().unwrap(); // a model that deadlocks fails
    });
}

/// A thread that is idle is called and given the loop by a sentinel that has it, whoever comes first.
#[test]
fn loom_idle_thread_is_given_a_loose_loop() {
    loom::model(|| {
        let baton = baton(true);
        baton.store(State::Loose);
        let sentinel = baton.clone();
        let watching = loom::thread::spawn(move || {
            loop {
                if let Some(sleeper) = sentinel.give_or_call() {
                    sleeper.wake();
                    return;
                }
                loom::thread::yield_now();
            }
        });
        baton.join(1);
        assert!(baton.wait_for_call(1, || {}));
        assert!(baton.accept(1, || {}));
        baton.with(1, |turn| turn.turns += 1);
        watching.join().unwrap();
    });
}

/// Of a thread that was called and one that claims the loop one gets it, and neither waits for ever.
#[test]
fn loom_claimed_loop_is_given_to_one_thread() {
    loom::model(|| {
        let baton = baton(true);
        baton.store(State::Loose);
        baton.join(0);
        baton.idle().called = Some(1);
        let sentinel = baton.clone();
        let watching = loom::thread::spawn(move || {
            loop {
                if let Some(sleeper) = sentinel.give_or_call() {
                    sleeper.wake();
                    return;
                }
                loom::thread::yield_now();
            }
        });
        let called = baton.clone();
        let called = loom::thread::spawn(move || {
            called.join(1);
            let has = called.accept(1, || {});
            if has {
                called.with(1, |turn| turn.turns += 1);
            }
            has
        });
        let has = baton.claim(0, || {});
        if has {
            baton.with(0, |turn| turn.turns += 1);
        }
        watching.join().unwrap();
        assert!(called.join().unwrap() != has, "one of them has it");
    });
}

// --- a loop that parks ----------------------------------------------------------------------------------------------

/// A loop whose turn is only its wait, as R5 says: it announces, looks, blocks.
struct Parking {
    waker: Waker,
    ended: Arc<AtomicBool>,
    turns: u32,
    computes: bool,
}

impl Loop for Parking {
    fn turn(&mut self, _limit: Option<Duration>, stay: &dyn Fn() -> bool) -> std::io::Result<bool> {
        self.turns += 1;
        self.waker.announce();
        if !stay() && !self.ended.load(Ordering::Relaxed) {
            self.waker.block(); // also where there is a limit: a model has no time
        }
        self.waker.retract();
        Ok(!self.ended.load(Ordering::Relaxed))
    }

    fn computes(&mut self, _thread: u8, _n: u64) -> bool {
        self.computes
    }

    fn end(&mut self) {}
}

/// A baton in this state, its loop's waker, and what ends the loop.
fn parking(state: State, computes: bool) -> (Arc<Baton<Parking>>, Waker, Arc<AtomicBool>) {
    let (waker, ended) = (Waker::model(), Arc::new(AtomicBool::new(false)));
    let baton = Baton::new(Parking {
        waker: waker.clone(),
        ended: ended.clone(),
        turns: 0,
        computes,
    });
    baton.store(state);
    (Arc::new(baton), waker, ended)
}

/// What a test does once the sentinel has let the loop go. Not in a join, from which loom lets nobody be woken.
struct Sentinel {
    over: Arc<AtomicBool>,
    thread: loom::thread::JoinHandle<bool>,
}

impl Sentinel {
    /// The sentinel of a baton whose loop is its own, or becomes it.
    fn start(baton: &Arc<Baton<Parking>>, take: Option<(State, State)>) -> Sentinel {
        let (baton, over) = (baton.clone(), Arc::new(AtomicBool::new(false)));
        let done = over.clone();
        let thread = loom::thread::spawn(move || {
            let has_it = take.is_none_or(|(from, to)| baton.change(from, to));
            let goes_on = !has_it || baton.hold_or_end(&mut 0).expect("a parking loop does not fail");
            done.store(true, Ordering::Release);
            goes_on
        });
        Sentinel { over, thread }
    }

    /// Whether the loop goes on.
    fn has_let_go(self) -> bool {
        while !self.over.load(Ordering::Acquire) {
            loom::thread::yield_now();
        }
        self.thread.join().unwrap()
    }
}

/// A view comes back to a loop that was taken, and in which the sentinel parks at that moment.
#[test]
fn loom_sentinel_that_parks_gives_the_loop_back() {
    loom::model(|| {
        let (baton, waker, _) = parking(State::Owned(0, 0), true);
        baton.join(0);
        let sentinel = Sentinel::start(&baton, Some((State::Lent(0, 1), State::Taken(0, 1))));
        baton.lend(0, 1);
        let after = baton.reclaim(0, 1);
        if after == After::Returning {
            waker.wake();
            baton.wait_for_return(0);
        }
        assert_ne!(after, After::Lost);
        // It may see LENT for the first time later: then it must not find it.
        baton.with(0, |turn| turn.turns += 1);
        assert!(sentinel.has_let_go());
    });
}

/// A thread gives up a loop in which the sentinel parks: another thread, which was idle, is called and gets it.
#[test]
fn loom_loop_given_up_goes_to_an_idle_thread() {
    loom::model(|| {
        let (baton, waker, _) = parking(State::Taken(0, 1), true);
        baton.join(0);
        baton.join(1);
        let sentinel = Sentinel::start(&baton, None);
        let (in_view, ring) = (baton.clone(), waker.clone());
        let view = loom::thread::spawn(move || {
            assert!(in_view.give_up(0, 1));
            ring.wake();
        });
        assert!(baton.wait_for_call(1, || {
            waker.wake();
        }));
        assert!(baton.accept(1, || {
            waker.wake();
        }));
        baton.with(1, |turn| turn.turns += 1);
        assert!(sentinel.has_let_go());
        view.join().unwrap();
    });
}

/// The loop is over while a view runs whose thread comes back to it at any moment: that was told of nobody who would give
/// the loop back, and waited for it for ever, with the interpreter in its hands.
#[test]
fn loom_loop_that_ends_while_a_view_runs_is_waited_for_by_nobody() {
    loom::model(|| {
        let (baton, waker, ended) = parking(State::Owned(0, 0), true);
        baton.join(0);
        let sentinel = Sentinel::start(&baton, Some((State::Lent(0, 1), State::Taken(0, 1))));
        baton.lend(0, 1);
        ended.store(true, Ordering::Relaxed);
        waker.wake();
        let has = match baton.reclaim(0, 1) {
            After::Kept => true,
            After::Returning => {
                waker.wake();
                baton.wait_for_return(0)
            }
            After::Lost => baton.claim(0, || {
                waker.wake();
            }),
        };
        if has {
            baton.end(0);
        }
        assert_eq!(sentinel.has_let_go(), has, "one of them has seen its end");
        assert_eq!(baton.state(), State::Ended);
        assert!(!baton.claim(0, || {}));
    });
}

/// Whoever wants a loop that has been lost to the sentinel, as it is over.
#[test]
fn loom_loop_that_ends_is_claimed_by_nobody() {
    loom::model(|| {
        let (baton, waker, ended) = parking(State::Loose, true);
        baton.join(0);
        let sentinel = Sentinel::start(&baton, None);
        ended.store(true, Ordering::Relaxed);
        let has = baton.claim(0, || {
            waker.wake();
        });
        waker.wake();
        if has {
            baton.end(0);
        }
        assert_eq!(sentinel.has_let_go(), has);
        assert_eq!(baton.state(), State::Ended);
    });
}

/// A handler thread finds that the loop is over while the sentinel watches, or sleeps.
#[test]
fn loom_loop_that_its_holder_ends_is_watched_no_longer() {
    loom::model(|| {
        let baton = baton(true);
        baton.join(0);
        let sentinel = baton.clone();
        let watching = loom::thread::spawn(move || sentinel.watch());
        baton.end(0);
        watching.join().unwrap().expect("a counted loop does not fail");
    });
}

/// A thread that comes to wait for a call as the threads are sent home does not wait.
#[test]
fn loom_idle_thread_goes_home_when_the_baton_is_closed() {
    loom::model(|| {
        let (baton, waker, _) = parking(State::Loose, true);
        let idle = baton.clone();
        let thread = loom::thread::spawn(move || {
            idle.wait_for_call(1, || {
                waker.wake();
            })
        });
        baton.close();
        assert!(!thread.join().unwrap());
    });
}
