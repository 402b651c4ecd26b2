//! The kernel's own `kevent(2)`, of macOS and FreeBSD.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

pub(crate) use kqueue_sys::{EventFilter, EventFlag, FilterFlag, kevent};

use crate::sys;

/// Triggers an EVFILT_USER (kqueue-sys has no name for it on macOS).
pub(crate) const NOTE_TRIGGER: FilterFlag = FilterFlag::from_bits_retain(libc::NOTE_TRIGGER);

/// The longest wait that is asked of the kernel: macOS refuses times of years. Who waits longer waits again.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// A kernel event queue.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Always there, but taken by the drop.
    fd: Option<OwnedFd>,
    creator: u32,
}

impl Queue {
    pub(crate) fn new() -> io::Result<Queue> {
        // SAFETY: no pointers; the result is checked before it is owned.
        let fd = unsafe { kqueue_sys::kqueue() };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just made and nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        socket2::SockRef::from(&fd).set_cloexec(true)?;
        Ok(Queue {
            fd: Some(fd),
            creator: sys::process_generation(),
        })
    }

    /// Applies all changes, then fills `events` with what is pending, waiting for it at most so long. A change that
    /// fails, or that asks for a receipt, becomes an event with EV_ERROR; then nothing that is pending is taken.
    ///
    /// # Errors
    /// EINTR (the changes are applied), and what the kernel cannot put into an event.
    pub(crate) fn kevent(
        &self,
        changes: &[kevent],
        events: &mut [kevent],
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        if sys::is_other_process(self.creator) {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        let timeout = timeout.map(|time| time.min(LONGEST)).map(|time| libc::timespec {
            tv_sec: libc::time_t::try_from(time.as_secs()).expect("a day at most"),
            tv_nsec: libc::c_long::from(time.subsec_nanos().cast_signed()),
        });
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let count = |len: usize| libc::c_int::try_from(len).expect("lists of some hundred");
        let (changed, room) = (count(changes.len()), count(events.len()));
        // SAFETY: the kernel reads `changed` changes and the timeout and fills at most `room` events, all of which
        // outlive the call; it keeps no pointer but udata, which is a number that nobody follows.
        let found =
            unsafe { kqueue_sys::kevent(self.fd(), changes.as_ptr(), changed, events.as_mut_ptr(), room, timeout) };
        usize::try_from(found).map_err(|_| io::Error::last_os_error())
    }

    /// Readable when a call would find something.
    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if sys::is_other_process(self.creator) {
            // A child does not inherit the queue: its number is nobody's, or somebody else's.
            let _ = self.fd.take().map(std::os::fd::IntoRawFd::into_raw_fd);
        }
    }
}
