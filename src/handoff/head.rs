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
        self.fields.iter().map(|(name, value)| (self.get(*name), self.get(*value)))
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
