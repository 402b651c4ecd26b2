//! Ends another thread's wait, and only when it waits (R5).
//!
//! One atomic word and a bell (an eventfd; a pipe where there is none).
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

use std::io;
use std::os::fd::RawFd;

use crate::sync::Arc;
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
    /// A waker and the bell that its owner waits on. Owner: awake.
    pub(crate) fn new() -> io::Result<Waker> {
        Ok(Waker {
            shared: Arc::new(Shared {
                state: AtomicU32::new(AWAKE),
                bell: Bell::new()?,
            }),
        })
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
        if self.shared.state.swap(AWAKE, Ordering::Relaxed) != PARKED {
            return false; // another producer, or the owner itself, was faster
        }
        self.shared.bell.ring();
        true
    }

    /// The descriptor that becomes readable when the bell is rung. Of no use outside a backend's own wait.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.shared.bell.fd()
    }

    /// Rings whatever the state, so that a level-triggered outer loop comes back to this backend.
    #[cfg(not(loom))]
    pub(crate) fn ring(&self) {
        self.shared.bell.ring();
    }

    /// Called by a backend whose wait the bell has ended.
    #[cfg(not(loom))]
    pub(crate) fn settle(&self) {
        self.shared.bell.settle();
    }

    /// Blocks the modelled owner until the bell rings.
    #[cfg(loom)]
    pub fn block(&self) {
        self.shared.bell.block();
    }

    /// A waker without a backend, for models.
    #[cfg(loom)]
    #[must_use]
    pub fn model() -> Waker {
        Waker::new().unwrap_or_else(|_| unreachable!("the modelled bell needs no descriptor"))
    }
}

#[cfg(all(not(loom), target_os = "linux"))]
mod bell {
    //! An eventfd that is never read: backends watch it for edges, and every write is one (`epoll(7)`). The counter
    //! would have to be rung 2^64 times to fill.

    use std::io;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

    #[derive(Debug)]
    pub(super) struct Bell(OwnedFd);

    impl Bell {
        pub(super) fn new() -> io::Result<Bell> {
            // SAFETY: no pointers; the result is checked before it is owned.
            let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: `fd` was just made and nobody else owns it.
            Ok(Bell(unsafe { OwnedFd::from_raw_fd(fd) }))
        }

        pub(super) fn ring(&self) {
            let one: u64 = 1;
            // SAFETY: eight readable bytes, which is what an eventfd takes (eventfd(2)).
            let written = unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
            debug_assert_eq!(written, 8, "an eventfd takes a write until its counter is full");
        }

        pub(super) fn settle(&self) {}

        pub(super) fn fd(&self) -> RawFd {
            self.0.as_raw_fd()
        }
    }
}

#[cfg(all(not(loom), not(target_os = "linux")))]
mod bell {
    //! A pipe; a full one rings as well as a fuller one.

    use std::io::{self, PipeReader, PipeWriter, Read, Write};
    use std::os::fd::{AsFd, AsRawFd, RawFd};

    #[derive(Debug)]
    pub(super) struct Bell {
        reader: PipeReader,
        writer: PipeWriter,
    }

    impl Bell {
        pub(super) fn new() -> io::Result<Bell> {
            let (reader, writer) = io::pipe()?;
            crate::sys::set_nonblocking(reader.as_fd(), true)?;
            crate::sys::set_nonblocking(writer.as_fd(), true)?;
            Ok(Bell { reader, writer })
        }

        pub(super) fn ring(&self) {
            // WouldBlock: the pipe is full, so the owner is woken by what lies in it.
            let _ = (&self.writer).write(&[1]);
        }

        pub(super) fn settle(&self) {
            let mut sink = [0; 256];
            while matches!((&self.reader).read(&mut sink), Ok(256)) {}
        }

        pub(super) fn fd(&self) -> RawFd {
            self.reader.as_raw_fd()
        }
    }
}

#[cfg(loom)]
mod bell {
    //! A flag under a lock: set by a ring, consumed by the wait that it ends, as an edge is.

    use std::io;
    use std::os::fd::RawFd;

    use crate::sync::{Condvar, Mutex};

    #[derive(Debug)]
    pub(super) struct Bell {
        rung: Mutex<bool>,
        changed: Condvar,
    }

    impl Bell {
        pub(super) fn new() -> io::Result<Bell> {
            Ok(Bell {
                rung: Mutex::new(false),
                changed: Condvar::new(),
            })
        }

        pub(super) fn ring(&self) {
            *self.rung.lock().unwrap() = true;
            self.changed.notify_one();
        }

        pub(super) fn block(&self) {
            let mut rung = self.rung.lock().unwrap();
            while !*rung {
                rung = self.changed.wait(rung).unwrap();
            }
            *rung = false;
        }

        pub(super) fn fd(&self) -> RawFd {
            -1
        }
    }
}

use bell::Bell;
