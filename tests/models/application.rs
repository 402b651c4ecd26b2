//! What both kinds of application do with a request, with the hosts' own halves of a body: read it, and answer.

use m0serve::handoff::{ExchangeId, Frame, Job, Outlet, Request, ResponseHead, Why};
use m0serve::host::incoming::Incoming;
use m0serve::host::outgoing::{Outgoing, PIECE};

use super::client::answer;

/// A request in the hands of its application.
pub struct Task {
    pub id: ExchangeId,
    pub path: String,
    incoming: Incoming,
    outgoing: Outgoing,
    received: usize,
    response: Option<Vec<u8>>,
    sent: usize,
    gone: bool,
}

impl Task {
    pub fn new(mut request: Request) -> Task {
        Task {
            id: request.id,
            path: String::from_utf8_lossy(request.head.get(request.head.path)).into_owned(),
            outgoing: Outgoing::new(request.id, request.head.is_head()),
            incoming: Incoming::new(&mut request),
            received: 0,
            response: None,
            sent: 0,
            gone: false,
        }
    }

    /// Takes what the engine says of it.
    pub fn hear(&mut self, job: Job) {
        match job {
            Job::Body(_, bytes) => self.incoming.push(bytes),
            Job::BodyEnd(_) => self.incoming.finish(),
            Job::BodyAborted(_, Why::PeerFinished) => self.incoming.end(),
            Job::Credit(_, charged) => self.outgoing.credit(charged),
            Job::BodyAborted(..) | Job::Reset(..) => {
                self.incoming.end();
                self.outgoing.reset();
                self.gone = true;
            }
            other => panic!("no place for {other:?}"),
        }
    }

    /// Does what it can. Whether it is done, and said so.
    pub fn advance(&mut self, out: &mut impl Outlet) -> bool {
        while let Some((bytes, _)) = self.incoming.take(usize::MAX, out) {
            self.received += bytes.len();
        }
        if !self.gone && !self.incoming.is_complete() {
            self.incoming.ask(out);
            return false;
        }
        if !self.gone && !self.respond(out) {
            return false;
        }
        out.push(if self.gone {
            Frame::Abort(self.id, Why::HostError)
        } else {
            Frame::End(self.id)
        });
        out.push(Frame::Released(self.id));
        true
    }

    /// Says what there is room for. Whether that is all of it.
    fn respond(&mut self, out: &mut impl Outlet) -> bool {
        let response = self.response.get_or_insert_with(|| {
            self.outgoing.start(ResponseHead::new(200).expect("a status"));
            let response = answer(&self.path, self.received);
            self.outgoing.announce(response.len() as u64);
            response
        });
        self.outgoing.push_head(out);
        while self.sent < response.len() {
            if !self.outgoing.has_window() {
                return false;
            }
            let piece = &response[self.sent..response.len().min(self.sent + PIECE)];
            self.outgoing.push_piece(piece, out);
            self.sent += piece.len();
        }
        true
    }
}
