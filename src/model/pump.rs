//! The pump's loop thread: the engine on a thread of its own that never attaches to the interpreter (R6).
//!
//! It parks as in R5: announces, looks at the frames once more, and blocks in the backend's wait. Where more than one
//! CPU is usable it spins for [`SPIN`] first, since the host's answer to a small request comes within that time.

use std::time::Duration;

use m0_platform::{Clock, Waker};

use crate::engine::Engine;
use crate::handoff::{Frame, RingLoop, Stop};

/// Spinning longer gained nothing in the original and cost a tenth of a core.
pub const SPIN: Duration = Duration::from_micros(10);

/// The loop thread's state.
pub struct LoopThread {
    engine: Engine,
    link: RingLoop,
    waker: Waker,
    clock: Clock,
    spin: bool,
}

impl LoopThread {
    /// A loop over an engine whose backend's waker is `waker`.
    #[must_use]
    pub fn new(mut engine: Engine, link: RingLoop, spin: bool) -> Self {
        let waker = engine.backend().waker();
        LoopThread {
            engine,
            link,
            waker,
            clock: Clock::new(),
            spin,
        }
    }

    /// Runs until the host says [`Stop::Now`] and everything is closed.
    ///
    /// # Errors
    /// What the backend cannot go on from; the host is woken to find out.
    pub fn run(mut self) -> std::io::Result<()> {
        let result = self.turns();
        self.engine.shutdown();
        self.link.host.wake();
        result
    }

    fn turns(&mut self) -> std::io::Result<()> {
        let mut stopping = false;
        loop {
            stopping |= self.take_frames();
            self.engine.flush();
            if stopping && self.engine.stats().connections == 0 {
                self.give_jobs();
                return Ok(());
            }
            let parked = self.may_park();
            let waited = self.engine.wait(if parked { None } else { Some(Duration::ZERO) });
            if parked {
                self.waker.retract();
            }
            waited?;
            self.engine.pass(|_, _| {});
            self.give_jobs();
        }
    }

    /// Applies what the host said. Bounded by the ring: what is pushed meanwhile waits for the next turn.
    fn take_frames(&mut self) -> bool {
        let mut stopping = false;
        if !self.link.frames.is_empty() {
            self.engine.look_at_clock();
        }
        for _ in 0..4096 {
            let Some(frame) = self.link.frames.pop() else { break };
            stopping |= matches!(frame, Frame::Stop(Stop::Now));
            self.engine.apply(frame);
        }
        if self.link.frames.producer_starved() {
            self.link.host.wake();
        }
        stopping
    }

    /// Pushes the engine's jobs; what finds the ring full stays with the engine.
    fn give_jobs(&mut self) {
        let mut pushed = false;
        while let Some(job) = self.engine.pop_job() {
            if let Err(job) = self.link.jobs.push(job) {
                self.engine.unpop_job(job);
                break;
            }
            pushed = true;
        }
        if pushed {
            self.link.host.wake();
        }
    }

    /// Whether to block: announced, and still nothing to do. The caller retracts.
    fn may_park(&mut self) -> bool {
        if self.spin && !self.is_busy() {
            let until = self.clock.now().plus(SPIN);
            while self.clock.now() < until {
                if self.is_busy() {
                    return false;
                }
                std::hint::spin_loop();
            }
        }
        if self.is_busy() {
            return false;
        }
        self.waker.announce();
        if self.is_busy() {
            self.waker.retract();
            return false;
        }
        true
    }

    /// Whether another turn would do something without a wait.
    fn is_busy(&mut self) -> bool {
        !self.link.frames.is_empty() || self.engine.is_ready() || (self.engine.jobs() > 0 && self.link.jobs.has_room())
    }
}
