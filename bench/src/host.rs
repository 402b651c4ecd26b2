//! A host without an application: it reads each body to its end and answers with a small response.
//!
//! What it says is what the ASGI host says for the same exchange: a head with two fields, one chunk that is copied
//! once, the end, and the release (R4).

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use m0serve::engine::Engine;
use m0serve::handoff::{Direct, ExchangeId, Frame, Job, Link, Outlet, ResponseHead, WINDOW};

/// What is answered.
const BODY: &[u8] = b"Hello, world!";

/// What a replay came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests answered.
    pub requests: u64,
    /// Body bytes that came with them.
    pub body_bytes: u64,
    /// Turns taken.
    pub turns: u64,
}

/// The host and its link.
pub struct Host {
    link: Link,
    /// Bytes of the window that bodies have used up since it was last opened, for exchanges whose body is arriving.
    arriving: HashMap<u32, u32>,
    tally: Tally,
}

impl Host {
    /// A host on an engine's thread.
    #[must_use]
    pub fn new(engine: Engine) -> Host {
        Host {
            link: Link::Direct(Box::new(Direct::new(engine))),
            arriving: HashMap::new(),
            tally: Tally::default(),
        }
    }

    /// Takes turns until one brings nothing to do.
    ///
    /// # Errors
    /// What the engine's wait gave.
    pub fn run(&mut self) -> io::Result<Tally> {
        let mut quiet = 0;
        // Two quiet turns: one only accepts, one may only hand back what was sent.
        while quiet < 3 {
            self.tally.turns += 1;
            let before = self.tally;
            self.turn()?;
            quiet = if before.requests == self.tally.requests && before.body_bytes == self.tally.body_bytes {
                quiet + 1
            } else {
                0
            };
        }
        Ok(self.tally)
    }

    fn turn(&mut self) -> io::Result<()> {
        if let Link::Direct(direct) = &mut self.link {
            direct.engine.wait(Some(Duration::ZERO))?;
            direct.engine.pass(|_, _| {});
        }
        while let Some(job) = self.link.next_job() {
            self.job(job);
        }
        self.link.flush()
    }

    fn job(&mut self, job: Job) {
        match job {
            Job::Request(request) => {
                self.tally.body_bytes += request.body.len() as u64;
                if request.body_complete {
                    self.answer(request.id);
                } else {
                    self.arriving.insert(request.id.index, 0);
                    self.link.push(Frame::WantBody(request.id, WINDOW));
                }
            }
            Job::Body(id, bytes) => {
                self.tally.body_bytes += bytes.len() as u64;
                self.link
                    .push(Frame::WantBody(id, u32::try_from(bytes.len()).unwrap_or(u32::MAX)));
            }
            Job::BodyEnd(id) => {
                self.arriving.remove(&id.index);
                self.answer(id);
            }
            Job::Credit(..) => {}
            other => panic!("a replay has no place for {other:?}"),
        }
    }

    fn answer(&mut self, id: ExchangeId) {
        let mut head = ResponseHead::new(200).expect("a good status");
        head.push(b"content-type", b"text/plain").expect("a good field");
        head.push(b"content-length", b"13").expect("a good field");
        self.link.push(Frame::Head(id, Box::new(head)));
        self.link.push(Frame::Chunk(id, Bytes::copy_from_slice(BODY)));
        self.link.push(Frame::End(id));
        self.link.push(Frame::Released(id));
        self.tally.requests += 1;
    }

    /// Exchanges that are still in use (none, after a replay: R9).
    #[must_use]
    pub fn exchanges(&self) -> u64 {
        match &self.link {
            Link::Direct(direct) => direct.engine.stats().exchanges,
            Link::Ring(_) => unreachable!("made with a direct link"),
        }
    }
}
