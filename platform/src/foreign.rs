//! Foreign descriptors (asyncio's): who watches which one for what, level-triggered.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::RawFd;

use crate::backend::Interest;
use crate::readiness::{Event, Poller};

/// Set in the data of every foreign registration; the low bits are the descriptor.
pub(crate) const FOREIGN: u64 = 0x8000_0000;

/// Descriptors from here on do not fit the data; no process has a thousand million.
const MAX_FD: RawFd = 0x4000_0000;

/// What is watched, and what was found ready by the last wait.
#[derive(Debug, Default)]
pub(crate) struct Foreign {
    watched: HashMap<RawFd, Watch>,
    next_generation: u32,
    /// Those of which something was found, each once; what it was stands in its watch.
    ready: VecDeque<RawFd>,
}

#[derive(Clone, Copy, Debug)]
struct Watch {
    interest: Interest,
    /// Tells this registration from an earlier one of the same number, whose event may still be queued (R3).
    generation: u32,
    /// What the last wait found, in one event or (kqueue) in two, and has not been delivered.
    found: Interest,
}

impl Foreign {
    /// Registers, or changes a registration. A number that was closed and opened again unseen is registered anew.
    pub(crate) fn watch<P: Poller>(&mut self, poller: &mut P, fd: RawFd, interest: Interest) -> io::Result<()> {
        if !(0..MAX_FD).contains(&fd) {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        let old = self.watched.get(&fd).map(|watch| watch.interest);
        self.next_generation = self.next_generation.wrapping_add(1);
        let generation = self.next_generation;
        let data = u64::from(generation) << 32 | FOREIGN | u64::from(fd.unsigned_abs());
        if let Err(error) = poller.set_level(fd, data, interest, old) {
            self.watched.remove(&fd);
            return Err(error);
        }
        let watch = Watch {
            interest,
            generation,
            found: Interest::default(),
        };
        self.watched.insert(fd, watch);
        Ok(())
    }

    /// Forgets a descriptor; whether it is still open does not matter.
    pub(crate) fn unwatch<P: Poller>(&mut self, poller: &mut P, fd: RawFd) {
        if let Some(watch) = self.watched.remove(&fd) {
            poller.clear_level(fd, watch.interest);
        }
    }

    /// Its number is another file's: it was closed, and with that the kernel has forgotten it.
    pub(crate) fn is_gone(&mut self, fd: RawFd) {
        self.watched.remove(&fd);
    }

    /// Forgets what the last wait found: it is level-triggered, so what still holds is found again.
    pub(crate) fn start_wait(&mut self) {
        for fd in self.ready.drain(..) {
            if let Some(watch) = self.watched.get_mut(&fd) {
                watch.found = Interest::default();
            }
        }
    }

    /// Notes an event whose data has [`FOREIGN`] set.
    pub(crate) fn note(&mut self, event: &Event) {
        let fd = RawFd::try_from(event.data & (FOREIGN - 1)).unwrap_or(-1);
        let generation = (event.data >> 32) as u32;
        let Some(watch) = self.watched.get_mut(&fd).filter(|watch| watch.generation == generation) else {
            return;
        };
        if watch.found == Interest::default() {
            self.ready.push_back(fd);
        }
        watch.found.read |= event.readable || event.hangup;
        watch.found.write |= event.writable || event.broken;
    }

    /// The next descriptor that is ready for something that it is (still) watched for.
    pub(crate) fn next(&mut self) -> Option<(RawFd, Interest)> {
        while let Some(fd) = self.ready.pop_front() {
            let Some(watch) = self.watched.get_mut(&fd) else {
                continue;
            };
            let found = std::mem::take(&mut watch.found);
            let ready = Interest {
                read: found.read && watch.interest.read,
                write: found.write && watch.interest.write,
            };
            if ready.read || ready.write {
                return Some((fd, ready));
            }
        }
        None
    }

    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn is_empty(&self) -> bool {
        self.watched.is_empty()
    }

    /// Forgets everything, without a word to the kernel.
    pub(crate) fn clear(&mut self) {
        self.watched.clear();
        self.ready.clear();
    }
}
