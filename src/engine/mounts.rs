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
    /// Prefixes with a slash first and none last, the longest first.
    prefixes: Vec<(Box<[u8]>, u16)>,
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
                mounts.prefixes.push((prefix.as_bytes().into(), number));
            }
        }
        mounts.prefixes.sort_by_key(|(prefix, _)| Reverse(prefix.len()));
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
        let of = |prefix: &[u8]| {
            path.strip_prefix(prefix)
                .is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
        };
        let found = self.prefixes.iter().find(|(prefix, _)| of(prefix));
        found.map(|(_, number)| *number).or(self.root)
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

/// Whether there is only one way to read a path.
fn is_plain(path: &[u8]) -> bool {
    memchr::memchr(b'%', path).is_none()
        && memchr::memchr_iter(b'/', path).all(|at| !matches!(path.get(at + 1), Some(b'/' | b'.')))
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

#[cfg(test)]
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
    fn one_application_gets_every_path_as_it_is() {
        for path in [&b"/"[..], b"//x", b"/a/../b", b"/%2e%2e/", b"*", b""] {
            assert_eq!(Mounts::default().find(path), Found::Mount(0));
        }
    }
}
