//! The decoder of one connection: what arrives becomes heads and pieces of bodies.

use super::chunked::{Chunked, Step};
use super::head::Parsed;
use super::scan::Scan;
use super::{Limits, Refusal};
use crate::handoff::head::TOKEN_LOWER;
use crate::handoff::{Framing, RequestHead};

/// What [`RequestDecoder::decode`] found.
#[derive(Debug)]
pub enum Event<'a> {
    /// A request begins. With [`Framing::Empty`] it is complete, and no `Body` and no `BodyEnd` follow.
    Head(RequestHead),
    /// Some of its body, never empty, decoded. Where the pieces part says nothing.
    Body(&'a [u8]),
    /// Its body is complete.
    BodyEnd,
}

/// What the end of the connection's input means (RFC 9112, section 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// Between requests: nothing is missing.
    Clean,
    /// A head was begun.
    CutHead,
    /// A body was begun; it must not look complete to anyone.
    CutBody,
}

/// Bytes of a refused request's first line that are kept for the log.
const KEPT_LINE: usize = 512;

/// Decodes the requests of one connection.
///
/// Between requests it holds no buffer; it keeps a copy of a head only while that is incomplete, at most
/// [`Limits::max_head`] bytes. Bodies pass through uncopied.
///
/// A chunked body is bounded on the wire, too: sizes, extensions and line ends may take 64 KiB and eight times the
/// body's bytes so far, and with a [`Limits::max_body`] no more than 64 KiB and that limit. A body in chunks of one byte
/// passes the first bound, one that hides a flood in extensions does not (413).
///
/// After a refusal every call gives that refusal. After a request that ends the connection (`connection: close`, or
/// HTTP/1.0 without `keep-alive`) and its body, whatever follows is consumed and ignored.
#[derive(Debug)]
pub struct RequestDecoder {
    limits: Limits,
    state: State,
    /// A head that has begun and not ended; after a refusal what is kept of its first line.
    partial: Vec<u8>,
    scan: Scan,
    /// The connection ends with this request.
    last: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Before a request line: nothing of an empty line, its CR, or all of it has been skipped.
    Before(EmptyLine),
    /// In a head, which `partial` holds.
    Head,
    /// In a body with so many bytes to come; 0 means that its end has not been told.
    Length(u64),
    Chunked(Chunked),
    /// The last request is complete.
    Done,
    Refused(Refusal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EmptyLine {
    None,
    Cr,
    Skipped,
}

impl RequestDecoder {
    /// A decoder at the start of a connection.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        // Positions in a head are 32 bits wide; half of that leaves room for what is added to it.
        let max_head = limits.max_head.min(1 << 31);
        Self {
            limits: Limits {
                max_head,
                max_target: limits.max_target.min(max_head),
                ..*limits
            },
            state: State::Before(EmptyLine::None),
            partial: Vec::new(),
            scan: Scan::default(),
            last: false,
        }
    }

    /// Takes the next event from the front of `input` and moves it past what was used. `None`: everything was used, more
    /// input is needed. Call it until then, also with empty input left: the end of a body may be all that is to tell.
    ///
    /// # Errors
    /// A [`Refusal`] when the client broke the protocol or a limit; it is final.
    pub fn decode<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, Refusal> {
        let event = match &mut self.state {
            State::Before(_) | State::Head => self.decode_head(input),
            State::Length(0) => Ok(Some(self.body_end())),
            State::Length(left) => {
                // A slice's length fits 64 bits, and the minimum fits whatever the slice fits.
                let taken = (input.len() as u64).min(*left) as usize;
                *left -= taken as u64;
                Ok(take(input, taken).map(Event::Body))
            }
            State::Chunked(chunked) => match chunked.decode(input, self.limits.max_body) {
                Ok(Step::More) => Ok(None),
                Ok(Step::Data(data)) => Ok(Some(Event::Body(data))),
                Ok(Step::End) => Ok(Some(self.body_end())),
                Err(refusal) => Err(refusal),
            },
            State::Done => {
                *input = &[];
                Ok(None)
            }
            State::Refused(refusal) => Err(*refusal),
        };
        if let Err(refusal) = event {
            match self.state {
                State::Before(_) => self.partial = first_line(input).to_vec(),
                State::Head => self.partial = first_line(&self.partial).to_vec(),
                State::Length(_) | State::Chunked(_) | State::Done | State::Refused(_) => {}
            }
            self.state = State::Refused(refusal);
        }
        event
    }

    /// What has come of the first line of a head that is not complete or was refused, as it came: for the log.
    #[must_use]
    pub fn request_line(&self) -> &[u8] {
        first_line(&self.partial)
    }

    /// Whether a head has begun and is not complete; the empty line that may precede one does not count.
    #[must_use]
    pub fn in_head(&self) -> bool {
        matches!(self.state, State::Head)
    }

    /// Whether a body has begun and its end has not been told.
    #[must_use]
    pub fn in_body(&self) -> bool {
        matches!(self.state, State::Length(_) | State::Chunked(_))
    }

    /// What it means if the peer sends no more now. Ask when `decode` has given `None`.
    #[must_use]
    pub fn finish(&self) -> Finish {
        match self.state {
            State::Head => Finish::CutHead,
            State::Length(_) | State::Chunked(_) => Finish::CutBody,
            State::Before(_) | State::Done | State::Refused(_) => Finish::Clean,
        }
    }

    /// Nothing further is to be decoded: it lets go of what it keeps, and ignores what follows.
    pub fn forget(&mut self) {
        self.partial = Vec::new();
        self.state = State::Done;
    }

    /// Bytes of memory that it holds beside itself.
    #[cfg(all(test, not(feature = "modelled")))]
    pub(super) fn held(&self) -> usize {
        if self.partial.is_empty() {
            self.partial.capacity()
        } else {
            self.partial.len()
        }
    }

    fn decode_head<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, Refusal> {
        if let State::Before(empty_line) = &mut self.state {
            if !skip_empty_line(empty_line, input)? {
                return Ok(None);
            }
            // The whole head may be there: then it is parsed where it lies, and copied once, into its own buffer.
            self.scan = Scan::default();
            let Some(length) = self.scan.find_end(input, &self.limits)? else {
                self.partial.extend_from_slice(input);
                *input = &[];
                self.state = State::Head;
                return Ok(None);
            };
            let (bytes, rest) = input.split_at(length);
            let parsed = Parsed::parse(bytes, &self.limits)?;
            *input = rest;
            return Ok(Some(self.begin(parsed.into_head(bytes.to_vec()))));
        }
        // One byte over the limit is enough to see that it is broken.
        let before = self.partial.len();
        let room = self.limits.max_head.saturating_add(1).saturating_sub(before);
        self.partial.extend_from_slice(&input[..input.len().min(room)]);
        let Some(length) = self.scan.find_end(&self.partial, &self.limits)? else {
            *input = &[];
            return Ok(None);
        };
        // The scan had not found an end in what there was before, so it lies in what was added.
        *input = &input[length - before..];
        self.partial.truncate(length);
        let parsed = Parsed::parse(&self.partial, &self.limits)?;
        let head = parsed.into_head(std::mem::take(&mut self.partial));
        Ok(Some(self.begin(head)))
    }

    /// Goes on to what follows a head.
    fn begin(&mut self, head: RequestHead) -> Event<'static> {
        self.last = !head.keep_alive;
        match head.framing {
            Framing::Empty => self.next_request(),
            Framing::Length(length) => self.state = State::Length(length),
            Framing::Chunked => self.state = State::Chunked(Chunked::new()),
        }
        Event::Head(head)
    }

