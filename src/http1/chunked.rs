//! The chunked transfer coding (RFC 9112, section 7.1), decoded without a buffer.
//!
//! Strict: what a lenient parser would mend is refused (R8), and everything that is not body is counted (R7).

use super::Refusal;
use crate::handoff::head::TOKEN_LOWER;

/// Digits of a chunk's size; 16 hold 64 bits, so a size of at most that many cannot overflow.
const MAX_DIGITS: u8 = 16;
/// Bytes of one chunk's extensions.
const MAX_EXTENSION: u32 = 1024;
/// Bytes of all trailer lines.
const MAX_TRAILERS: u32 = 8 * 1024;
/// What may not come in a trailer, in lower case: fields that say where a message ends and whom it is for (RFC 9110,
/// section 6.5.1). We drop trailers, but who forwards them or merges them into the head reads another message (R8).
const NOT_IN_TRAILERS: [&[u8]; 3] = [b"content-length", b"host", b"transfer-encoding"];
/// Bytes of framing that every body may have; see [`super::RequestDecoder`] for the bound.
const FREE_OVERHEAD: u64 = 64 * 1024;
/// Bytes of framing for each byte of body beyond that: a chunk of one byte takes five.
const OVERHEAD_RATIO: u64 = 8;

/// What a step gave.
pub(super) enum Step<'a> {
    /// All input was used.
    More,
    /// Some of the body, not empty.
    Data(&'a [u8]),
    /// The body is complete; the rest of the input is the next request.
    End,
}

/// Where in a chunked body the input has got.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunked {
    phase: Phase,
    /// Digits of the size so far.
    digits: u8,
    /// The size so far, then what is left of the chunk.
    left: u64,
    /// Body bytes of all chunks announced so far.
    body: u64,
    /// Bytes of sizes, extensions and line ends so far.
    overhead: u64,
    /// Bytes of this chunk's extensions, or of all trailers, so far.
    counted: u32,
    /// Bytes of this trailer's name so far; names that are longer than it counts are none that it is compared with.
    name: u8,
    /// Which of `NOT_IN_TRAILERS` begin with this trailer's name so far, a bit for each.
    candidates: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Size,
    /// White space after a size, which only an extension may follow.
    SizeSpace,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// At the start of a trailer line or of the empty line.
    Trailer,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
}

