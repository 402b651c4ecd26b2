//! Futures that `receive` and `send` calls of one exchange wait for, in the order in which they began.

use std::collections::VecDeque;

use pyo3::intern;
use pyo3::prelude::*;

use crate::host::calls;

/// Fewer waiters than this are not looked through for cancelled ones.
const FEW: usize = 8;

/// Futures that wait, each with the number that it waits by.
#[derive(Default)]
pub struct Waiters {
    queue: VecDeque<(u64, Py<PyAny>)>,
    /// So many were left when the cancelled ones were last dropped.
    alive: usize,
}

impl Waiters {
    /// Files a future behind the others. Drops those that were cancelled whenever the queue has doubled, so that a
    /// `receive` with a time-out in a loop does not pile them up (R7) and many waiters are not looked at one by one.
    ///
    /// # Errors
    /// What asking a future gave.
    pub fn push(&mut self, number: u64, future: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = future.py();
        if self.queue.len() >= (2 * self.alive).max(FEW) {
            let mut kept = VecDeque::with_capacity(self.queue.len());
            for (number, future) in self.queue.drain(..) {
                if !calls::method(intern!(py, "done"), [future.bind(py)])?.is_truthy()? {
                    kept.push_back((number, future));
                }
            }
            self.alive = kept.len();
            self.queue = kept;
        }
        self.queue.push_back((number, future.clone().unbind()));
        Ok(())
    }

    /// Takes futures from the front, as long as `ready` says so of their numbers.
    pub fn take_while(&mut self, ready: impl Fn(u64) -> bool) -> Vec<Py<PyAny>> {
        let count = self.queue.iter().take_while(|(number, _)| ready(*number)).count();
        self.queue.drain(..count).map(|(_, future)| future).collect()
    }
}
