//! The helper that every decoder test goes through: the same bytes in every split must mean the same.

use super::{Event, Finish, Limits, Refusal, RequestDecoder};
use crate::handoff::{Framing, RequestHead, Upgrade, Version};

/// A request as a test looks at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) version: Version,
    pub(super) fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) framing: Framing,
    pub(super) keep_alive: bool,
    pub(super) expect_continue: bool,
    pub(super) upgrade: Upgrade,
    pub(super) body: Vec<u8>,
    pub(super) complete: bool,
}

impl Seen {
    fn new(head: &RequestHead) -> Self {
        let text = |span| String::from_utf8(head.get(span).to_vec()).expect("checked to be ASCII");
        for (name, value) in head.iter() {
            assert!(
                !name.is_empty()
                    && name
                        .iter()
                        .all(|byte| byte.is_ascii_graphic() && !byte.is_ascii_uppercase())
            );
            assert!(
                value
                    .iter()
                    .all(|byte| *byte == b'\t' || *byte >= b' ' && *byte != 0x7f)
            );
        }
        let path = text(head.path);
        assert!(path.starts_with('/') || path == "*");
        Self {
            method: text(head.method),
            path,
            query: text(head.query),
            version: head.version,
            fields: head
                .iter()
                .map(|(name, value)| (name.to_vec(), value.to_vec()))
                .collect(),
            framing: head.framing,
            keep_alive: head.keep_alive,
            expect_continue: head.expect_continue,
            upgrade: head.upgrade,
            body: Vec::new(),
            complete: head.framing == Framing::Empty,
        }
    }

    pub(super) fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields
            .iter()
            .find(|field| field.0 == name.as_bytes())
            .map(|field| field.1.as_slice())
    }
}

/// What a connection's input came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) requests: Vec<Seen>,
    pub(super) end: Result<Finish, Refusal>,
}

impl Outcome {
    /// The only request, when the input held exactly one and all of it.
    pub(super) fn one(self) -> Seen {
        assert_eq!(self.end, Ok(Finish::Clean));
        let [seen] = <[Seen; 1]>::try_from(self.requests).expect("one request");
        assert!(seen.complete);
        seen
    }
}

/// Decodes the pieces one after another.
pub(super) fn run<'a>(limits: &Limits, pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let mut decoder = RequestDecoder::new(limits);
    let mut requests: Vec<Seen> = Vec::new();
    for piece in pieces {
        let mut input = piece;
        loop {
            let before = input.len();
            match decoder.decode(&mut input) {
                Ok(None) => break,
                Ok(Some(Event::Head(head))) => {
                    assert!(requests.last().is_none_or(|last| last.complete), "a head inside a body");
                    requests.push(Seen::new(&head));
                }
                Ok(Some(Event::Body(data))) => {
                    assert!(!data.is_empty());
                    let last = requests.last_mut().expect("a head before a body");
                    assert!(!last.complete);
                    last.body.extend_from_slice(data);
                }
                Ok(Some(Event::BodyEnd)) => {
                    let last = requests.last_mut().expect("a head before a body");
                    assert!(!std::mem::replace(&mut last.complete, true));
                }
                Err(refusal) => {
                    assert_eq!(decoder.decode(&mut input).err(), Some(refusal), "a refusal is final");
                    assert!(!decoder.in_head() && !decoder.in_body());
                    return Outcome {
                        requests,
                        end: Err(refusal),
                    };
                }
            }
            assert!(input.len() <= before);
        }
        assert!(input.is_empty(), "no event means that all input was used");
        let complete = requests.last().is_none_or(|last| last.complete);
        assert_eq!(decoder.in_body(), !complete);
        assert!(!(decoder.in_body() && decoder.in_head()));
    }
    Outcome {
        requests,
        end: Ok(decoder.finish()),
    }
}

/// Decodes `input` whole, split at every byte, and one byte at a time; all must come to the same.
pub(super) fn decode_with(limits: &Limits, input: &[u8]) -> Outcome {
    let whole = run(limits, [input]);
    assert_eq!(
        run(limits, input.chunks(1)),
        whole,
        "one byte at a time: {:?}",
        input.escape_ascii().to_string()
    );
    for at in 1..input.len() {
        let (front, back) = input.split_at(at);
        assert_eq!(
            run(limits, [front, back]),
            whole,
            "split at {at}: {:?}",
            input.escape_ascii().to_string()
        );
    }
    whole
}

/// [`decode_with`] with the default limits.
pub(super) fn decode(input: impl AsRef<[u8]>) -> Outcome {
    decode_with(&Limits::default(), input.as_ref())
}

/// Expects `input` to be refused before any request of it was complete.
pub(super) fn refused(input: impl AsRef<[u8]>) -> Refusal {
    let outcome = decode(input);
    assert!(outcome.requests.iter().all(|request| !request.complete), "{outcome:?}");
    outcome.end.expect_err("refused")
}

/// A GET with these lines after its Host.
pub(super) fn get_with(lines: &str) -> Outcome {
    decode(format!("GET / HTTP/1.1\r\nHost: h\r\n{lines}\r\n"))
}

/// A POST with these lines after its Host, and this body.
pub(super) fn post_with(lines: &str, body: &str) -> Outcome {
    decode(format!("POST / HTTP/1.1\r\nHost: h\r\n{lines}\r\n{body}"))
}

#[test]
fn a_decoder_is_small_and_holds_no_buffer_between_requests() {
    assert!(size_of::<RequestDecoder>() <= 192, "{}", size_of::<RequestDecoder>());
    let mut decoder = RequestDecoder::new(&Limits::default());
    for piece in [
        "GET / HTTP/1.1\r\nHo",
        "st: h\r\nContent-Length: 2\r\n\r\nab",
        "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
    ] {
        let mut input = piece.as_bytes();
        while decoder.decode(&mut input).expect("valid").is_some() {}
    }
    assert_eq!(decoder.held(), 0);
}

#[test]
fn a_head_split_off_a_long_input_leaves_the_rest() {
    let mut decoder = RequestDecoder::new(&Limits::default());
    let mut input: &[u8] = b"GET / HTTP/1.1\r\nHos";
    assert!(decoder.decode(&mut input).expect("valid").is_none());
    assert!(decoder.in_head() && decoder.finish() == Finish::CutHead && decoder.held() == 19);
    let mut input: &[u8] = b"t: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n";
    assert!(matches!(decoder.decode(&mut input), Ok(Some(Event::Head(_)))));
    assert_eq!(input.len(), 28);
    assert!(!decoder.in_head() && decoder.held() == 0);
}

/// Bytes that arrive one at a time must not be searched again and again. Counted in time, generously: at 64 KiB a
/// quadratic search looks at two billion bytes, a linear one at a hundred thousand.
#[test]
fn a_head_byte_by_byte_is_searched_once() {
    let limits = Limits {
        max_head: 1 << 20,
        max_target: 1 << 20,
        ..Limits::default()
    };
    let mut head = b"GET /".to_vec();
    head.resize(1_000_000, b'a');
    head.extend_from_slice(b" HTTP/1.1\r\nHost: h\r\n\r\n");
    let outcome = run(&limits, head.chunks(1));
    assert_eq!(outcome.one().path.len(), 1_000_000 - 4);
}
