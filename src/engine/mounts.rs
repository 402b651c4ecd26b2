//! Which application a request is for: the mount with the longest prefix of its path, by whole segments.
//!
//! A prefix is compared with the path as it was sent. What stands before us, and the application behind, may read that path
//! in other ways: percent-decoded, with slashes merged, with dot segments taken out. A path that belongs to one mount as it
//! was sent and to another in one of those readings is served by neither (R8 in spirit: two parsers must not see two
//! requests), so whatever a proxy allows or forbids for a prefix holds for the application that is mounted there.

use std::borrow::Cow;
use std::cmp::Reverse;

use crate::http1::percent_decode;

/// Where the applications of a server are mounted, each by its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounts {
    /// Prefixes with a slash first and none last, the longest first. Most are told apart by the letter after the slash.
    prefixes: Vec<(u8, u16, Box<[u8]>)>,
    /// The application at `/`.
    root: Option<u16>,
}

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The mount of this number.
    Mount(u16),
    /// There is none.
    Nothing,
    /// It depends on how the path is read.
    Unclear,
}

impl Default for Mounts {
    /// One application at `/`.
    fn default() -> Mounts {
        Mounts::new([""])
    }
}

impl Mounts {
    /// Mounts with these prefixes, numbered in their order. The empty one is that at `/`; the others begin with a slash,
    /// do not end with one, and have neither escapes nor empty or dot segments.
    pub fn new<'a>(prefixes: impl IntoIterator<Item = &'a str>) -> Mounts {
        let mut mounts = Mounts {
            prefixes: Vec::new(),
            root: None,
        };
        for (number, prefix) in (0..).zip(prefixes) {
            if prefix.is_empty() {
                mounts.root = Some(number);
            } else {
                let prefix: Box<[u8]> = prefix.as_bytes().into();
                mounts.prefixes.push((prefix[1], number, prefix));
            }
        }
        mounts.prefixes.sort_by_key(|(.., prefix)| Reverse(prefix.len()));
        mounts
    }

    /// What a path leads to, as it was sent.
    #[inline]
    pub fn find(&self, path: &[u8]) -> Found {
        let found = if self.prefixes.is_empty() {
            self.root
        } else {
            let found = self.literal(path);
            if !is_plain(path) && !self.is_clear(path, found) {
                return Found::Unclear;
            }
            found
        };
        found.map_or(Found::Nothing, Found::Mount)
    }

    fn literal(&self, path: &[u8]) -> Option<u16> {
        let Some(letter) = path.get(1) else {
            return self.root;
        };
        let of = |prefix: &[u8]| {
            let rest = path.strip_prefix(prefix);
            rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
        };
        let mut all = self.prefixes.iter();
        let found = all.find(|(first, _, prefix)| first == letter && of(prefix));
        found.map_or(self.root, |(_, number, _)| Some(*number))
    }

    /// Whether every reading of the path leads to where it leads as it was sent.
    fn is_clear(&self, path: &[u8], found: Option<u16>) -> bool {
        let same = |path: &[u8]| self.literal(path) == found;
        let agree = |path: &[u8]| {
            let merged = merge_slashes(path);
            same(path) && same(&merged) && same(&without_dots(path)) && same(&without_dots(&merged))
        };
        agree(path) && (memchr::memchr(b'%', path).is_none() || agree(&percent_decode(path)))
    }
}

/// Whether there is only one way to read a path. Asked of every request, so eight bytes at a time. May deny it of one that
/// has bytes as no path does, which costs a second look.
fn is_plain(path: &[u8]) -> bool {
    let Some(last) = path.last_chunk() else {
        return path.windows(2).all(|pair| !matches!(pair, b"//" | b"/.")) && !path.contains(&b'%');
    };
    let (mut rest, mut odd) = (path, oddities(*last));
    while let Some((word, _)) = rest.split_first_chunk::<8>() {
        odd |= oddities(*word);
        rest = &rest[7..]; // each begins with the last byte of the one before, so every pair of bytes is in one of them
    }
    odd == 0
}

/// Not 0 where a byte is `%`, or a slash is followed by another or by a dot.
#[inline]
fn oddities(word: [u8; 8]) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let word = u64::from_le_bytes(word);
    // The highest bit of each byte that equals it, and perhaps of some behind one.
    let equal = |byte: u8| {
        let differs = word ^ (ONES * u64::from(byte));
        differs.wrapping_sub(ONES) & !differs & (ONES << 7)
    };
    let slashes = equal(b'/');
    equal(b'%') | (slashes << 8 & (slashes | equal(b'.')))
}

