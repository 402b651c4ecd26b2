//! Finds the end of a request's head, remembering how far it has looked.
//!
//! It runs before the parser and is the part that sees a head grow: limits (R7), LF without CR and the version are
//! decided here, in the order of the bytes, so that the same bytes are refused for the same reason however they arrive.

use super::{Limits, Refusal};
use memchr::memchr;

/// What a request line may hold beside its target: a method, two spaces and a version.
const LINE_BESIDE_TARGET: usize = 64;

/// How far the search for the end of a head has got. Positions count from the head's first byte.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scan {
    /// Bytes already looked at.
    seen: usize,
    /// Where the line that they end in begins; 0 while that is the request line.
    line: usize,
}

impl Scan {
    /// Looks on in `head`, whose first `seen` bytes are the ones of the last call. The head's length, once it ends.
    pub(super) fn find_end(&mut self, head: &[u8], limits: &Limits) -> Result<Option<usize>, Refusal> {
        let window = &head[..head.len().min(limits.max_head)];
        // CR included, LF not: the position at which the LF of the longest request line stands.
        let last_lf = limits.max_target.saturating_add(LINE_BESIDE_TARGET + 1);
        while let Some(offset) = memchr(b'\n', &window[self.seen..]) {
            let lf = self.seen + offset;
            self.seen = lf + 1;
            if self.line == 0 && lf > last_lf {
                return Err(Refusal::TargetTooLong);
            }
            // Nothing before the LF, or another LF, is no CR: then the line would have ended before it began.
            if lf == 0 || window[lf - 1] != b'\r' {
                return Err(Refusal::BareLf);
            }
            if self.line == 0 {
                check_version(&window[..lf - 1])?;
            } else if self.line == lf - 1 {
                return Ok(Some(lf + 1));
            }
            self.line = lf + 1;
        }
        self.seen = window.len();
        if self.line == 0 && head.len() > last_lf.saturating_add(1).min(limits.max_head) {
            return Err(Refusal::TargetTooLong);
        }
        if head.len() > limits.max_head {
            return Err(Refusal::HeadTooLarge);
        }
        Ok(None)
    }
}

/// Looks at how a request line ends. Done at once, because what speaks another version may wait for an answer to its
/// first line (HTTP/0.9), or sends a preface that is no head (HTTP/2).
fn check_version(line: &[u8]) -> Result<(), Refusal> {
    match line.last_chunk::<9>() {
        Some(b" HTTP/1.1" | b" HTTP/1.0") => Ok(()),
        Some([b' ', b'H', b'T', b'T', b'P', b'/', major, b'.', minor])
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Err(Refusal::VersionNotSupported)
        }
        _ => Err(Refusal::Version),
    }
}
