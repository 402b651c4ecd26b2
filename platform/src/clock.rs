//! The clock: the only place where time is read (R10), so that a simulator can own it.

// The standard library's on purpose, not `crate::sync`: this is no protocol for loom to check.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A point on the monotonic clock, in nanoseconds since an arbitrary origin of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The instant this many nanoseconds after the clock's origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Instant {
        Instant(nanos)
    }

    /// Nanoseconds since the clock's origin.
    #[must_use]
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Time passed since `earlier`; zero when that is later.
    #[must_use]
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This instant plus a time; stays at the end of time when that is beyond it.
    #[must_use]
    pub fn plus(self, time: Duration) -> Instant {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Instant(self.0.saturating_add(nanos))
    }
}

/// Reads time. Whoever needs time is given one of these and clones it.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// Where time is when it is moved by hand; none is the machine's own time.
    manual: Option<Arc<AtomicU64>>,
}

/// Moves the time of the clocks that [`Clock::manual`] gave it with.
#[derive(Debug)]
pub struct Hand {
    nanos: Arc<AtomicU64>,
}

impl Hand {
    /// Time goes on by so much.
    ///
    /// # Panics
    /// At the end of time, 584 years after the clock's origin.
    pub fn advance(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).expect("less than 584 years");
        let before = self.nanos.fetch_add(nanos, Ordering::Relaxed);
        assert!(before.checked_add(nanos).is_some(), "the end of time");
    }
}

/// What a manual clock's origin is on the wall: 2000-01-01T00:00:00Z.
const MANUAL_ORIGIN: u64 = 946_684_800;

/// How far a manual clock goes on when it is looked at, in nanoseconds: nobody else moves it while a thread spins.
#[cfg(feature = "shuttle")]
const PER_LOOK: u64 = 1000;

impl Clock {
    /// The machine's own clock.
    #[must_use]
    pub fn new() -> Clock {
        Clock::default()
    }

    /// A clock that stands at its origin, on the wall 2000-01-01T00:00:00Z, until it is moved; its clones move with it.
    /// For tests and simulators.
    #[must_use]
    pub fn manual() -> (Clock, Hand) {
        let nanos = Arc::new(AtomicU64::new(0));
        let clock = Clock {
            manual: Some(Arc::clone(&nanos)),
        };
        (clock, Hand { nanos })
    }

    /// Now, on the monotonic clock (CLOCK_MONOTONIC, `clock_gettime(2)`; no system call where there is a vDSO).
    #[must_use]
    #[inline]
    pub fn now(&self) -> Instant {
        if let Some(nanos) = &self.manual {
            #[cfg(feature = "shuttle")]
            nanos.fetch_add(PER_LOOK, Ordering::Relaxed);
            return Instant(nanos.load(Ordering::Relaxed));
        }
        let (seconds, nanos) = read(libc::CLOCK_MONOTONIC);
        Instant(seconds * 1_000_000_000 + nanos)
    }

    /// Whole seconds since 1970-01-01T00:00:00Z (CLOCK_REALTIME).
    #[must_use]
    pub fn unix_seconds(&self) -> u64 {
        self.unix_nanos() / 1_000_000_000
    }

    /// Nanoseconds since 1970-01-01T00:00:00Z (CLOCK_REALTIME), for time stamps in logs.
    #[must_use]
    pub fn unix_nanos(&self) -> u64 {
        if let Some(nanos) = &self.manual {
            return nanos.load(Ordering::Relaxed) + MANUAL_ORIGIN * 1_000_000_000;
        }
        let (seconds, nanos) = read(libc::CLOCK_REALTIME);
        seconds * 1_000_000_000 + nanos
    }
}

/// Seconds and nanoseconds of a clock; a time before its origin reads as zero.
#[inline]
fn read(clock: libc::clockid_t) -> (u64, u64) {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec that the call fills and does not keep.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(
        result, 0,
        "clock_gettime cannot fail for a clock that every POSIX system has"
    );
    (
        u64::try_from(time.tv_sec).unwrap_or(0),
        u64::try_from(time.tv_nsec).unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_time_advances_and_arithmetic_saturates() {
        let clock = Clock::new();
        let first = clock.now();
        let mut second = clock.now();
        while second == first {
            second = clock.now();
        }
        assert!(second > first);
        assert_eq!(first.since(second), Duration::ZERO);
        assert_eq!(
            first.plus(Duration::from_micros(3)).since(first),
            Duration::from_nanos(3000)
        );
        assert_eq!(first.plus(Duration::MAX).nanos(), u64::MAX);
    }

    #[test]
    fn manual_time_stands_until_it_is_moved_and_moves_for_every_clone() {
        let (clock, hand) = Clock::manual();
        let clone = clock.clone();
        assert_eq!((clock.now().nanos(), clone.unix_seconds()), (0, MANUAL_ORIGIN));
        hand.advance(Duration::from_millis(1500));
        assert_eq!(
            (clone.now().nanos(), clone.unix_seconds()),
            (1_500_000_000, MANUAL_ORIGIN + 1)
        );
    }

    #[test]
    fn wall_clock_is_this_century() {
        let clock = Clock::new();
        assert!(clock.unix_seconds() > 1_600_000_000);
        assert!(clock.unix_nanos() / 1_000_000_000 >= clock.unix_seconds() - 1);
    }
}
