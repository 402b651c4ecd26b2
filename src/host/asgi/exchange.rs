//! One ASGI request on the host's side: what has arrived of it, and how far its response is.
//!
//! This is the state behind `receive` and `send`; the Python objects are in `callables.rs`. Nothing here calls Python
//! code of the application, so the state may be borrowed throughout. Keeps R7: body bytes in both directions stay
//! within [`WINDOW`], a larger body is copied window by window.

use std::collections::VecDeque;

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::waiters::Waiters;
use crate::handoff::{ExchangeId, Frame, Link, Request, ResponseHead, WINDOW, charge};

/// Pieces that a large body is copied in: each costs a send, so they are as large as common streams' chunks.
const PIECE: usize = 64 * 1024;

/// How far the application is with its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// `http.response.start` has not been sent.
    Waiting,
    /// It has; the head leaves with the first body message.
    Started,
    /// The last body message has been sent.
    Complete,
}

/// A body that is still being copied, as credit allows.
pub struct Rest {
    body: Py<PyBytes>,
    offset: usize,
    /// It is the last of the response.
    last: bool,
}

/// The state of one exchange.
pub struct State {
    /// Its name.
    pub id: ExchangeId,
    /// Method and path, for the log.
    pub name: String,
    is_head: bool,
    arrived: VecDeque<Bytes>,
    /// The body is complete, counting what lies in `arrived`.
    body_end: bool,
    /// The application has been given the end of the body.
    end_given: bool,
    /// Nothing more arrives: `receive` says so after what lies in `arrived`.
    input_over: bool,
    /// `receive` has said so before the response was complete: that the application gives up is no fault of its own.
    pub told_over: bool,
    /// The connection is gone (or the exchange released): `send` fails.
    pub gone: bool,
    /// Charged bytes the application took since the engine was last told.
    taken: u32,
    /// The engine has not been asked for the body yet, and the client may wait for that.
    unasked: bool,
    /// The response.
    pub stage: Stage,
    head: Option<Box<ResponseHead>>,
    /// Whether the head has been handed over.
    pub head_sent: bool,
    /// The response's body is not written.
    bodiless: bool,
    remaining: Option<u64>,
    outstanding: u32,
    /// Bodies that wait for credit, in order: more than one when the application does not await its sends.
    rest: VecDeque<Rest>,
    /// Bodies that the application has sent, the last of which is in `rest` or handed over.
    bodies: u64,
    /// Futures of `receive` calls that wait.
    receivers: Waiters,
    /// Futures of `send` calls that wait, in the order of their bodies.
    senders: Waiters,
    /// The task that runs the application.
    pub task: Option<Py<PyAny>>,
}

/// What `receive` gives.
pub enum Message {
    /// `http.request`: a piece, and whether more follows.
    Body(VecDeque<Bytes>, bool),
    /// `http.disconnect`
    Disconnect,
}

/// What is wrong with a message of the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misuse {
    /// More body than its Content-Length.
    TooLong,
    /// Less.
    TooShort,
}

impl State {
    /// The state of a request that has just arrived.
    pub fn new(request: &mut Request) -> Self {
        let head = &request.head;
        let text = |span| String::from_utf8_lossy(head.get(span)).into_owned();
        let body = std::mem::take(&mut request.body);
        let mut arrived = VecDeque::new();
        if !body.is_empty() {
            arrived.push_back(body);
        }
        State {
            id: request.id,
            name: format!("{} {}", text(head.method), text(head.path)),
            is_head: head.is_head(),
            arrived,
            body_end: request.body_complete,
            end_given: false,
            input_over: false,
            told_over: false,
            gone: false,
            taken: 0,
            unasked: head.expect_continue && !request.body_complete,
            stage: Stage::Waiting,
            head: None,
            head_sent: false,
            bodiless: false,
            remaining: None,
            outstanding: 0,
            rest: VecDeque::new(),
            bodies: 0,
            receivers: Waiters::default(),
            senders: Waiters::default(),
            task: None,
        }
    }

    /// A piece of the body arrived.
    pub fn body(&mut self, bytes: Bytes) {
        if self.stage != Stage::Complete {
            self.arrived.push_back(bytes);
        }
    }

