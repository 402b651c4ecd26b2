//! What the engine says about one exchange after its request, on its way to the thread that serves it (R2: one FIFO).
//!
//! Bounded by the exchange's windows (R7): body pieces are charged at least 64 bytes each, and so is what credit is
//! given back for. One lock guards the queue and who waits at it, so a wait cannot miss a message (R5).

use std::collections::VecDeque;

use m0_platform::Sleeper;
use m0_platform::sync::{Mutex, MutexGuard};

use super::message::{Job, WINDOW};

/// More jobs than this mean that a window was not kept.
const CAPACITY: usize = 2 * (WINDOW as usize / 64) + 16;

/// The mailbox of one exchange.
#[derive(Debug, Default)]
pub struct Mailbox {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    waiting: Option<Sleeper>,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds a mailbox")
    }

    /// Adds a job, and wakes the thread that waits.
    pub fn put(&self, job: Job) {
        let mut state = self.lock();
        assert!(state.jobs.len() < CAPACITY, "a window bounds what is said (R7)");
        state.jobs.push_back(job);
        let woken = state.waiting.take();
        drop(state);
        woken.iter().for_each(Sleeper::wake);
    }

    /// The oldest job.
    pub fn take(&self) -> Option<Job> {
        self.lock().jobs.pop_front()
    }

    /// Sleeps until there is a job. Never with the GIL held.
    pub fn wait(&self) {
        let mut state = self.lock();
        while state.jobs.is_empty() {
            state.waiting = Some(Sleeper::current());
            drop(state);
            Sleeper::sleep();
            state = self.lock();
        }
        state.waiting = None;
    }
}
