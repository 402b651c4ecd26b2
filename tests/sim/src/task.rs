//! One exchange as a scripted application serves it.

use std::collections::VecDeque;

use bytes::Bytes;
use m0serve::handoff::{ExchangeId, Frame, Outlet, Request, ResponseHead, WINDOW, Why, charge};
use m0serve::host::incoming::Incoming;
use m0serve::host::outgoing::{Outgoing, PIECE};

use crate::client::{has_body, said_of};
use crate::host::Said;
use crate::plan::{Ask, Fate, Framing, Nanos, Plan, Reading};
use crate::world::World;

/// Where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Before,
    Read,
    Head,
    ReadLate,
    Body,
    File,
    End,
    After,
    Over,
}

/// One exchange.
#[derive(Debug)]
pub struct Task {
    id: ExchangeId,
    client: usize,
    number: usize,
    ask: Ask,
    stage: Stage,
    wakes: Option<Nanos>,
    incoming: Incoming,
    outgoing: Outgoing,
    /// Bytes of the body that have come and that were taken.
    came: usize,
    taken: usize,
    /// Charged bytes of the body that came, and for which room was given.
    charged: u64,
    room: u64,
    ended: bool,
    aborted: bool,
    reset: bool,
    said: usize,
    file_sent: bool,
    /// What each frame of the body was charged that has not come back.
    charges: VecDeque<u32>,
}

