//! Models of the baton: every interleaving of a handler thread and the sentinel, for small histories.

use loom::sync::Arc;

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
            let goes_on = !taken || sentinel.hold().expect("a counted loop does not fail");
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
        baton.accept(1, || {});
        baton.with(1, |turn| turn.turns += 1);
        watching.join().unwrap();
    });
}
