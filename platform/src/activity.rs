//! Whether another thread of this process computes or waits, which decides who else may have the interpreter.

/// A thread, as another one may look at it.
#[derive(Debug)]
pub struct Activity {
    #[cfg(target_os = "linux")]
    stat: std::fs::File,
}

impl Activity {
    /// Of the calling thread; none where the system does not say it (no `/proc`, or not Linux), nor in a model, whose
    /// threads are not the system's.
    #[must_use]
    pub fn current() -> Option<Activity> {
        #[cfg(any(loom, shuttle))]
        return None;
        #[cfg(all(target_os = "linux", not(any(loom, shuttle))))]
        return std::fs::File::open("/proc/thread-self/stat")
            .ok()
            .map(|stat| Activity { stat });
        #[cfg(all(not(target_os = "linux"), not(any(loom, shuttle))))]
        None
    }

    /// Whether it runs or wants to, also while others have its CPU (state R, `proc_pid_stat(5)`). A thread that waits,
    /// for a lock too, does not. A system call.
    #[must_use]
    #[cfg(target_os = "linux")]
    pub fn is_running(&self) -> bool {
        use std::os::unix::fs::FileExt;
        // `NUMBER (NAME) STATE`: ten digits, sixteen bytes of name at most.
        let mut text = [0; 64];
        let Ok(len) = self.stat.read_at(&mut text, 0) else {
            return false; // it has ended
        };
        let text = &text[..len];
        let after_name = text.iter().rposition(|byte| *byte == b')');
        after_name.and_then(|at| text.get(at + 2)) == Some(&b'R')
    }

    /// As above.
    #[must_use]
    #[cfg(not(target_os = "linux"))]
    pub fn is_running(&self) -> bool {
        false
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, mpsc};

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
        computing.store(false, Ordering::Relaxed);
        while activity.is_running() {
            std::thread::yield_now();
        }
        sleeper.wake();
        thread.join().unwrap();
        assert!(!activity.is_running(), "it is gone");
    }
}
