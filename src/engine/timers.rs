//! One coarse timing wheel for all connections of an engine.
//!
//! A connection stores its deadline; the wheel only remembers when to look at it again. Moving a deadline further away
//! (what every request does) costs nothing: when the old entry comes up the connection is filed anew. An idle server
//! wakes at most once a tick, that is four times a second.

use std::time::Duration;

use m0_platform::{Instant, Token};

/// Length of a tick, in nanoseconds.
const TICK_NANOS: u64 = 250_000_000;
/// Ticks until the wheel comes round: what is due later is filed at the far end and looked at again then.
const SLOTS: usize = 256;

/// No deadline.
pub const NEVER: u64 = u64::MAX;

/// The wheel. Ticks count from the engine's start.
#[derive(Debug)]
pub struct Wheel {
    start: Instant,
    /// The tick that was run last.
    current: u64,
    slots: Vec<Vec<(Token, u64)>>,
    filed: usize,
}

impl Wheel {
    /// A wheel that starts now.
    pub fn new(now: Instant) -> Self {
        Wheel {
            start: now,
            current: 0,
            slots: (0..SLOTS).map(|_| Vec::new()).collect(),
            filed: 0,
        }
    }

    /// The tick at or after `after` from `now`.
    pub fn tick_after(&self, now: Instant, after: Duration) -> u64 {
        let due = now.plus(after);
        (due.nanos() - self.start.nanos()).div_ceil(TICK_NANOS)
    }

    /// The tick at one of so many equal parts of the way from now to `due`, at least a tick from now.
    pub fn part_of_the_way(&self, due: u64, parts: u64) -> u64 {
        self.current + due.saturating_sub(self.current).div_ceil(parts)
    }

    /// Files a token to be looked at in (or, beyond the horizon, before) tick `due`; returns the tick it is filed in.
    pub fn file(&mut self, token: Token, due: u64) -> u64 {
        let farthest = self.current + SLOTS as u64 - 1;
        let at = due.clamp(self.current + 1, farthest);
        self.slots[slot(at)].push((token, at));
        self.filed += 1;
        at
    }

    /// Takes out what has come up by `now` into `due`, with the tick that it was filed in.
    pub fn expire(&mut self, now: Instant, due: &mut Vec<(Token, u64)>) {
        let target = now.nanos().saturating_sub(self.start.nanos()) / TICK_NANOS;
        if self.filed == 0 {
            self.current = self.current.max(target);
            return;
        }
        while self.current < target && self.filed > 0 {
            self.current += 1;
            let entries = &mut self.slots[slot(self.current)];
            self.filed -= entries.len();
            due.append(entries);
        }
        self.current = self.current.max(target);
    }

    /// How long until something comes up; `None` when nothing is filed.
    pub fn next(&self, now: Instant) -> Option<Duration> {
        if self.filed == 0 {
            return None;
        }
        let tick = (1..SLOTS as u64)
            .map(|ahead| self.current + ahead)
            .find(|tick| !self.slots[slot(*tick)].is_empty())
            .unwrap_or(self.current + 1);
        let at = self.start.plus(Duration::from_nanos(tick.saturating_mul(TICK_NANOS)));
        Some(at.since(now))
    }
}

fn slot(tick: u64) -> usize {
    (tick % SLOTS as u64) as usize
}

#[cfg(all(test, not(feature = "modelled")))]
mod tests {
    use super::*;

    const TOKEN: Token = Token {
        index: 7,
        generation: 1,
    };

    fn expired(wheel: &mut Wheel, now: Instant) -> Vec<(Token, u64)> {
        let mut due = Vec::new();
        wheel.expire(now, &mut due);
        due
    }

    #[test]
    fn an_entry_comes_up_at_its_tick_and_not_before() {
        let start = m0_platform::Clock::default().now();
        let mut wheel = Wheel::new(start);
        let due = wheel.tick_after(start, Duration::from_millis(900));
        assert_eq!(due, 4);
        assert_eq!(wheel.file(TOKEN, due), 4);
        assert_eq!(wheel.next(start), Some(Duration::from_secs(1)));
        assert!(expired(&mut wheel, start.plus(Duration::from_millis(999))).is_empty());
        assert_eq!(expired(&mut wheel, start.plus(Duration::from_secs(1))), [(TOKEN, 4)]);
        assert_eq!(wheel.next(start), None);
    }

    #[test]
    fn what_is_due_beyond_the_horizon_is_looked_at_earlier() {
        let start = m0_platform::Clock::default().now();
        let mut wheel = Wheel::new(start);
        let at = wheel.file(TOKEN, 10_000);
        assert_eq!(at, SLOTS as u64 - 1);
        assert_eq!(
            expired(&mut wheel, start.plus(Duration::from_secs(10_000))),
            [(TOKEN, at)]
        );
    }

    #[test]
    fn an_empty_wheel_skips_ahead() {
        let start = m0_platform::Clock::default().now();
        let mut wheel = Wheel::new(start);
        let later = start.plus(Duration::from_secs(86_400));
        assert!(expired(&mut wheel, later).is_empty());
        let due = wheel.tick_after(later, Duration::from_millis(250));
        wheel.file(TOKEN, due);
        assert_eq!(wheel.next(later), Some(Duration::from_millis(250)));
    }
}
