//! `kevent(2)` over epoll, an eventfd and a timerfd, so that the kqueue backend can be run and tested on Linux.
//!
//! What there is, as `kqueue(2)` of FreeBSD and macOS describes it:
//!
//! - EVFILT_READ and EVFILT_WRITE of sockets and pipes, level-triggered, with EV_CLEAR or with EV_ONESHOT; EVFILT_USER
//!   with EV_CLEAR, and NOTE_TRIGGER, which any thread may use. Filters of one descriptor do not disturb each other.
//! - EV_ADD changes what is there already, and looks at the descriptor anew; EV_DELETE; EV_RECEIPT.
//! - A change that fails, or wants a receipt, becomes an event with EV_ERROR and the errno in `data`; then nothing pending
//!   is taken. Without room for it the call fails and the changes behind it are not made.
//! - EV_EOF: of a reader at the end of the stream, with the bytes before it still to be read, and an error in `fflags` if
//!   the socket has one; of a writer whose reader is gone.
//! - Time-outs in nanoseconds; zero never blocks (R1); EINTR after the changes have been made.
//! - A descriptor leaves with its close, and a forked child has no queue: every call gives EBADF there.
//!
//! What differs: `data` counts nothing (no caller looks). `fflags` of a failed socket is always ECONNRESET, since Linux
//! gives an error only to who takes it. EVFILT_WRITE with EV_CLEAR fires when a full socket has room again, where BSD
//! fires with each acknowledgement. Regular files are refused with EPERM. A queue is five descriptors or more.

use std::collections::HashMap;
use std::io;
use std::ops::{BitOr, BitOrAssign};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::readiness::epoll::Set;
use crate::sync::{Mutex, MutexGuard};
use crate::sys;

/// What an event is of; the numbers are FreeBSD's.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i16)]
pub(crate) enum EventFilter {
    EVFILT_READ = -1,
    EVFILT_WRITE = -2,
    EVFILT_USER = -11,
}

/// Declares a set of flags as `kqueue-sys` has it.
macro_rules! flags {
    ($name:ident: $type:ty { $($flag:ident = $value:expr,)* }) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) struct $name($type);

        impl $name {
            $(pub(crate) const $flag: $name = $name($value);)*

            pub(crate) const fn empty() -> $name {
                $name(0)
            }

            pub(crate) const fn contains(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }
        }

        impl BitOr for $name {
            type Output = $name;

            fn bitor(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }
        }

        impl BitOrAssign for $name {
            fn bitor_assign(&mut self, other: $name) {
                *self = *self | other;
            }
        }
    };
}

flags! {
    EventFlag: u16 {
        EV_ADD = 0x0001,
        EV_DELETE = 0x0002,
        EV_ONESHOT = 0x0010,
        EV_CLEAR = 0x0020,
        EV_RECEIPT = 0x0040,
        EV_ERROR = 0x4000,
        EV_EOF = 0x8000,
    }
}

flags! {
    FilterFlag: u32 {
        TRIGGER = 0x0100_0000,
        ECONNRESET = libc::ECONNRESET.cast_unsigned(),
    }
}

/// Triggers an EVFILT_USER.
pub(crate) const NOTE_TRIGGER: FilterFlag = FilterFlag::TRIGGER;

/// A change, or an event.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct kevent {
    pub(crate) ident: usize,
    pub(crate) filter: EventFilter,
    pub(crate) flags: EventFlag,
    pub(crate) fflags: FilterFlag,
    pub(crate) data: i64,
    pub(crate) udata: *mut libc::c_void,
}

impl kevent {
    pub(crate) fn new(ident: usize, filter: EventFilter, flags: EventFlag, fflags: FilterFlag) -> kevent {
        kevent {
            ident,
            filter,
            flags,
            fflags,
            data: 0,
            udata: std::ptr::null_mut(),
        }
    }
}

/// A registration.
#[derive(Debug)]
struct Knote {
    /// Tells it from an earlier one of the same number, whose event may still be on its way.
    generation: u32,
    flags: EventFlag,
    udata: usize,
}

/// The registrations of one filter, over an epoll set of its own.
#[derive(Debug)]
struct Filter {
    set: Set,
    notes: HashMap<RawFd, Knote>,
}

/// The registrations of EVFILT_USER.
#[derive(Debug)]
struct User {
    bell: OwnedFd,
    udata: usize,
}

#[derive(Debug)]
struct State {
    read: Filter,
    write: Filter,
    users: HashMap<usize, User>,
    generations: u32,
}

/// A queue.
#[derive(Debug)]
pub(crate) struct Queue {
    /// The two filters' sets, the timer and the bells of users.
    outer: Set,
    timer: OwnedFd,
    state: Mutex<State>,
    creator: u32,
}

