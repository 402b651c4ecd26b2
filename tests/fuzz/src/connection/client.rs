//! A client: what it has sent, as the reading of its own decoder has it, and what it has received, read strictly.
//!
//! R8 is checked here: responses come in the order of the requests, each with the framing that its head promises and with
//! the bytes that were said for it; what the server says of itself is the last; and after the last there is nothing.

use m0serve::http1::{Event, Limits, RequestDecoder};

use super::super::wire::Message;
use super::exchange::{Exchange, Mode, Said};

/// One client.
pub struct Client {
    decoder: RequestDecoder,
    /// The requests in what it has sent.
    pub sent: Vec<Message>,
    /// Something that it has sent must be refused, or is a handshake that is.
    pub refused: bool,
    pub total: usize,
    pub largest: usize,
    pub fin: bool,
    /// A reset, a send that failed, or time that passed while it did not read: responses may be lost.
    pub hurt: bool,
    /// It is reading slowly or not at all.
    pub slow: bool,
    /// Its requests that the host was told of, as numbers of exchanges.
    pub told: Vec<usize>,
    /// Bytes received.
    pub received: usize,
    /// Bytes of what it received that are not read yet.
    unread: Vec<u8>,
    state: State,
    /// The request that is answered now or next.
    pub next: usize,
    /// A 100 came for it.
    interim: bool,
    may_close: bool,
    /// The response that is being read, or was last, closes the connection.
    pub close: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    Body(Mode, usize),
    /// In a chunk, with so many bytes to go.
    Chunk(usize, usize),
    /// A response of the server's own, with so many bytes to go; where it may answer HEAD, none at all need come.
    Own(usize, bool),
    Over,
}

/// What a response's head says.
#[derive(Debug, Default)]
struct Head {
    status: u16,
    length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
    serial: Option<usize>,
}

impl Client {
    pub fn new(limits: &Limits) -> Client {
        Client {
            decoder: RequestDecoder::new(limits),
            sent: Vec::new(),
            refused: false,
            total: 0,
            largest: 0,
            fin: false,
            hurt: false,
            slow: false,
            told: Vec::new(),
            received: 0,
            unread: Vec::new(),
            state: State::Head,
            next: 0,
            interim: false,
            may_close: false,
            close: false,
        }
    }

    /// It sends a segment.
    pub fn send(&mut self, bytes: &[u8]) {
        self.total += bytes.len();
        self.largest = self.largest.max(bytes.len());
        let mut input = bytes;
        while !self.refused {
            match self.decoder.decode(&mut input) {
                Ok(None) => return,
                Ok(Some(Event::Head(head))) => {
                    self.refused = head.upgrade != m0serve::handoff::Upgrade::None;
                    if !self.refused {
                        self.sent.push(Message::begin(&head));
                    }
                }
                Ok(Some(Event::Body(data))) => self.last().body.extend_from_slice(data),
                Ok(Some(Event::BodyEnd)) => self.last().complete = true,
                Err(_) => self.refused = true,
            }
        }
    }

    fn last(&mut self) -> &mut Message {
        self.sent.last_mut().expect("a head before a body")
    }

    /// Whether all that it asked for so far has been answered in full.
    pub fn is_served(&self) -> bool {
        self.state == State::Head && self.unread.is_empty() && self.next == self.told.len()
    }

    /// Whether what it is reading ends with the connection.
    pub fn is_at_end(&self, exchanges: &[Exchange]) -> bool {
        match self.state {
            State::Over => true,
            State::Body(Mode::UntilClose, at) => at == self.current(exchanges).body.len(),
            _ => false,
        }
    }

