//! The chunked decoder: a body of arbitrary bytes behind parts that are well-formed or nearly so, in arbitrary pieces.
//!
//! It means the same in every split, gives what [`super::reference`] reads in it and no byte more, and ends where that
//! ends: what follows is the next request.

use arbitrary::{Arbitrary, Result, Unstructured};
use m0serve::handoff::Framing;
use m0serve::http1::Limits;

use super::reference::{self, End};
use super::wire::{self, Escaped};

const HEAD: &[u8] = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
/// What follows the body, if it ends: its path must come out.
const NEXT: &[u8] = b"GET /next HTTP/1.1\r\nHost: h\r\n\r\n";
/// Bytes of a body that are made of parts, at most.
const MOST: usize = 200_000;

/// Something that a body is made of.
#[derive(Debug)]
enum Part {
    /// A chunk of so many bytes.
    Data(u16),
    /// A chunk of one byte with so long an extension, so many times.
    Extension(u16, u8),
    /// So many chunks of one byte.
    Small(u16),
    /// A chunk of three bytes with so many zeros before its size.
    Zeros(u8),
    /// A size that nothing follows.
    Size(u64),
    /// The last chunk, a trailer of so many bytes, and the empty line.
    Trailer(u16),
}

/// An input of this target.
#[derive(Debug)]
pub struct Input {
    max_body: u64,
    cuts: [u8; 3],
    parts: Vec<Part>,
    rest: Escaped,
}

impl<'a> Arbitrary<'a> for Part {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Part> {
        Ok(match u8::arbitrary(u)? % 6 {
            0 => Part::Data(u16::arbitrary(u)? % 5000),
            1 => Part::Extension(u16::arbitrary(u)? % 1100, mostly_small(u8::arbitrary(u)?.into()) as u8),
            2 => Part::Small(mostly_small(u16::arbitrary(u)? % 20_000)),
            3 => Part::Zeros(u8::arbitrary(u)? % 20),
            4 => Part::Size(Arbitrary::arbitrary(u)?),
            _ => Part::Trailer(u16::arbitrary(u)? % 9000),
        })
    }
}

/// Large numbers, which reach the bounds, take long: one in eight is left as it is.
fn mostly_small(number: u16) -> u16 {
    if number % 8 == 7 { number } else { number % 32 }
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Input> {
        let max_body = match u8::arbitrary(u)? {
            limit @ 1..=100 => u64::from(limit),
            limit @ 101..=110 => u64::from(limit) * 250,
            _ => 0,
        };
        let cuts = Arbitrary::arbitrary(u)?;
        let count = u8::arbitrary(u)? % 6;
        let parts: Vec<Part> = (0..count).map(|_| Part::arbitrary(u)).collect::<Result<_>>()?;
        let rest = Escaped(u.bytes(u.len())?.to_vec());
        Ok(Input {
            max_body,
            cuts,
            parts,
            rest,
        })
    }
}

impl Part {
    fn write(&self, out: &mut Vec<u8>) {
        let mut put = |text: String| out.extend_from_slice(text.as_bytes());
        match self {
            Part::Data(length) => put(format!("{length:x}\r\n{:1$}\r\n", "", usize::from(*length))),
            Part::Extension(length, times) => {
                let extension = "e".repeat(usize::from(*length));
                put(format!("1;{extension}\r\nx\r\n").repeat(usize::from(*times) + 1));
            }
            Part::Small(count) => put("1\r\ny\r\n".repeat(usize::from(*count))),
            Part::Zeros(count) => put(format!("{:0>1$}\r\nabc\r\n", 3, usize::from(*count) + 1)),
            Part::Size(size) => put(format!("{size:X}\r\n")),
            Part::Trailer(length) => put(format!("0\r\nt:{}\r\n\r\n", "v".repeat(usize::from(*length)))),
        }
    }
}

impl Input {
    /// Panics when the decoder breaks a rule.
    pub fn check(&self) {
        let limits = Limits {
            max_body: self.max_body,
            ..Limits::default()
        };
        let mut raw = Vec::new();
        self.parts.iter().for_each(|part| part.write(&mut raw));
        raw.truncate(MOST);
        raw.extend_from_slice(&self.rest.0);
        let expected = reference::chunked(&raw, self.max_body);
        let ends = expected.end == End::Complete;
        let body = if ends { &raw[..expected.used] } else { &raw[..] };
        // What is cut short shall be so at the end of the input.
        let stream = [HEAD, body, if ends { NEXT } else { b"" }].concat();
        let outcome = wire::decode_in_every_way(&limits, &stream, &self.cuts);

        let first = &outcome.messages[0];
        assert_eq!(first.framing, Framing::Chunked);
        assert!(first.body == expected.body, "the body, of {self:?}");
        assert!(first.body.len() <= body.len(), "no more than was received");
        assert!(self.max_body == 0 || first.body.len() as u64 <= self.max_body);
        assert_eq!(first.complete, ends);
        match expected.end {
            End::Complete => {
                assert_eq!(outcome.messages.len(), 2, "{:?}", outcome.end);
                assert_eq!(outcome.messages[1].path, b"/next");
                assert!(outcome.end.is_ok());
            }
            End::Refused => {
                let refusal = outcome.end.expect_err("the reference refuses");
                assert!(matches!(refusal.status(), 400 | 413 | 431), "{refusal:?}");
            }
            End::More => assert!(outcome.end.is_ok(), "{:?} too early", outcome.end),
        }
        self.check_overhead(stream.len() - HEAD.len(), first.body.len(), outcome.end.is_ok());
    }

    /// Framing on the wire is bounded by 64 KiB, by eight times the body, and by the body's limit; the lines that are
    /// not ended yet, and the trailers, have bounds of their own.
    fn check_overhead(&self, wire: usize, body: usize, accepted: bool) {
        let ratio = (body as u64).saturating_mul(8);
        let most = if self.max_body == 0 {
            ratio
        } else {
            ratio.min(self.max_body)
        };
        let framing = (wire - body) as u64;
        let open = 1024 + 8 * 1024 + 64 + NEXT.len() as u64;
        assert!(!accepted || framing <= 64 * 1024 + most + open, "{framing} for {body}");
    }
}
