//! The pump's loop thread: the engine on a thread of its own that never attaches to the interpreter (R6).
//!
//! It parks as in R5: announces, looks at the frames once more, and blocks in the backend's wait. Where more than one
//! CPU is usable it spins for [`SPIN`] first, since the host's answer to a small request comes within that time.

use std::time::Duration;

use m0_platform::sync::Arc;
use m0_platform::{Clock, Waker, canary};

use super::baton::{Baton, Loop};
use crate::engine::{Engine, Stats};
use crate::handoff::crew::Lender;
use crate::handoff::lane::STALL;
use crate::handoff::{Frame, RingLoop, Routes, Stop};

/// Spinning longer gained nothing in the original and cost a tenth of a core.
pub const SPIN: Duration = Duration::from_micros(10);

/// The loop thread's state.
pub struct LoopThread {
    engine: Engine,
    link: RingLoop,
    /// Handler threads, for WSGI applications.
    routes: Routes,
    waker: Waker,
    clock: Clock,
    spin: bool,
    /// The host has said that everything is to be closed.
    stopping: bool,
}

impl LoopThread {
    /// A loop over an engine whose backend's waker is `waker`.
    #[must_use]
    pub fn new(mut engine: Engine, link: RingLoop, routes: Routes, spin: bool) -> Self {
        let (waker, clock) = (engine.backend().waker(), engine.clock());
        LoopThread {
            engine,
            link,
            routes,
            waker,
            clock,
            spin,
            stopping: false,
        }
    }

    /// Runs until the host says [`Stop::Now`] and everything is closed.
    ///
    /// # Errors
    /// What the backend cannot go on from; the host is woken to find out.
    pub fn run(mut self) -> std::io::Result<()> {
        let result = loop {
            match self.turn(None, &|| false) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.end();
        result
    }

    /// Closes what is left, and tells the host.
    pub fn end(&mut self) {
        self.engine.shutdown();
        if let Some(crew) = self.routes.crew() {
            crew.end();
        }
        self.link.host.wake();
    }

    /// The engine's counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// The loop's waker: ends a wait of whoever runs the turns.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Applies what the hosts have said, and hands it to the backend.
    pub fn let_out(&mut self) {
        self.take_frames();
        self.engine.flush();
    }

    /// One turn, which waits at most `limit` (`None`: without limit), and not at all when `stay` says so after the wait has
    /// been announced (R5). Returns false once the host has said [`Stop::Now`] and everything is closed.
    ///
    /// # Errors
    /// What the backend cannot go on from.
    pub fn turn(&mut self, limit: Option<Duration>, stay: &dyn Fn() -> bool) -> std::io::Result<bool> {
        self.let_out();
        // What this made the engine say finds the ring full here, if it does, and not only in the look before the park:
        // a push marks that room is wanted, so that the host which makes it wakes us (R5).
        if !canary!("r5-unmarked") {
            self.give_jobs();
        }
        if self.stopping && self.engine.stats().connections == 0 {
            self.give_jobs();
            return Ok(false);
        }
        let parked = limit != Some(Duration::ZERO) && self.may_park(stay);
        let stalls = self.routes.look_for_stall(); // after that has looked for jobs, which are the lane's then
        let timeout = match (parked, stalls) {
            (false, _) => Some(Duration::ZERO),
            (true, true) => Some(limit.map_or(STALL, |limit| limit.min(STALL))),
            (true, false) => limit,
        };
        let waited = self.engine.wait(timeout);
        if parked {
            self.waker.retract();
        }
        waited?;
        self.engine.pass(|_, _| {});
        self.give_jobs();
        Ok(true)
    }

    /// Applies what the host said. Bounded by the ring: what is pushed meanwhile waits for the next turn.
    fn take_frames(&mut self) {
        if !self.link.frames.is_empty() {
            self.engine.look_at_clock();
            for _ in 0..4096 {
                let Some(frame) = self.link.frames.pop() else { break };
                self.stopping |= matches!(frame, Frame::Stop(Stop::Now));
                self.engine.apply(frame);
            }
            if self.link.frames.producer_starved() {
                self.link.host.wake();
            }
        }
        self.routes.take_frames(&mut self.engine);
    }

    /// Hands out the engine's jobs; what finds the ring full stays here.
    fn give_jobs(&mut self) {
        let mut pushed = false;
        while let Some(job) = self.routes.next_job(&mut self.engine) {
            if let Err(job) = self.link.jobs.push(job) {
                self.routes.put_back(&mut self.engine, job);
                break;
            }
            pushed = true;
        }
        if pushed {
            self.link.host.wake();
        }
    }

    /// Whether to block: announced, and still nothing to do. The caller retracts.
    fn may_park(&mut self, stay: &dyn Fn() -> bool) -> bool {
        if self.spin && !self.is_busy() {
            let until = self.clock.now().plus(SPIN);
            while self.clock.now() < until {
                if self.is_busy() {
                    return false;
                }
                m0_platform::sync::hint::spin_loop();
            }
        }
        if self.is_busy() {
            return false;
        }
        self.waker.announce();
        if self.is_busy() && !canary!("r5-no-second-look") || stay() {
            self.waker.retract();
            return false;
        }
        true
    }

    /// Whether another turn would do something without a wait.
    fn is_busy(&mut self) -> bool {
        self.routes.has_frames()
            || !self.link.frames.is_empty()
            || self.engine.is_ready()
            || (self.routes.has_jobs(&mut self.engine) && self.link.jobs.has_room())
    }
}

impl Loop for LoopThread {
    fn turn(&mut self, limit: Option<Duration>, stay: &dyn Fn() -> bool) -> std::io::Result<bool> {
        LoopThread::turn(self, limit, stay)
    }

    fn computes(&mut self, thread: u8, n: u64) -> bool {
        let now = self.clock.now();
        self.routes.crew().is_some_and(|crew| crew.keeps_right(thread, n, now))
    }

    fn end(&mut self) {
        LoopThread::end(self);
    }
}

impl Lender for Arc<Baton<LoopThread>> {
    fn let_out(&self, thread: usize, n: u64) -> bool {
        let thread = u8::try_from(thread).expect("fewer threads than that");
        if !self.borrow(thread, n) {
            return false;
        }
        self.with(thread, LoopThread::let_out);
        self.lend(thread, n);
        true
    }

    fn give_up(&self, thread: usize, n: u64) -> bool {
        Baton::give_up(self, u8::try_from(thread).expect("fewer threads than that"), n)
    }
}
