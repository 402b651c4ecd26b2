//! Simulated clients: each sends what its plan says and knows the right answer to the byte (R8).
//!
//! A connection may end early, or a response be cut, only where the plan or a fault excuses it.

use crate::pattern::Pattern;
use crate::plan::{Ask, Caller, Ending, Fate, Framing, Nanos, Plan, SECOND};
use crate::reader::{Head, Read, Reader};
use crate::world::World;

/// Longer than every time-out of every world.
const STALL: Nanos = 100 * SECOND;

/// No answer takes so long beyond what its application waits, where nothing stalls.
const LATE: Nanos = 4 * SECOND;

/// One client.
#[derive(Debug)]
pub struct Client {
    /// Its number.
    pub id: usize,
    caller: Caller,
    /// Its connection.
    pub conn: Option<usize>,
    /// Asks that have been put into `out`.
    begun: usize,
    out: Vec<u8>,
    at: usize,
    /// Nothing past this position leaves before `100 Continue`, or until then.
    hold: Option<(usize, Nanos)>,
    sent: usize,
    /// By request: where it ends in all that is sent.
    pub ends: Vec<usize>,
    /// By request: when it had been sent.
    sent_at: Vec<Nanos>,
    finished: bool,
    reader: Reader,
    /// Asks that were answered in full.
    pub answered: usize,
    head: Option<Head>,
    body: usize,
    continued: bool,
    /// A response has said that the connection closes.
    closing: bool,
    /// When the last answer was complete.
    answered_at: Nanos,
    stalled_until: Nanos,
    /// Why its connection may end at any time, and its response be cut.
    pub excuse: Option<&'static str>,
    /// The server was told to drain: it may close what has not been answered.
    pub draining: bool,
    /// When it steps next, and which of the events on their way is that step.
    pub due: Option<Nanos>,
    /// See `due`.
    pub stamp: u32,
    /// It has left.
    pub done: bool,
}

impl Client {
    /// A client that has not connected.
    #[must_use]
    pub fn new(id: usize, caller: Caller) -> Client {
        Client {
            id,
            caller,
            conn: None,
            begun: 0,
            out: Vec::new(),
            at: 0,
            hold: None,
            sent: 0,
            ends: Vec::new(),
            sent_at: Vec::new(),
            finished: false,
            reader: Reader::default(),
            answered: 0,
            head: None,
            body: 0,
            continued: false,
            closing: false,
            answered_at: 0,
            stalled_until: 0,
            excuse: None,
            draining: false,
            due: None,
            stamp: 0,
            done: false,
        }
    }

    /// Its plan.
    #[must_use]
    pub fn ask(&self, ask: usize) -> Option<&Ask> {
        self.caller.asks.get(ask)
    }

    /// Time between its steps, at most.
    #[must_use]
    pub fn pace(&self) -> Nanos {
        self.caller.pace
    }

    /// When it connects.
    #[must_use]
    pub fn starts(&self) -> Nanos {
        self.caller.at
    }

    /// Does what there is to do. When to step again, unless only something that happens to it makes that of use.
    ///
    /// # Errors
    /// What the server did wrong.
    pub fn step(&mut self, world: &mut World) -> Result<Option<Nanos>, String> {
        let Some(conn) = self.conn else {
            self.conn = world.connect(self.id);
            self.done = self.conn.is_none();
            return Ok((!self.done).then_some(world.now()));
        };
        if world.now() < self.stalled_until {
            return Ok(Some(self.stalled_until));
        }
        if world.faults() && world.random.once_in(world.weather.stalls) {
            world.note(|| format!("client {}: stalls", self.id));
            self.excuse = Some("it stalled");
            self.stalled_until = world.now() + STALL;
            return Ok(Some(self.stalled_until));
        }
        let bytes = world.client_reads(conn, self.caller.reads);
        let read = bytes.len();
        self.take(world, &bytes)?;
        let more = !world.kernel.conns[conn].arrived.is_empty();
        let over = world.kernel.conns[conn].fin || world.kernel.conns[conn].reset;
        if over && !more {
            self.ended(world, conn)?;
            self.leave(world, conn, false);
            return Ok(None);
        }
        let stays = self.caller.ending == Ending::Stays;
        if self.answered == self.caller.asks.len() && self.at == self.out.len() && !stays || self.closing {
            self.leave(world, conn, false);
            return Ok(None);
        }
        let sent = self.send(world, conn);
        if matches!(self.caller.ending, Ending::ResetsAfter(after) if self.sent >= after) {
            self.excuse = Some("it reset its connection");
            self.leave(world, conn, true);
            return Ok(None);
        }
        if more || read > 0 || sent > 0 {
            return Ok(Some(world.now() + world.random.below(self.caller.pace + 1)));
        }
        Ok(self.hold.map(|(_, until)| until))
    }