    fn current<'e>(&self, exchanges: &'e [Exchange]) -> &'e Exchange {
        &exchanges[self.told[self.next]]
    }

    /// It receives bytes, of responses of which the server may make any the last or not.
    pub fn receive(&mut self, bytes: &[u8], exchanges: &[Exchange], may_close: bool) {
        self.may_close = may_close;
        self.received += bytes.len();
        self.unread.extend_from_slice(bytes);
        while self.step(exchanges) {}
    }

    /// The connection has ended, and the client was there all the time: nothing that was completed is missing.
    pub fn check_ended(&self, exchanges: &[Exchange]) {
        assert!(
            !matches!(self.state, State::Own(_, false)),
            "an answer of the server's own was cut"
        );
        let Some(serial) = self.told.get(self.next) else { return };
        let exchange = &exchanges[*serial];
        if self.state != State::Over && exchange.said == Said::Done {
            assert!(
                self.is_at_end(exchanges),
                "the end of a complete response is missing: {exchange:?}"
            );
        }
    }

    fn take(&mut self, length: usize) -> Vec<u8> {
        let rest = self.unread.split_off(length);
        std::mem::replace(&mut self.unread, rest)
    }

    /// The next line, without its CRLF.
    fn line(&mut self) -> Option<Vec<u8>> {
        let lf = self.unread.iter().position(|byte| *byte == b'\n')?;
        let mut line = self.take(lf + 1);
        assert!(line.ends_with(b"\r\n"), "a line ends in CRLF: {}", line.escape_ascii());
        line.truncate(lf - 1);
        Some(line)
    }

    /// Reads on. Whether there may be more.
    fn step(&mut self, exchanges: &[Exchange]) -> bool {
        if self.unread.is_empty() {
            return false;
        }
        match self.state {
            State::Over => panic!("after the last response: {}", self.unread.escape_ascii()),
            State::Head => {
                let Some(end) = self.unread.windows(4).position(|four| four == b"\r\n\r\n") else {
                    return false;
                };
                let bytes = self.take(end + 4);
                let head = Head::read(&bytes[..end]);
                if head.status == 100 {
                    self.continues(exchanges, &bytes);
                } else {
                    self.begin(&head, exchanges);
                }
            }
            State::Own(left, _) => {
                let taken = left.min(self.unread.len());
                self.take(taken);
                self.state = if taken == left {
                    State::Over
                } else {
                    State::Own(left - taken, false)
                };
            }
            State::Body(Mode::Chunked, at) => return self.chunk_start(at, exchanges),
            State::Body(Mode::Length(length), at) => {
                let left = length - at as u64;
                let taken = usize::try_from(left).unwrap_or(usize::MAX).min(self.unread.len());
                self.body(at, taken, exchanges);
                if taken as u64 == left {
                    self.end();
                } else {
                    self.state = State::Body(Mode::Length(length), at + taken);
                }
            }
            State::Body(mode, at) => {
                let taken = self.unread.len();
                self.body(at, taken, exchanges);
                self.state = State::Body(mode, at + taken);
            }
            State::Chunk(left, at) => {
                let taken = left.min(self.unread.len());
                self.body(at, taken, exchanges);
                self.state = State::Chunk(left - taken, at + taken);
                if taken == left {
                    if self.unread.len() < 2 {
                        return false;
                    }
                    assert_eq!(self.take(2), b"\r\n", "after a chunk");
                    self.state = State::Body(Mode::Chunked, at + taken);
                }
            }
        }
        true
    }

    fn chunk_start(&mut self, at: usize, exchanges: &[Exchange]) -> bool {
        if self.unread.starts_with(b"0") && self.unread.len() < 5 {
            return false;
        }
        let Some(line) = self.line() else { return false };
        let text = String::from_utf8(line).expect("a chunk's size is text");
        let size = usize::from_str_radix(&text, 16).expect("a chunk's size");
        assert_eq!(text, format!("{size:x}"), "a plain size");
        if size > 0 {
            self.state = State::Chunk(size, at);
            return true;
        }
        assert_eq!(self.line().as_deref(), Some(&b""[..]), "no trailers");
        let exchange = self.current(exchanges);
        assert_eq!(
            (exchange.said, exchange.body.len()),
            (Said::Done, at),
            "the end of a body that has not ended"
        );
        self.end();
        true
    }

    fn body(&mut self, at: usize, length: usize, exchanges: &[Exchange]) {
        let got = self.take(length);
        let exchange = self.current(exchanges);
        let said = exchange.body.get(at..at + length);
        assert!(
            said == Some(&got[..]),
            "body bytes {at}..{} that were not said: {exchange:?}",
            at + length
        );
    }

    fn continues(&mut self, exchanges: &[Exchange], bytes: &[u8]) {
        assert_eq!(bytes, b"HTTP/1.1 100 Continue\r\n\r\n");
        let exchange = self.current(exchanges);
        assert!(
            exchange.expects && exchange.asked,
            "a 100 that was not asked for: {exchange:?}"
        );
        assert!(!std::mem::replace(&mut self.interim, true), "a second 100");
    }

    /// A final head.
    fn begin(&mut self, head: &Head, exchanges: &[Exchange]) {
        if let Some(before) = self.next.checked_sub(1) {
            let before = &exchanges[self.told[before]];
            assert_eq!(
                before.said,
                Said::Done,
                "a response after one that is not complete: {before:?}"
            );
        }
        assert!(!self.close, "a response after the last");
        self.close = head.close;
        let Some(serial) = head.serial else {
            return self.begin_own(head, exchanges);
        };
        assert_eq!(self.told.get(self.next), Some(&serial), "another's response");
        let exchange = &exchanges[serial];
        let planned = exchange.planned.expect("a head that was said");
        assert_eq!(head.status, planned.status);
        assert!(head.close || !planned.close, "a close that was asked for");
        let sent = &self.sent[exchange.number];
        let cut = self.fin && !sent.complete;
        let reason = planned.close || planned.mode == Mode::UntilClose || !sent.keep_alive || exchange.expects || cut;
        assert!(
            !head.close || reason || self.may_close,
            "a close for no reason: {exchange:?}"
        );
        let expected = planned.length.filter(|_| planned.status != 204);
        assert_eq!(head.length, expected);
        match planned.mode {
            Mode::None => assert!(!head.chunked || (exchange.is_head && head.length.is_none())),
            Mode::Length(_) => assert!(!head.chunked),
            Mode::Chunked => assert!(head.chunked),
            Mode::UntilClose => assert!(!head.chunked && head.close),
        }
        self.state = State::Body(planned.mode, 0);
        if matches!(planned.mode, Mode::None | Mode::Length(0)) {
            self.end();
        }
    }

    /// The server answers by itself.
    fn begin_own(&mut self, head: &Head, exchanges: &[Exchange]) {
        assert!(head.status >= 400 && head.close && !head.chunked, "{head:?}");
        let mut length = usize::try_from(head.length.expect("a length")).expect("a small body");
        if self.next < self.told.len() {
            let exchange = self.current(exchanges);
            assert_ne!(
                exchange.said,
                Said::Done,
                "instead of a response that was said: {head:?} {exchange:?}"
            );
            if exchange.is_head {
                length = 0;
            }
        }
        // What was refused before the host heard of it was HEAD or not: that is not known here.
        let untold = self.next == self.told.len();
        self.state = if length == 0 {
            State::Over
        } else {
            State::Own(length, untold)
        };
    }

    fn end(&mut self) {
        self.next += 1;
        self.interim = false;
        self.state = if self.close { State::Over } else { State::Head };
    }
}