fn merge_slashes(path: &[u8]) -> Cow<'_, [u8]> {
    if !path.windows(2).any(|pair| pair == b"//") {
        return Cow::Borrowed(path);
    }
    let mut merged = Vec::with_capacity(path.len());
    for byte in path {
        if *byte != b'/' || merged.last() != Some(&b'/') {
            merged.push(*byte);
        }
    }
    Cow::Owned(merged)
}

/// Takes dot segments out (RFC 3986, section 5.2.4).
fn without_dots(path: &[u8]) -> Cow<'_, [u8]> {
    if !path.windows(2).any(|pair| pair == b"/.") {
        return Cow::Borrowed(path);
    }
    let mut kept: Vec<&[u8]> = Vec::new();
    for segment in path.split(|byte| *byte == b'/').skip(1) {
        match segment {
            b"." => {}
            b".." => {
                kept.pop();
            }
            segment => kept.push(segment),
        }
    }
    Cow::Owned(kept.iter().flat_map(|segment| [b"/", *segment].concat()).collect())
}

#[cfg(all(test, not(feature = "modelled")))]
mod tests {
    use super::*;

    fn mounts() -> Mounts {
        Mounts::new(["", "/api", "/api/v2", "/files"])
    }

    #[test]
    fn the_longest_prefix_wins_by_whole_segments() {
        for (path, mount) in [
            ("/", 0),
            ("*", 0),
            ("/api", 1),
            ("/api/", 1),
            ("/api/x", 1),
            ("/apix", 0),
            ("/api.json", 0),
            ("/API/x", 0),
            ("/x/api", 0),
            ("/api/v2", 2),
            ("/api/v2/x", 2),
            ("/api/v20", 1),
            ("/files/a%20b//c", 3),
            ("/x%2Fapi", 0),
            ("/api/a%2Fb", 1),
            ("/.well-known/x", 0),
            ("/api/...", 1),
            ("/x/../y", 0),
            ("/api/./x/../y", 1),
        ] {
            assert_eq!(mounts().find(path.as_bytes()), Found::Mount(mount), "{path}");
        }
    }

    #[test]
    fn without_an_application_at_the_root_other_paths_lead_nowhere() {
        let mounts = Mounts::new(["/api"]);
        assert_eq!(mounts.find(b"/api/x"), Found::Mount(0));
        for path in [&b"/"[..], b"/apix", b"*", b""] {
            assert_eq!(mounts.find(path), Found::Nothing);
        }
        assert_eq!(mounts.find(b"/%61pi"), Found::Unclear);
    }

    #[test]
    fn a_path_that_could_be_read_as_another_mounts_belongs_to_none() {
        for path in [
            "/%61pi",
            "/a%70i/x",
            "/api%2Fx",
            "/api%2fv2",
            "/api/v%32/x",
            "//api",
            "//api/x",
            "/%2Fapi",
            "/api//v2",
            "/api/../x",
            "/api/..",
            "/api/%2e%2e/x",
            "/api/%2E./x",
            "/api/..%2fx",
            "/x/../api/y",
            "/./api",
            "/%2e/api",
            "/api/x/../v2/y",
            "/api/..//api/x",
            "/files/..//api",
            "/x//../api",
        ] {
            assert_eq!(mounts().find(path.as_bytes()), Found::Unclear, "{path}");
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_noticed_wherever_it_stands() {
        for len in 0..40 {
            let plain = &"/a/bb/c.d/e-f/ggg/h/i/jjjjjj/k.l/m/n/oo/p"[..len];
            assert!(is_plain(plain.as_bytes()), "{plain}");
            for (at, odd) in (0..=len).flat_map(|at| ["%", "//", "/."].map(|odd| (at, odd))) {
                let path = format!("{}{odd}{}", &plain[..at], &plain[at..]);
                assert!(!is_plain(path.as_bytes()), "{path}");
            }
        }
    }

    #[test]
    fn one_application_gets_every_path_as_it_is() {
        for path in [&b"/"[..], b"//x", b"/a/../b", b"/%2e%2e/", b"*", b""] {
            assert_eq!(Mounts::default().find(path), Found::Mount(0));
        }
    }
}
