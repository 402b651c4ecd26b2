//! The heads of requests and responses, in the form that crosses a link: one owned buffer plus spans.
//!
//! Protocol-neutral: HTTP/1.1 fills and writes them today, another version may tomorrow.

/// A range in a head's buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

/// The version that a request spoke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
}

/// How the end of a message's body is found (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    Empty,
    /// Content-Length, above zero.
    Length(u64),
    /// Transfer-Encoding: chunked.
    Chunked,
}

/// What the client asked to switch to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upgrade {
    /// Nothing, or something that we ignore (h2c and the rest).
    None,
    /// `GET` with `Connection: upgrade` and `Upgrade: websocket`.
    WebSocket,
}

/// A request's head. Checked: no span holds CR, LF or NUL; names are lower-case tokens.
#[derive(Clone, Debug)]
pub struct RequestHead {
    /// What the spans point into: the head as it was received, with field names made lower-case.
    pub buf: Vec<u8>,
    /// The method, a token, in the case it was sent in.
    pub method: Span,
    /// Path as sent (percent-encoded), without the query. An absolute-form target is reduced to its path; `*` stays.
    pub path: Span,
    /// What follows the first `?`, without it; empty when there is none.
    pub query: Span,
    /// Version.
    pub version: Version,
    /// Names and values in order, repeated ones repeated. Values without the white space around them.
    pub fields: Vec<(Span, Span)>,
    /// How its body ends.
    pub framing: Framing,
    /// Whether the client allows the connection to go on.
    pub keep_alive: bool,
    /// Whether it waits for `100 Continue`.
    pub expect_continue: bool,
    /// What it asks to switch to.
    pub upgrade: Upgrade,
}

impl RequestHead {
    /// The bytes of a span.
    #[must_use]
    pub fn get(&self, span: Span) -> &[u8] {
        &self.buf[span.start as usize..span.end as usize]
    }

    /// Whether the method is HEAD, whose responses have no body.
    #[must_use]
    pub fn is_head(&self) -> bool {
        self.get(self.method) == b"HEAD"
    }

    /// Names and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields
            .iter()
            .map(|(name, value)| (self.get(*name), self.get(*value)))
    }
}

/// Why a response's head was not accepted from an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHead {
    /// The status is outside 100..=999 or is informational.
    Status,
    /// A name that is empty or no token (RFC 9110, section 5.1).
    Name,
    /// A value with CR, LF or NUL.
    Value,
    /// A phrase with a character that a status line cannot carry (RFC 9112, section 4).
    Reason,
    /// Content-Length that is no number, or two that differ.
    ContentLength,
    /// The head is larger than 1 MiB.
    TooLarge,
}

impl BadHead {
    /// One sentence for the application's traceback.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self {
            BadHead::Status => "the response status must be an integer from 200 to 999",
            BadHead::Name => "a response header name is empty or has a character that is not allowed",
            BadHead::Value => "a response header value contains CR, LF or NUL",
            BadHead::Reason => "the response status has a character that is not allowed in its phrase",
            BadHead::ContentLength => "the response's content-length is not one non-negative integer",
            BadHead::TooLarge => "the response head is larger than 1 MiB",
        }
    }
}

/// A response's head, composed by a host field by field.
///
/// Fields lie one after another as `name: value\r\n`, in the order and with the names' case made lower: a writer for
/// HTTP/1.1 copies them in one piece, one for another version splits at the first `:` and at CRLF (neither can occur
/// inside, since [`ResponseHead::push`] refuses them).
#[derive(Clone, Debug)]
pub struct ResponseHead {
    /// 200..=999.
    pub status: u16,
    /// The application's own phrase for it, where it has one. Versions after HTTP/1.1 have no place for it.
    pub reason: Option<Box<[u8]>>,
    /// The fields, without the ones of framing: `transfer-encoding` and `connection` are the engine's (a `connection:
    /// close` from the application sets `close`).
    pub fields: Vec<u8>,
    /// From the application's Content-Length; the field itself is in `fields`.
    pub content_length: Option<u64>,
    /// The application asked to close.
    pub close: bool,
    /// The application sent a `date` of its own.
    pub has_date: bool,
    /// The application sent a `server` of its own.
    pub has_server: bool,
}

/// A response head's fields are at most this many bytes (R7).
pub const MAX_RESPONSE_FIELDS: usize = 1024 * 1024;

impl ResponseHead {
    /// A head without fields.
    ///
    /// # Errors
    /// [`BadHead::Status`] unless the status is from 200 to 999: informational responses are the engine's.
    pub fn new(status: u16) -> Result<Self, BadHead> {
        if !(200..=999).contains(&status) {
            return Err(BadHead::Status);
        }
        Ok(Self {
            status,
            reason: None,
            fields: Vec::new(),
            content_length: None,
            close: false,
            has_date: false,
            has_server: false,
        })
    }

