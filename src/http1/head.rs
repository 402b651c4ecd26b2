//! Turns the bytes of a complete request head into a [`RequestHead`], or says what is wrong with it.
//!
//! httparse finds the pieces; it takes more than we do (see `scan` for line ends), so everything that decides
//! where a message ends or whom it is for is checked again here (R8).

use std::mem::MaybeUninit;

use httparse::{Error, Header, Request, Status};
use memchr::memchr2;

use super::{Limits, Refusal};
use crate::handoff::head::{TOKEN_LOWER, parse_decimal, trim};
use crate::handoff::{Framing, RequestHead, Span, Upgrade, Version};

/// Headers that httparse can write to the stack; more than that come from the heap.
const ON_STACK: usize = 128;

/// A head taken apart: everything of [`RequestHead`] but the buffer, which can be the parsed one or a copy.
pub(super) struct Parsed {
    method: Span,
    target: Target,
    version: Version,
    fields: Vec<(Span, Span)>,
    facts: Facts,
    framing: Framing,
}

impl Parsed {
    /// Takes `head` apart, which ends with its empty line.
    pub(super) fn parse(head: &[u8], limits: &Limits) -> Result<Self, Refusal> {
        if limits.max_fields <= ON_STACK {
            let mut headers = [const { MaybeUninit::uninit() }; ON_STACK];
            Self::parse_into(head, limits, &mut headers[..limits.max_fields])
        } else {
            let mut headers = Vec::with_capacity(limits.max_fields);
            Self::parse_into(head, limits, &mut headers.spare_capacity_mut()[..limits.max_fields])
        }
    }

    fn parse_into<'h>(
        head: &'h [u8],
        limits: &Limits,
        headers: &mut [MaybeUninit<Header<'h>>],
    ) -> Result<Self, Refusal> {
        let mut request = Request::new(&mut []);
        match request.parse_with_uninit_headers(head, headers) {
            Ok(Status::Complete(length)) if length == head.len() => {}
            // The scan found the head's end, so httparse can only disagree on what it was given; refuse that.
            Ok(_) => return Err(Refusal::LineEnd),
            Err(error) => return Err(refusal(error, head)),
        }
        let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version) else {
            return Err(Refusal::Method);
        };
        let version = if minor == 0 { Version::Http10 } else { Version::Http11 };
        let method = span(head, method.as_bytes());
        let target = Target::parse(head, method, span(head, target.as_bytes()), limits)?;
        let mut facts = Facts::default();
        let mut fields = Vec::with_capacity(request.headers.len() + usize::from(target.authority.is_some()));
        for header in request.headers.iter() {
            facts.note(header.name, header.value, fields.len())?;
            fields.push((span(head, header.name.as_bytes()), span(head, header.value)));
        }
        let framing = facts.framing(version, limits)?;
        if facts.host.is_none() && version == Version::Http11 {
            return Err(Refusal::HostMissing);
        }
        if let (Some(authority), Some(host)) = (target.authority, facts.host) {
            fields[host].1 = authority;
        }
        Ok(Self {
            method,
            target,
            version,
            fields,
            facts,
            framing,
        })
    }

    /// Joins the parts with `buf`, which holds the bytes that were parsed.
    pub(super) fn into_head(self, mut buf: Vec<u8>) -> RequestHead {
        let Self {
            method,
            target,
            version,
            mut fields,
            facts,
            framing,
        } = self;
        for (name, _) in &fields {
            buf[name.start as usize..name.end as usize].make_ascii_lowercase();
        }
        if let (Some(authority), None) = (target.authority, facts.host) {
            // HTTP/1.0 with an absolute-form target and no Host: the host is known all the same.
            let start = position(buf.len());
            buf.extend_from_slice(b"host");
            fields.push((
                Span {
                    start,
                    end: position(buf.len()),
                },
                authority,
            ));
        }
        let http11 = version == Version::Http11;
        let has_body = framing != Framing::Empty;
        let websocket = http11 && !has_body && facts.upgrade_option && facts.websocket && slice(&buf, method) == b"GET";
        RequestHead {
            buf,
            method,
            path: target.path,
            query: target.query,
            version,
            fields,
            framing,
            keep_alive: !facts.close && (http11 || facts.keep_alive),
            expect_continue: facts.expect_continue && http11 && has_body,
            upgrade: if websocket { Upgrade::WebSocket } else { Upgrade::None },
        }
    }
}

/// What the fields say about the message and the connection.
#[derive(Default)]
struct Facts {
    /// Position of the Host field.
    host: Option<usize>,
    content_length: Option<u64>,
    encoding: Encoding,
    close: bool,
    keep_alive: bool,
    upgrade_option: bool,
    websocket: bool,
    expect_continue: bool,
}

/// What the Transfer-Encoding fields, taken as one list, have said so far.
#[derive(Default)]
struct Encoding {
    /// There is a field.
    present: bool,
    /// `chunked` has been named; then nothing may follow.
    chunked: bool,
    /// A coding that we do not know has been named.
    unknown: bool,
}

