//! Ends another thread's wait, and only when it waits (R5).
//!
//! One atomic word and a bell: an eventfd, or an EVFILT_USER of the owner's kernel event queue.
//!
//! | state  | `announce` (owner)  | `retract` (owner) | `wake` (anyone)                  |
//! |--------|---------------------|-------------------|----------------------------------|
//! | AWAKE  | → PARKED            | stays             | stays; nothing is written        |
//! | PARKED | stays               | → AWAKE           | → AWAKE; the bell is rung, once  |
//!
//! To park, the owner announces, looks at its queues again, and blocks only if they are empty. To wake, a producer
//! pushes first and then calls [`Waker::wake`]. Both sides have a sequentially consistent fence between their store
//! and their load (the owner: PARKED, then the queue; the producer: the queue, then PARKED), so at least one of them
//! sees the other: either the owner finds the item, or the producer finds it parked and rings. An owner that
//! found the item may still be rung by a producer that saw PARKED just before: that ends its next wait early, once.
//! The loom test in `tests/loom_waker.rs` runs every interleaving of this.

#[cfg(all(not(feature = "modelled"), target_os = "linux"))]
use std::os::fd::RawFd;

use crate::sync::Arc;
#[cfg(not(feature = "modelled"))]
use crate::sync::atomic::AtomicBool;
use crate::sync::atomic::{AtomicU32, Ordering, fence};

const AWAKE: u32 = 0;
const PARKED: u32 = 1;

/// A handle on the owner of a backend. Clones name the same owner.
#[derive(Clone, Debug)]
pub struct Waker {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: AtomicU32,
    bell: Bell,
}

impl Waker {
    /// A waker with the bell that its owner waits on. Owner: awake.
    pub(crate) fn new(bell: Bell) -> Waker {
        let state = AtomicU32::new(AWAKE);
        Waker {
            shared: Arc::new(Shared { state, bell }),
        }
    }

    /// A waker whose bell makes no sound: its owner is simulated, and looks with [`Waker::has_rung`] whether it was rung.
    #[cfg(not(feature = "modelled"))]
    #[must_use]
    pub fn silent() -> Waker {
        Waker::new(Bell::Silent(AtomicBool::new(false)))
    }

    /// Whether a silent bell was rung since this was last asked: that ends one wait of its owner.
    #[cfg(not(feature = "modelled"))]
    #[must_use]
    pub fn has_rung(&self) -> bool {
        // Looked at first: an owner asks all the time.
        matches!(&self.shared.bell, Bell::Silent(rung) if rung.load(Ordering::Relaxed) && rung.swap(false, Ordering::Acquire))
    }

    /// The owner says that it is about to block. It must look at its queues after this call and before it blocks.
    #[inline]
    pub fn announce(&self) {
        self.shared.state.store(PARKED, Ordering::Relaxed);
        // Orders the store above before the look at the queues that follows: see the module's description.
        fence(Ordering::SeqCst);
    }

    /// The owner says that it does not block, or no longer does.
    #[inline]
    pub fn retract(&self) {
        self.shared.state.store(AWAKE, Ordering::Relaxed);
    }

