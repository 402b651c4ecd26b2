//! HTTP/1.0 and HTTP/1.1 without sockets: bytes in, events out (RFC 9110, RFC 9112).
//!
//! Owns the wire format: [`RequestDecoder`] turns what a connection received into heads and pieces of bodies,
//! [`write_head`] and its companions put responses into a buffer. It knows no clock, no socket and no Python.
//!
//! Rules kept here: R7 (head, target, number of fields, body, chunk framing and trailers all have a limit and an
//! answer for when it is reached), R8 (what could be read in two ways is refused, so that no client and no proxy before
//! us can disagree with us about where a message ends), R12 (a refusal is terminal and has a sentence for the log).
//!
//! The parser is strict where RFC 9112 lets a server choose; what it chose:
//! - one empty line before a request line is skipped (section 2.2), a second one is refused;
//! - lines end in CRLF and nothing else, obsolete folding is refused (sections 2.2 and 5.2);
//! - an absolute-form target is reduced to its path and query, and its authority becomes the value of `host`
//!   (section 3.2.2); the schemes are `http` and `https`, an authority with user information or without a host is refused;
//! - CONNECT is answered 501, `*` is taken with OPTIONS only;
//! - every Content-Length but a single run of digits is refused, a list of equal numbers too (section 6.3);
//! - Transfer-Encoding is `chunked`; another coding before it is answered 501 (section 6.1), on HTTP/1.0 it is refused;
//! - `HTTP/2.0` and every other version in the form `HTTP/d.d` is answered 505;
//! - an expectation other than `100-continue` is ignored, as is `100-continue` where there is no body or on HTTP/1.0
//!   (RFC 9110, section 10.1.1);
//! - a request to switch to WebSocket that has a body is an ordinary request;
//! - trailer fields are checked as strictly as fields and dropped; Content-Length, Transfer-Encoding and Host among them
//!   are refused (RFC 9110, section 6.5.1).

mod chunked;
mod date;
mod decode;
mod head;
mod refusal;
mod scan;
mod write;

#[cfg(all(test, not(feature = "modelled")))]
mod tests;
#[cfg(all(test, not(feature = "modelled")))]
mod tests_body;
#[cfg(all(test, not(feature = "modelled")))]
mod tests_fields;
#[cfg(all(test, not(feature = "modelled")))]
mod tests_head;
#[cfg(all(test, not(feature = "modelled")))]
mod tests_lenient;
#[cfg(all(test, not(feature = "modelled")))]
mod tests_mutate;
#[cfg(all(test, not(feature = "modelled")))]
mod tests_write;

pub use date::DateCache;
pub use decode::{Event, Finish, RequestDecoder};
pub use refusal::Refusal;
pub use write::{
    BodyMode, CHUNK_END, CONTINUE, LAST_CHUNK, ResponseContext, is_registered, write_chunk_start, write_head,
    write_refusal,
};

/// Percent-decodes; what is no escape stays (as `urllib.parse.unquote_to_bytes` has it).
#[must_use]
pub fn percent_decode(raw: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let [first, tail @ ..] = rest {
        if let [b'%', high, low, after @ ..] = rest
            && let (Some(high), Some(low)) = ((*high as char).to_digit(16), (*low as char).to_digit(16))
        {
            bytes.push(u8::try_from(high * 16 + low).expect("two hex digits are a byte"));
            rest = after;
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    bytes
}

/// What a client may send. Reaching one is answered with the status named there, and the connection closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request's head, request line and empty line included (431).
    pub max_head: usize,
    /// Bytes of a request's target (414).
    pub max_target: usize,
    /// Number of fields in a request's head (431).
    pub max_fields: usize,
    /// Bytes of a request's body, declared or chunked; 0 is no limit (413). A chunked body is also over the limit when
    /// its framing on the wire is far larger than itself: see [`RequestDecoder`].
    pub max_body: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_head: 64 * 1024,
            max_target: 16 * 1024,
            max_fields: 128,
            max_body: 0,
        }
    }
}
