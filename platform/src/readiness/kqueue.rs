//! The few lines of the readiness core that are kqueue's own (`kqueue(2)`).
//!
//! What changes is queued, and handed over by the same call that reaps: an accepted connection costs no call of its own.
//! A connection has an EVFILT_READ with EV_CLEAR for life. It has an EVFILT_WRITE, once, only after a send would have
//! blocked: BSD reports room in the socket with each acknowledgement, so a permanent one would end every other wait for
//! nothing. Foreign descriptors and listeners are changed at once, since whoever asks wants to know what the kernel says.
//!
//! The waker is an EVFILT_USER of the same queue.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use super::{Event, Poller};
use crate::backend::{Interest, Kind};
use crate::kevent::{EventFilter, EventFlag, FilterFlag, NOTE_TRIGGER, Queue, kevent};
use crate::sync::Arc;
use crate::waker::Bell;

/// Events taken by one call.
const MAX_EVENTS: usize = 512;
/// Changes that wait for the next call, fewer than events: each may come back as one.
const MAX_CHANGES: usize = 256;

// The name of a connection is 64 bits, and travels in a pointer.
const _: () = assert!(size_of::<*mut libc::c_void>() == 8);

/// A kernel event queue.
pub(crate) struct Kqueue {
    /// Shared with the bell, which may outlive the backend; `None` once closed.
    queue: Option<Arc<Queue>>,
    /// What the next call tells the kernel.
    changes: Vec<kevent>,
    found: Vec<kevent>,
    /// Changes that failed outside of a wait.
    refused: Vec<Event>,
}

// SAFETY: the only pointers are the `udata` of changes and events, and those are numbers that nobody follows.
unsafe impl Send for Kqueue {}

/// Rings the owner of a queue.
#[derive(Debug)]
pub(crate) struct UserEvent {
    queue: Arc<Queue>,
    data: u64,
}

impl UserEvent {
    pub(crate) fn ring(&self) {
        // With its data: FreeBSD takes over what a trigger has.
        let mut trigger = change(0, EventFilter::EVFILT_USER, EventFlag::empty(), self.data);
        trigger.fflags = NOTE_TRIGGER;
        // EBADF: a forked child, which has nobody to wake.
        let _ = self.queue.kevent(&[trigger], &mut [], Some(Duration::ZERO));
    }
}

fn change(fd: RawFd, filter: EventFilter, flags: EventFlag, data: u64) -> kevent {
    let ident = usize::try_from(fd).unwrap_or(usize::MAX); // none is EBADF
    let mut change = kevent::new(ident, filter, flags, FilterFlag::empty());
    change.udata = std::ptr::without_provenance_mut(usize::try_from(data).expect("64 bits"));
    change
}

/// The filters of an interest, and whether each is wanted.
fn filters(interest: Interest) -> [(EventFilter, bool); 2] {
    [
        (EventFilter::EVFILT_READ, interest.read),
        (EventFilter::EVFILT_WRITE, interest.write),
    ]
}

fn errno(event: &kevent) -> Option<i32> {
    if event.flags.contains(EventFlag::EV_ERROR) && event.data != 0 {
        Some(i32::try_from(event.data).unwrap_or(libc::EINVAL))
    } else {
        None
    }
}

fn event(found: &kevent) -> Event {
    let is = |filter: EventFilter| !found.flags.contains(EventFlag::EV_ERROR) && found.filter == filter;
    let (read, write) = (is(EventFilter::EVFILT_READ), is(EventFilter::EVFILT_WRITE));
    let over = found.flags.contains(EventFlag::EV_EOF);
    // Of a socket that cannot be read any more, `fflags` is its error.
    let failed = found.fflags != FilterFlag::empty();
    Event {
        data: found.udata.addr() as u64,
        readable: read,
        writable: write,
        hangup: read && over,
        broken: over && (write || (read && failed)),
        refused: errno(found),
    }
}

impl Kqueue {
    fn queue(&self) -> io::Result<&Arc<Queue>> {
        self.queue
            .as_ref()
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    /// Leaves a change to the next call.
    fn later(&mut self, change: kevent) {
        if self.changes.len() == MAX_CHANGES {
            // Should even that be refused, the list grows, and the next wait says why.
            let _ = self.submit();
        }
        self.changes.push(change);
    }

    /// Makes changes at once, each with a receipt, and calls back with what became of each.
    fn now(&self, changes: &mut [kevent], mut each: impl FnMut(&kevent)) -> io::Result<()> {
        for change in &mut *changes {
            change.flags |= EventFlag::EV_RECEIPT;
        }
        let mut receipts = changes.to_vec();
        // With receipts nothing that is pending is taken, and nothing is waited for.
        let count = self.queue()?.kevent(changes, &mut receipts, Some(Duration::ZERO))?;
        receipts[..count].iter().for_each(&mut each);
        Ok(())
    }
}

impl Poller for Kqueue {
    const KIND: Kind = Kind::Kqueue;

