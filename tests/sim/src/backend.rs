//! The simulated backend: what the engine holds of a world.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use m0_platform::{Backend, Chunk, Completion, Kind, ListenerId, SendBuf, Token, Waker};

use crate::world::World;

/// A world that both the backend and the driver hold; one thread runs all of it, so nobody ever waits for the lock.
#[derive(Clone)]
pub struct Shared(Arc<Mutex<World>>);

impl Shared {
    /// Shares a world.
    #[must_use]
    pub fn new(world: World) -> Shared {
        Shared(Arc::new(Mutex::new(world)))
    }

    /// The world.
    pub fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The backend.
pub struct Simulated {
    world: Shared,
    waker: Waker,
    /// What was received last, which the engine reads in place.
    chunk: Vec<u8>,
}

impl Simulated {
    /// A backend over a world, which the engine's owner parks by `waker`.
    #[must_use]
    pub fn new(world: Shared, waker: Waker) -> Simulated {
        Simulated {
            world,
            waker,
            chunk: Vec::new(),
        }
    }
}

impl Backend for Simulated {
    /// Nothing in the engine asks; completions come as io_uring's do.
    fn kind(&self) -> Kind {
        Kind::IoUring
    }
    fn listen(&mut self, socket: OwnedFd) -> io::Result<ListenerId> {
        Ok(self.world.lock().listen(socket))
    }
    fn pause_accept(&mut self, listener: ListenerId) {
        self.world.lock().pause_accept(listener, true);
    }
    fn resume_accept(&mut self, listener: ListenerId) {
        self.world.lock().pause_accept(listener, false);
    }
    fn unlisten(&mut self, listener: ListenerId) {
        self.world.lock().unlisten(listener);
    }
    fn receive(&mut self, token: Token) {
        self.world.lock().receive(token);
    }
    fn pause_receive(&mut self, token: Token) {
        self.world.lock().pause_receive(token);
    }
    fn send(&mut self, token: Token, buf: SendBuf) {
        let left = [&buf.bytes[..], &buf.body[..]].concat();
        let asked = left.len() as u64;
        self.world.lock().start_send(token, Some(buf), Ok(left), asked);
    }
    fn send_file(&mut self, token: Token, file: OwnedFd, offset: u64, len: u64) {
        let mut left = vec![0; usize::try_from(len).expect("a small file")];
        let found = std::fs::File::from(file).read_at(&mut left, offset);
        let left = found.map(|found| {
            left.truncate(found);
            left
        });
        self.world.lock().start_send(token, None, left, len);
    }
    fn send_progress(&self, token: Token) -> u64 {
        self.world.lock().send_progress(token)
    }
    fn shutdown_write(&mut self, token: Token) {
        self.world.lock().shutdown_write(token);
    }
    fn close(&mut self, token: Token) {
        self.world.lock().close(token, false);
    }
    fn reset(&mut self, token: Token) {
        self.world.lock().close(token, true);
    }
    fn submit(&mut self) -> io::Result<()> {
        Ok(())
    }
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        // Others step by themselves where a world stands still and may.
        while !self.world.lock().wait(timeout)? {
            std::thread::yield_now();
        }
        Ok(())
    }
    fn is_ready(&self) -> bool {
        let mut world = self.world.lock();
        world.interleave();
        world.kernel.has_batch()
    }
    fn next(&mut self) -> Option<Completion> {
        let mut world = self.world.lock();
        let completion = world.next_completion();
        if matches!(completion, Some(Completion::Received { .. })) {
            self.chunk = world.take_chunk();
        }
        completion
    }
    fn bytes(&self, chunk: &Chunk) -> &[u8] {
        &self.chunk[..chunk.len()]
    }
    fn recycle(&mut self, _chunk: Chunk) {
        self.world.lock().recycle();
    }
    fn waker(&self) -> Waker {
        self.waker.clone()
    }
    fn open_connections(&self) -> usize {
        self.world.lock().kernel.open
    }
    fn shutdown(&mut self) {
        self.world.lock().shut_down();
    }
}
