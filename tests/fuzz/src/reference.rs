//! A second reading of HTTP/1.x requests, to compare the server's with: whole buffers, no state, no cleverness.
//!
//! Written from RFC 9112 and docs/conformance.md, not from the server's code, and kept as plain as it can be.

use m0serve::handoff::{Framing, Version};
use m0serve::http1::Limits;

use super::wire::Message;

/// How reading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At the end of the input, or of the last request that the connection serves.
    Complete,
    /// Within a message, or before one that is empty so far.
    More,
    /// At something that must be refused.
    Refused,
}

/// What a chunked body came to.
#[derive(Debug)]
pub struct Chunked {
    pub body: Vec<u8>,
    /// Bytes of the input that it took, when it is complete.
    pub used: usize,
    pub end: End,
}

/// The requests of a connection's input.
pub fn messages(mut input: &[u8], limits: &Limits) -> (Vec<Message>, End) {
    let mut found = Vec::new();
    loop {
        if input.is_empty() {
            return (found, End::Complete);
        }
        input = input.strip_prefix(b"\r\n").unwrap_or(input);
        let Some(length) = input.windows(4).position(|four| four == b"\r\n\r\n") else {
            return (found, End::More);
        };
        let Some(mut message) = head(&input[..length], limits) else {
            return (found, End::Refused);
        };
        input = &input[length + 4..];
        let end = match message.framing {
            Framing::Empty => End::Complete,
            Framing::Length(length) => {
                let here = usize::try_from(length).unwrap_or(usize::MAX).min(input.len());
                message.body = input[..here].to_vec();
                input = &input[here..];
                if here as u64 == length {
                    End::Complete
                } else {
                    End::More
                }
            }
            Framing::Chunked => {
                let chunked = chunked(input, limits.max_body);
                message.body = chunked.body;
                input = &input[chunked.used..];
                chunked.end
            }
        };
        message.complete = end == End::Complete;
        let last = !message.keep_alive;
        found.push(message);
        if end != End::Complete || last {
            return (found, end);
        }
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_value(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

fn trimmed(mut value: &[u8]) -> &[u8] {
    while let Some((b' ' | b'\t', rest)) = value.split_first() {
        value = rest;
    }
    while let Some((b' ' | b'\t', rest)) = value.split_last() {
        value = rest;
    }
    value
}

/// The head before its empty line; `None` when it is to be refused.
fn head(bytes: &[u8], limits: &Limits) -> Option<Message> {
    if bytes.len() + 4 > limits.max_head {
        return None;
    }
    let text: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let (last, ended) = text.split_last()?;
    // Each line but the last ends in CR, and there is no other CR.
    let mut lines = Vec::new();
    for line in ended {
        lines.push(line.strip_suffix(b"\r")?);
    }
    lines.push(*last);
    if lines.iter().any(|line| line.contains(&b'\r')) {
        return None;
    }
    let (first, rest) = lines.split_first()?;
    let parts: Vec<&[u8]> = first.split(|byte| *byte == b' ').collect();
    let [method, target, version] = parts[..] else {
        return None;
    };
    if first.len() > limits.max_target + 64 || target.len() > limits.max_target {
        return None;
    }
    if method.is_empty() || !method.iter().all(|byte| is_token(*byte)) || method == b"CONNECT" {
        return None;
    }
    let version = match version {
        b"HTTP/1.1" => Version::Http11,
        b"HTTP/1.0" => Version::Http10,
        _ => return None,
    };
    let mut fields = Vec::new();
    for line in rest {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = (&line[..colon], trimmed(&line[colon + 1..]));
        if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) || !value.iter().all(|byte| is_value(*byte)) {
            return None;
        }
        fields.push((name.to_ascii_lowercase(), value.to_vec()));
    }
    if fields.len() > limits.max_fields {
        return None;
    }
    let mut message = Message {
        method: method.to_vec(),
        path: Vec::new(),
        query: Vec::new(),
        version,
        fields,
        framing: Framing::Empty,
        keep_alive: false,
        expect_continue: false,
        body: Vec::new(),
        complete: false,
    };
    read_target(&mut message, target)?;
    read_framing(&mut message, limits)?;
    let options = list(&message, b"connection");
    let named = |option: &[u8]| options.iter().any(|one| one.eq_ignore_ascii_case(option));
    message.keep_alive = !named(b"close") && (version == Version::Http11 || named(b"keep-alive"));
    message.expect_continue = version == Version::Http11
        && message.framing != Framing::Empty
        && values(&message, b"expect").any(|value| value.eq_ignore_ascii_case(b"100-continue"));
    Some(message)
}

fn values<'m>(message: &'m Message, name: &'m [u8]) -> impl Iterator<Item = &'m [u8]> {
    message
        .fields
        .iter()
        .filter(move |field| field.0 == name)
        .map(|field| &field.1[..])
}

/// The elements of all fields of a name.
fn list(message: &Message, name: &[u8]) -> Vec<Vec<u8>> {
    values(message, name)
        .flat_map(|value| value.split(|byte| *byte == b','))
        .map(|element| trimmed(element).to_vec())
        .collect()
}

fn read_target(message: &mut Message, target: &[u8]) -> Option<()> {
    if target.contains(&b'#') || !target.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    let hosts: Vec<&[u8]> = values(message, b"host").collect();
    let required = usize::from(message.version == Version::Http11);
    if hosts.len() < required || hosts.len() > 1 || !hosts.iter().all(|host| is_authority(host)) {
        return None;
    }
    let lower = target.to_ascii_lowercase();
    let absolute = ["http://", "https://"]
        .iter()
        .find(|scheme| lower.starts_with(scheme.as_bytes()));
    let origin = if let Some(scheme) = absolute {
        let rest = &target[scheme.len()..];
        let end = rest.iter().position(|byte| b"/?".contains(byte)).unwrap_or(rest.len());
        let (authority, origin) = rest.split_at(end);
        if authority.is_empty() || authority.starts_with(b":") || !is_authority(authority) {
            return None;
        }
        match message.fields.iter_mut().find(|field| field.0 == b"host") {
            Some(host) => host.1 = authority.to_vec(),
            None => message.fields.push((b"host".to_vec(), authority.to_vec())),
        }
        if origin.starts_with(b"/") {
            origin.to_vec()
        } else {
            [b"/", origin].concat()
        }
    } else {
        let asterisk = target == b"*" && message.method == b"OPTIONS";
        if !target.starts_with(b"/") && !asterisk {
            return None;
        }
        target.to_vec()
    };
    let mut halves = origin.splitn(2, |byte| *byte == b'?');
    message.path = halves.next()?.to_vec();
    message.query = halves.next().unwrap_or_default().to_vec();
    Some(())
}

/// A host and an optional port; empty is one, too.
fn is_authority(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    let of_host = |other: char| other.is_ascii_alphanumeric() || "-._~%!$&'()*+,;=".contains(other);
    let encoded = text.match_indices('%').all(|(at, _)| {
        let digits = text.get(at + 1..at + 3);
        digits.is_some_and(|two| two.chars().all(|digit| digit.is_ascii_hexdigit()))
    });
    let (good, port) = match text.strip_prefix('[') {
        Some(literal) => {
            let Some((inside, port)) = literal.split_once(']') else {
                return false;
            };
            (
                !inside.is_empty() && inside.chars().all(|one| one == ':' || of_host(one)),
                port,
            )
        }
        None => {
            let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            (host.chars().all(of_host), port)
        }
    };
    let numeric = |digits: &str| digits.chars().all(|digit| digit.is_ascii_digit());
    encoded && good && (port.is_empty() || port.strip_prefix(':').is_some_and(numeric))
}

fn read_framing(message: &mut Message, limits: &Limits) -> Option<()> {
    let lengths: Vec<&[u8]> = values(message, b"content-length").collect();
    let codings = list(message, b"transfer-encoding");
    message.framing = match (&lengths[..], codings.is_empty()) {
        ([], true) => Framing::Empty,
        ([length], true) => {
            if length.is_empty() || !length.iter().all(u8::is_ascii_digit) {
                return None;
            }
            match std::str::from_utf8(length).ok()?.parse().ok()? {
                0 => Framing::Empty,
                length if limits.max_body != 0 && length > limits.max_body => return None,
                length => Framing::Length(length),
            }
        }
        ([], false) if message.version == Version::Http11 && codings.len() == 1 => {
            if !codings[0].eq_ignore_ascii_case(b"chunked") {
                return None;
            }
            Framing::Chunked
        }
        _ => return None,
    };
    Some(())
}

/// A chunked body (RFC 9112, section 7.1), as far as it goes.
pub fn chunked(input: &[u8], max_body: u64) -> Chunked {
    let mut body = Vec::new();
    let mut at = 0;
    let mut announced: u64 = 0;
    let stop = |body, used, end| Chunked { body, used, end };
    loop {
        let (size, line) = match size_line(&input[at..]) {
            Ok(found) => found,
            Err(end) => return stop(body, input.len(), end),
        };
        at += line;
        // Framing so far, this line included, against the body before this chunk.
        let overhead = at as u64 - announced;
        let by_limit = if max_body == 0 { u64::MAX } else { max_body };
        let allowed = 64 * 1024 + announced.saturating_mul(8).min(by_limit);
        let Some(total) = announced.checked_add(size) else {
            return stop(body, at, End::Refused);
        };
        announced = total;
        if total > by_limit || overhead > allowed {
            return stop(body, at, End::Refused);
        }
        if size == 0 {
            let (used, end) = trailers(&input[at..]);
            return stop(body, at + used, end);
        }
        let here = usize::try_from(size).unwrap_or(usize::MAX).min(input.len() - at);
        body.extend_from_slice(&input[at..at + here]);
        at += here;
        let after = &input[at..];
        if after.starts_with(b"\r\n") {
            at += 2;
        } else {
            let end = if after.is_empty() || after == b"\r" {
                End::More
            } else {
                End::Refused
            };
            return stop(body, input.len(), end);
        }
    }
}

/// A chunk's size, and the length of its line.
fn size_line(input: &[u8]) -> Result<(u64, usize), End> {
    let digits = input.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    if digits > 16 {
        return Err(End::Refused);
    }
    let Some(rest) = input.get(digits..).filter(|rest| !rest.is_empty()) else {
        return Err(End::More);
    };
    if digits == 0 {
        return Err(End::Refused);
    }
    // White space is there only before an extension; its first byte is not counted, nor is the semicolon.
    let space = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let extension = match rest.get(space) {
        Some(b'\r') if space == 0 => 0,
        Some(b';') => space + 1 + rest[space + 1..].iter().take_while(|byte| is_value(**byte)).count(),
        Some(_) => return Err(End::Refused),
        None => space,
    };
    let counted = extension - usize::from(space > 0) - usize::from(rest.get(space) == Some(&b';'));
    if counted > 1024 {
        return Err(End::Refused);
    }
    match &rest[extension..] {
        [] | [b'\r'] => Err(End::More),
        [b'\r', b'\n', ..] => {
            let text = std::str::from_utf8(&input[..digits]).expect("hexadecimal digits");
            let size = u64::from_str_radix(text, 16).expect("at most 16 digits");
            Ok((size, digits + extension + 2))
        }
        _ => Err(End::Refused),
    }
}

/// What follows the last chunk: lines in the form of fields, at most 8 KiB of them, and an empty one.
fn trailers(input: &[u8]) -> (usize, End) {
    let mut at = 0;
    loop {
        let rest = &input[at..];
        let length = rest
            .iter()
            .position(|byte| *byte == b'\n')
            .map_or(rest.len(), |lf| lf + 1);
        let (line, ended) = (&rest[..length], rest[..length].ends_with(b"\n"));
        if ended && line == b"\r\n" && at < 8 * 1024 {
            return (at + 2, End::Complete);
        }
        // The LF of the empty line is not counted, so the bound is on what lies before it.
        if at + length > 8 * 1024 {
            return (input.len(), End::Refused);
        }
        let bare = match (line.strip_suffix(b"\r\n"), ended) {
            (Some(bare), _) => bare,
            (None, true) => return (input.len(), End::Refused),
            (None, false) => line.strip_suffix(b"\r").unwrap_or(line),
        };
        let name = bare.iter().take_while(|byte| is_token(**byte)).count();
        let framing: [&[u8]; 3] = [b"content-length", b"transfer-encoding", b"host"];
        let forbidden = framing.iter().any(|other| bare[..name].eq_ignore_ascii_case(other));
        let good = match bare.get(name) {
            None => !ended && (line.len() == bare.len() || bare.is_empty()),
            Some(b':') => name > 0 && !forbidden && bare[name + 1..].iter().all(|byte| is_value(*byte)),
            Some(_) => false,
        };
        if !good {
            return (input.len(), End::Refused);
        }
        if !ended {
            return (input.len(), End::More);
        }
        at += length;
    }
}
