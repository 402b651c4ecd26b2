//! One WSGI request in the hands of its thread: what has arrived of it, how far its response is, and the waits.
//!
//! The state is shared with the objects that the application holds (`wsgi.input`, `start_response`, `write`), which it
//! may keep for longer or hand to other threads, so it is behind a lock. The lock is never held across a call into
//! Python or a wait, and every wait is without the GIL. Keeps R2 (one thread's ring), R4 (the seat goes back to its
//! thread with `Released` as the last frame) and R7 (windows in both directions).

use m0_platform::sync::{Arc, Mutex, MutexGuard};
use pyo3::exceptions::{PyBrokenPipeError, PyOSError, PyRuntimeError};
use pyo3::prelude::*;

use crate::handoff::{Frame, Job, Mailbox, Outlet, Request, ResponseHead, Seat, Why};
use crate::host::incoming::Incoming;
use crate::host::outgoing::{Misuse, Outgoing, PIECE};

/// A view as its objects share it.
pub type Shared = Arc<Mutex<View>>;

/// The state of one request.
pub struct View {
    mailbox: Arc<Mailbox>,
    /// The thread's way to the engine; gone once the view is over.
    seat: Option<Seat>,
    incoming: Incoming,
    outgoing: Outgoing,
    id: crate::handoff::ExchangeId,
    /// `start_response` has been called.
    started: bool,
    /// The connection is gone.
    gone: bool,
}

/// A lock on a view. Nothing panics while it holds one.
pub fn lock(view: &Shared) -> MutexGuard<'_, View> {
    view.lock().expect("nothing panics while it holds a view")
}

impl View {
    /// The view of a request that was just popped, with the thread's seat.
    pub fn new(request: &mut Request, mailbox: Arc<Mailbox>, seat: Seat) -> View {
        View {
            mailbox,
            seat: Some(seat),
            incoming: Incoming::new(request),
            outgoing: Outgoing::new(request.id, request.head.is_head()),
            id: request.id,
            started: false,
            gone: false,
        }
    }

    /// Takes in what the engine has said.
    fn absorb(&mut self) {
        while let Some(job) = self.mailbox.take() {
            match job {
                Job::Body(_, bytes) => self.incoming.push(bytes),
                Job::BodyEnd(_) => self.incoming.finish(),
                Job::BodyAborted(_, Why::PeerFinished) => self.incoming.end(),
                Job::Credit(_, charged) => self.outgoing.credit(charged),
                Job::FileSent(..) => {}
                Job::BodyAborted(..) | Job::Reset(..) => {
                    self.incoming.end();
                    self.outgoing.reset();
                    self.gone = true;
                }
                Job::Request(_) | Job::Stopped => unreachable!("neither is said to a mailbox"),
            }
        }
    }

    /// Whether `start_response` has been called.
    pub fn is_started(&self) -> bool {
        self.started
    }

    /// Whether the response's head has left.
    pub fn is_head_sent(&self) -> bool {
        self.outgoing.is_head_sent()
    }

    /// Whether the client is known to be gone.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// The response, as it is being composed.
    pub fn outgoing(&mut self) -> &mut Outgoing {
        &mut self.outgoing
    }

    /// `start_response`: the head leaves with the first bytes of the body.
    pub fn start(&mut self, head: ResponseHead) {
        self.started = true;
        self.outgoing.start(head);
    }

    /// What was said so far is heard now.
    pub fn flush(&self) {
        if let Some(seat) = &self.seat {
            seat.flush();
        }
    }

    /// The view is over, well or not: the seat goes back.
    fn finish(&mut self, end: Frame) -> Option<Seat> {
        let mut seat = self.seat.take()?;
        seat.push(end);
        seat.push(Frame::Released(self.id));
        self.incoming.clear();
        Some(seat)
    }
}

