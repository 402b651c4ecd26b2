//! The contract, call by call, over any [`Poller`].

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use super::{MAX_COMPLETIONS, Poller, Readiness};
use crate::backend::{Backend, Chunk, Completion, Interest, Kind, ListenerId, SendBuf, Token};
use crate::listener::Listener;
use crate::out::Out;
use crate::sys;
use crate::waker::Waker;

impl<P: Poller> Backend for Readiness<P> {
    fn kind(&self) -> Kind {
        P::KIND
    }

    fn listen(&mut self, socket: OwnedFd) -> io::Result<ListenerId> {
        sys::set_nonblocking(socket.as_fd(), true)?;
        let listener = Listener::new(socket)?;
        let id = ListenerId(u32::try_from(self.listeners.len()).expect("fewer listeners than descriptors"));
        self.poller.set_level(
            listener.socket.as_raw_fd(),
            Self::listener_data(id),
            Interest::READ,
            None,
        )?;
        self.listeners.push(Some(listener));
        Ok(id)
    }

    fn pause_accept(&mut self, listener: ListenerId) {
        let Some(Some(found)) = self.listeners.get_mut(listener.0 as usize) else {
            return;
        };
        if !found.paused && !sys::is_other_process(self.creator) {
            found.paused = true;
            self.poller.clear_level(found.socket.as_raw_fd(), Interest::READ);
        }
    }

    fn resume_accept(&mut self, listener: ListenerId) {
        let Some(Some(found)) = self.listeners.get_mut(listener.0 as usize) else {
            return;
        };
        if found.paused && !sys::is_other_process(self.creator) {
            let fd = found.socket.as_raw_fd();
            // When even this is refused (ENOMEM) the listener stays paused: the owner resumes again, later.
            found.paused = self
                .poller
                .set_level(fd, Self::listener_data(listener), Interest::READ, None)
                .is_err();
        }
    }

    fn unlisten(&mut self, listener: ListenerId) {
        self.pause_accept(listener);
        if let Some(found) = self.listeners.get_mut(listener.0 as usize) {
            *found = None;
        }
    }

    fn receive(&mut self, token: Token) {
        let Some(conn) = self.live(token) else { return };
        conn.receiving = true;
        if conn.readable && !conn.ended && !conn.queued {
            conn.queued = true;
            self.round.push_back(token);
        }
    }

    fn pause_receive(&mut self, token: Token) {
        if let Some(conn) = self.live(token) {
            conn.receiving = false;
        }
    }

    fn send(&mut self, token: Token, buf: SendBuf) {
        let out = Out::buf(buf);
        let Some(conn) = self.live(token) else { return };
        assert!(conn.out.is_none(), "one send in flight a connection");
        conn.out = Some(out);
        self.start_out(token);
    }

    fn send_file(&mut self, token: Token, file: OwnedFd, offset: u64, len: u64) {
        let Some(conn) = self.live(token) else { return };
        assert!(conn.out.is_none(), "one send in flight a connection");
        conn.out = Some(Out::file(file, offset, len));
        self.start_out(token);
    }

    fn send_progress(&self, token: Token) -> u64 {
        self.conns.get(token).map_or(0, |conn| conn.progress)
    }

    fn shutdown_write(&mut self, token: Token) {
        let Some(conn) = self.live(token) else { return };
        conn.finish_after_out();
    }

    fn close(&mut self, token: Token) {
        self.close_with(token, sys::shutdown_both);
    }

    fn reset(&mut self, token: Token) {
        self.close_with(token, sys::reset_on_close);
    }

    fn watch(&mut self, fd: RawFd, interest: Interest) -> io::Result<()> {
        if sys::is_other_process(self.creator) {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        self.foreign.watch(&mut self.poller, fd, interest)
    }

    fn unwatch(&mut self, fd: RawFd) {
        // A child's poller is its parent's: what it takes out is gone for both.
        if !sys::is_other_process(self.creator) {
            self.foreign.unwatch(&mut self.poller, fd);
        }
    }

    fn submit(&mut self) -> io::Result<()> {
        // A child has nothing to say about its parent's connections.
        if sys::is_other_process(self.creator) {
            return Ok(());
        }
        self.poller.submit()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        debug_assert!(!self.lent, "a chunk was not recycled");
        if sys::is_other_process(self.creator) {
            // A child's poller is its parent's: an edge that it takes is one that the parent never sees.
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        self.foreign.start_wait();
        let timeout = if self.is_ready() || !self.again.is_empty() {
            Some(Duration::ZERO)
        } else {
            timeout
        };
        // Level-triggered, so what was not accepted is found again; a listener must not be queued twice.
        self.accepting.clear();
        self.round.append(&mut self.again);
        self.told = false;
        self.budget = MAX_COMPLETIONS;
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        let result = self.poller.wait(timeout, &mut events);
        for event in &events {
            self.note(*event);
        }
        self.events = events;
        result
    }

    fn is_ready(&self) -> bool {
        !self.done.is_empty() || !self.round.is_empty() || !self.accepting.is_empty() || self.foreign.is_ready()
    }

    fn next(&mut self) -> Option<Completion> {
        debug_assert!(!self.lent, "a chunk was not recycled");
        if self.budget > 0 {
            let completion = self.next_inner();
            if completion.is_some() {
                self.budget -= 1;
                return completion;
            }
        }
        if self.polled && !self.told && (self.is_ready() || !self.again.is_empty()) {
            self.told = true;
            self.waker.ring();
        }
        None
    }

    fn bytes(&self, chunk: &Chunk) -> &[u8] {
        &self.scratch[..chunk.len as usize]
    }

    fn recycle(&mut self, chunk: Chunk) {
        debug_assert!(self.lent, "a chunk was recycled twice");
        let Chunk { .. } = chunk;
        self.lent = false;
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn poll_fd(&mut self) -> io::Result<RawFd> {
        self.polled = true;
        Ok(self.poller.fd())
    }

    fn open_connections(&self) -> usize {
        self.conns.len()
    }

    fn shutdown(&mut self) {
        // Descriptors only: closing them is also right in a child, whose copies they are. The waker's goes with its
        // last handle.
        self.poller.close();
        self.conns.clear();
        self.listeners.clear();
        self.foreign.clear();
        self.done.clear();
        self.round.clear();
        self.again.clear();
        self.accepting.clear();
    }
}
