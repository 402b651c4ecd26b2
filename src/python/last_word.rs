//! The end of a process in which native code of the application keeps the GIL: a thread that never attaches (R6).

use std::io;
use std::sync::PoisonError;
use std::time::Duration;

use m0_platform::Clock;
use m0_platform::sync::{Arc, Condvar, Mutex};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::config::LogLevel;
use crate::log::Logger;

/// Ends the process some seconds after it was armed, unless it is disarmed before. What can say more, with the GIL, is to
/// be given the time for it.
#[pyclass(frozen, module = "m0serve._native")]
pub struct LastWord {
    /// Made before there are connections, whose numbers it could take for stderr.
    log: Logger,
    disarmed: Arc<(Mutex<bool>, Condvar)>,
}

#[pymethods]
impl LastWord {
    #[new]
    fn new() -> LastWord {
        LastWord {
            log: Logger::new(LogLevel::Error, false, Clock::new()),
            disarmed: Arc::default(),
        }
    }

    /// Starts the time. OSError: there is no thread to be had.
    fn arm(&self, seconds: f64, code: i32) -> PyResult<()> {
        let time = Duration::try_from_secs_f64(seconds).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let (log, disarmed) = (self.log.clone(), self.disarmed.clone());
        m0_platform::thread::spawn("m0serve-last", move || {
            if !is_disarmed_within(&disarmed, time) {
                log.error(
                    "last",
                    "the drain time-out is over and native code that keeps the GIL does not end",
                );
                end(code);
            }
        })
        .map_err(|error: io::Error| error.into())
        .map(drop)
    }

    /// Stops the time.
    fn disarm(&self) {
        *self.disarmed.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.disarmed.1.notify_all();
    }
}

fn is_disarmed_within((disarmed, changed): &(Mutex<bool>, Condvar), time: Duration) -> bool {
    let disarmed = disarmed.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = changed.wait_timeout_while(disarmed, time, |disarmed| !*disarmed);
    *waited.unwrap_or_else(PoisonError::into_inner).0
}

fn end(code: i32) -> ! {
    // SAFETY: `_exit` runs nothing of this process, so that it does not matter what other threads are in the middle of.
    unsafe { libc::_exit(code) }
}
