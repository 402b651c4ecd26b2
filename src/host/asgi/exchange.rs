//! One ASGI request on the host's side: what has arrived of it, and how far its response is.
//!
//! This is the state behind `receive` and `send`; the Python objects are in `callables.rs`. Nothing here calls Python
//! code of the application, so the state may be borrowed throughout. Keeps R7: body bytes in both directions stay
//! within their windows, a larger body is copied window by window.

use std::collections::VecDeque;

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::waiters::Waiters;
use crate::handoff::{ExchangeId, Frame, Link, Outlet, Request, ResponseHead};
use crate::host::incoming::Incoming;
use crate::host::outgoing::{Outgoing, PIECE};

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
    incoming: Incoming,
    /// The application has been given the end of the body.
    end_given: bool,
    /// `receive` has said that nothing more comes before the response was complete: that the application gives up is no
    /// fault of its own.
    pub told_over: bool,
    /// The connection is gone (or the exchange released): `send` fails.
    pub gone: bool,
    /// The response.
    pub stage: Stage,
    outgoing: Outgoing,
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

impl State {
    /// The state of a request that has just arrived.
    pub fn new(request: &mut Request) -> Self {
        let incoming = Incoming::new(request);
        let head = &request.head;
        let text = |span| String::from_utf8_lossy(head.get(span));
        State {
            id: request.id,
            name: format!("{} {}", text(head.method), text(head.path)),
            incoming,
            end_given: false,
            told_over: false,
            gone: false,
            stage: Stage::Waiting,
            outgoing: Outgoing::new(request.id, head.is_head()),
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
            self.incoming.push(bytes);
        }
    }

    /// The body is complete.
    pub fn body_ended(&mut self) {
        self.incoming.finish();
    }

    /// Nothing more of the request arrives.
    pub fn input_ended(&mut self) {
        self.incoming.end();
    }

    /// The connection is gone.
    pub fn reset(&mut self) {
        self.incoming.end();
        self.gone = true;
        self.rest.clear();
        self.outgoing.reset();
    }

    /// The next message for `receive`, or none yet. The flag says that a frame was pushed that should leave now.
    pub fn next_message(&mut self, link: &mut Link) -> (Option<Message>, bool) {
        if self.stage == Stage::Complete || (self.gone && self.incoming.is_empty()) {
            return (Some(Message::Disconnect), false);
        }
        if let Some((pieces, asked)) = self.incoming.take_all(link) {
            let complete = self.incoming.is_complete();
            self.end_given |= complete;
            return (Some(Message::Body(pieces, !complete)), asked);
        }
        if self.incoming.is_complete() && !self.end_given {
            self.end_given = true;
            return (Some(Message::Body(VecDeque::new(), false)), false);
        }
        if self.incoming.is_over() {
            self.told_over = true;
            return (Some(Message::Disconnect), false);
        }
        (None, !self.end_given && self.incoming.ask(link))
    }

    /// Whether `send` has nobody to send to. A client that has finished may still read, which only a write that fails
    /// tells; of a response without a body nothing is left to write, and an endless one would go on for good.
    pub fn is_pointless(&self) -> bool {
        self.gone || (self.incoming.is_over() && self.outgoing.is_bodiless() && self.outgoing.is_head_sent())
    }

    /// `http.response.start`: the head waits for the first body message, so that an exception before it is still a 500.
    pub fn start(&mut self, head: ResponseHead) {
        debug_assert_eq!(self.stage, Stage::Waiting);
        self.outgoing.start(head);
        self.stage = Stage::Started;
    }

    /// The response on its way.
    pub fn outgoing(&mut self) -> &mut Outgoing {
        &mut self.outgoing
    }

    /// `http.response.body`: hands over what the window allows; the rest follows as credit comes back.
    pub fn push_body(&mut self, body: &Bound<'_, PyBytes>, last: bool, link: &mut Link) {
        self.outgoing.push_head(link);
        self.bodies += 1;
        if last {
            self.finish_messages();
        }
        let bytes = body.as_bytes();
        if bytes.len() <= PIECE && self.has_room() {
            // The common case: all of it fits.
            self.outgoing.push_piece(bytes, link);
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
        self.outgoing.push_head(link);
        self.finish_messages();
        link.push(Frame::File(self.id, file, 0, len));
        link.push(Frame::End(self.id));
    }

    /// No message may follow; what had arrived of the request is of no use any more.
    fn finish_messages(&mut self) {
        self.stage = Stage::Complete;
        self.incoming.clear();
    }

    /// Copies more of the bodies that wait, as far as the window reaches.
    fn push_rest(&mut self, py: Python<'_>, link: &mut Link) {
        while let Some(rest) = self.rest.front_mut() {
            let bytes = rest.body.bind(py).as_bytes();
            while rest.offset < bytes.len() && self.outgoing.has_window() {
                let end = bytes.len().min(rest.offset + PIECE);
                self.outgoing.push_piece(&bytes[rest.offset..end], link);
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
        self.outgoing.credit(charged);
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
        self.gone || (handed_over && (self.outgoing.has_window() || self.all_pushed()))
    }

    /// Whether earlier bodies have been handed over and the window has room.
    pub fn has_room(&self) -> bool {
        self.rest.is_empty() && self.outgoing.has_window()
    }

    /// Whether the response's last bytes have been handed over.
    pub fn all_pushed(&self) -> bool {
        self.stage == Stage::Complete && self.rest.is_empty()
    }

    /// The application is done with it. Gives the futures of whoever still waits.
    pub fn close(&mut self) -> Vec<Py<PyAny>> {
        self.finish_messages();
        self.rest.clear();
        self.outgoing.reset();
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
        let complete = self.stage == Stage::Complete || (self.incoming.is_complete() && !self.end_given);
        complete || self.gone || self.incoming.is_over() || !self.incoming.is_empty()
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