impl Facts {
    /// Takes notice of the field at `index`.
    fn note(&mut self, name: &str, value: &[u8], index: usize) -> Result<(), Refusal> {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        match name.len() {
            4 if is("host") => {
                if self.host.replace(index).is_some() {
                    return Err(Refusal::HostRepeated);
                }
                check_authority(value)
            }
            6 if is("expect") => {
                self.expect_continue |= value.eq_ignore_ascii_case(b"100-continue");
                Ok(())
            }
            7 if is("upgrade") => {
                self.websocket |= list(value).any(|protocol| protocol.eq_ignore_ascii_case(b"websocket"));
                Ok(())
            }
            10 if is("connection") => {
                for option in list(value) {
                    self.close |= option.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                    self.upgrade_option |= option.eq_ignore_ascii_case(b"upgrade");
                }
                Ok(())
            }
            14 if is("content-length") => {
                if self.content_length.is_some() {
                    return Err(Refusal::ContentLengthRepeated);
                }
                self.content_length = Some(parse_decimal(value).ok_or(Refusal::ContentLength)?);
                Ok(())
            }
            17 if is("transfer-encoding") => self.encoding.note(value),
            _ => Ok(()),
        }
    }

    /// How the body ends (RFC 9112, section 6.3).
    fn framing(&self, version: Version, limits: &Limits) -> Result<Framing, Refusal> {
        if self.encoding.present {
            if version == Version::Http10 {
                return Err(Refusal::EncodingOnHttp10);
            }
            if self.content_length.is_some() {
                return Err(Refusal::LengthAndEncoding);
            }
            if !self.encoding.chunked {
                return Err(Refusal::TransferEncoding);
            }
            if self.encoding.unknown {
                return Err(Refusal::CodingNotSupported);
            }
            return Ok(Framing::Chunked);
        }
        match self.content_length {
            None | Some(0) => Ok(Framing::Empty),
            Some(length) if limits.max_body != 0 && length > limits.max_body => Err(Refusal::BodyTooLarge),
            Some(length) => Ok(Framing::Length(length)),
        }
    }
}

impl Encoding {
    /// Takes notice of one Transfer-Encoding field. Empty elements, which a list may have, are refused: an element that
    /// one parser sees and another does not is how requests are smuggled.
    fn note(&mut self, value: &[u8]) -> Result<(), Refusal> {
        self.present = true;
        for coding in list(value) {
            if coding.is_empty() || self.chunked {
                return Err(Refusal::TransferEncoding);
            }
            if coding.eq_ignore_ascii_case(b"chunked") {
                self.chunked = true;
            } else {
                self.unknown = true;
            }
        }
        Ok(())
    }
}

/// The request target, reduced to what an origin server serves.
struct Target {
    path: Span,
    query: Span,
    /// Of an absolute-form target.
    authority: Option<Span>,
}

impl Target {
    /// Sorts out the form of the target (RFC 9112, section 3.2).
    fn parse(head: &[u8], method: Span, target: Span, limits: &Limits) -> Result<Self, Refusal> {
        let bytes = slice(head, target);
        if bytes.len() > limits.max_target {
            return Err(Refusal::TargetTooLong);
        }
        let method = slice(head, method);
        if method == b"CONNECT" {
            return Err(Refusal::Connect);
        }
        // httparse lets bytes outside ASCII pass.
        if !bytes.is_ascii() {
            return Err(Refusal::Target);
        }
        if bytes[0] == b'/' {
            return Self::split(head, target, None);
        }
        if bytes == b"*" && method == b"OPTIONS" {
            return Ok(Self {
                path: target,
                query: Span {
                    start: target.end,
                    end: target.end,
                },
                authority: None,
            });
        }
        let authority = target.start + absolute_prefix(bytes).ok_or(Refusal::Target)?;
        let rest = slice(
            head,
            Span {
                start: authority,
                end: target.end,
            },
        );
        let length = rest
            .iter()
            .position(|byte| matches!(byte, b'/' | b'?' | b'#'))
            .unwrap_or(rest.len());
        check_authority(&rest[..length])?;
        // A port alone does not name a host either (RFC 9110, section 4.2.1).
        if length == 0 || rest[0] == b':' {
            return Err(Refusal::Host);
        }
        let end = authority + position(length);
        let mut this = Self::split(
            head,
            Span {
                start: end,
                end: target.end,
            },
            Some(Span { start: authority, end }),
        )?;
        if this.path.start == this.path.end {
            // `http://host` and `http://host?query` mean the path `/`: the last one of `//` will do.
            this.path = Span {
                start: authority - 1,
                end: authority,
            };
        }
        Ok(this)
    }

    /// Splits path and query; a fragment is refused, since a client that sends one lost control of its target.
    fn split(head: &[u8], whole: Span, authority: Option<Span>) -> Result<Self, Refusal> {
        let bytes = slice(head, whole);
        let mut path = whole;
        let mut query = Span {
            start: whole.end,
            end: whole.end,
        };
        match memchr2(b'?', b'#', bytes) {
            None => {}
            Some(at) if bytes[at] == b'?' && memchr::memchr(b'#', &bytes[at..]).is_none() => {
                path.end = whole.start + position(at);
                query.start = path.end + 1;
            }
            Some(_) => return Err(Refusal::Target),
        }
        Ok(Self { path, query, authority })
    }
}

