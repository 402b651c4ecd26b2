//! The contract, call by call: most of them queue a request or change what the next one will be.

use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::time::Duration;

use super::buffers::Buffers;
use super::outer::Outer;
use super::ring::Ring;
use super::{HELD, Listening, MAX_COMPLETIONS, MAX_REAPED, Uring, gone};
use crate::backend::{Backend, Chunk, Completion, Interest, Kind, ListenerId, SendBuf, Token};
use crate::listener::Listener;
use crate::out::Out;
use crate::readiness::Poller;
use crate::slots::Slots;
use crate::sys;
use crate::waker::Waker;

impl Backend for Uring {
    fn kind(&self) -> Kind {
        Kind::IoUring
    }

    fn listen(&mut self, socket: OwnedFd) -> io::Result<ListenerId> {
        // A non-blocking listener would end the multishot accept with EAGAIN.
        sys::set_nonblocking(socket.as_fd(), false)?;
        let listener = Listener::new(socket)?;
        let id = ListenerId(u32::try_from(self.listeners.len()).expect("fewer listeners than descriptors"));
        self.listeners.push(Some(Listening {
            listener,
            armed: false,
            cancelling: false,
            closing: false,
        }));
        self.arm_accept(id);
        Ok(id)
    }

    fn pause_accept(&mut self, listener: ListenerId) {
        if let Some(Some(found)) = self.listeners.get_mut(listener.0 as usize) {
            found.listener.paused = true;
            self.cancel_accept(listener);
        }
    }

    fn resume_accept(&mut self, listener: ListenerId) {
        if let Some(Some(found)) = self.listeners.get_mut(listener.0 as usize) {
            found.listener.paused = false;
            self.arm_accept(listener); // a cancel still on its way re-arms when it has landed
        }
    }

    fn unlisten(&mut self, listener: ListenerId) {
        let Some(slot) = self.listeners.get_mut(listener.0 as usize) else {
            return;
        };
        match slot {
            Some(found) if found.armed => {
                found.closing = true;
                self.cancel_accept(listener);
            }
            _ => *slot = None,
        }
    }

    fn receive(&mut self, token: Token) {
        self.start_receive(token);
    }

    fn pause_receive(&mut self, token: Token) {
        self.stop_receive(token);
    }

    fn send(&mut self, token: Token, buf: SendBuf) {
        let out = Out::buf(buf);
        let Some(conn) = self.live(token) else { return };
        assert!(conn.out.is_none(), "one send in flight a connection");
        conn.out = Some(out);
        self.push_send(token);
    }

    fn send_file(&mut self, token: Token, file: OwnedFd, offset: u64, len: u64) {
        let Some(conn) = self.live(token) else { return };
        assert!(conn.out.is_none(), "one send in flight a connection");
        conn.out = Some(Out::file(file, offset, len));
        self.step_file(token);
    }

    fn send_progress(&self, token: Token) -> u64 {
        self.conns.get(token).map_or(0, |conn| conn.progress)
    }

    fn shutdown_write(&mut self, token: Token) {
        let Some(conn) = self.live(token) else { return };
        match (&conn.out, &conn.socket) {
            (None, Some(socket)) => sys::shutdown_write(socket.as_fd()),
            _ => conn.finish = true,
        }
    }

    fn close(&mut self, token: Token) {
        self.start_close(token, sys::shutdown_both);
    }

    fn reset(&mut self, token: Token) {
        self.start_close(token, sys::reset_on_close);
    }

    fn watch(&mut self, fd: RawFd, interest: Interest) -> io::Result<()> {
        if sys::is_other_process(self.creator) {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        self.foreign.watch(&mut self.nested, fd, interest)
    }

    fn unwatch(&mut self, fd: RawFd) {
        // A child's nested set is its parent's: what it takes out is gone for both.
        if !sys::is_other_process(self.creator) {
            self.foreign.unwatch(&mut self.nested, fd);
        }
    }

    fn submit(&mut self) -> io::Result<()> {
        self.arm_for_wait();
        let (outer, full) = (self.outer.is_some(), self.reaped.len() >= MAX_REAPED);
        let creator = self.creator;
        let ring = self.ring.as_mut().filter(|_| !sys::is_other_process(creator));
        let ring = ring.ok_or_else(gone)?;
        ring.submit()?;
        if outer && !full {
            // Its edge may have been told of already: the outer loop must see it from `is_ready`.
            ring.reap(&mut self.reaped);
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        debug_assert!(!self.lent, "a chunk was not recycled");
        self.ring().ok_or_else(gone)?.enable()?;
        self.foreign.start_wait();
        self.arm_for_wait();
        self.budget = MAX_COMPLETIONS;
        let result = self.gather(timeout);
        self.round.append(&mut self.again);
        result
    }

    fn is_ready(&self) -> bool {
        !self.done.is_empty()
            || !self.reaped.is_empty()
            || !self.resume.is_empty()
            || !self.round.is_empty()
            || self.foreign.is_ready()
    }

    fn next(&mut self) -> Option<Completion> {
        debug_assert!(!self.lent, "a chunk was not recycled");
        if self.budget > 0 && !sys::is_other_process(self.creator) {
            let completion = self.next_inner();
            if completion.is_some() {
                self.budget -= 1;
                return completion;
            }
        }
        if let Some(outer) = self.outer.as_ref().filter(|_| self.wants_another_wait()) {
            outer.ring();
        }
        None
    }

    fn bytes(&self, chunk: &Chunk) -> &[u8] {
        if chunk.buffer == HELD {
            return &self.lent_piece;
        }
        let index = u16::try_from(chunk.buffer).expect("buffers are numbered in sixteen bits");
        self.buffers
            .as_ref()
            .map_or(&[], |buffers| buffers.bytes(index, chunk.len as usize))
    }

    fn recycle(&mut self, chunk: Chunk) {
        debug_assert!(self.lent, "a chunk was recycled twice");
        self.lent = false;
        if chunk.buffer == HELD {
            self.lent_piece = Vec::new();
        } else {
            self.give_back(u16::try_from(chunk.buffer).ok());
        }
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn poll_fd(&mut self) -> io::Result<RawFd> {
        if let Some(outer) = &self.outer {
            return Ok(outer.fd());
        }
        let ring = self.ring.as_ref().ok_or_else(gone)?;
        let outer = self.outer.insert(Outer::new(ring, self.waker.fd(), self.nested.fd())?);
        Ok(outer.fd())
    }

    fn open_connections(&self) -> usize {
        self.conns.len()
    }

    fn shutdown(&mut self) {
        if sys::is_other_process(self.creator) {
            self.ring.take().into_iter().for_each(Ring::forget);
            self.buffers.take().into_iter().for_each(Buffers::forget);
        } else {
            if self.ring.as_ref().is_some_and(Ring::is_enabled) {
                self.cancel_all();
            }
            self.ring = None;
            if self.is_busy() {
                // A thread that does not own the ring comes here, or one whose kernel did not let go in time: it may still
                // be reading and writing.
                self.buffers.take().into_iter().for_each(Buffers::forget);
                std::mem::forget(std::mem::replace(&mut self.conns, Slots::new()));
            }
        }
        self.buffers = None;
        self.conns.clear();
        self.listeners.clear();
        self.foreign.clear();
        self.nested.close();
        self.outer = None;
        for queue in [&mut self.resume, &mut self.starved, &mut self.round, &mut self.again] {
            queue.clear();
        }
        self.reaped.clear();
        self.done.clear();
    }
}