    /// The body is complete.
    pub fn body_ended(&mut self) {
        self.body_end = true;
    }

    /// Nothing more of the request arrives.
    pub fn input_ended(&mut self) {
        self.input_over = true;
    }

    /// The connection is gone.
    pub fn reset(&mut self) {
        self.input_over = true;
        self.gone = true;
        self.rest.clear();
        self.outstanding = 0;
    }

    /// The next message for `receive`, or none yet. The flag says that a frame was pushed that should leave now.
    pub fn next_message(&mut self, link: &mut Link) -> (Option<Message>, bool) {
        if self.stage == Stage::Complete || (self.gone && self.arrived.is_empty()) {
            return (Some(Message::Disconnect), false);
        }
        if !self.arrived.is_empty() {
            // All that has arrived at once: an application that is slower than its client must not pay for each packet.
            let pieces = std::mem::take(&mut self.arrived);
            self.taken += pieces.iter().map(|piece| charge(piece.len())).sum::<u32>();
            self.end_given |= self.body_end;
            let asked = self.ask_for_taken(link);
            return (Some(Message::Body(pieces, !self.body_end)), asked);
        }
        if self.body_end && !self.end_given {
            self.end_given = true;
            return (Some(Message::Body(VecDeque::new(), false)), false);
        }
        if self.input_over {
            self.told_over = true;
            return (Some(Message::Disconnect), false);
        }
        (None, !self.end_given && self.ask(link))
    }

    /// Gives the engine room for as much as the application took, when it has become worth a frame.
    fn ask_for_taken(&mut self, link: &mut Link) -> bool {
        if self.body_end || self.taken < WINDOW / 2 {
            return false;
        }
        self.unasked = false;
        link.push(Frame::WantBody(self.id, std::mem::take(&mut self.taken)));
        true
    }

    fn ask(&mut self, link: &mut Link) -> bool {
        if !std::mem::replace(&mut self.unasked, false) {
            return false;
        }
        link.push(Frame::WantBody(self.id, 0));
        true
    }

    /// Whether `send` has nobody to send to. A client that has finished may still read, which only a write that fails
    /// tells; of a response without a body nothing is left to write, and an endless one would go on for good.
    pub fn is_pointless(&self) -> bool {
        self.gone || (self.input_over && self.bodiless && self.head_sent)
    }

    /// `http.response.start`: the head waits for the first body message, so that an exception before it is still a 500.
    pub fn start(&mut self, head: ResponseHead) {
        debug_assert_eq!(self.stage, Stage::Waiting);
        self.bodiless = self.is_head || matches!(head.status, 204 | 304);
        self.remaining = if self.bodiless { None } else { head.content_length };
        self.head = Some(Box::new(head));
        self.stage = Stage::Started;
    }

    /// Counts body bytes against the announced length.
    ///
    /// # Errors
    /// When they do not fit; the connection must not go on.
    pub fn account(&mut self, len: u64, last: bool) -> Result<(), Misuse> {
        let Some(remaining) = &mut self.remaining else {
            return Ok(());
        };
        *remaining = remaining.checked_sub(len).ok_or(Misuse::TooLong)?;
        if last && *remaining > 0 {
            return Err(Misuse::TooShort);
        }
        Ok(())
    }

    /// Hands the head over if it has not been.
    pub fn push_head(&mut self, link: &mut Link) {
        if let Some(head) = self.head.take() {
            self.head_sent = true;
            link.push(Frame::Head(self.id, head));
        }
    }

    /// `http.response.body`: hands over what the window allows; the rest follows as credit comes back.
    pub fn push_body(&mut self, body: &Bound<'_, PyBytes>, last: bool, link: &mut Link) {
        self.push_head(link);
        self.bodies += 1;
        let bytes = body.as_bytes();
        if last {
            self.finish_messages();
        }
        if bytes.len() <= PIECE && self.has_room() {
            // The common case: all of it fits.
            if !bytes.is_empty() {
                self.outstanding += charge(bytes.len());
                link.push(Frame::Chunk(self.id, Bytes::copy_from_slice(bytes)));
            }
            if last {
                link.push(Frame::End(self.id));
            }
            return;
        }
        self.rest.push_back(Rest {
            body: body.clone().unbind(),
            offset: 0,
            last,
        });
        self.push_rest(body.py(), link);
    }

