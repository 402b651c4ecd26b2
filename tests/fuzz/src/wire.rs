//! The decoder under test as the targets look at it: bytes in pieces, and what became of them.

use m0serve::handoff::{Framing, RequestHead, Version};
use m0serve::http1::{Event, Finish, Limits, Refusal, RequestDecoder};

/// Bytes that are shown as text.
pub struct Escaped(pub Vec<u8>);

impl std::fmt::Debug for Escaped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// A request that was decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub method: Vec<u8>,
    pub path: Vec<u8>,
    pub query: Vec<u8>,
    pub version: Version,
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub framing: Framing,
    pub keep_alive: bool,
    pub expect_continue: bool,
    pub body: Vec<u8>,
    pub complete: bool,
}

/// What a connection's input came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub messages: Vec<Message>,
    pub end: Result<Finish, Refusal>,
}

impl Message {
    /// A message of which only the head is known.
    pub fn begin(head: &RequestHead) -> Message {
        Message {
            method: head.get(head.method).to_vec(),
            path: head.get(head.path).to_vec(),
            query: head.get(head.query).to_vec(),
            version: head.version,
            fields: head
                .iter()
                .map(|(name, value)| (name.to_vec(), value.to_vec()))
                .collect(),
            framing: head.framing,
            keep_alive: head.keep_alive,
            expect_continue: head.expect_continue,
            body: Vec::new(),
            complete: head.framing == Framing::Empty,
        }
    }
}

/// Decodes pieces one after another, and proves what holds after every event.
pub fn decode<'a>(limits: &Limits, pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let mut decoder = RequestDecoder::new(limits);
    let mut messages: Vec<Message> = Vec::new();
    let mut arrived = 0;
    for piece in pieces {
        arrived += piece.len();
        let mut input = piece;
        // An event takes bytes, or is the one end of a body that has none left.
        let mut calls = 2 * piece.len() + 2;
        loop {
            let before = input.len();
            calls = calls.checked_sub(1).expect("as many events as bytes, at most");
            match decoder.decode(&mut input) {
                Ok(None) => break,
                Ok(Some(event)) => take(&mut messages, event),
                Err(refusal) => {
                    assert_eq!(decoder.decode(&mut input).err(), Some(refusal), "a refusal is final");
                    assert!(!decoder.in_head() && !decoder.in_body());
                    return Outcome {
                        messages,
                        end: Err(refusal),
                    };
                }
            }
            assert!(input.len() <= before);
        }
        assert!(input.is_empty(), "no event means that all input was used");
        let decoded: usize = messages.iter().map(|message| message.body.len()).sum();
        assert!(decoded <= arrived, "no more body than was received");
        let complete = messages.last().is_none_or(|last| last.complete);
        assert_eq!(decoder.in_body(), !complete);
    }
    Outcome {
        messages,
        end: Ok(decoder.finish()),
    }
}

fn take(messages: &mut Vec<Message>, event: Event<'_>) {
    match event {
        Event::Head(head) => {
            assert!(messages.last().is_none_or(|last| last.complete), "a head inside a body");
            messages.push(Message::begin(&head));
        }
        Event::Body(data) => {
            assert!(!data.is_empty());
            let last = messages.last_mut().expect("a head before a body");
            assert!(!last.complete, "a body after its end");
            last.body.extend_from_slice(data);
        }
        Event::BodyEnd => {
            let last = messages.last_mut().expect("a head before a body");
            assert!(!std::mem::replace(&mut last.complete, true), "a body ends once");
        }
    }
}

/// Cuts bytes into pieces of these lengths, over and over; a length of 0 stands for 256.
pub fn cut<'a>(bytes: &'a [u8], lengths: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = bytes;
    lengths.iter().cycle().map_while(move |length| {
        let length = if *length == 0 { 256 } else { usize::from(*length) };
        let (piece, after) = rest.split_at(length.min(rest.len()));
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Up to this many bytes are also decoded one at a time.
const BY_BYTES: usize = 4096;

/// The same bytes must mean the same in one piece, in these pieces, and (where that is quick) one byte at a time.
pub fn decode_in_every_way(limits: &Limits, bytes: &[u8], lengths: &[u8]) -> Outcome {
    let whole = decode(limits, [bytes]);
    assert_eq!(decode(limits, cut(bytes, lengths)), whole, "cut into {lengths:?}");
    if bytes.len() <= BY_BYTES {
        assert_eq!(decode(limits, bytes.chunks(1)), whole, "one byte at a time");
    }
    whole
}