/// Data in the outer set; users have their ident plus [`USERS`].
const READ: u64 = 0;
const WRITE: u64 = 1;
const TIMER: u64 = 2;
const USERS: u64 = 1 << 32;

fn errno(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

/// A new descriptor, or what the call gave.
fn own(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the caller just made `fd` and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// At most `room` events of a set; waits for them without limit where `millis` is negative.
fn found(set: &Set, millis: libc::c_int, room: usize) -> io::Result<impl Iterator<Item = libc::epoll_event> + use<>> {
    let mut found = [libc::epoll_event { events: 0, u64: 0 }; 64];
    let room = room.min(found.len());
    let count = if room == 0 {
        0
    } else {
        set.wait(millis, &mut found[..room])?
    };
    Ok(found.into_iter().take(count))
}

impl Filter {
    fn new() -> io::Result<Filter> {
        Ok(Filter {
            set: Set::new()?,
            notes: HashMap::new(),
        })
    }

    fn add(&mut self, fd: RawFd, change: &kevent, interest: libc::c_int, generation: u32) -> io::Result<()> {
        let edges = change.flags.contains(EventFlag::EV_CLEAR);
        let events = interest | if edges { libc::EPOLLET } else { 0 };
        let data = u64::from(generation) << 32 | u64::from(fd.cast_unsigned());
        self.set.register(fd, events, data, self.notes.contains_key(&fd))?;
        let knote = Knote {
            generation,
            flags: change.flags,
            udata: change.udata.addr(),
        };
        self.notes.insert(fd, knote);
        Ok(())
    }

    fn delete(&mut self, fd: RawFd) -> io::Result<()> {
        let known = self.notes.remove(&fd);
        known.ok_or_else(|| errno(libc::ENOENT))?;
        self.set.remove(fd)
    }

    /// Fills `events` with what is ready, and returns how much that is.
    fn take(&mut self, filter: EventFilter, events: &mut [kevent]) -> io::Result<usize> {
        let mut count = 0;
        for event in found(&self.set, 0, events.len())? {
            let fd = (event.u64 as u32).cast_signed();
            let generation = (event.u64 >> 32) as u32;
            let Some(note) = self.notes.get(&fd).filter(|note| note.generation == generation) else {
                continue; // of a file whose number is another's by now
            };
            let has = |bits: libc::c_int| event.events & bits.cast_unsigned() != 0;
            let over = match filter {
                EventFilter::EVFILT_READ => has(libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR),
                _ => has(libc::EPOLLHUP | libc::EPOLLERR),
            };
            let mut kevent = kevent::new(fd.cast_unsigned() as usize, filter, note.flags, FilterFlag::empty());
            kevent.udata = std::ptr::without_provenance_mut(note.udata);
            if over {
                kevent.flags |= EventFlag::EV_EOF;
            }
            if over && has(libc::EPOLLERR) {
                kevent.fflags = FilterFlag::ECONNRESET;
            }
            events[count] = kevent;
            count += 1;
            if note.flags.contains(EventFlag::EV_ONESHOT) {
                self.delete(fd)?;
            }
        }
        Ok(count)
    }
}

impl State {
    fn change(&mut self, outer: &Set, change: &kevent) -> io::Result<()> {
        let add = change.flags.contains(EventFlag::EV_ADD);
        let delete = change.flags.contains(EventFlag::EV_DELETE);
        let (filter, interest) = match change.filter {
            EventFilter::EVFILT_USER if add => return self.add_user(outer, change),
            EventFilter::EVFILT_USER if delete => {
                let known = self.users.remove(&change.ident);
                return known.map(drop).ok_or_else(|| errno(libc::ENOENT));
            }
            EventFilter::EVFILT_USER => return self.touch(change),
            EventFilter::EVFILT_READ => (&mut self.read, libc::EPOLLIN | libc::EPOLLRDHUP),
            EventFilter::EVFILT_WRITE => (&mut self.write, libc::EPOLLOUT),
        };
        let fd = RawFd::try_from(change.ident).map_err(|_| errno(libc::EBADF))?;
        match (add, delete) {
            (true, _) => {
                self.generations = self.generations.wrapping_add(1);
                filter.add(fd, change, interest, self.generations)
            }
            (false, true) => filter.delete(fd),
            (false, false) => Err(errno(libc::EINVAL)),
        }
    }

    fn add_user(&mut self, outer: &Set, change: &kevent) -> io::Result<()> {
        if !change.flags.contains(EventFlag::EV_CLEAR) || change.ident >= USERS as usize {
            return Err(errno(libc::EINVAL));
        }
        let udata = change.udata.addr();
        if let Some(user) = self.users.get_mut(&change.ident) {
            user.udata = udata;
            return self.touch(change);
        }
        let bell = sys::bell(false)?;
        let data = USERS + change.ident as u64;
        outer.register(bell.as_raw_fd(), libc::EPOLLIN | libc::EPOLLET, data, false)?;
        self.users.insert(change.ident, User { bell, udata });
        self.touch(change)
    }

    fn touch(&mut self, change: &kevent) -> io::Result<()> {
        let user = self.users.get(&change.ident).ok_or_else(|| errno(libc::ENOENT))?;
        if change.fflags.contains(NOTE_TRIGGER) {
            sys::ring(user.bell.as_fd());
        }
        Ok(())
    }
}

impl Queue {
    pub(crate) fn new() -> io::Result<Queue> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: no pointers.
        let timer = own(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
        let (outer, read, write) = (Set::new()?, Filter::new()?, Filter::new()?);
        outer.register(read.set.fd(), libc::EPOLLIN, READ, false)?;
        outer.register(write.set.fd(), libc::EPOLLIN, WRITE, false)?;
        outer.register(timer.as_raw_fd(), libc::EPOLLIN | libc::EPOLLET, TIMER, false)?;
        Ok(Queue {
            outer,
            timer,
            state: Mutex::new(State {
                read,
                write,
                users: HashMap::new(),
                generations: 0,
            }),
            creator: sys::process_generation(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// As the kernel's call: see the module's description. One thread waits; any may make changes.
    ///
    /// # Errors
    /// EINTR, and what cannot be put into an event.
    pub(crate) fn kevent(
        &self,
        changes: &[kevent],
        events: &mut [kevent],
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        if sys::is_other_process(self.creator) {
            return Err(errno(libc::EBADF));
        }
        let mut count = 0;
        for change in changes {
            let result = self.state().change(&self.outer, change);
            if result.is_ok() && !change.flags.contains(EventFlag::EV_RECEIPT) {
                continue;
            }
            let Some(receipt) = events.get_mut(count) else {
                return result.map(|()| 0);
            };
            *receipt = *change;
            receipt.flags = change.flags | EventFlag::EV_ERROR;
            receipt.data = result.err().and_then(|error| error.raw_os_error()).map_or(0, i64::from);
            count += 1;
        }
        if count > 0 || events.is_empty() {
            return Ok(count);
        }
        self.scan(events, timeout)
    }

    fn scan(&self, events: &mut [kevent], timeout: Option<Duration>) -> io::Result<usize> {
        let limit = if timeout == Some(Duration::ZERO) { 0 } else { -1 };
        if let Some(time) = timeout.filter(|time| !time.is_zero()) {
            self.arm(time)?;
        }
        loop {
            // As many as there is room for: the edge of a user must not be taken in vain.
            let ready: Vec<u64> = found(&self.outer, limit, events.len())?
                .map(|event| event.u64)
                .collect();
            let count = self.take(&ready, events)?;
            // A timer that was set by an earlier call means nothing.
            let over = timeout.is_some() && ready.contains(&TIMER);
            if count > 0 || over || limit == 0 {
                return Ok(count);
            }
        }
    }

    fn take(&self, ready: &[u64], events: &mut [kevent]) -> io::Result<usize> {
        let mut state = self.state();
        let state = &mut *state;
        let mut count = 0;
        for ident in ready.iter().filter_map(|data| data.checked_sub(USERS)) {
            let ident = usize::try_from(ident).expect("32 bits");
            if let Some(user) = state.users.get(&ident) {
                events[count] = kevent::new(
                    ident,
                    EventFilter::EVFILT_USER,
                    EventFlag::EV_CLEAR,
                    FilterFlag::empty(),
                );
                events[count].udata = std::ptr::without_provenance_mut(user.udata);
                count += 1;
            }
        }
        let mut sets = [
            (READ, EventFilter::EVFILT_READ, &mut state.read),
            (WRITE, EventFilter::EVFILT_WRITE, &mut state.write),
        ];
        for (data, filter, set) in &mut sets {
            if ready.contains(data) {
                count += set.take(*filter, &mut events[count..])?;
            }
        }
        Ok(count)
    }

    /// Has the timer end a wait after so long.
    fn arm(&self, time: Duration) -> io::Result<()> {
        // SAFETY: all zero is a valid itimerspec.
        let mut spec: libc::itimerspec = unsafe { std::mem::zeroed() };
        spec.it_value.tv_sec = time.as_secs().try_into().unwrap_or(libc::time_t::MAX);
        spec.it_value.tv_nsec = time.subsec_nanos().into();
        // SAFETY: `spec` is read by the call and not kept; null asks for nothing back.
        let result = unsafe { libc::timerfd_settime(self.timer.as_raw_fd(), 0, &raw const spec, std::ptr::null_mut()) };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Readable when a call would find something.
    pub(crate) fn fd(&self) -> RawFd {
        self.outer.fd()
    }
}