impl Head {
    fn read(bytes: &[u8]) -> Head {
        let text = String::from_utf8(bytes.to_vec()).expect("a head of text");
        assert!(
            !text.contains('\0') && !text.replace("\r\n", "").contains(['\r', '\n']),
            "{text:?}"
        );
        let mut lines = text.split("\r\n");
        let first = lines.next().expect("a status line");
        let rest = first.strip_prefix("HTTP/1.1 ").expect("a status line");
        let (status, _) = rest.split_once(' ').expect("a reason, if an empty one");
        assert_eq!(status.len(), 3, "{first}");
        let mut head = Head {
            status: status.parse().expect("a status"),
            ..Head::default()
        };
        for line in lines {
            let (name, value) = line.split_once(": ").expect("a field");
            assert!(
                !name.is_empty() && name.bytes().all(|byte| byte == b'-' || byte.is_ascii_lowercase()),
                "{line}"
            );
            let repeated = match name {
                "content-length" => head.length.replace(value.parse().expect("a length")).is_some(),
                "transfer-encoding" => {
                    assert_eq!(value, "chunked");
                    std::mem::replace(&mut head.chunked, true)
                }
                "connection" => {
                    let repeated = head.close || head.keep_alive;
                    head.close = value == "close";
                    head.keep_alive = value == "keep-alive";
                    assert!(head.close || head.keep_alive, "{line}");
                    repeated
                }
                "x-id" => head.serial.replace(value.parse().expect("a number")).is_some(),
                _ => false,
            };
            assert!(!repeated, "{text}");
        }
        assert!(!head.chunked || head.length.is_none(), "{text}");
        head
    }
}