    /// Takes a phrase of the application's own.
    ///
    /// # Errors
    /// [`BadHead::Reason`], [`BadHead::TooLarge`].
    pub fn set_reason(&mut self, reason: &[u8]) -> Result<(), BadHead> {
        if reason.len() > MAX_RESPONSE_FIELDS {
            return Err(BadHead::TooLarge);
        }
        if !reason.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~' | 0x80..)) {
            return Err(BadHead::Reason);
        }
        self.reason = Some(reason.into());
        Ok(())
    }

    /// Adds a field: the name made lower-case, the value without the spaces and tabs around it, else untouched.
    ///
    /// `connection`, `keep-alive` and `transfer-encoding` say how a message travels, which is the engine's business:
    /// they are checked and dropped, and `close` in `connection` is remembered. A Content-Length that repeats an equal
    /// one is dropped.
    ///
    /// # Errors
    /// See [`BadHead`]; the head is then as it was before.
    pub fn push(&mut self, name: &[u8], value: &[u8]) -> Result<(), BadHead> {
        let value = trim(value);
        if memchr::memchr3(b'\r', b'\n', 0, value).is_some() {
            return Err(BadHead::Value);
        }
        let before = self.fields.len();
        // Checked before anything is copied, so that no value, however long, makes the buffer grow past the bound.
        if name.len().saturating_add(value.len()).saturating_add(4) > MAX_RESPONSE_FIELDS - before {
            return Err(BadHead::TooLarge);
        }
        if before == 0 {
            self.fields.reserve(128);
        }
        // What is no token byte maps to 0; OR-ing a flag finds any without a branch per byte.
        let mut bad = name.is_empty();
        self.fields.extend(name.iter().map(|byte| {
            let lower = TOKEN_LOWER[usize::from(*byte)];
            bad |= lower == 0;
            lower
        }));
        if bad {
            self.fields.truncate(before);
            return Err(BadHead::Name);
        }
        match self.note(before, value) {
            Ok(true) => {
                self.fields.extend_from_slice(b": ");
                self.fields.extend_from_slice(value);
                self.fields.extend_from_slice(b"\r\n");
                Ok(())
            }
            Ok(false) => {
                self.fields.truncate(before);
                Ok(())
            }
            Err(error) => {
                self.fields.truncate(before);
                Err(error)
            }
        }
    }

    /// Takes notice of a field whose lower-case name lies at the end of `fields`, from `start` on. Whether it is kept.
    fn note(&mut self, start: usize, value: &[u8]) -> Result<bool, BadHead> {
        match &self.fields[start..] {
            b"content-length" => {
                let length = parse_decimal(value).ok_or(BadHead::ContentLength)?;
                match self.content_length {
                    None => self.content_length = Some(length),
                    Some(earlier) if earlier == length => return Ok(false),
                    Some(_) => return Err(BadHead::ContentLength),
                }
            }
            b"connection" => {
                self.close |= value
                    .split(|byte| *byte == b',')
                    .any(|option| trim(option).eq_ignore_ascii_case(b"close"));
                return Ok(false);
            }
            b"keep-alive" | b"transfer-encoding" => return Ok(false),
            b"date" => self.has_date = true,
            b"server" => self.has_server = true,
            _ => {}
        }
        Ok(true)
    }

    /// Names and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.split_inclusive(|byte| *byte == b'\n').map(|line| {
            let colon = memchr::memchr(b':', line).expect("push writes a colon into every line");
            (&line[..colon], &line[colon + 2..line.len() - 2])
        })
    }
}

/// The lower-case form of each byte of a token (RFC 9110, section 5.6.2), and 0 for bytes that no token has.
pub(crate) static TOKEN_LOWER: [u8; 256] = token_lower();

const fn token_lower() -> [u8; 256] {
    let mut table = [0; 256];
    let others = b"!#$%&'*+-.^_`|~";
    let mut index = 0;
    while index < others.len() {
        table[others[index] as usize] = others[index];
        index += 1;
    }
    let mut byte = 0u8;
    while byte < 128 {
        if byte.is_ascii_alphanumeric() {
            table[byte as usize] = byte.to_ascii_lowercase();
        }
        byte += 1;
    }
    table
}

/// Without the spaces and tabs around it (OWS of RFC 9110, section 5.6.3).
pub(crate) fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// A Content-Length: digits only, no sign, no list; `None` for anything else and for what 64 bits do not hold
/// (RFC 9110, section 8.6).
pub(crate) fn parse_decimal(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0u64, |number, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}
