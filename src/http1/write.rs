//! Puts responses into a buffer: heads, the framing of bodies, and the answers to what was refused.

use memchr::memchr;

use crate::handoff::{ResponseHead, Version};

/// Ends the data of a chunk.
pub const CHUNK_END: &[u8] = b"\r\n";
/// Ends a chunked body: the chunk of size zero, without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
/// Tells a client that waits with its body to send it (RFC 9110, section 15.2.1).
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// How a response's body goes onto the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyMode {
    /// Not at all: whatever the application gives is dropped.
    None,
    /// As it is, and exactly so many bytes.
    Length(u64),
    /// In chunks, ended by [`LAST_CHUNK`].
    Chunked,
    /// As it is; closing the connection ends it.
    UntilClose,
}

/// What [`write_head`] has to know about the request and the connection.
#[derive(Clone, Copy, Debug)]
pub struct ResponseContext<'a> {
    /// The request's version.
    pub version: Version,
    /// The request was HEAD.
    pub is_head: bool,
    /// Whether the connection can go on after this response, as far as the request and the server are concerned.
    pub keep_alive: bool,
    /// For the Date field, where the application sent none; `None` leaves it out.
    pub date: Option<&'a [u8; 29]>,
    /// For the Server field, where the application sent none; `None` leaves it out. Without CR, LF and NUL.
    pub server: Option<&'a [u8]>,
}

/// Appends a response's head. How its body goes, and whether the connection goes on after it.
///
/// Framing and `connection` are decided here (RFC 9112, section 6.3): HEAD, 204 and 304 have no body. HEAD gets the
/// Content-Length of the application or the Transfer-Encoding that GET would get; 204 gets neither. Without a
/// Content-Length the body is chunked on HTTP/1.1 and lasts until the connection closes on HTTP/1.0.
pub fn write_head(out: &mut Vec<u8>, head: &ResponseHead, context: &ResponseContext<'_>) -> (BodyMode, bool) {
    let http11 = context.version == Version::Http11;
    let no_content = matches!(head.status, 204 | 304);
    let mut keep_alive = context.keep_alive && !head.close;
    let would_be = match head.content_length {
        Some(length) => BodyMode::Length(length),
        None if http11 => BodyMode::Chunked,
        None => BodyMode::UntilClose,
    };
    let mode = if no_content || context.is_head {
        BodyMode::None
    } else {
        would_be
    };
    if mode == BodyMode::UntilClose {
        keep_alive = false;
    }

    // The status line and the fields of ours take less than 192 bytes beside the server's name.
    out.reserve(head.fields.len() + context.server.map_or(0, <[u8]>::len) + 192);
    write_status_line(out, head.status, head.reason.as_deref());
    let date = context.date.filter(|_| !head.has_date);
    write_own_fields(out, date, context.server.filter(|_| !head.has_server));
    if head.status == 204 && head.content_length.is_some() {
        write_fields_without_length(out, &head.fields);
    } else {
        out.extend_from_slice(&head.fields);
    }
    if would_be == BodyMode::Chunked && !no_content {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    out.extend_from_slice(match (keep_alive, http11) {
        (true, true) => b"\r\n",
        (true, false) => b"connection: keep-alive\r\n\r\n",
        (false, _) => b"connection: close\r\n\r\n",
    });
    (mode, keep_alive)
}

/// A 204 must not have a Content-Length (RFC 9110, section 8.6).
#[cold]
fn write_fields_without_length(out: &mut Vec<u8>, fields: &[u8]) {
    for line in fields.split_inclusive(|byte| *byte == b'\n') {
        let name = memchr(b':', line).map_or(line, |colon| &line[..colon]);
        if name != b"content-length" {
            out.extend_from_slice(line);
        }
    }
}

/// Appends what precedes the data of a chunk, which [`CHUNK_END`] must follow.
///
/// # Panics
/// If `len` is 0: that would end the body.
pub fn write_chunk_start(out: &mut Vec<u8>, len: usize) {
    assert!(len != 0, "a chunk of size zero ends the body");
    let mut text = [0; 18];
    let mut at = 16;
    text[16..].copy_from_slice(b"\r\n");
    let mut left = len;
    while left != 0 {
        at -= 1;
        text[at] = b"0123456789abcdef"[left & 15];
        left >>= 4;
    }
    out.extend_from_slice(&text[at..]);
}

/// Appends a complete response that ends the connection, with `text` and a line feed as its body: the answer to a
/// [`super::Refusal`], and to what the engine itself has to refuse. Of the answer to HEAD only the head.
pub fn write_refusal(
    out: &mut Vec<u8>,
    status: u16,
    text: &str,
    is_head: bool,
    date: Option<&[u8; 29]>,
    server: Option<&[u8]>,
) {
    write_status_line(out, status, None);
    write_own_fields(out, date, server);
    out.extend_from_slice(b"content-type: text/plain; charset=utf-8\r\ncontent-length: ");
    out.extend_from_slice((text.len() + 1).to_string().as_bytes());
    out.extend_from_slice(b"\r\nconnection: close\r\n\r\n");
    if !is_head {
        out.extend_from_slice(text.as_bytes());
        out.push(b'\n');
    }
}

/// The fields that a response has from us.
#[inline]
fn write_own_fields(out: &mut Vec<u8>, date: Option<&[u8; 29]>, server: Option<&[u8]>) {
    if let Some(date) = date {
        out.extend_from_slice(b"date: ");
        out.extend_from_slice(date);
        out.extend_from_slice(b"\r\n");
    }
    if let Some(server) = server {
        out.extend_from_slice(b"server: ");
        out.extend_from_slice(server);
        out.extend_from_slice(b"\r\n");
    }
}

fn write_status_line(out: &mut Vec<u8>, status: u16, reason: Option<&[u8]>) {
    if let (Some(line), None) = (status_line(status), reason) {
        out.extend_from_slice(line);
        return;
    }
    // The space before an absent phrase is part of the grammar (RFC 9112, section 4).
    let digits = [
        b'0' + (status / 100 % 10) as u8,
        b'0' + (status / 10 % 10) as u8,
        b'0' + (status % 10) as u8,
    ];
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(&digits);
    out.push(b' ');
    out.extend_from_slice(reason.unwrap_or_default());
    out.extend_from_slice(b"\r\n");
}

/// Whether `text` is the status with the phrase that belongs to it (RFC 9110, section 15, and the registry of status codes),
/// such as `200 OK`.
#[must_use]
pub fn is_registered(status: u16, text: &[u8]) -> bool {
    // `HTTP/1.1 ` before it, and CRLF behind.
    status_line(status).is_some_and(|line| &line[9..line.len() - 2] == text)
}

macro_rules! status_lines {
    ($($status:literal $phrase:literal)*) => {
        fn status_line(status: u16) -> Option<&'static [u8]> {
            match status {
                $($status => Some(concat!("HTTP/1.1 ", $status, " ", $phrase, "\r\n").as_bytes()),)*
                _ => None,
            }
        }
    };
}