    fn leave(&mut self, world: &mut World, conn: usize, reset: bool) {
        world.note(|| format!("client {}: leaves, answered {}", self.id, self.answered));
        world.client_leaves(conn, reset);
        self.done = true;
    }

    // --- asking ----------------------------------------------------------------------------------------------------

    fn send(&mut self, world: &mut World, conn: usize) -> usize {
        if self.finished {
            return 0;
        }
        while self.begun < self.caller.asks.len()
            && self.begun - self.answered < self.caller.ahead
            && self.hold.is_none()
        {
            self.begin(world.now());
        }
        if self.hold.is_some_and(|(_, until)| until <= world.now()) {
            self.hold = None;
        }
        let end = self.hold.map_or(self.out.len(), |(end, _)| end);
        let mut most = (end - self.at).min(world.room(conn)).min(self.caller.segment);
        if let Ending::HalfClosesAfter(after) = self.caller.ending {
            most = most.min(after.saturating_sub(self.sent));
            if self.sent >= after {
                self.finish(world, conn);
            }
        }
        if most > 0 {
            let len = world.random.from_to(1, most as u64) as usize;
            world.client_sends(conn, self.out[self.at..self.at + len].to_vec());
            self.at += len;
            self.sent += len;
            while self.ends.get(self.sent_at.len()).is_some_and(|end| *end <= self.sent) {
                self.sent_at.push(world.now());
            }
            return len;
        }
        let all = self.at == self.out.len() && self.begun == self.caller.asks.len();
        if all && self.caller.ending == Ending::HalfCloses {
            self.finish(world, conn);
        }
        0
    }

    fn finish(&mut self, world: &mut World, conn: usize) {
        world.note(|| format!("client {}: half-closes", self.id));
        world.client_finishes(conn);
        self.finished = true;
        self.hold = None;
    }

    /// Puts the next request into what is to be sent.
    fn begin(&mut self, now: Nanos) {
        self.put_request(now);
        self.ends.push(self.sent + self.out.len() - self.at);
    }

    fn put_request(&mut self, now: Nanos) {
        let (id, number) = (self.id, self.begun);
        let ask = &self.caller.asks[number];
        if self.at == self.out.len() {
            self.out.clear();
            self.at = 0;
        }
        self.begun += 1;
        if ask.nonsense {
            self.out.extend_from_slice(b"\x01nonsense\r\n\r\n");
            return;
        }
        let version = if ask.old { "1.0" } else { "1.1" };
        let connection = match (ask.old, ask.keep_alive) {
            (false, true) | (true, false) => "",
            (false, false) => "connection: close\r\n",
            (true, true) => "connection: keep-alive\r\n",
        };
        let framing = match ask.framing {
            Framing::Empty => String::new(),
            Framing::Length => format!("content-length: {}\r\n", ask.size),
            Framing::Chunked(_) => "transfer-encoding: chunked\r\n".into(),
        };
        let expect = if ask.expect.is_some() {
            "expect: 100-continue\r\n"
        } else {
            ""
        };
        let head = format!(
            "{} /{id}/{number}?q HTTP/{version}\r\nhost: a\r\nx-ask: {id}/{number}\r\n{connection}{framing}{expect}",
            ask.method
        );
        self.out.extend_from_slice(head.as_bytes());
        if ask.padding > 0 {
            self.out.extend_from_slice(b"padding: ");
            self.out.resize(self.out.len() + ask.padding, b'p');
            self.out.extend_from_slice(b"\r\n");
        }
        self.out.extend_from_slice(b"\r\n");
        if let Some(wait) = ask.expect {
            self.hold = Some((self.out.len(), now + wait));
        }
        let pattern = Plan::asked(id, number);
        match ask.framing {
            Framing::Empty => {}
            Framing::Length => pattern.append(0, ask.size, &mut self.out),
            Framing::Chunked(most) => append_chunks(pattern, ask.size, most, &mut self.out),
        }
    }

