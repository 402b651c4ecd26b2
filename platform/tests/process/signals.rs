//! What ends a wait early, without an error: a signal, and not a time that is longer than the kernel's clock goes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::contract;

static CAUGHT: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_signal(_: libc::c_int) {
    CAUGHT.fetch_add(1, Ordering::SeqCst);
}

contract! {
    fn a_signal_ends_a_wait(rig) {
        // SAFETY: the handler only adds to an atomic; `action` is valid and the old one is not asked for.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
            assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
        }
        rig.turns_for(Duration::from_millis(20)); // what opening it left over would end the wait as well
        // SAFETY: takes nothing.
        let waiting = unsafe { libc::pthread_self() };
        let done = std::sync::Arc::new(AtomicUsize::new(0));
        let sender = std::thread::spawn({
            let done = done.clone();
            move || {
                // More than one, since the first may come before the wait.
                while done.load(Ordering::SeqCst) == 0 {
                    // SAFETY: the test joins this thread before its own ends, so `waiting` lives.
                    unsafe { libc::pthread_kill(waiting, libc::SIGUSR1) };
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        });
        let before = CAUGHT.load(Ordering::SeqCst);
        for _ in 0..5 {
            rig.backend.wait(None).unwrap();
            assert!(rig.backend.next().is_none());
        }
        done.store(1, Ordering::SeqCst);
        sender.join().unwrap();
        assert!(CAUGHT.load(Ordering::SeqCst) > before);
        // And nothing was broken by it.
        let (mut client, token) = rig.connect();
        std::io::Write::write_all(&mut client, b"fine").unwrap();
        rig.until_received(token, 4);
    }

    /// It is here since simulated time does not go so far either.
    fn a_wait_beyond_the_end_of_the_clock_is_not_over(rig) {
        rig.turns_for(Duration::from_millis(20)); // as above
        let waker = rig.backend.waker();
        waker.announce();
        let ringer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(10)); // a wait that ends by itself has ended by then
            waker.wake()
        });
        rig.turn(Some(Duration::MAX));
        rig.backend.waker().retract();
        assert!(ringer.join().unwrap(), "nobody waits any more");
    }
}
