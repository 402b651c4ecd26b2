//! What each completion of the kernel means. Every one carries slot and generation: an old one finds nothing, and its
//! buffer goes back (R3).

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::time::Duration;

use io_uring::cqueue;

use super::conn::Conn;
use super::{Op, Uring, decode};
use crate::backend::{Completion, ListenerId};
use crate::readiness::Poller;
use crate::sys;

impl Uring {
    /// Turns a completion of the kernel into one of ours, if it is one.
    pub(super) fn handle(&mut self, entry: &cqueue::Entry) -> Option<Completion> {
        let (op, token) = decode(entry.user_data())?;
        match op {
            Op::Accept => self.on_accept(ListenerId(token.index), entry),
            Op::Receive => self.on_receive(token, entry),
            Op::Send => self.on_send(token, entry),
            Op::Broken => self.on_broken(token, entry),
            Op::Room => {
                self.on_room(token);
                None
            }
            Op::Cancel => {
                self.on_cancel(token, entry);
                None
            }
            Op::Ignored => None,
            Op::Foreign => {
                self.on_foreign();
                None
            }
            Op::Waker => {
                self.waker_armed = cqueue::more(entry.flags());
                None
            }
        }
    }

    fn on_accept(&mut self, id: ListenerId, entry: &cqueue::Entry) -> Option<Completion> {
        let slot = self.listeners.get_mut(id.0 as usize)?;
        let found = slot.as_mut()?;
        let over = !cqueue::more(entry.flags());
        if over {
            found.armed = false;
            found.cancelling = false;
        }
        let completion = if entry.result() >= 0 {
            // SAFETY: the kernel just made this descriptor for us, nobody else owns it.
            let socket = unsafe { OwnedFd::from_raw_fd(entry.result()) };
            let (peer, local) = found.listener.addresses(socket.as_fd());
            let token = self.conns.insert(Conn::new(socket));
            self.fresh.push(token);
            Some(Completion::Accepted {
                listener: id,
                token,
                peer,
                local,
            })
        } else {
            let error = io::Error::from_raw_os_error(-entry.result());
            // Anything else was a connection that was gone before it was taken, or our own cancel.
            let failed = sys::is_lasting(&error) && !found.listener.paused && !found.closing;
            found.listener.paused |= failed;
            failed.then_some(Completion::AcceptFailed { listener: id, error })
        };
        if over {
            let slot = &mut self.listeners[id.0 as usize];
            if slot.as_ref().is_some_and(|found| found.closing) {
                *slot = None;
            }
            self.arm_accept(id);
        }
        completion
    }

    fn on_foreign(&mut self) {
        self.nested_armed = false;
        let mut events = std::mem::take(&mut self.nested_events);
        events.clear();
        if self.nested.wait(Some(Duration::ZERO), &mut events).is_ok() {
            events.iter().for_each(|event| self.foreign.note(event));
        }
        self.nested_events = events;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{OPS, user_data};
    use super::*;
    use crate::backend::Token;

    #[test]
    fn user_data_comes_back_as_it_was() {
        for op in OPS {
            let token = Token {
                index: 0x00ab_cdef,
                generation: 0xffff_fffe,
            };
            assert_eq!(decode(user_data(op, token)), Some((op, token)));
        }
        assert_eq!(decode(0), None);
        assert_eq!(decode(u64::MAX), None);
    }
}