    // --- being answered --------------------------------------------------------------------------------------------

    fn take(&mut self, world: &mut World, mut bytes: &[u8]) -> Result<(), String> {
        loop {
            let head_only = self
                .caller
                .asks
                .get(self.answered)
                .is_some_and(|ask| ask.method == "HEAD");
            let read = self.reader.read(&mut bytes, head_only);
            match read.map_err(|error| format!("R8: client {}: {error}", self.id))? {
                None => return Ok(()),
                Some(Read::Continue) => self.take_continue()?,
                Some(Read::Head(head)) => self.take_head(world, head)?,
                Some(Read::Body(body)) => {
                    let at = self.body;
                    self.body += body.len();
                    if !self.fits(at, body) {
                        return Err(format!("R8: client {}: bytes of another body at {at}", self.id));
                    }
                }
                Some(Read::End) => self.take_end(world)?,
            }
        }
    }

    fn take_continue(&mut self) -> Result<(), String> {
        let waits = self
            .caller
            .asks
            .get(self.answered)
            .is_some_and(|ask| ask.expect.is_some());
        if !waits || std::mem::replace(&mut self.continued, true) {
            return Err(format!("R8: client {}: 100 Continue that it did not ask for", self.id));
        }
        if self.answered + 1 == self.begun {
            self.hold = None;
        }
        Ok(())
    }

    fn take_head(&mut self, world: &mut World, head: Head) -> Result<(), String> {
        let (id, number) = (self.id, self.answered);
        world.note(|| format!("client {id}: the head of response {number}: {head:?}"));
        if number >= self.begun {
            // The server may refuse a connection that has asked nothing.
            return self.refused(world, head);
        }
        let ask = &self.caller.asks[number];
        let expected = match ask.app.fate {
            _ if ask.nonsense => 400,
            Fate::Raises | Fate::Abandons | Fate::BodyFirst | Fate::EndFirst => 500,
            _ => ask.app.status,
        };
        let own = expected == ask.app.status && !ask.nonsense;
        if head.status != expected || own && head.ask != Some((id, number)) {
            return self.refused(world, head);
        }
        if !own && !head.close {
            return Err(format!("R8: client {id}: an error that does not close"));
        }
        let must_close = ask.app.close || !ask.keep_alive || head.length.is_none() && !head.chunked && has_body(ask);
        if own && must_close && !head.close {
            return Err(format!("R8: client {id}: response {number} does not close"));
        }
        self.body = 0;
        self.head = Some(head);
        Ok(())
    }

    /// A response that is not the application's.
    fn refused(&mut self, world: &World, head: Head) -> Result<(), String> {
        let excused = match head.status {
            503 => self.answered == 0 && world.is_limited(),
            408 => self.excuse.is_some(),
            _ => false,
        };
        if !excused || !head.close || head.ask.is_some() {
            return Err(format!("R8: client {}: {head:?} answers {}", self.id, self.answered));
        }
        self.excuse = Some("it was refused");
        self.head = Some(head);
        self.body = 0;
        Ok(())
    }

    /// Whether the bytes are those of the response at this place; errors have a text of the server's.
    fn fits(&self, at: usize, bytes: &[u8]) -> bool {
        let is_own = self.head.as_ref().is_some_and(|head| head.ask.is_some());
        !is_own || Plan::answered(self.id, self.answered).matches(at, bytes)
    }

    fn take_end(&mut self, world: &mut World) -> Result<(), String> {
        let head = self.head.take().ok_or("an end without a head")?;
        if head.close {
            self.closing = true;
        }
        self.continued = false;
        if self.excuse == Some("it was refused") {
            return Ok(());
        }
        let (id, number) = (self.id, self.answered);
        let ask = &self.caller.asks[number];
        if head.ask.is_some() {
            let complete = has_body(ask)
                .then_some(ask.app.size)
                .is_none_or(|size| size == self.body);
            if !may_be_whole(ask) || !complete {
                return Err(format!(
                    "R8: client {id}: response {number} looks whole with {} bytes",
                    self.body
                ));
            }
            if ask.app.fate != Fate::Whole {
                self.excuse = Some("its response was broken by the application");
            }
        }
        self.check_delay(world)?;
        self.answered += 1;
        world.count_answer();
        if self.answered == self.begun && self.hold.is_some() {
            self.hold = None; // the answer came instead
        }
        Ok(())
    }

