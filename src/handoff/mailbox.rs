//! What the engine says about one exchange after its request, on its way to the thread that serves it (R2: one FIFO).
//!
//! Bounded by the exchange's windows (R7): body pieces are charged at least 64 bytes each, and so is what credit is
//! given back for. One lock guards the queue and who waits at it, so a wait cannot miss a message (R5). An application may
//! wait from several threads at once, and a message that one of them takes may be what another waits for: so all are
//! woken, and none sleeps again before it has seen how many messages there have been.

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
    waiting: Vec<Sleeper>,
    /// How many jobs were put in, ever.
    put: u64,
    /// Nobody waits here any more.
    closed: bool,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds a mailbox")
    }

    /// Adds a job, and wakes who waits.
    pub fn put(&self, job: Job) {
        let mut state = self.lock();
        assert!(state.jobs.len() < CAPACITY, "a window bounds what is said (R7)");
        state.jobs.push_back(job);
        state.put += 1;
        let woken = std::mem::take(&mut state.waiting);
        drop(state);
        woken.iter().for_each(Sleeper::wake);
    }

    /// The exchange is over for its thread: wakes who waits, and nobody will again.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let woken = std::mem::take(&mut state.waiting);
        drop(state);
        woken.iter().for_each(Sleeper::wake);
    }

    /// The oldest job.
    pub fn take(&self) -> Option<Job> {
        self.lock().jobs.pop_front()
    }

    /// Sleeps until there have been more jobs than the caller knows of, or the mailbox is closed. Never with the GIL held.
    pub fn wait(&self, known: u64) {
        let mut state = self.lock();
        while state.put == known && !state.closed {
            state.waiting.push(Sleeper::current());
            drop(state);
            Sleeper::sleep();
            state = self.lock();
        }
    }
}

#[cfg(all(test, not(feature = "modelled")))]
mod tests {
    use m0_platform::sync::Arc;

    use super::*;
    use crate::handoff::message::ExchangeId;

    fn end() -> Job {
        Job::BodyEnd(ExchangeId {
            index: 0,
            generation: 0,
        })
    }

    fn waiters(mailbox: &Arc<Mailbox>, known: u64) -> Vec<m0_platform::thread::JoinHandle<()>> {
        let waiters = (0..3).map(|_| {
            let mailbox = mailbox.clone();
            m0_platform::thread::spawn("waiter", move || mailbox.wait(known)).unwrap()
        });
        waiters.collect()
    }

    /// One of them may take the job: the others must not sleep on.
    #[test]
    fn every_waiter_is_woken_by_a_job() {
        let mailbox = Arc::new(Mailbox::default());
        let waiters = waiters(&mailbox, 0);
        mailbox.put(end());
        assert!(mailbox.take().is_some());
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    }

    #[test]
    fn closing_ends_every_wait() {
        let mailbox = Arc::new(Mailbox::default());
        mailbox.put(end());
        let waiters = waiters(&mailbox, 1);
        mailbox.close();
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        mailbox.wait(1);
    }
}