impl Task {
    /// A request that is exactly what its client sent.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn begin(world: &World, mut request: Request) -> Result<Task, String> {
        let head = &request.head;
        let path = String::from_utf8_lossy(head.get(head.path)).into_owned();
        let mut parts = path.split('/').skip(1).map(|part| part.parse::<usize>().ok());
        let (Some(Some(client)), Some(Some(number))) = (parts.next(), parts.next()) else {
            return Err(format!("R8: a request for {path}"));
        };
        let ask = world
            .ask(client, number)
            .ok_or_else(|| format!("R8: nobody asked for {path}"))?;
        let named = head
            .iter()
            .any(|(name, value)| name == b"x-ask" && value == &path.as_bytes()[1..]);
        let framing = match ask.framing {
            Framing::Empty => m0serve::handoff::Framing::Empty,
            Framing::Length => m0serve::handoff::Framing::Length(ask.size as u64),
            Framing::Chunked(_) => m0serve::handoff::Framing::Chunked,
        };
        let same = head.get(head.method) == ask.method.as_bytes()
            && head.get(head.query) == b"q"
            && head.framing == framing
            && head.expect_continue == ask.expect.is_some();
        if !named || !same || ask.nonsense {
            return Err(format!("R8: {path} is not what was asked: {head:?}"));
        }
        let (is_head, ask) = (head.is_head(), ask.clone());
        let (body, complete) = (std::mem::take(&mut request.body), request.body_complete);
        let mut task = Task {
            id: request.id,
            client,
            number,
            stage: Stage::Before,
            wakes: Some(world.now() + ask.app.before),
            ask,
            outgoing: Outgoing::new(request.id, is_head),
            came: 0,
            taken: 0,
            charged: 0,
            room: u64::from(WINDOW),
            ended: false,
            aborted: false,
            reset: false,
            said: 0,
            file_sent: false,
            charges: VecDeque::new(),
            incoming: Incoming::new(&mut request),
        };
        if !body.is_empty() {
            task.body(body)?;
        }
        if complete {
            task.body_end()?;
        }
        Ok(task)
    }

    /// Its exchange.
    #[must_use]
    pub fn id(&self) -> ExchangeId {
        self.id
    }

    /// Whose request it is, and which.
    #[must_use]
    pub fn name(&self) -> (usize, usize) {
        (self.client, self.number)
    }

    /// When it goes on by itself.
    #[must_use]
    pub fn wakes_at(&self) -> Option<Nanos> {
        self.wakes
    }

    // --- what it is told -------------------------------------------------------------------------------------------

    fn open(&self, what: &str) -> Result<(), String> {
        if self.reset {
            return Err(format!("R2: {what} of {:?} after its reset", self.id));
        }
        Ok(())
    }

    /// More of the body.
    pub fn body(&mut self, bytes: Bytes) -> Result<(), String> {
        self.open("a body")?;
        let pattern = Plan::asked(self.client, self.number);
        if self.ended || self.aborted || bytes.is_empty() || !pattern.matches(self.came, &bytes) {
            return Err(format!(
                "R2: bytes of {:?} that are not its own, at {}",
                self.id, self.came
            ));
        }
        self.came += bytes.len();
        if self.charged >= self.room {
            return Err(format!("R7: {:?} is sent more than its window", self.id));
        }
        self.charged += u64::from(charge(bytes.len()));
        self.incoming.push(bytes);
        Ok(())
    }

    /// All of it has come.
    pub fn body_end(&mut self) -> Result<(), String> {
        self.open("an end")?;
        if self.ended || self.aborted || self.came != self.ask.size {
            return Err(format!(
                "R8: {:?} ends after {} of {}",
                self.id, self.came, self.ask.size
            ));
        }
        self.ended = true;
        self.incoming.finish();
        Ok(())
    }

    /// The client has finished.
    pub fn aborted(&mut self, _why: Why) -> Result<(), String> {
        self.open("an abort")?;
        if std::mem::replace(&mut self.aborted, true) {
            return Err(format!("R2: {:?} is aborted twice", self.id));
        }
        self.incoming.end();
        Ok(())
    }

    /// Bytes have left.
    pub fn credit(&mut self, charged: u32) -> Result<(), String> {
        self.open("credit")?;
        let mut left = charged;
        while left > 0 {
            let Some(whole) = self.charges.pop_front().and_then(|charge| left.checked_sub(charge)) else {
                return Err(format!(
                    "R7: {:?} gets {charged} back, which it was not charged",
                    self.id
                ));
            };
            left = whole;
        }
        self.outgoing.credit(charged);
        Ok(())
    }

    /// The file has left.
    pub fn file_sent(&mut self, well: bool) -> Result<(), String> {
        self.open("a file's end")?;
        if !well || self.stage != Stage::File {
            return Err(format!("R2: {:?} is told of a file", self.id));
        }
        self.file_sent = true;
        Ok(())
    }

    /// The connection is gone.
    pub fn reset(&mut self, _why: Why) -> Result<(), String> {
        self.open("a second reset")?;
        self.reset = true;
        self.outgoing.reset();
        Ok(())
    }

    // --- what it does ----------------------------------------------------------------------------------------------

    fn wait(&mut self, world: &World, time: Nanos) {
        self.wakes = (time > 0).then_some(world.now() + time);
    }

    /// Goes on as far as it can. Whether it is over.
    pub fn advance(&mut self, world: &World, out: &mut Said) -> Result<bool, String> {
        loop {
            if self.wakes.is_some_and(|at| at > world.now()) {
                return Ok(false);
            }
            self.wakes = None;
            if self.reset && self.stage != Stage::Over {
                self.stage = Stage::Over; // as an application that its server has cancelled
            }
            let next = match self.stage {
                Stage::Over => return Ok(true),
                Stage::Before if self.ask.app.reading == Reading::First => Some(Stage::Read),
                Stage::Before => Some(Stage::Head),
                Stage::Read => self.read(out).then_some(Stage::Head),
                Stage::Head => Some(self.start(world, out)),
                Stage::ReadLate => self.read(out).then_some(Stage::Body),
                Stage::Body => self.say_piece(world, out),
                Stage::File => self.file_sent.then_some(Stage::End),
                Stage::End => Some(self.end(world, out)),
                Stage::After => Some(Stage::Over),
            };
            match next {
                Some(stage) => self.stage = stage,
                None => return Ok(false),
            }
        }
    }

    /// Takes what has come of the body. Whether there is no more of it.
    fn read(&mut self, out: &mut Said) -> bool {
        let before = out.0.len();
        if let Some((pieces, _)) = self.incoming.take_all(out) {
            self.taken += pieces.iter().map(Bytes::len).sum::<usize>();
        }
        let done = self.incoming.is_complete() || self.incoming.is_over();
        if !done {
            self.incoming.ask(out);
        }
        for frame in out.0.range(before..) {
            if let Frame::WantBody(_, window) = frame {
                self.room += u64::from(*window);
            }
        }
        done
    }

    /// Says the head, or what comes in its place.
    fn start(&mut self, world: &World, out: &mut Said) -> Stage {
        let app = &self.ask.app;
        match app.fate {
            Fate::Raises => {
                out.push(Frame::Abort(self.id, Why::HostError));
                return Stage::Over;
            }
            Fate::Abandons => return Stage::Over,
            Fate::BodyFirst => out.push(Frame::Chunk(self.id, Bytes::from_static(b"too early"))),
            Fate::EndFirst => out.push(Frame::End(self.id)),
            _ => {
                let head = self.head();
                self.outgoing.start(head);
                self.outgoing.push_head(out);
                let between = app.between;
                let late = app.reading == Reading::Late;
                self.wait(world, between);
                return if late { Stage::ReadLate } else { Stage::Body };
            }
        }
        Stage::After
    }

    fn head(&self) -> ResponseHead {
        let app = &self.ask.app;
        let mut head = ResponseHead::new(app.status).expect("a good status");
        let mut push = |name: &str, value: &str| head.push(name.as_bytes(), value.as_bytes()).expect("a good field");
        push("x-ask", &format!("{}/{}", self.client, self.number));
        if app.close {
            push("connection", "close");
        }
        if app.sized {
            let more = if app.fate == Fate::TooShort { 7 } else { 0 };
            push("content-length", &(app.size + more).to_string());
        }
        head
    }

    /// Says one piece of the body, while the window has room.
    fn say_piece(&mut self, world: &World, out: &mut Said) -> Option<Stage> {
        let app = &self.ask.app;
        let size = said_of(&self.ask);
        if app.file && has_body(&self.ask) {
            let pattern = Plan::answered(self.client, self.number);
            out.push(Frame::File(self.id, pattern.file(), pattern.offset(), size as u64));
            return Some(Stage::File);
        }
        if self.said == size {
            return Some(Stage::End);
        }
        if !self.outgoing.has_window() {
            return None;
        }
        let len = app.piece.min(PIECE).min(size - self.said);
        let mut piece = Vec::with_capacity(len);
        Plan::answered(self.client, self.number).append(self.said, len, &mut piece);
        self.said += len;
        let between = app.between;
        self.charges.push_back(charge(len));
        self.outgoing.push_piece(&piece, out);
        self.wait(world, between);
        Some(Stage::Body)
    }

    /// Says the end, or what comes in its place.
    fn end(&mut self, world: &World, out: &mut Said) -> Stage {
        match self.ask.app.fate {
            Fate::Breaks => out.push(Frame::Abort(self.id, Why::HostError)),
            Fate::Leaves => return Stage::Over,
            Fate::TwoHeads => out.push(Frame::Head(self.id, Box::new(self.head()))),
            Fate::TooLong => {
                self.charges.push_back(charge(4));
                out.push(Frame::Chunk(self.id, Bytes::from_static(b"more")));
                out.push(Frame::End(self.id));
            }
            _ => out.push(Frame::End(self.id)),
        }
        self.wait(world, self.ask.app.after);
        Stage::After
    }
}
