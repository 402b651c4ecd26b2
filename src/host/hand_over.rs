//! Giving the GIL up in earnest: a thread that releases it and takes it back wins against whoever it woke by that.
//!
//! See `docs/notes/giving-up-the-gil.md`.

use std::time::Duration;

use m0_platform::{Clock, Instant};
use pyo3::prelude::*;

/// While other threads are at work, they get the GIL this often.
const EVERY: Duration = Duration::from_micros(500);
/// How long it is left to them: a thread on another CPU needs about as long to wake up and take it.
const TIME: Duration = Duration::from_micros(50);

/// When one thread last gave the GIL up.
pub struct HandOver {
    clock: Clock,
    last: Instant,
    every: Duration,
    /// More than one CPU is usable.
    several_cpus: bool,
}

impl HandOver {
    /// Of a thread that has just had its chance.
    #[must_use]
    pub fn new(clock: Clock, several_cpus: bool) -> HandOver {
        HandOver {
            last: clock.now(),
            clock,
            every: EVERY,
            several_cpus,
        }
    }

    /// With one CPU it is always time: for a thread that waits after a few things that it does.
    #[must_use]
    pub fn always_on_one_cpu(mut self) -> HandOver {
        if !self.several_cpus {
            self.every = Duration::ZERO;
        }
        self
    }

    /// Whether it is time again.
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        now.since(self.last) >= self.every
    }

    /// It was time, and nobody wanted it.
    pub fn pass(&mut self, now: Instant) {
        self.last = now;
    }

    /// Leaves the GIL to others for a moment. With one CPU the thread that the release wakes is let in by one offer of the
    /// CPU, which comes back when that thread waits.
    pub fn offer(&mut self, py: Python<'_>) {
        let until = self
            .clock
            .now()
            .plus(if self.several_cpus { TIME } else { Duration::ZERO });
        py.detach(|| {
            loop {
                m0_platform::thread::yield_now();
                if self.clock.now() >= until {
                    return;
                }
            }
        });
        self.last = self.clock.now();
    }
}