/// Sleeps, without the GIL, until the engine has said something to the view.
fn wait(py: Python<'_>, view: &Shared) {
    let mailbox = {
        let mut state = lock(view);
        if let Some(seat) = &mut state.seat {
            seat.about_to_wait();
        }
        state.mailbox.clone()
    };
    py.detach(|| mailbox.wait());
}

fn over() -> PyErr {
    PyRuntimeError::new_err("the request is over")
}

/// The next bytes of the body, at most `most` and at most up to and with `stop`; none at its end.
///
/// # Errors
/// OSError when the client left before its body was complete, RuntimeError when the view is over.
pub fn receive(py: Python<'_>, view: &Shared, most: usize, stop: Option<u8>) -> PyResult<Option<bytes::Bytes>> {
    loop {
        {
            let mut state = lock(view);
            if state.incoming.is_empty() {
                state.absorb();
            }
            let state = &mut *state;
            let seat = state.seat.as_mut().ok_or_else(over)?;
            let most = match stop.and_then(|stop| state.incoming.find(stop)) {
                Some(at) => most.min(at + 1),
                None => most,
            };
            if let Some((bytes, asked)) = state.incoming.take(most, seat) {
                if asked {
                    seat.flush();
                }
                return Ok(Some(bytes));
            }
            if state.incoming.is_complete() {
                return Ok(None);
            }
            if state.incoming.is_over() {
                return Err(PyOSError::new_err(
                    "the client left before its request's body was complete",
                ));
            }
            state.incoming.ask(seat);
        }
        wait(py, view);
    }
}

/// Sends a block of the body, with the head before it if that has not left; it leaves at once. Waits while the window
/// is full.
///
/// # Errors
/// BrokenPipeError when the client is gone, RuntimeError when the view is over or the block does not fit the length.
pub fn send(py: Python<'_>, view: &Shared, block: &[u8], last: bool) -> PyResult<()> {
    {
        let mut state = lock(view);
        let len = block.len() as u64;
        state.outgoing.account(len, last).map_err(misused)?;
        let state = &mut *state;
        state.outgoing.push_head(state.seat.as_mut().ok_or_else(over)?);
    }
    let mut rest = block;
    loop {
        {
            let mut state = lock(view);
            if !state.outgoing.has_window() {
                state.absorb();
            }
            if state.gone {
                return Err(PyBrokenPipeError::new_err("the client has disconnected"));
            }
            let state = &mut *state;
            let seat = state.seat.as_mut().ok_or_else(over)?;
            while !rest.is_empty() && state.outgoing.has_window() {
                let (piece, after) = rest.split_at(rest.len().min(PIECE));
                state.outgoing.push_piece(piece, seat);
                rest = after;
            }
            if rest.is_empty() {
                if !last {
                    seat.flush();
                }
                return Ok(());
            }
        }
        wait(py, view);
    }
}

fn misused(misuse: Misuse) -> PyErr {
    PyRuntimeError::new_err(match misuse {
        Misuse::TooLong => "Response content longer than Content-Length",
        Misuse::TooShort => "Response content shorter than Content-Length",
    })
}

/// Sends a range of a file as the body.
///
/// # Errors
/// As of [`send`].
pub fn send_file(view: &Shared, file: std::os::fd::OwnedFd, offset: u64, len: u64) -> PyResult<()> {
    let mut state = lock(view);
    state.outgoing.account(len, true).map_err(misused)?;
    let state = &mut *state;
    let seat = state.seat.as_mut().ok_or_else(over)?;
    state.outgoing.push_head(seat);
    seat.push(Frame::File(state.id, file, offset, len));
    Ok(())
}

/// The response is complete. Gives the seat back; none when the view was over already.
pub fn complete(view: &Shared) -> Option<Seat> {
    let mut state = lock(view);
    let id = state.id;
    state.finish(Frame::End(id))
}

/// The response cannot be completed: a 500 when nothing of it has left, else its connection closes.
pub fn abort(view: &Shared) -> Option<Seat> {
    let mut state = lock(view);
    let id = state.id;
    state.finish(Frame::Abort(id, Why::HostError))
}
