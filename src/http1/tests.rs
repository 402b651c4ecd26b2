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

#[test]
fn of_a_refused_head_only_the_first_line_is_kept_for_the_log() {
    let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(1000));
    for (pieces, line) in [
        (&["GET / HTTP/1.1\r\nHo", "st: h\n"][..], "GET / HTTP/1.1"),
        (&["GET / HTTP/1.1\r\nA: b\n"], "GET / HTTP/1.1"),
        (&["GET / HTTP/1.1\nA: b\r\n\r\n"], "GET / HTTP/1.1"),
        (&["\r\n", "\x16\x03\x01 hello"], "\x16\x03\x01 hello"),
        (&["\r\n\r\n"], ""),
        (&[&long, "A\n"], &long[..512]),
        (
            &["POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nx"],
            "",
        ),
    ] {
        let mut decoder = RequestDecoder::new(&Limits::default());
        let mut refused = false;
        for piece in pieces {
            let mut input = piece.as_bytes();
            while !refused && !input.is_empty() {
                refused = decoder.decode(&mut input).is_err();
            }
        }
        assert!(refused, "{pieces:?}");
        assert_eq!(decoder.finish(), Finish::Clean);
        assert_eq!(decoder.request_line(), line.as_bytes());
        assert_eq!(decoder.held(), line.len());
    }
}

/// A head that arrives byte by byte must not be searched again from its start: that would be quadratic. What was seen
/// is spoiled here, which only a search that looks back can notice.
#[test]
fn the_search_for_the_end_never_looks_back() {
    let head = b"GET / HTTP/1.1\r\nHost: h\r\nA: bcdef\r\n\r\n";
    let mut spoiled = head.to_vec();
    let mut scan = super::scan::Scan::default();
    for length in 1..head.len() {
        assert_eq!(scan.find_end(&spoiled[..length], &Limits::default()), Ok(None));
        // The byte before the next one is looked at with it, to see CRLF, and so is the start of the request line.
        if length > 20 {
            spoiled[16..length - 1].fill(b'\n');
        }
    }
    assert_eq!(scan.find_end(&spoiled, &Limits::default()), Ok(Some(head.len())));
}

/// Prints what a decode and a head cost: `cargo test --release --no-default-features --lib -- --ignored --nocapture cost`.
#[test]
#[ignore = "a measurement, of use in release only"]
#[allow(clippy::disallowed_methods, reason = "measures with the machine's clock")]
fn cost_of_a_request() {
    let request = b"GET /api/items?page=2 HTTP/1.1\r\nHost: localhost:8000\r\n\
        User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
        Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-GB,en;q=0.5\r\n\
        Accept-Encoding: gzip, deflate, br, zstd\r\nConnection: keep-alive\r\nUpgrade-Insecure-Requests: 1\r\n\
        Sec-Fetch-Dest: document\r\nSec-Fetch-Mode: navigate\r\nCookie: session=0123456789abcdef0123456789abcdef\r\n\r\n";
    let mut decoder = RequestDecoder::new(&Limits::default());
    let count: u32 = 2_000_000;
    let start = std::time::Instant::now();
    for _ in 0..count {
        let mut input = &request[..];
        let event = decoder.decode(std::hint::black_box(&mut input)).expect("valid");
        assert!(matches!(std::hint::black_box(event), Some(Event::Head(_))));
    }
    println!(
        "decode, {} bytes, 10 fields: {:?}",
        request.len(),
        start.elapsed() / count
    );
    let mut out = Vec::new();
    let date = *super::DateCache::new().get(1);
    let context = super::ResponseContext {
        version: Version::Http11,
        is_head: false,
        keep_alive: true,
        date: Some(&date),
        server: Some(b"m0serve"),
    };
    let start = std::time::Instant::now();
    for _ in 0..count {
        let mut head = crate::handoff::ResponseHead::new(200).expect("a status");
        head.push(b"Content-Type", b"application/json").expect("a field");
        head.push(b"content-length", b"27").expect("a field");
        out.clear();
        std::hint::black_box(super::write_head(&mut out, std::hint::black_box(&head), &context));
    }
    println!("compose and write a head, 2 fields: {:?}", start.elapsed() / count);
}