/// The length of `http://` or `https://` at the front of a target.
fn absolute_prefix(target: &[u8]) -> Option<u32> {
    let starts = |prefix: &[u8]| {
        target
            .get(..prefix.len())
            .is_some_and(|front| front.eq_ignore_ascii_case(prefix))
    };
    if starts(b"http://") {
        Some(7)
    } else if starts(b"https://") {
        Some(8)
    } else {
        None
    }
}

/// Refuses what is no host with an optional port (RFC 3986, section 3.2; RFC 9112, section 3.2): two parsers that split
/// it in different places are led to different hosts. White space, user information and whatever ends an authority are
/// among the bytes that it cannot have. Empty is allowed, as in Host it is.
fn check_authority(authority: &[u8]) -> Result<(), Refusal> {
    let valid = match after_name(authority) {
        [b'%', ..] => is_percent_encoded(authority) && is_port(after_encoded_name(authority)),
        [b'[', literal @ ..] if literal.len() + 1 == authority.len() => is_literal_and_port(literal),
        rest => is_port(rest),
    };
    if valid { Ok(()) } else { Err(Refusal::Host) }
}

/// What follows the bytes that a host's name can have: unreserved ones and subordinate delimiters.
fn after_name(authority: &[u8]) -> &[u8] {
    static ALLOWED: [bool; 256] = {
        let mut table = [false; 256];
        let others = b"-._~!$&'()*+,;=";
        let mut index = 0;
        while index < others.len() {
            table[others[index] as usize] = true;
            index += 1;
        }
        let mut byte = 0u8;
        while byte < 128 {
            if byte.is_ascii_alphanumeric() {
                table[byte as usize] = true;
            }
            byte += 1;
        }
        table
    };
    let name = authority.iter().take_while(|byte| ALLOWED[usize::from(**byte)]).count();
    &authority[name..]
}

/// The same where percent signs are among them.
#[cold]
fn after_encoded_name(mut authority: &[u8]) -> &[u8] {
    loop {
        match after_name(authority) {
            [b'%', rest @ ..] => authority = rest,
            rest => return rest,
        }
    }
}

/// Whether it is nothing, or a colon and digits.
fn is_port(text: &[u8]) -> bool {
    matches!(text.split_first(), None | Some((b':', _))) && text.iter().skip(1).all(u8::is_ascii_digit)
}

/// Whether an address, a bracket and perhaps a port follow an opening bracket. A zone has a percent sign (RFC 6874).
#[cold]
fn is_literal_and_port(text: &[u8]) -> bool {
    let Some(end) = memchr::memchr(b']', text) else {
        return false;
    };
    let (literal, port) = (&text[..end], &text[end + 1..]);
    let mut parts = literal.split(|byte| *byte == b':');
    !literal.is_empty()
        && is_percent_encoded(literal)
        && parts.all(|part| after_encoded_name(part).is_empty())
        && is_port(port)
}

/// Whether two hexadecimal digits follow every percent sign.
#[cold]
fn is_percent_encoded(text: &[u8]) -> bool {
    let mut after = text.split(|byte| *byte == b'%').skip(1);
    after.all(|part| part.len() >= 2 && part[..2].iter().all(u8::is_ascii_hexdigit))
}

/// The elements of a comma-separated list, without the white space around them.
fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(trim)
}

/// Says what httparse's error means for us.
#[cold]
fn refusal(error: Error, head: &[u8]) -> Refusal {
    match error {
        Error::HeaderName => Refusal::FieldName,
        Error::HeaderValue => Refusal::FieldValue,
        Error::NewLine => Refusal::LineEnd,
        Error::TooManyHeaders => Refusal::TooManyFields,
        Error::Version => Refusal::Version,
        Error::Status | Error::Token => {
            let method = head.split(|byte| *byte == b' ').next().unwrap_or_default();
            if !method.is_empty() && method.iter().all(|byte| TOKEN_LOWER[usize::from(*byte)] != 0) {
                Refusal::Target
            } else {
                Refusal::Method
            }
        }
    }
}

/// Where `part` lies in `whole`. It must be a part of it, which is why only slices that httparse cut come here.
fn span(whole: &[u8], part: &[u8]) -> Span {
    let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
    assert!(
        start <= whole.len() && part.len() <= whole.len() - start,
        "a piece lies inside its head"
    );
    Span {
        start: position(start),
        end: position(start + part.len()),
    }
}

fn slice(whole: &[u8], span: Span) -> &[u8] {
    &whole[span.start as usize..span.end as usize]
}

/// A position in a head as spans hold it. Heads are far below 4 GiB: `RequestDecoder::new` bounds the limit.
fn position(at: usize) -> u32 {
    debug_assert!(u32::try_from(at).is_ok());
    at as u32
}
