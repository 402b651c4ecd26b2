//! The descriptor that a loop which is not ours polls (uvloop).
//!
//! The ring's own descriptor does not wake with DEFER_TASKRUN, so an eventfd is registered with it. That alone is not
//! enough: a ring whose request was completed by a write to another eventfd (our waker's, say) signals its own only
//! the first time (seen on Linux 6.18). So the descriptor is an epoll set of three: the registered eventfd and
//! the waker's, for edges, and the nested set of foreign descriptors, for its level.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use super::ring::Ring;
use crate::backend::Interest;
use crate::readiness::{Event, Poller, epoll::Epoll};
use crate::sys;

/// What an outer loop polls.
pub(super) struct Outer {
    set: Epoll,
    /// Registered with the ring; written by us as well.
    bell: OwnedFd,
    events: Vec<Event>,
}

impl Outer {
    pub(super) fn new(ring: &Ring, waker: RawFd, foreign: RawFd) -> io::Result<Outer> {
        // Rung: what happened before it was made is found by the first wait.
        let bell = sys::bell(true)?;
        let mut set = Epoll::new()?;
        set.add_edge(bell.as_raw_fd(), 0)?;
        set.add_edge(waker, 1)?;
        set.set_level(foreign, 2, Interest::READ, None)?;
        ring.register_eventfd(bell.as_raw_fd())?;
        Ok(Outer {
            set,
            bell,
            events: Vec::new(),
        })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.set.fd()
    }

    /// Takes the edges, so that the descriptor is readable again only for what comes after.
    pub(super) fn take_edges(&mut self) {
        self.events.clear();
        // It has nothing to say but which edges there were: the wait that calls looks at everything.
        let _ = self.set.wait(Some(Duration::ZERO), &mut self.events);
    }

    /// Tells the outer loop to come back.
    pub(super) fn ring(&self) {
        sys::ring(self.bell.as_fd());
    }
}
