//! What others may see of the threads of a crew: the views that they are in, and whether those compute or wait.
//!
//! A thread that is within a view and does not run may wait for something or for the GIL, and the system does not say for
//! which. Two things can be told: a thread that runs, or wants to, computes; and one whose CPU clock has moved a little
//! since it was last looked at has come back from a wait.

use std::sync::OnceLock;
use std::time::Duration;

use m0_platform::sync::Mutex;
use m0_platform::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use m0_platform::{Activity, Instant};

use super::lane::LONG;

/// A thread that runs longer between two looks computes, and gets the GIL by the interpreter's switch interval.
const LITTLE: Duration = Duration::from_micros(500);

/// Set in [`Post::view`] while the thread is within a view.
const BUSY: u32 = 1;
/// Set as well when the view was found to wait, or to compute for long: the thread does not count as awake then.
const SLOW: u32 = 2;
/// Set as well when the view was found to compute beside others, or for long.
const COMPUTES: u32 = 4;
const FLAGS: u32 = BUSY | SLOW | COMPUTES;

/// What others may see of one thread.
#[derive(Default)]
pub(super) struct Post {
    /// Method and path of what it is at, or was last, for the log of a drain.
    at: Mutex<Vec<u8>>,
    /// Counts views in steps of eight, so that one can be told from the next, with the flags.
    view: AtomicU32,
    /// The view in which it was last looked at for a return, and how long it had run then, in nanoseconds.
    looked: AtomicU32,
    had_run: AtomicU64,
    /// Whether it computes or waits, where the system says that.
    activity: OnceLock<Activity>,
}

impl Post {
    /// The calling thread's.
    pub fn take(&self) {
        if let Some(activity) = Activity::current() {
            let _ = self.activity.set(activity); // the first, and the only one of this seat
        }
    }

    /// The thread goes into its next view: the given parts, one after another, name it.
    pub fn begin(&self, parts: [&[u8]; 3]) {
        {
            let mut at = self.at.lock().expect("nothing panics while it notes");
            at.clear();
            for part in parts {
                at.extend_from_slice(part);
            }
        }
        let before = self.view.load(Ordering::Relaxed);
        self.view
            .store((before | FLAGS).wrapping_add(1) | BUSY, Ordering::Relaxed);
    }

    /// It comes back. Whether it had been found slow.
    pub fn end(&self) -> bool {
        self.view.fetch_and(!FLAGS, Ordering::Relaxed) & SLOW != 0
    }

    /// What it is at.
    pub fn at(&self) -> Option<String> {
        let at = self.at.lock().expect("nothing panics while it notes");
        let is_busy = self.view.load(Ordering::Relaxed) & BUSY != 0;
        is_busy.then(|| String::from_utf8_lossy(&at).into_owned())
    }

    /// Whether it seems to have come back from a wait within its view since this was last asked. A view that is new to the
    /// question may have; one that computes has not.
    pub fn has_returned(&self) -> bool {
        let view = self.view.load(Ordering::Relaxed);
        if view & BUSY == 0 || view & COMPUTES != 0 {
            return false;
        }
        let Some(ran) = self.activity.get().and_then(Activity::cpu_time) else {
            return true; // it may have
        };
        let ran = u64::try_from(ran.as_nanos()).unwrap_or(u64::MAX);
        let before = self.had_run.swap(ran, Ordering::Relaxed);
        let is_new = self.looked.swap(view & !FLAGS, Ordering::Relaxed) != view & !FLAGS;
        is_new || (ran != before && Duration::from_nanos(ran.saturating_sub(before)) < LITTLE)
    }

    /// Whether it is within a view that has not been found slow.
    pub fn counts_as_awake(&self) -> bool {
        self.view.load(Ordering::Relaxed) & (BUSY | SLOW) == BUSY
    }

    /// Whether its view has been found to compute beside others, or for long.
    pub fn computes(&self) -> bool {
        self.view.load(Ordering::Relaxed) & COMPUTES != 0
    }

    /// Sets flags in the view in which the thread was seen, unless that is over. Whether it did.
    fn mark(&self, seen: Seen, flags: u32) -> bool {
        let (before, after) = (seen.word, seen.word | flags);
        before & BUSY != 0
            && self
                .view
                .compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// The thread does not count as awake until it is back. Whether the view goes on.
    pub fn mark_slow(&self, seen: Seen) -> bool {
        self.mark(seen, SLOW | if seen.computes { COMPUTES } else { 0 })
    }

    /// The thread computes beside others, or for long.
    pub fn mark_computing(&self, seen: Seen) {
        self.mark(seen, COMPUTES);
    }
}

/// What has been seen of one thread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// Its view, with the flags.
    word: u32,
    /// When it was first found in it, by the thread's CPU clock: one that others keep from its CPU has not computed for
    /// long, and one more on that CPU would not help. By the time where there is no such clock.
    since: Duration,
    /// By the same clock when it was last found in it.
    now: Duration,
    /// It computes now.
    pub computes: bool,
}

impl Seen {
    /// Looks at the thread if it is within a view: a system call, made where something does not move.
    pub fn look(&mut self, post: &Post, now: Instant) {
        let word = post.view.load(Ordering::Relaxed);
        let activity = post.activity.get();
        self.now = activity
            .and_then(Activity::cpu_time)
            .unwrap_or(Duration::from_nanos(now.nanos()));
        if self.word & !FLAGS != word & !FLAGS {
            self.since = self.now;
        }
        self.word = word;
        self.computes = word & BUSY != 0 && activity.is_some_and(Activity::is_running);
    }

    /// Whether it has computed for long in the view in which it was found.
    pub fn is_long(self) -> bool {
        self.now.saturating_sub(self.since) >= LONG
    }
}