    fn body_end(&mut self) -> Event<'static> {
        self.next_request();
        Event::BodyEnd
    }

    fn next_request(&mut self) {
        self.state = if self.last {
            State::Done
        } else {
            State::Before(EmptyLine::None)
        };
    }
}

/// Skips an empty line before a request line. Whether a request line begins at the front of `input`.
fn skip_empty_line(state: &mut EmptyLine, input: &mut &[u8]) -> Result<bool, Refusal> {
    while let [first, rest @ ..] = *input {
        *state = match (*state, first) {
            (EmptyLine::None, b'\r') => EmptyLine::Cr,
            (EmptyLine::Cr, b'\n') => EmptyLine::Skipped,
            (EmptyLine::Cr, _) => return Err(Refusal::LineEnd),
            (EmptyLine::Skipped, b'\r') => return Err(Refusal::EmptyLines),
            (EmptyLine::None | EmptyLine::Skipped, b'\n') => return Err(Refusal::BareLf),
            // Refused at the first byte: TLS and other protocols never send the end of a line.
            (_, byte) if TOKEN_LOWER[usize::from(*byte)] == 0 => return Err(Refusal::Method),
            _ => return Ok(true),
        };
        *input = rest;
    }
    Ok(false)
}

/// The first line without its end, or what there is of it, cut to what a log needs.
fn first_line(head: &[u8]) -> &[u8] {
    let head = &head[..head.len().min(KEPT_LINE)];
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Cuts `taken` bytes off the front; `None` for none.
fn take<'a>(input: &mut &'a [u8], taken: usize) -> Option<&'a [u8]> {
    let (front, rest) = input.split_at(taken);
    *input = rest;
    (taken != 0).then_some(front)
}
