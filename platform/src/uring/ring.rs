//! The two queues shared with the kernel: pushing, entering, reaping. Knows nothing of connections.
//!
//! Set up with DEFER_TASKRUN, SINGLE_ISSUER, TASKRUN_FLAG, SUBMIT_ALL and R_DISABLED: the thread that first waits or
//! submits enables the ring and owns it from then on (`io_uring_setup(2)`). Nobody ever sleeps on the ring's own
//! descriptor: with DEFER_TASKRUN it does not wake.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use io_uring::{EnterFlags, IoUring, cqueue, squeue, types};

/// The longest wait that is asked of the kernel, which takes a time that ends beyond its clock for one that is over. Who waits
/// longer waits again.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// A ring. Dropped by its creator only: see [`Ring::forget`].
pub(super) struct Ring {
    ring: IoUring,
    enabled: bool,
    /// What found no place in the submission queue while the kernel took nothing. A few entries a connection.
    spill: VecDeque<squeue::Entry>,
}

impl Ring {
    /// # Errors
    /// What `io_uring_setup(2)` or `mmap(2)` gave.
    pub(super) fn new(entries: u32) -> io::Result<Ring> {
        let ring = IoUring::builder()
            .setup_defer_taskrun()
            .setup_single_issuer()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_r_disabled()
            .setup_cqsize(entries * 8)
            .dontfork()
            .build(entries)?;
        Ok(Ring {
            ring,
            enabled: false,
            spill: VecDeque::new(),
        })
    }

    pub(super) fn submitter(&self) -> io_uring::Submitter<'_> {
        self.ring.submitter()
    }

    /// Makes the calling thread the owner, once.
    pub(super) fn enable(&mut self) -> io::Result<()> {
        if !self.enabled {
            self.ring.submitter().register_enable_rings()?;
            self.enabled = true;
        }
        Ok(())
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Queues an entry.
    ///
    /// # Safety
    /// Whatever memory the entry points at stays valid and in place until its last completion has been reaped.
    pub(super) unsafe fn push(&mut self, entry: squeue::Entry) {
        if self.spill.is_empty() {
            // SAFETY: the caller's promise.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return;
            }
            // Full: let the kernel take what is there. Should it not, the entry waits in `spill`.
            if self.enabled && self.enter(0, None, EnterFlags::empty()).is_ok() {
                // SAFETY: the caller's promise.
                if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                    return;
                }
            }
        }
        self.spill.push_back(entry);
    }

    fn refill(&mut self) {
        while let Some(entry) = self.spill.front() {
            // SAFETY: the promise was made when the entry was pushed.
            if unsafe { self.ring.submission().push(entry) }.is_err() {
                return;
            }
            self.spill.pop_front();
        }
    }

    /// Hands over everything that is queued, without waiting. Deferred work runs in the same call: what has arrived is in
    /// the completion queue afterwards, and the wait that follows needs no call of its own.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        self.enable()?;
        loop {
            self.refill();
            let before = self.queued();
            if before == 0 {
                return Ok(());
            }
            self.enter(0, None, EnterFlags::GETEVENTS)?;
            if self.queued() >= before {
                return Ok(()); // the kernel takes nothing now; the next wait tries again
            }
        }
    }

    /// Entries that the kernel has not taken yet.
    pub(super) fn queued(&mut self) -> usize {
        self.ring.submission().len() + self.spill.len()
    }

    /// Whether an enter would run deferred work or flush an overflow.
    pub(super) fn has_work(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    /// Submits what is queued and runs deferred work, without waiting.
    pub(super) fn poll(&mut self) -> io::Result<()> {
        self.refill();
        self.enter(0, None, EnterFlags::GETEVENTS)
    }

    /// Submits what is queued and waits for a completion.
    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.refill();
        self.enter(1, timeout, EnterFlags::GETEVENTS)
    }

    fn enter(&mut self, want: u32, timeout: Option<Duration>, flags: EnterFlags) -> io::Result<()> {
        let queued = u32::try_from(self.ring.submission().len()).expect("the queue's length is a u32");
        let result = match timeout {
            None => {
                // SAFETY: no argument is passed; what the entries point at is the pushers' promise.
                unsafe {
                    self.ring
                        .submitter()
                        .enter::<libc::sigset_t>(queued, want, flags.bits(), None)
                }
            }
            Some(timeout) => {
                let time = types::Timespec::from(timeout.min(LONGEST));
                let arguments = types::SubmitArgs::new().timespec(&time);
                let flags = flags | EnterFlags::EXT_ARG;
                // SAFETY: `SubmitArgs` is the struct that EXT_ARG asks for, and lives through the call.
                unsafe {
                    self.ring
                        .submitter()
                        .enter(queued, want, flags.bits(), Some(&arguments))
                }
            }
        };
        match result {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // A signal; the time is over; completions must be reaped first; no memory for requests right now.
                // What was queued stays queued.
                Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Moves every completion to `into`.
    pub(super) fn reap(&mut self, into: &mut VecDeque<cqueue::Entry>) {
        into.extend(self.ring.completion());
    }

    /// Whether a completion can be reaped without entering the kernel.
    pub(super) fn has_completion(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    pub(super) fn register_eventfd(&self, fd: RawFd) -> io::Result<()> {
        self.ring.submitter().register_eventfd(fd)
    }

    /// In a forked child: leaves ring, mappings and descriptor alone. The mappings are not there (MADV_DONTFORK), and
    /// unmapping their addresses would hit whatever lies there now.
    pub(super) fn forget(self) {
        std::mem::forget(self);
    }
}
