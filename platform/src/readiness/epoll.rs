//! The few lines of the readiness core that are epoll's own (`epoll(7)`, `epoll_ctl(2)`).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use super::{Event, Poller};
use crate::backend::{Interest, Kind};

/// Events taken by one call.
const MAX_EVENTS: usize = 512;

/// An epoll set.
pub(crate) struct Epoll {
    /// `None` once closed.
    fd: Option<OwnedFd>,
    found: Vec<libc::epoll_event>,
}

impl Epoll {
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
}

impl Poller for Epoll {
    const KIND: Kind = Kind::Epoll;

    fn new() -> io::Result<Epoll> {
        // SAFETY: no pointers; the result is checked before it is owned.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just made and nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Epoll {
            fd: Some(fd),
            found: vec![libc::epoll_event { events: 0, u64: 0 }; MAX_EVENTS],
        })
    }

    fn add_edge(&mut self, fd: RawFd, data: u64) -> io::Result<()> {
        let events = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        self.control(libc::EPOLL_CTL_ADD, fd, events, data)
    }

    fn set_level(&mut self, fd: RawFd, data: u64, interest: Interest, old: Option<Interest>) -> io::Result<()> {
        let mut events = 0;
        if interest.read {
            events |= libc::EPOLLIN | libc::EPOLLRDHUP;
        }
        if interest.write {
            events |= libc::EPOLLOUT;
        }
        let operations = match old {
            Some(_) => [libc::EPOLL_CTL_MOD, libc::EPOLL_CTL_ADD],
            None => [libc::EPOLL_CTL_ADD, libc::EPOLL_CTL_MOD],
        };
        match self.control(operations[0], fd, events, data) {
            // The number was closed and opened again unseen, or its old file lives on in another process.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EEXIST)) => {
                self.control(operations[1], fd, events, data)
            }
            result => result,
        }
    }

    fn clear_level(&mut self, fd: RawFd, _old: Interest) {
        // ENOENT and EBADF: it was closed, and with that it left the set.
        let _ = self.control(libc::EPOLL_CTL_DEL, fd, 0, 0);
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        // Rounded up to milliseconds: a wait that ends before its time would only be repeated.
        let timeout = timeout.map_or(-1, |time| {
            libc::c_int::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(libc::c_int::MAX)
        });
        let capacity = libc::c_int::try_from(self.found.len()).expect("a small constant");
        // SAFETY: `found` has room for `capacity` events, which the kernel fills and does not keep.
        let count = unsafe { libc::epoll_wait(self.fd(), self.found.as_mut_ptr(), capacity, timeout) };
        let Ok(count) = usize::try_from(count) else {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted {
                Ok(())
            } else {
                Err(error)
            };
        };
        events.extend(self.found[..count].iter().map(|event| {
            let has = |bits: libc::c_int| event.events & bits.cast_unsigned() != 0;
            Event {
                data: event.u64,
                readable: has(libc::EPOLLIN),
                writable: has(libc::EPOLLOUT),
                hangup: has(libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR),
                broken: has(libc::EPOLLHUP | libc::EPOLLERR),
            }
        }));
        Ok(())
    }

    fn fd(&self) -> RawFd {
        self.fd.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    fn close(&mut self) {
        self.fd = None;
    }
}
