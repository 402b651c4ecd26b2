//! Whether another thread of this process computes or waits, which decides who else may have the interpreter.

use std::time::Duration;

/// A thread, as another one may look at it.
#[derive(Debug)]
pub struct Activity {
    /// None without a `/proc`.
    #[cfg(target_os = "linux")]
    stat: Option<std::fs::File>,
    #[cfg(target_os = "linux")]
    clock: libc::clockid_t,
}

#[cfg(target_os = "linux")]
impl Activity {
    /// Of the calling thread; none where the system says nothing of it (not Linux), nor in a model, whose threads are not
    /// the system's.
    #[must_use]
    pub fn current() -> Option<Activity> {
        if cfg!(feature = "modelled") {
            return None;
        }
        let mut clock = 0;
        // SAFETY: `pthread_self` is a live thread, and `clock` is valid for the call to fill.
        if unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) } != 0 {
            return None;
        }
        let stat = std::fs::File::open("/proc/thread-self/stat").ok();
        Some(Activity { stat, clock })
    }

    /// Whether it runs or wants to, also while others have its CPU (state R, `proc_pid_stat(5)`). A thread that waits,
    /// for a lock too, does not. A system call of some microseconds.
    #[must_use]
    pub fn is_running(&self) -> bool {
        use std::os::unix::fs::FileExt;
        // `NUMBER (NAME) STATE`: ten digits, sixteen bytes of name at most.
        let mut text = [0; 64];
        let Some(Ok(len)) = self.stat.as_ref().map(|stat| stat.read_at(&mut text, 0)) else {
            return false; // it has ended
        };
        let text = &text[..len];
        let after_name = text.iter().rposition(|byte| *byte == b')');
        after_name.and_then(|at| text.get(at + 2)) == Some(&b'R')
    }

    /// How long it has run so far. It stands still while the thread waits, for a CPU too. A system call of a tenth of a
    /// microsecond.
    #[must_use]
    pub fn cpu_time(&self) -> Option<Duration> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is valid for the call to fill; the clock of a thread that has ended gives EINVAL
        // (clock_gettime(2)), and names no other one before its number is used again, which only makes a figure wrong.
        if unsafe { libc::clock_gettime(self.clock, &raw mut time) } != 0 {
            return None;
        }
        Some(Duration::new(
            u64::try_from(time.tv_sec).ok()?,
            u32::try_from(time.tv_nsec).ok()?,
        ))
    }
}

#[cfg(not(target_os = "linux"))]
impl Activity {
    /// As above.
    #[must_use]
    pub fn current() -> Option<Activity> {
        None
    }

    /// As above.
    #[must_use]
    pub fn is_running(&self) -> bool {
        false
    }

    /// As above.
    #[must_use]
    pub fn cpu_time(&self) -> Option<Duration> {
        None
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use super::Activity;
    use crate::Sleeper;

    #[test]
    fn a_thread_that_computes_is_told_from_one_that_waits() {
        let computing = Arc::new(AtomicBool::new(true));
        let (sender, receiver) = mpsc::channel();
        let goes_on = computing.clone();
        let thread = std::thread::spawn(move || {
            sender.send((Activity::current().unwrap(), Sleeper::current())).unwrap();
            while goes_on.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            Sleeper::sleep();
        });
        let (activity, sleeper) = receiver.recv().unwrap();
        assert!((0..100).all(|_| activity.is_running()));
        let before = activity.cpu_time().unwrap();
        while activity.cpu_time().unwrap() < before + Duration::from_millis(1) {
            std::thread::yield_now();
        }
        computing.store(false, Ordering::Relaxed);
        while activity.is_running() {
            std::thread::yield_now();
        }
        let stands_still = || {
            let before = activity.cpu_time();
            std::thread::sleep(Duration::from_millis(2));
            activity.cpu_time() == before
        };
        while !stands_still() {}
        sleeper.wake();
        thread.join().unwrap();
        // Whoever joins a thread is woken before the kernel is done with it (CLONE_CHILD_CLEARTID, clone(2)).
        while activity.is_running() {
            std::thread::yield_now();
        }
    }
}
