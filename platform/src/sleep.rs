//! A thread's own channel to sleep on (R5): whoever wakes it wakes this thread and no other.
//!
//! Sleeping is `std::thread::park`: a wake before the sleep is kept, so the sleep that follows returns at once. A sleep
//! may also end for no reason; whoever sleeps looks again at what it waits for.

use std::time::Duration;

/// A handle on a thread that may sleep. Clones name the same thread.
#[derive(Clone, Debug)]
pub struct Sleeper(place::Place);

impl PartialEq for Sleeper {
    fn eq(&self, other: &Sleeper) -> bool {
        place::is_same(&self.0, &other.0)
    }
}

impl Sleeper {
    /// The calling thread.
    #[must_use]
    pub fn current() -> Sleeper {
        Sleeper(place::current())
    }

    /// Ends its sleep, or its next one. A system call only when it sleeps.
    pub fn wake(&self) {
        place::wake(&self.0);
    }

    /// The calling thread sleeps until it is woken.
    pub fn sleep() {
        place::sleep();
    }

    /// The calling thread sleeps until it is woken, or for so long.
    #[cfg(not(feature = "modelled"))]
    pub fn sleep_for(time: Duration) {
        crate::sync::thread::park_timeout(time);
    }

    /// As [`Sleeper::sleep`]: loom has no time.
    #[cfg(feature = "loom")]
    pub fn sleep_for(_time: Duration) {
        place::sleep();
    }

    /// Others run for a while: shuttle has no time, and would never end a sleep that nobody ends.
    #[cfg(feature = "shuttle")]
    pub fn sleep_for(_time: Duration) {
        crate::sync::thread::yield_now();
    }
}

#[cfg(not(feature = "shuttle"))]
mod place {
    use crate::sync::thread;

    pub(super) use thread::Thread as Place;

    pub(super) fn is_same(a: &Place, b: &Place) -> bool {
        a.id() == b.id()
    }

    pub(super) fn current() -> Place {
        thread::current()
    }

    pub(super) fn wake(place: &Place) {
        place.unpark();
    }

    pub(super) fn sleep() {
        thread::park();
    }
}

#[cfg(feature = "shuttle")]
mod place {
    //! A sleep that ends when it is woken and at no other time. Shuttle's own `park` may end for no reason, and then a wake
    //! that was lost shows only where everything stands still.

    use crate::sync::{Arc, Condvar, Mutex};

    pub(super) type Place = Arc<Bed>;

    #[derive(Debug, Default)]
    pub(crate) struct Bed {
        woken: Mutex<bool>,
        changed: Condvar,
    }

    shuttle::thread_local! {
        static OWN: Place = Place::default();
    }

    pub(super) fn is_same(a: &Place, b: &Place) -> bool {
        Arc::ptr_eq(a, b)
    }

    pub(super) fn current() -> Place {
        OWN.with(Clone::clone)
    }

    pub(super) fn wake(place: &Place) {
        *place.woken.lock().unwrap() = true;
        place.changed.notify_one();
    }

    pub(super) fn sleep() {
        let own = current();
        let mut woken = own.woken.lock().unwrap();
        while !*woken {
            woken = own.changed.wait(woken).unwrap();
        }
        *woken = false;
    }
}
