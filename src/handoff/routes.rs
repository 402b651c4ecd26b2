//! Where what the engine says leaves it: to the handler threads beside the loop, or to the host at the other end of the link.
//!
//! The engine names a mount with each request; what follows for an exchange goes where its request went (R2). Both links
//! use this, so a job takes the same way whoever runs the loop. Jobs for the host are kept here once those behind them may
//! be for a thread: a host that takes none holds no thread up. They are counted as waiting, so they have the bound of the
//! engine's own (R7).

use std::collections::VecDeque;

use super::crew::CrewLoop;
use super::message::Job;
use crate::engine::Engine;

/// The crew of handler threads, if there is one, and what goes to it.
#[derive(Default)]
pub struct Routes {
    crew: Option<CrewLoop>,
    /// By the number of the mount: whether its requests are the crew's.
    to_crew: Vec<bool>,
    /// Jobs for the host at the other end, where there is a crew.
    kept: VecDeque<Job>,
}

impl Routes {
    /// Routes to a crew. `to_crew` says by the number of a mount whether it serves it.
    #[must_use]
    pub fn new(crew: CrewLoop, to_crew: Vec<bool>) -> Routes {
        Routes {
            crew: Some(crew),
            to_crew,
            kept: VecDeque::new(),
        }
    }

    /// The next job for the host at the other end, after the crew has got all that is its own.
    pub fn next_job(&mut self, engine: &mut Engine) -> Option<Job> {
        if self.crew.is_none() {
            return engine.pop_job();
        }
        self.sort(engine);
        let job = self.kept.pop_front();
        self.note_waiting(engine);
        job
    }

    /// Hands the crew what is its own.
    fn sort(&mut self, engine: &mut Engine) {
        let Some(crew) = &mut self.crew else { return };
        while let Some(job) = engine.pop_job() {
            let for_crew = match &job {
                Job::Request(request) => self.to_crew[usize::from(request.mount)],
                job => job.exchange().is_some_and(|id| crew.has(id)),
            };
            if for_crew {
                crew.give(job);
            } else {
                self.kept.push_back(job);
            }
        }
    }

    /// Puts back a job that had no room, to be the next again.
    pub fn put_back(&mut self, engine: &mut Engine, job: Job) {
        if self.crew.is_none() {
            return engine.unpop_job(job);
        }
        self.kept.push_front(job);
        self.note_waiting(engine);
    }

    /// Whether there is a job for the host at the other end, after the crew has got all that is its own.
    pub fn has_jobs(&mut self, engine: &mut Engine) -> bool {
        if self.crew.is_some() && engine.jobs() > 0 {
            self.sort(engine);
            self.note_waiting(engine);
        }
        engine.jobs() > 0 || !self.kept.is_empty()
    }

    /// Applies what the crew's threads have said. Bounded by their rings.
    pub fn take_frames(&mut self, engine: &mut Engine) {
        let Some(crew) = &mut self.crew else { return };
        crew.take_frames(engine);
        self.note_waiting(engine);
    }

    /// Requests that wait for a thread, and jobs for the host, count as the engine's own jobs do (R7).
    fn note_waiting(&self, engine: &mut Engine) {
        if let Some(crew) = &self.crew {
            engine.note_waiting(crew.waiting() + self.kept.len());
        }
    }

    /// Whether a thread of the crew has said something.
    pub fn has_frames(&mut self) -> bool {
        self.crew.as_mut().is_some_and(CrewLoop::has_frames)
    }

    /// Looks for a stalled lane. Returns whether to look again within [`super::lane::STALL`].
    pub fn look_for_stall(&mut self) -> bool {
        self.crew.as_mut().is_some_and(CrewLoop::look_for_stall)
    }

    /// The crew.
    pub fn crew(&mut self) -> Option<&mut CrewLoop> {
        self.crew.as_mut()
    }
}
