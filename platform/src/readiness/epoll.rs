//! The few lines of the readiness core that are epoll's own (`epoll(7)`, `epoll_ctl(2)`).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use super::{Event, Poller};
use crate::backend::{Interest, Kind};
use crate::waker::Bell;

/// Events taken by one call.
const MAX_EVENTS: usize = 512;

/// An epoll set, call by call.
#[derive(Debug)]
pub(crate) struct Set(OwnedFd);

impl Set {
    pub(crate) fn new() -> io::Result<Set> {
        // SAFETY: no pointers; the result is checked before it is owned.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just made and nobody else owns it.
        Ok(Set(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    fn control(&self, operation: libc::c_int, fd: RawFd, events: libc::c_int, data: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: events.cast_unsigned(),
            u64: data,
        };
        // SAFETY: `event` is a valid epoll_event that the call reads and does not keep.
        if unsafe { libc::epoll_ctl(self.fd(), operation, fd, &raw mut event) } == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Registers a descriptor, or changes its registration: `known` is what the caller believes of it.
    pub(crate) fn register(&self, fd: RawFd, events: libc::c_int, data: u64, known: bool) -> io::Result<()> {
        let operations = if known {
            [libc::EPOLL_CTL_MOD, libc::EPOLL_CTL_ADD]
        } else {
            [libc::EPOLL_CTL_ADD, libc::EPOLL_CTL_MOD]
        };
        match self.control(operations[0], fd, events, data) {
            // The number was closed and opened again unseen, or its old file lives on in another process.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EEXIST)) => {
                self.control(operations[1], fd, events, data)
            }
            result => result,
        }
    }

    pub(crate) fn remove(&self, fd: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    /// Waits for so many milliseconds (negative: without limit), and returns how much it found.
    pub(crate) fn wait(&self, millis: libc::c_int, found: &mut [libc::epoll_event]) -> io::Result<usize> {
        let capacity = libc::c_int::try_from(found.len()).expect("some hundred");
        // SAFETY: `found` has room for `capacity` events, which the kernel fills and does not keep.
        let count = unsafe { libc::epoll_wait(self.fd(), found.as_mut_ptr(), capacity, millis) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    /// As [`Set::wait`], to the nanosecond (`epoll_pwait2`, Linux 5.11).
    fn wait_for(&self, time: Duration, found: &mut [libc::epoll_event]) -> io::Result<usize> {
        let time = libc::timespec {
            tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::from(time.subsec_nanos().cast_signed()),
        };
        let no_mask = std::ptr::null::<libc::sigset_t>();
        // SAFETY: `found` has room for as many events as it is said to have, `time` is read during the call, and without a
        // mask its size is not looked at. The call keeps none of them.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.fd(),
                found.as_mut_ptr(),
                libc::c_int::try_from(found.len()).expect("some hundred"),
                &raw const time,
                no_mask,
                0_usize,
            )
        };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// An epoll set as the core's poller.
pub(crate) struct Epoll {
    /// `None` once closed.
    set: Option<Set>,
    found: Vec<libc::epoll_event>,
    /// `epoll_pwait2` is there and allowed, as far as is known.
    fine: bool,
}

impl Epoll {
    fn set(&self) -> io::Result<&Set> {
        self.set
            .as_ref()
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    /// Watches for edges in both directions, until the descriptor is closed.
    pub(crate) fn add_edge(&self, fd: RawFd, data: u64) -> io::Result<()> {
        let events = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        self.set()?.register(fd, events, data, false)
    }
}

impl Poller for Epoll {
    const KIND: Kind = Kind::Epoll;

    fn new() -> io::Result<Epoll> {
        Ok(Epoll {
            set: Some(Set::new()?),
            found: vec![libc::epoll_event { events: 0, u64: 0 }; MAX_EVENTS],
            fine: true,
        })
    }

    fn bell(&mut self, data: u64) -> io::Result<Bell> {
        let bell = Bell::eventfd()?;
        self.add_edge(bell.fd(), data)?;
        Ok(bell)
    }

    fn add_connection(&mut self, fd: RawFd, data: u64) -> io::Result<()> {
        self.add_edge(fd, data)
    }

    fn set_level(&mut self, fd: RawFd, data: u64, interest: Interest, old: Option<Interest>) -> io::Result<()> {
        let mut events = 0;
        if interest.read {
            events |= libc::EPOLLIN | libc::EPOLLRDHUP;
        }
        if interest.write {
            events |= libc::EPOLLOUT;
        }
        self.set()?.register(fd, events, data, old.is_some())
    }

    fn clear_level(&mut self, fd: RawFd, _old: Interest) {
        // ENOENT and EBADF: it was closed, and with that it left the set.
        let _ = self.set().and_then(|set| set.remove(fd));
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        // Rounded up to milliseconds, or else taken as it is: a wait that ends before its time would only be repeated.
        let millis = timeout.map_or(-1, |time| {
            libc::c_int::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(libc::c_int::MAX)
        });
        let set = self
            .set
            .as_ref()
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
        let mut result = match timeout {
            Some(time) if self.fine && time.subsec_nanos() % 1_000_000 != 0 => set.wait_for(time, &mut self.found),
            _ => set.wait(millis, &mut self.found),
        };
        // An older kernel, or a filter of system calls that does not know this one.
        if let Err(error) = &result
            && matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM))
        {
            self.fine = false;
            result = set.wait(millis, &mut self.found);
        }
        let count = match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            result => result?,
        };
        events.extend(self.found[..count].iter().map(|event| {
            let has = |bits: libc::c_int| event.events & bits.cast_unsigned() != 0;
            Event {
                data: event.u64,
                readable: has(libc::EPOLLIN),
                writable: has(libc::EPOLLOUT),
                hangup: has(libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR),
                broken: has(libc::EPOLLHUP | libc::EPOLLERR),
                refused: None,
            }
        }));
        Ok(())
    }

    fn fd(&self) -> RawFd {
        self.set.as_ref().map_or(-1, Set::fd)
    }

    fn close(&mut self) {
        self.set = None;
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Epoll, Poller};

    /// Rounded up to a millisecond, a look for a stalled lane came five times too late.
    #[test]
    fn a_wait_of_microseconds_is_not_rounded_to_milliseconds() {
        const TIME: Duration = Duration::from_micros(200);
        let mut epoll = Epoll::new().unwrap();
        let mut events = Vec::new();
        let waits = (0..50).map(|_| {
            let start = Instant::now();
            epoll.wait(Some(TIME), &mut events).unwrap();
            start.elapsed()
        });
        let shortest = waits.min().unwrap();
        assert!(shortest >= TIME);
        if epoll.fine {
            assert!(shortest < Duration::from_millis(1), "{shortest:?}");
        } else {
            eprintln!("SKIPPED: this kernel has no epoll_pwait2");
        }
    }
}
