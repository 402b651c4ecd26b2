//! What bodies consist of: bytes that a number decides, so that who receives them knows them without being told.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::LazyLock;

/// No period of anything else: neighbouring bodies and shifted ones differ.
const PERIOD: usize = 65_521;

static TABLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut random = crate::random::Random::new(1);
    (0..PERIOD).map(|_| b'!' + (random.below(94) as u8)).collect()
});

/// A file that has every body, each from its own offset on.
static FILE: LazyLock<File> = LazyLock::new(|| {
    let mut file = crate::lines::temporary("bodies").expect("a temporary file");
    for _ in 0..10 {
        file.write_all(&TABLE).expect("room for a small file");
    }
    file
});

/// The bytes of a body, from where `key` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    key: usize,
}

impl Pattern {
    /// The body of this number.
    #[must_use]
    pub fn new(number: usize) -> Pattern {
        Pattern {
            key: number.wrapping_mul(7919) % PERIOD,
        }
    }

    /// A file that has it.
    #[must_use]
    pub fn file(self) -> OwnedFd {
        FILE.try_clone().expect("a descriptor").into()
    }

    /// Where in the file it begins.
    #[must_use]
    pub fn offset(self) -> u64 {
        self.key as u64
    }

    /// The slice of the table at a position of the body, as long as the table goes and at most `most`.
    fn run(self, at: usize, most: usize) -> &'static [u8] {
        let start = (self.key + at) % PERIOD;
        &TABLE[start..(start + most).min(PERIOD)]
    }

    /// Appends `len` bytes of it from position `at` on.
    pub fn append(self, mut at: usize, len: usize, out: &mut Vec<u8>) {
        let end = at + len;
        while at < end {
            let run = self.run(at, end - at);
            out.extend_from_slice(run);
            at += run.len();
        }
    }

    /// Whether these are its bytes from position `at` on.
    #[must_use]
    pub fn matches(self, mut at: usize, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let run = self.run(at, bytes.len());
            let (front, rest) = bytes.split_at(run.len());
            if front != run {
                return false;
            }
            at += run.len();
            bytes = rest;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_knows_its_own_bytes_and_no_others() {
        let pattern = Pattern::new(12);
        let mut bytes = Vec::new();
        pattern.append(PERIOD - 10, 100, &mut bytes);
        assert!(pattern.matches(PERIOD - 10, &bytes));
        assert!(!pattern.matches(PERIOD - 9, &bytes));
        assert!(!Pattern::new(13).matches(PERIOD - 10, &bytes));
    }
}
