//! One WSGI request in the hands of its thread: what has arrived of it, how far its response is, and the waits.
//!
//! The state is shared with the objects that the application holds (`wsgi.input`, `start_response`, `write`), which it
//! may keep for longer or hand to other threads, so it is behind a lock. The lock is never held across a call into
//! Python or a wait, and every wait is without the GIL. Keeps R2 (one thread's ring), R4 (the seat goes back to its
//! thread with `Released` as the last frame) and R7 (windows in both directions).

use m0_platform::sync::{Arc, Mutex, MutexGuard};
use pyo3::exceptions::{PyAssertionError, PyRuntimeError};
use pyo3::intern;
use pyo3::prelude::*;

use crate::handoff::{Frame, Job, Mailbox, Outlet, Request, ResponseHead, Seat, Why};
use crate::host::incoming::Incoming;
use crate::host::outgoing::{Misuse, Outgoing, PIECE};

/// At most so many frames are said between two looks for room: a head, the pieces of a window, room for the body, an
/// end and `Released`.
const FRAMES: usize = 16;

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
    /// Jobs taken from the mailbox.
    heard: u64,
    /// `start_response` has been called.
    started: bool,
    /// The response is complete, or given up.
    ended: bool,
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
            heard: 0,
            started: false,
            ended: false,
            gone: false,
        }
    }

    /// Takes in what the engine has said.
    fn absorb(&mut self) {
        while let Some(job) = self.mailbox.take() {
            self.heard += 1;
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

    /// Whether the response is complete or given up.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Whether the response's head has left.
    pub fn is_head_sent(&self) -> bool {
        self.outgoing.is_head_sent()
    }

    /// Whether the thread can say [`FRAMES`], or may say nothing any more.
    fn has_room(&mut self) -> bool {
        let Ok(seat) = speaker(&mut self.seat, false) else {
            return true;
        };
        seat.has_room(FRAMES) || {
            seat.flush();
            seat.has_room(FRAMES)
        }
    }

    /// `start_response`: the head leaves with the first bytes of the body.
    pub fn start(&mut self, head: ResponseHead) {
        self.started = true;
        self.outgoing.start(head);
    }

    /// How much a Content-Length leaves: of a file no more is sent, whether by the kernel or block by block.
    pub fn left(&self) -> usize {
        let left = self.outgoing.remaining().unwrap_or(u64::MAX);
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    /// What was said so far is heard now.
    pub fn flush(&self) {
        if let Some(seat) = self.seat.as_ref().filter(|seat| !seat.is_forked()) {
            seat.flush();
        }
    }
}

/// Sleeps, without the GIL, until the engine has said more to the view than the `heard` jobs that the caller knows of.
fn wait(py: Python<'_>, view: &Shared, heard: u64) {
    let mailbox = {
        let mut state = lock(view);
        if let Some(seat) = &mut state.seat {
            seat.about_to_wait();
        }
        state.mailbox.clone()
    };
    py.detach(|| mailbox.wait(heard));
}

/// A lock on a view whose thread can say [`FRAMES`]; it waits for that without the GIL: whoever runs the loop may need it
/// before it can take what is there already.
fn lock_with_room<'a>(py: Python<'_>, view: &'a Shared) -> MutexGuard<'a, View> {
    let mut state = lock(view);
    if state.has_room() {
        return state;
    }
    drop(state);
    py.detach(|| {
        while !lock(view).has_room() {
            m0_platform::thread::yield_now();
        }
    });
    lock(view)
}

/// The error for what is said when the response has ended.
pub fn over() -> PyErr {
    PyRuntimeError::new_err("the request is over")
}

/// What a view speaks by, unless its request is over, or this is a forked child.
fn speaker(seat: &mut Option<Seat>, ended: bool) -> PyResult<&mut Seat> {
    seat.as_mut()
        .filter(|seat| !ended && !seat.is_forked())
        .ok_or_else(over)
}

/// The error that says that the client has gone, which nobody has to report.
fn gone(py: Python<'_>, text: &str) -> PyErr {
    let class = py
        .import(intern!(py, "m0serve._tasks"))
        .and_then(|tasks| tasks.getattr(intern!(py, "ClientDisconnected")));
    match class.and_then(|class| class.call1((text,))) {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

/// The next bytes of the body, at most `most` and at most up to and with `stop`; none at its end.
///
/// # Errors
/// ClientDisconnected when the client left before its body was complete, RuntimeError when the request is over.
pub fn receive(py: Python<'_>, view: &Shared, most: usize, stop: Option<u8>) -> PyResult<Option<bytes::Bytes>> {
    loop {
        let heard = {
            let mut state = lock_with_room(py, view);
            if state.incoming.is_empty() {
                state.absorb();
            }
            let state = &mut *state;
            let seat = speaker(&mut state.seat, false)?;
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
                None // said below, where the lock is not held: that calls into Python
            } else if state.ended {
                return Err(over()); // the rest of the body is thrown away
            } else {
                state.incoming.ask(seat);
                Some(state.heard)
            }
        };
        match heard {
            Some(heard) => wait(py, view, heard),
            None => return Err(gone(py, "the client left before its request's body was complete")),
        }
    }
}

/// Sends a block of the body, with the head before it if that has not left; it leaves at once. Waits while the window is
/// full. Whether there is any use in more: the body of a response to HEAD is not written.
///
/// # Errors
/// AssertionError before `start_response`, ClientDisconnected when the client is gone, RuntimeError when the response is
/// over or the block does not fit its length.
pub fn send(py: Python<'_>, view: &Shared, block: &[u8]) -> PyResult<bool> {
    push_block(py, view, lock_with_room(py, view), block, false)?;
    Ok(!lock(view).outgoing.is_bodiless())
}

/// Sends the last block of the body and the end, which leave together. A body that is this block alone has its length said
/// in the head.
///
/// # Errors
/// As of [`send`].
pub fn finish(py: Python<'_>, view: &Shared, block: &[u8]) -> PyResult<()> {
    let mut state = lock_with_room(py, view);
    state.outgoing.announce(block.len() as u64);
    push_block(py, view, state, block, true)
}

fn push_block<'a>(
    py: Python<'_>,
    view: &'a Shared,
    mut state: MutexGuard<'a, View>,
    block: &[u8],
    last: bool,
) -> PyResult<()> {
    if !state.started {
        let text = "the application did not call start_response before the first block of its body";
        return Err(PyAssertionError::new_err(text));
    }
    let mut rest = block;
    let mut counted = false;
    loop {
        // Before any block but the last: a view that says little would fill its window only hours after its client had left.
        if !last || !state.outgoing.has_window() {
            state.absorb();
        }
        let this = &mut *state;
        let seat = speaker(&mut this.seat, this.ended)?;
        if !std::mem::replace(&mut counted, true) {
            this.outgoing.account(block.len() as u64, last).map_err(misused)?;
            this.outgoing.push_head(seat);
        }
        if this.gone {
            drop(state);
            return Err(gone(py, "the client has disconnected"));
        }
        while !rest.is_empty() && this.outgoing.has_window() {
            let (piece, after) = rest.split_at(rest.len().min(PIECE));
            this.outgoing.push_piece(piece, seat);
            rest = after;
        }
        if rest.is_empty() {
            if last {
                this.ended = true;
                seat.push(Frame::End(this.id));
            } else {
                seat.flush();
            }
            return Ok(());
        }
        let heard = state.heard;
        drop(state);
        wait(py, view, heard);
        state = lock_with_room(py, view);
    }
}

fn misused(misuse: Misuse) -> PyErr {
    PyRuntimeError::new_err(misuse.message())
}

/// Sends `len` bytes of a file as the body, or what a Content-Length that was given allows of them, and the end.
///
/// # Errors
/// As of [`send`].
pub fn send_file(py: Python<'_>, view: &Shared, file: std::os::fd::OwnedFd, offset: u64, len: u64) -> PyResult<()> {
    let mut state = lock_with_room(py, view);
    let state = &mut *state;
    state.outgoing.announce(len);
    let len = state.outgoing.remaining().map_or(len, |remaining| remaining.min(len));
    state.outgoing.account(len, true).map_err(misused)?;
    let seat = speaker(&mut state.seat, state.ended)?;
    state.outgoing.push_head(seat);
    seat.push(Frame::File(state.id, file, offset, len));
    state.ended = true;
    seat.push(Frame::End(state.id));
    Ok(())
}

/// The response cannot be completed, unless it has been: that is a 500 when nothing of it has left, and else closes its
/// connection. The view may go on: nothing it says is heard any more.
pub fn give_up(py: Python<'_>, view: &Shared) {
    let mut state = lock_with_room(py, view);
    let state = &mut *state;
    let Ok(seat) = speaker(&mut state.seat, state.ended) else {
        return;
    };
    state.ended = true;
    seat.push(Frame::Abort(state.id, Why::HostError));
}

/// The view is over, well or not: gives the seat back. None when it was over already.
pub fn release(view: &Shared) -> Option<Seat> {
    let mut state = lock(view);
    let mut seat = state.seat.take()?;
    seat.push(Frame::Released(state.id));
    state.incoming.clear();
    state.mailbox.close();
    Some(seat)
}
