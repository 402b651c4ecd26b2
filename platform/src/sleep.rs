//! A thread's own channel to sleep on (R5): whoever wakes it wakes this thread and no other.
//!
//! Sleeping is `std::thread::park`: a wake before the sleep is kept, so the sleep that follows returns at once. A sleep
//! may also end for no reason; whoever sleeps looks again at what it waits for.

use std::time::Duration;

use crate::sync::thread;

/// A handle on a thread that may sleep. Clones name the same thread.
#[derive(Clone, Debug)]
pub struct Sleeper(thread::Thread);

impl PartialEq for Sleeper {
    fn eq(&self, other: &Sleeper) -> bool {
        self.0.id() == other.0.id()
    }
}

impl Sleeper {
    /// The calling thread.
    #[must_use]
    pub fn current() -> Sleeper {
        Sleeper(thread::current())
    }

    /// Ends its sleep, or its next one. A system call only when it sleeps.
    pub fn wake(&self) {
        self.0.unpark();
    }

    /// The calling thread sleeps until it is woken.
    pub fn sleep() {
        thread::park();
    }

    /// The calling thread sleeps until it is woken, or for so long.
    #[cfg(not(any(loom, shuttle)))]
    pub fn sleep_for(time: Duration) {
        thread::park_timeout(time);
    }

    /// As [`Sleeper::sleep`]: loom has no time.
    #[cfg(loom)]
    pub fn sleep_for(_time: Duration) {
        thread::park();
    }

    /// Others run for a while: shuttle has no time, and would never end a sleep that nobody ends.
    #[cfg(shuttle)]
    pub fn sleep_for(_time: Duration) {
        thread::yield_now();
    }
}