    /// An answer that comes only when some time-out of the server's has woken it was lost until then (R5).
    fn check_delay(&mut self, world: &World) -> Result<(), String> {
        let app = &self.caller.asks[self.answered].app;
        let pieces = (app.size / app.piece + 2) as Nanos;
        let own = app.before + pieces * app.between;
        let since = self.sent_at.get(self.answered).copied().unwrap_or(world.now());
        let took = world.now() - since.max(std::mem::replace(&mut self.answered_at, world.now()));
        if self.excuse.is_none() && !world.may_be_late() && took > own + LATE {
            let ms = took / 1_000_000;
            return Err(format!("R5: client {}: answer {} took {ms} ms", self.id, self.answered));
        }
        Ok(())
    }

    /// The server has ended the connection.
    fn ended(&mut self, world: &mut World, conn: usize) -> Result<(), String> {
        let (reset, id) = (world.kernel.conns[conn].reset, self.id);
        if self.reader.ends_by_close() && !reset {
            let ask = &self.caller.asks[self.answered];
            if !may_be_whole(ask) && self.excuse.is_none() {
                return Err(format!("R8: client {id}: a response that was cut ends as a whole one"));
            }
            if self.excuse.is_none() {
                return self.take_end(world);
            }
        }
        let ask = self.caller.asks[..self.begun].get(self.answered);
        let broken = ask.is_some_and(|ask| ask.app.fate != Fate::Whole);
        // Where descriptors are short, a drain leaves those of an answer on its way to those who have had none.
        let hurried = reset && self.draining && world.weather.accept_fails != 0;
        let excused = self.excuse.is_some() || self.closing || hurried;
        let cut = !self.reader.is_between();
        if cut && !excused && !broken {
            return Err(format!("R8: client {id}: response {} is cut", self.answered));
        }
        let (came, said) = (self.body, ask.map_or(0, said_of));
        if cut && !excused && self.head.is_some() && came < said {
            return Err(format!(
                "R8: client {id}: of response {}, which breaks off, {came} of {said} bytes came",
                self.answered
            ));
        }
        // One that has half-closed, or stays on, and has all its answers is closed without a word.
        let whole = self.ends.iter().filter(|end| **end <= self.sent).count();
        let stays = self.caller.ending == Ending::Stays && whole == self.caller.asks.len();
        let served = (self.finished || stays) && self.answered >= whole;
        let may_end = excused || served || self.draining;
        if !cut && !may_end {
            return Err(format!(
                "R8: client {id}: the connection ends with {} of {} answered (reset: {reset})",
                self.answered, self.begun
            ));
        }
        Ok(())
    }
}

fn append_chunks(pattern: Pattern, size: usize, most: usize, out: &mut Vec<u8>) {
    let mut at = 0;
    while at < size {
        let len = most.min(size - at);
        out.extend_from_slice(format!("{len:x}\r\n").as_bytes());
        pattern.append(at, len, out);
        out.extend_from_slice(b"\r\n");
        at += len;
    }
    out.extend_from_slice(b"0\r\n\r\n");
}

/// Whether the response to it has a body on the wire.
#[must_use]
pub fn has_body(ask: &Ask) -> bool {
    ask.method != "HEAD" && !matches!(ask.app.status, 204 | 304)
}

/// Bytes of the response's body that the application says, if its response breaks off.
#[must_use]
pub fn said_of(ask: &Ask) -> usize {
    let breaks = matches!(ask.app.fate, Fate::Breaks | Fate::Leaves | Fate::TwoHeads);
    if breaks { ask.app.size / 2 } else { ask.app.size }
}

/// Whether its response may look complete to a client.
fn may_be_whole(ask: &Ask) -> bool {
    match ask.app.fate {
        Fate::Whole | Fate::TooLong => true,
        Fate::Raises | Fate::Abandons | Fate::BodyFirst | Fate::EndFirst => true,
        Fate::Breaks | Fate::Leaves | Fate::TwoHeads => !has_body(ask) || ask.app.sized && ask.app.size == 0,
        Fate::TooShort => !has_body(ask),
    }
}
