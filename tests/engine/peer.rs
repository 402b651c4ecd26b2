//! One connection of the network in memory, from the client's side.

use std::collections::VecDeque;
use std::io;

use m0_platform::{Completion, SendBuf, Token};

/// How the client's side of a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Fin,
    Reset,
}

/// How far sends get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// A wait completes a send.
    Free,
    /// Nothing leaves.
    Held,
    /// At most so many bytes leave in a wait.
    Trickle(usize),
    /// The next wait fails the send.
    Broken,
}

/// One connection as its client sees it, and what the engine asked of the backend for it.
#[derive(Debug)]
pub struct Peer {
    pub token: Token,
    /// What the client has sent and the engine has not received, a segment a completion.
    pub(super) inbox: VecDeque<Vec<u8>>,
    pub(super) end: Option<End>,
    pub(super) end_told: bool,
    /// What the client has received.
    pub out: Vec<u8>,
    pub flow: Flow,
    pub(super) sending: Option<Sending>,
    pub(super) progress: u64,
    pub receiving: bool,
    pub pauses: u32,
    pub sends: u32,
    /// Addresses of the bodies that were handed over as such, beside what was composed.
    pub bodies: Vec<usize>,
    /// FIN has reached the client.
    pub fin: bool,
    /// The connection ended with a reset.
    pub reset: bool,
    pub(super) close_said: bool,
    pub closed: bool,
}

/// What the engine has handed over to be sent.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) buf: Option<SendBuf>,
    /// What has not left.
    pub(super) left: Vec<u8>,
    pub(super) asked: u64,
    /// How much there was of it, or why it could not be read (errno).
    pub(super) found: Result<u64, i32>,
}

impl Peer {
    /// Moves bytes to the client as its flow allows; whether the send is over.
    pub(super) fn move_bytes(&mut self) -> bool {
        let sending = self.sending.as_mut().expect("a send in flight");
        let most = match self.flow {
            Flow::Free => usize::MAX,
            Flow::Held => 0,
            Flow::Trickle(most) => most,
            Flow::Broken => return true,
        };
        let most = most.min(sending.left.len());
        self.out.extend(sending.left.drain(..most));
        self.progress += most as u64;
        sending.left.is_empty()
    }

    pub(super) fn take_sent(&mut self) -> Completion {
        let sending = self.sending.take().expect("a send in flight");
        let broken = self.close_said || self.flow == Flow::Broken;
        let error = || io::Error::from_raw_os_error(libc::EPIPE);
        let token = self.token;
        match sending.buf {
            Some(mut buf) => {
                buf.body = bytes::Bytes::new();
                let result = if broken { Err(error()) } else { Ok(()) };
                Completion::Sent { token, result, buf }
            }
            None => Completion::FileSent {
                token,
                result: if broken {
                    Err(error())
                } else {
                    let found = sending.found.map_err(io::Error::from_raw_os_error);
                    found.map(|found| found.min(sending.asked))
                },
            },
        }
    }

    pub(super) fn start(&mut self, sending: Sending) {
        assert!(self.sending.is_none(), "one send in flight a connection");
        assert!(!self.close_said, "nothing is sent on what was closed");
        assert!(!self.fin, "nothing is sent after FIN");
        self.sends += 1;
        let body = sending.buf.as_ref().map_or(&[][..], |buf| &buf.body);
        self.bodies.extend((!body.is_empty()).then_some(body.as_ptr() as usize));
        self.sending = Some(sending);
    }
}