impl Chunked {
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Size,
            digits: 0,
            left: 0,
            body: 0,
            overhead: 0,
            counted: 0,
            name: 0,
            candidates: 0,
        }
    }

    /// Takes the next piece of body from the front of `input`. `max_body` as in [`super::Limits`].
    pub(super) fn decode<'a>(&mut self, input: &mut &'a [u8], max_body: u64) -> Result<Step<'a>, Refusal> {
        while let [byte, rest @ ..] = *input {
            if self.phase == Phase::Data {
                let taken = (input.len() as u64).min(self.left) as usize;
                let (data, rest) = input.split_at(taken);
                *input = rest;
                self.left -= taken as u64;
                if self.left == 0 {
                    self.phase = Phase::DataCr;
                }
                return Ok(Step::Data(data));
            }
            *input = rest;
            if self.framing_byte(*byte, max_body)? {
                return Ok(Step::End);
            }
        }
        Ok(Step::More)
    }

    /// One byte that is not body. Whether it was the last one.
    fn framing_byte(&mut self, byte: u8, max_body: u64) -> Result<bool, Refusal> {
        self.overhead += 1;
        match self.phase {
            Phase::Size => self.size_byte(byte)?,
            Phase::SizeSpace => match byte {
                b'\t' | b' ' => self.count(MAX_EXTENSION, Refusal::ChunkExtension)?,
                b';' => self.phase = Phase::Extension,
                _ => return Err(Refusal::ChunkSize),
            },
            Phase::Extension => match byte {
                b'\r' => self.phase = Phase::SizeLf,
                b'\t' | b' '..=b'~' | 0x80.. => self.count(MAX_EXTENSION, Refusal::ChunkExtension)?,
                _ => return Err(Refusal::ChunkExtension),
            },
            Phase::SizeLf if byte == b'\n' => self.size_end(max_body)?,
            Phase::SizeLf => return Err(Refusal::LineEnd),
            Phase::DataCr if byte == b'\r' => self.phase = Phase::DataLf,
            Phase::DataLf if byte == b'\n' => {
                self.phase = Phase::Size;
                self.digits = 0;
            }
            Phase::DataCr | Phase::DataLf => return Err(Refusal::ChunkEnd),
            Phase::Data => unreachable!("data is taken in slices"),
            Phase::EndLf if byte == b'\n' => return Ok(true),
            Phase::EndLf => return Err(Refusal::LineEnd),
            Phase::Trailer | Phase::TrailerName | Phase::TrailerValue | Phase::TrailerLf => self.trailer_byte(byte)?,
        }
        Ok(false)
    }

    fn size_byte(&mut self, byte: u8) -> Result<(), Refusal> {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            b';' | b'\r' | b'\t' | b' ' if self.digits > 0 => {
                self.phase = match byte {
                    b';' => Phase::Extension,
                    b'\r' => Phase::SizeLf,
                    _ => Phase::SizeSpace,
                };
                return Ok(());
            }
            _ => return Err(Refusal::ChunkSize),
        };
        if self.digits == MAX_DIGITS {
            return Err(Refusal::ChunkSize);
        }
        self.digits += 1;
        // At most 16 digits of four bits each: nothing is shifted out.
        self.left = self.left << 4 | u64::from(digit);
        Ok(())
    }

    /// A size is complete: a chunk follows, or the trailers.
    fn size_end(&mut self, max_body: u64) -> Result<(), Refusal> {
        // Two chunks of nearly 2^64 bytes do not come to pass, but a client can announce them.
        self.body = self.body.checked_add(self.left).ok_or(Refusal::BodyTooLarge)?;
        if max_body != 0 && self.body > max_body {
            return Err(Refusal::BodyTooLarge);
        }
        let by_ratio = (self.body - self.left).saturating_mul(OVERHEAD_RATIO);
        let by_limit = if max_body == 0 { u64::MAX } else { max_body };
        if self.overhead > FREE_OVERHEAD.saturating_add(by_ratio.min(by_limit)) {
            return Err(Refusal::ChunkOverhead);
        }
        self.counted = 0;
        self.phase = if self.left == 0 { Phase::Trailer } else { Phase::Data };
        Ok(())
    }

    /// One byte of the trailers, which have the form of fields (RFC 9112, section 7.1.2).
    fn trailer_byte(&mut self, byte: u8) -> Result<(), Refusal> {
        self.count(MAX_TRAILERS, Refusal::TrailersTooLarge)?;
        let lower = TOKEN_LOWER[usize::from(byte)];
        self.phase = match (self.phase, byte) {
            (Phase::Trailer, b'\r') => Phase::EndLf,
            (Phase::Trailer | Phase::TrailerName, _) if lower != 0 => {
                self.name_byte(lower);
                Phase::TrailerName
            }
            (Phase::TrailerName, b':') if self.is_not_for_trailers() => return Err(Refusal::TrailerField),
            (Phase::TrailerName, b':') => Phase::TrailerValue,
            (Phase::Trailer | Phase::TrailerName, _) => return Err(Refusal::FieldName),
            (Phase::TrailerValue, b'\r') => Phase::TrailerLf,
            (Phase::TrailerValue, b'\t' | b' '..=b'~' | 0x80..) => Phase::TrailerValue,
            (Phase::TrailerValue, _) => return Err(Refusal::FieldValue),
            (_, b'\n') => Phase::Trailer,
            _ => return Err(Refusal::LineEnd),
        };
        Ok(())
    }

    /// One more byte of a trailer's name, in lower case.
    fn name_byte(&mut self, lower: u8) {
        if self.phase == Phase::Trailer {
            self.name = 0;
            self.candidates = (1 << NOT_IN_TRAILERS.len()) - 1;
        }
        for (index, name) in NOT_IN_TRAILERS.iter().enumerate() {
            if name.get(usize::from(self.name)) != Some(&lower) {
                self.candidates &= !(1 << index);
            }
        }
        self.name = self.name.saturating_add(1);
    }

    fn is_not_for_trailers(&self) -> bool {
        let complete = |index: usize| NOT_IN_TRAILERS[index].len() == usize::from(self.name);
        (0..NOT_IN_TRAILERS.len()).any(|index| self.candidates & 1 << index != 0 && complete(index))
    }

    fn count(&mut self, max: u32, refusal: Refusal) -> Result<(), Refusal> {
        self.counted += 1;
        if self.counted > max { Err(refusal) } else { Ok(()) }
    }
}