status_lines! {
    200 "OK"
    201 "Created"
    202 "Accepted"
    203 "Non-Authoritative Information"
    204 "No Content"
    205 "Reset Content"
    206 "Partial Content"
    207 "Multi-Status"
    208 "Already Reported"
    226 "IM Used"
    300 "Multiple Choices"
    301 "Moved Permanently"
    302 "Found"
    303 "See Other"
    304 "Not Modified"
    305 "Use Proxy"
    307 "Temporary Redirect"
    308 "Permanent Redirect"
    400 "Bad Request"
    401 "Unauthorized"
    402 "Payment Required"
    403 "Forbidden"
    404 "Not Found"
    405 "Method Not Allowed"
    406 "Not Acceptable"
    407 "Proxy Authentication Required"
    408 "Request Timeout"
    409 "Conflict"
    410 "Gone"
    411 "Length Required"
    412 "Precondition Failed"
    413 "Content Too Large"
    414 "URI Too Long"
    415 "Unsupported Media Type"
    416 "Range Not Satisfiable"
    417 "Expectation Failed"
    418 "I'm a Teapot"
    421 "Misdirected Request"
    422 "Unprocessable Content"
    423 "Locked"
    424 "Failed Dependency"
    425 "Too Early"
    426 "Upgrade Required"
    428 "Precondition Required"
    429 "Too Many Requests"
    431 "Request Header Fields Too Large"
    451 "Unavailable For Legal Reasons"
    500 "Internal Server Error"
    501 "Not Implemented"
    502 "Bad Gateway"
    503 "Service Unavailable"
    504 "Gateway Timeout"
    505 "HTTP Version Not Supported"
    506 "Variant Also Negotiates"
    507 "Insufficient Storage"
    508 "Loop Detected"
    510 "Not Extended"
    511 "Network Authentication Required"
}