    /// A file as the rest of the body.
    pub fn push_file(&mut self, file: std::os::fd::OwnedFd, len: u64, link: &mut Link) {
        self.push_head(link);
        self.finish_messages();
        link.push(Frame::File(self.id, file, 0, len));
        link.push(Frame::End(self.id));
    }

    /// No message may follow; what had arrived of the request is of no use any more.
    fn finish_messages(&mut self) {
        self.stage = Stage::Complete;
        self.arrived.clear();
    }

    /// Copies more of the bodies that wait, as far as the window reaches.
    fn push_rest(&mut self, py: Python<'_>, link: &mut Link) {
        while let Some(rest) = self.rest.front_mut() {
            let bytes = rest.body.bind(py).as_bytes();
            while rest.offset < bytes.len() && self.outstanding < WINDOW {
                let end = bytes.len().min(rest.offset + PIECE);
                let piece = Bytes::copy_from_slice(&bytes[rest.offset..end]);
                self.outstanding += charge(piece.len());
                link.push(Frame::Chunk(self.id, piece));
                rest.offset = end;
            }
            if rest.offset < bytes.len() {
                return;
            }
            if rest.last {
                link.push(Frame::End(self.id));
            }
            self.rest.pop_front();
        }
    }

    /// Bytes have left: more of a large body may follow.
    pub fn credit(&mut self, py: Python<'_>, charged: u32, link: &mut Link) {
        debug_assert!(
            self.outstanding >= charged || self.gone,
            "credit gives back what was charged (R7)"
        );
        self.outstanding = self.outstanding.saturating_sub(charged);
        self.push_rest(py, link);
    }

    /// Bodies sent so far: the number of the last one, which its `send` waits by.
    pub fn bodies(&self) -> u64 {
        self.bodies
    }

    /// Whether the `send` of that body may go on: the body has been handed over, and there is room for another.
    pub fn may_send(&self, body: u64) -> bool {
        let waiting = self.rest.len() as u64;
        let handed_over = self.bodies - waiting >= body;
        self.gone || (handed_over && (self.outstanding < WINDOW || self.all_pushed()))
    }

    /// Whether earlier bodies have been handed over and the window has room.
    pub fn has_room(&self) -> bool {
        self.rest.is_empty() && self.outstanding < WINDOW
    }

    /// Whether the response's last bytes have been handed over.
    pub fn all_pushed(&self) -> bool {
        self.stage == Stage::Complete && self.rest.is_empty()
    }

    /// The application is done with it. Gives the futures of whoever still waits.
    pub fn close(&mut self) -> Vec<Py<PyAny>> {
        self.finish_messages();
        self.rest.clear();
        self.outstanding = 0;
        self.task = None;
        let mut waiting = self.receivers.take_while(|_| true);
        waiting.append(&mut self.senders.take_while(|_| true));
        waiting
    }

    /// Files the future of a `receive` that waits.
    pub fn wait_to_receive(&mut self, future: &Bound<'_, PyAny>) -> PyResult<()> {
        self.receivers.push(0, future)
    }

    /// Files the future of a `send` that waits, by its body's number.
    pub fn wait_to_send(&mut self, body: u64, future: &Bound<'_, PyAny>) -> PyResult<()> {
        self.senders.push(body, future)
    }

    /// Whether a `receive` that waits has something to say: as [`State::next_message`] would find.
    fn may_receive(&self) -> bool {
        let complete = self.stage == Stage::Complete || (self.body_end && !self.end_given);
        complete || self.gone || self.input_over || !self.arrived.is_empty()
    }

    /// Futures of `receive` to be woken, if there is something to say.
    pub fn take_receivers(&mut self) -> Vec<Py<PyAny>> {
        let ready = self.may_receive();
        self.receivers.take_while(|_| ready)
    }

    /// Futures of `send` to be woken: those whose bodies have been handed over, if there is room (or no more use in
    /// waiting).
    pub fn take_senders(&mut self) -> Vec<Py<PyAny>> {
        let mut senders = std::mem::take(&mut self.senders);
        let ready = senders.take_while(|body| self.may_send(body));
        self.senders = senders;
        ready
    }
}