    /// Whether the owner has announced that it blocks. True a moment ago, for decisions that may be wrong.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        self.shared.state.load(Ordering::Relaxed) == PARKED
    }

    /// Ends the owner's wait if it has announced one; called after the push. Returns whether the bell was rung (a
    /// system call was made).
    #[inline]
    pub fn wake(&self) -> bool {
        // Orders the push that came before ahead of the load below: see the module's description.
        fence(Ordering::SeqCst);
        if self.shared.state.load(Ordering::Relaxed) != PARKED {
            return false;
        }
        // Not a swap, which would also write where another producer, or the owner itself, was faster.
        let state = &self.shared.state;
        if state
            .compare_exchange(PARKED, AWAKE, Ordering::Relaxed, Ordering::Relaxed)
            .is_err()
        {
            return false;
        }
        self.shared.bell.ring();
        true
    }

    /// Rings whatever the state, so that a level-triggered outer loop comes back to this backend.
    #[cfg(not(feature = "modelled"))]
    pub(crate) fn ring(&self) {
        self.shared.bell.ring();
    }

    /// The bell's descriptor, where it has one of its own.
    #[cfg(all(not(feature = "modelled"), target_os = "linux"))]
    pub(crate) fn fd(&self) -> RawFd {
        self.shared.bell.fd()
    }

    /// Blocks the modelled owner until the bell rings.
    #[cfg(feature = "modelled")]
    pub fn block(&self) {
        self.shared.bell.block(|| false);
    }

    /// Blocks the modelled owner until the bell rings or what it waits for beside that is there, as a kernel would. It is
    /// asked again after each [`Waker::nudge`], with the bell's lock held.
    #[cfg(feature = "shuttle")]
    pub fn block_unless(&self, is_there: impl FnMut() -> bool) {
        self.shared.bell.block(is_there);
    }

    /// What a modelled owner waits for beside the bell may be there.
    #[cfg(feature = "shuttle")]
    pub fn nudge(&self) {
        self.shared.bell.nudge();
    }

    /// A waker without a backend, for models.
    #[cfg(feature = "modelled")]
    #[must_use]
    pub fn model() -> Waker {
        Waker::new(Bell::default())
    }
}

#[cfg(not(feature = "modelled"))]
mod bell {
    #[cfg(target_os = "linux")]
    use std::io;
    #[cfg(target_os = "linux")]
    use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

    #[cfg(any(not(target_os = "linux"), feature = "emulated-kqueue"))]
    use crate::readiness::kqueue::UserEvent;
    use crate::sync::atomic::{AtomicBool, Ordering};
    #[cfg(target_os = "linux")]
    use crate::sys;

    /// What ends a wait.
    #[derive(Debug)]
    pub(crate) enum Bell {
        /// An eventfd, which backends watch for edges ([`sys::bell`]).
        #[cfg(target_os = "linux")]
        Eventfd(OwnedFd),
        /// An event of the owner's own queue.
        #[cfg(any(not(target_os = "linux"), feature = "emulated-kqueue"))]
        User(UserEvent),
        /// A flag.
        Silent(AtomicBool),
    }

    impl Bell {
        #[cfg(target_os = "linux")]
        pub(crate) fn eventfd() -> io::Result<Bell> {
            sys::bell(false).map(Bell::Eventfd)
        }

        pub(super) fn ring(&self) {
            match self {
                #[cfg(target_os = "linux")]
                Bell::Eventfd(fd) => sys::ring(fd.as_fd()),
                #[cfg(any(not(target_os = "linux"), feature = "emulated-kqueue"))]
                Bell::User(event) => event.ring(),
                Bell::Silent(rung) => rung.store(true, Ordering::Release),
            }
        }

        #[cfg(target_os = "linux")]
        pub(crate) fn fd(&self) -> RawFd {
            match self {
                Bell::Eventfd(fd) => fd.as_raw_fd(),
                #[cfg(feature = "emulated-kqueue")]
                Bell::User(_) => -1,
                Bell::Silent(_) => -1,
            }
        }
    }
}

#[cfg(feature = "modelled")]
mod bell {
    //! A flag under a lock: set by a ring, consumed by the wait that it ends, as an edge is.

    use crate::sync::{Condvar, Mutex};

    #[derive(Debug, Default)]
    pub(crate) struct Bell {
        rung: Mutex<bool>,
        changed: Condvar,
    }

    impl Bell {
        pub(super) fn ring(&self) {
            *self.rung.lock().unwrap() = true;
            self.changed.notify_one();
        }

        #[cfg(feature = "shuttle")]
        pub(super) fn nudge(&self) {
            drop(self.rung.lock().unwrap());
            self.changed.notify_one();
        }

        pub(super) fn block(&self, mut is_there: impl FnMut() -> bool) {
            let mut rung = self.rung.lock().unwrap();
            while !*rung && !is_there() {
                rung = self.changed.wait(rung).unwrap();
            }
            *rung = false;
        }
    }
}

pub(crate) use bell::Bell;
