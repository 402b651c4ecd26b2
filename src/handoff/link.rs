//! The host's end of a link: jobs come out, frames go in.
//!
//! Two links carry the same two enums. [`Link::Direct`] holds the engine itself: queues on one thread, nothing to
//! wake. [`Link::Ring`] holds one end of two rings; the other end is the loop thread's ([`RingLoop`]), and a wake goes
//! only to a side that has announced that it parks (R5). A push that finds its ring full keeps the item (in order, R2)
//! and its side goes on draining the other ring, so two full rings cannot deadlock.

use std::collections::VecDeque;

use m0_platform::{Waker, canary};

use super::message::{Frame, Job};
use super::ring::{Consumer, Producer, ring};
use super::routes::Routes;
use crate::engine::Engine;

/// Jobs that fit a ring; what does not waits in the engine, bounded by the windows of its exchanges.
const JOBS: usize = 1024;
/// Frames that fit a ring.
const FRAMES: usize = 4096;

/// Where a host says something to the engine.
pub trait Outlet {
    /// Says it. The engine hears it at the next flush at the latest.
    fn push(&mut self, frame: Frame);
}

/// The host's end.
pub enum Link {
    /// The engine runs on this thread (inverted).
    Direct(Box<Direct>),
    /// The engine runs on a thread of its own (pump).
    Ring(RingHost),
}

/// Both ends of a link on one thread.
pub struct Direct {
    /// The engine. Not borrowed while application code runs.
    pub engine: Engine,
    frames: VecDeque<Frame>,
    /// Handler threads beside this one.
    pub routes: Routes,
}

impl Direct {
    /// A link to an engine on this thread.
    #[must_use]
    pub fn new(engine: Engine) -> Self {
        Direct {
            engine,
            frames: VecDeque::new(),
            routes: Routes::default(),
        }
    }

    /// Applies what the host and the threads beside it have said; sends are handed to the backend.
    pub fn apply(&mut self) {
        if !self.frames.is_empty() {
            self.engine.look_at_clock();
        }
        for frame in self.frames.drain(..) {
            self.engine.apply(frame);
        }
        self.routes.take_frames(&mut self.engine);
        if self.engine.needs_flush() {
            self.engine.flush();
        }
    }

    /// Whether the host has something to do.
    pub fn has_jobs(&mut self) -> bool {
        self.routes.has_jobs(&mut self.engine)
    }
}

/// The host's end of two rings.
pub struct RingHost {
    jobs: Consumer<Job>,
    frames: Producer<Frame>,
    /// Frames that found the ring full.
    kept: VecDeque<Frame>,
    /// Something was pushed or popped that the loop has not been told of.
    owed: bool,
    waker: Waker,
}

/// The loop's end of two rings.
pub struct RingLoop {
    /// Jobs to the host.
    pub jobs: Producer<Job>,
    /// Frames from it.
    pub frames: Consumer<Frame>,
    /// Wakes the host.
    pub host: Waker,
}

/// Two rings: the host's end, which wakes the loop by `to_loop`, and the loop's, which wakes the host by `to_host`.
#[must_use]
pub fn rings(to_loop: Waker, to_host: Waker) -> (RingHost, RingLoop) {
    rings_for(JOBS, FRAMES, to_loop, to_host)
}

/// As [`rings`], for so many jobs and frames, powers of two: full rings are rare in life and must not be in tests.
#[must_use]
pub fn rings_for(jobs: usize, frames: usize, to_loop: Waker, to_host: Waker) -> (RingHost, RingLoop) {
    let (job_in, job_out) = ring(jobs);
    let (frame_in, frame_out) = ring(frames);
    let host = RingHost {
        jobs: job_out,
        frames: frame_in,
        kept: VecDeque::new(),
        owed: false,
        waker: to_loop,
    };
    (
        host,
        RingLoop {
            jobs: job_in,
            frames: frame_out,
            host: to_host,
        },
    )
}

impl RingHost {
    fn push(&mut self, frame: Frame) {
        self.owed = true;
        if self.kept.is_empty() || canary!("r2-frames-overtake") {
            if let Err(frame) = self.frames.push(frame) {
                self.kept.push_back(frame);
            }
        } else {
            self.kept.push_back(frame);
        }
    }

    fn push_kept(&mut self) {
        while let Some(frame) = self.kept.pop_front() {
            self.owed = true;
            if let Err(frame) = self.frames.push(frame) {
                self.kept.push_front(frame);
                return;
            }
        }
    }

    fn pop(&mut self) -> Option<Job> {
        let job = self.jobs.pop()?;
        if self.jobs.producer_starved() {
            self.owed = true;
        }
        Some(job)
    }

    fn flush(&mut self) {
        if !self.kept.is_empty() {
            self.push_kept();
        }
        if std::mem::take(&mut self.owed) && !canary!("r5-no-wake") {
            self.waker.wake();
        }
    }
}

impl Link {
    /// The next thing that the engine says.
    pub fn next_job(&mut self) -> Option<Job> {
        match self {
            Link::Direct(direct) => direct.routes.next_job(&mut direct.engine),
            Link::Ring(ring) => ring.pop(),
        }
    }

    /// Whether there is something to do before parking (R5): the engine has more to say, or frames that had found no room
    /// would find it now. The wake that was owed for the room may have come before the host announced that it parks.
    pub fn has_jobs(&mut self) -> bool {
        match self {
            Link::Direct(direct) => direct.has_jobs(),
            Link::Ring(ring) => !ring.jobs.is_empty() || (!ring.kept.is_empty() && ring.frames.has_room()),
        }
    }

    /// What was said leaves now: it is with the kernel, or the loop is awake to hand it over.
    ///
    /// # Errors
    /// The kernel refused to take what is queued; it stays queued.
    pub fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Link::Direct(direct) => {
                direct.apply();
                direct.engine.submit()
            }
            Link::Ring(ring) => {
                ring.flush();
                Ok(())
            }
        }
    }

    /// Whether something was said that has not left.
    #[must_use]
    pub fn needs_flush(&self) -> bool {
        match self {
            Link::Direct(direct) => !direct.frames.is_empty(),
            Link::Ring(ring) => ring.owed || !ring.kept.is_empty(),
        }
    }
}

impl Outlet for Link {
    fn push(&mut self, frame: Frame) {
        match self {
            Link::Direct(direct) => direct.frames.push_back(frame),
            Link::Ring(ring) => ring.push(frame),
        }
    }
}