    fn new() -> io::Result<Kqueue> {
        let nothing = kevent::new(0, EventFilter::EVFILT_READ, EventFlag::empty(), FilterFlag::empty());
        Ok(Kqueue {
            queue: Some(Arc::new(Queue::new()?)),
            changes: Vec::with_capacity(MAX_CHANGES),
            found: vec![nothing; MAX_EVENTS],
            refused: Vec::new(),
        })
    }

    fn bell(&mut self, data: u64) -> io::Result<Bell> {
        let flags = EventFlag::EV_ADD | EventFlag::EV_CLEAR;
        let add = change(0, EventFilter::EVFILT_USER, flags, data);
        let queue = self.queue()?;
        queue.kevent(&[add], &mut [], Some(Duration::ZERO))?;
        Ok(Bell::User(UserEvent {
            queue: queue.clone(),
            data,
        }))
    }

    fn add_connection(&mut self, fd: RawFd, data: u64) -> io::Result<()> {
        let flags = EventFlag::EV_ADD | EventFlag::EV_CLEAR;
        self.later(change(fd, EventFilter::EVFILT_READ, flags, data));
        Ok(())
    }

    fn await_writable(&mut self, fd: RawFd, data: u64) {
        let flags = EventFlag::EV_ADD | EventFlag::EV_ONESHOT;
        self.later(change(fd, EventFilter::EVFILT_WRITE, flags, data));
    }

    fn forget_connection(&mut self, fd: RawFd) {
        // The kernel forgets it with the descriptor.
        self.changes.retain(|change| RawFd::try_from(change.ident) != Ok(fd));
    }

    fn set_level(&mut self, fd: RawFd, data: u64, interest: Interest, old: Option<Interest>) -> io::Result<()> {
        let old = filters(old.unwrap_or_default());
        let mut changes = Vec::with_capacity(2);
        for ((filter, wanted), (_, was)) in filters(interest).into_iter().zip(old) {
            if wanted {
                changes.push(change(fd, filter, EventFlag::EV_ADD, data));
            } else if was {
                changes.push(change(fd, filter, EventFlag::EV_DELETE, data));
            }
        }
        let wanted = |filter: EventFilter| filters(interest).contains(&(filter, true));
        let mut result = Ok(());
        self.now(&mut changes, |receipt| {
            // What is to go may have gone with its descriptor.
            if let Some(errno) = errno(receipt).filter(|_| wanted(receipt.filter)) {
                result = Err(io::Error::from_raw_os_error(errno));
            }
        })?;
        if result.is_err() {
            self.clear_level(fd, interest);
        }
        result
    }

    fn clear_level(&mut self, fd: RawFd, old: Interest) {
        let delete = |(filter, was): (EventFilter, bool)| was.then(|| change(fd, filter, EventFlag::EV_DELETE, 0));
        let mut changes: Vec<kevent> = filters(old).into_iter().filter_map(delete).collect();
        // ENOENT and EBADF: it was closed, and with that it left the queue.
        let _ = self.now(&mut changes, |_| {});
    }

    fn submit(&mut self) -> io::Result<()> {
        if self.changes.is_empty() {
            return Ok(());
        }
        let mut changes = std::mem::take(&mut self.changes);
        let mut refused = std::mem::take(&mut self.refused);
        let result = self.now(&mut changes, |receipt| {
            refused.extend(errno(receipt).map(|_| event(receipt)));
        });
        if result.is_ok() {
            changes.clear();
        }
        (self.changes, self.refused) = (changes, refused);
        result
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        let timeout = if self.refused.is_empty() {
            timeout
        } else {
            Some(Duration::ZERO)
        };
        events.append(&mut self.refused);
        let queue = self
            .queue
            .as_ref()
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
        match queue.kevent(&self.changes, &mut self.found, timeout) {
            Ok(count) => events.extend(self.found[..count].iter().map(event)),
            // The changes have been made (kqueue(2)).
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        self.changes.clear();
        Ok(())
    }

    fn fd(&self) -> RawFd {
        self.queue.as_ref().map_or(-1, |queue| queue.fd())
    }

    fn close(&mut self) {
        self.queue = None;
        self.changes.clear();
        self.refused.clear();
    }
}
