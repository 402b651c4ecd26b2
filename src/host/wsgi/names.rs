//! Fields of requests that most clients send: found without a search, so that their keys are made once.

/// A field.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    /// As it arrives, in lower case.
    pub name: &'static str,
    /// Its key where that is none of the `HTTP_` ones. Such a field has one value: the last.
    pub key: Option<&'static str>,
    /// Its value is common to many requests, also of other clients.
    pub keep: bool,
    /// A proxy says by it who its client is.
    pub forwarded: bool,
}

const fn kept(name: &'static str) -> Name {
    Name {
        name,
        key: None,
        keep: true,
        forwarded: false,
    }
}

const fn other(name: &'static str) -> Name {
    Name {
        keep: false,
        ..kept(name)
    }
}

const fn keyed(name: &'static str, key: &'static str) -> Name {
    Name {
        key: Some(key),
        ..kept(name)
    }
}

const fn forwarded(name: &'static str) -> Name {
    Name {
        forwarded: true,
        ..other(name)
    }
}

/// At most 64: a request's are counted in the bits of a word.
pub static NAMES: [Name; 44] = [
    keyed("content-type", "CONTENT_TYPE"),
    keyed("content-length", "CONTENT_LENGTH"),
    kept("host"),
    kept("user-agent"),
    kept("accept"),
    kept("accept-encoding"),
    kept("accept-language"),
    kept("accept-charset"),
    kept("connection"),
    kept("cache-control"),
    kept("pragma"),
    kept("upgrade-insecure-requests"),
    kept("dnt"),
    kept("te"),
    kept("priority"),
    kept("origin"),
    kept("referer"),
    kept("expect"),
    kept("transfer-encoding"),
    kept("sec-fetch-dest"),
    kept("sec-fetch-mode"),
    kept("sec-fetch-site"),
    kept("sec-fetch-user"),
    kept("sec-gpc"),
    kept("sec-ch-ua"),
    kept("sec-ch-ua-mobile"),
    kept("sec-ch-ua-platform"),
    kept("x-requested-with"),
    kept("x-forwarded-host"),
    kept("x-forwarded-port"),
    forwarded("x-forwarded-for"),
    forwarded("x-forwarded-proto"),
    other("x-real-ip"),
    other("x-request-id"),
    other("x-csrftoken"),
    other("traceparent"),
    other("tracestate"),
    other("cookie"),
    other("authorization"),
    other("range"),
    other("if-none-match"),
    other("if-modified-since"),
    other("if-match"),
    other("keep-alive"),
];

/// More than twice as many places as names.
const PLACES: usize = 128;

/// Positions in [`NAMES`], plus one; 0 is an empty place. Each name is at its own place or at one of the next.
static TABLE: [u8; PLACES] = {
    let mut table = [0; PLACES];
    let mut at = 0;
    while at < NAMES.len() {
        let mut place = place_of(NAMES[at].name.as_bytes());
        while table[place] != 0 {
            place = (place + 1) % PLACES;
        }
        table[place] = at as u8 + 1;
        at += 1;
    }
    table
};

/// Where the search for a name begins: its length and three of its letters tell most of them apart.
const fn place_of(name: &[u8]) -> usize {
    let (first, middle, last) = (name[0], name[name.len() / 2], name[name.len() - 1]);
    (name.len() + 5 * first as usize + 11 * middle as usize + 3 * last as usize) % PLACES
}

/// The position of a field's name, which is not empty, in [`NAMES`].
pub fn find(name: &[u8]) -> Option<usize> {
    let mut place = place_of(name);
    loop {
        let at = usize::from(TABLE[place]).checked_sub(1)?;
        if NAMES[at].name.as_bytes() == name {
            return Some(at);
        }
        place = (place + 1) % PLACES;
    }
}

#[cfg(test)]
mod tests {
    use super::{NAMES, PLACES, TABLE, find, place_of};

    #[test]
    fn every_name_is_found_and_no_other() {
        assert!(NAMES.len() <= 64);
        for (at, name) in NAMES.iter().enumerate() {
            assert_eq!(find(name.name.as_bytes()), Some(at), "{}", name.name);
            for other in [
                format!("{}x", name.name),
                format!("x{}", name.name),
                name.name.to_ascii_uppercase(),
            ] {
                assert_eq!(find(other.as_bytes()), None, "{other}");
            }
        }
    }

    #[test]
    fn few_names_are_not_at_their_own_place() {
        let own = |at: usize| usize::from(TABLE[place_of(NAMES[at].name.as_bytes())]) == at + 1;
        assert!((0..NAMES.len()).filter(|at| !own(*at)).count() * 4 <= NAMES.len());
        assert_eq!(TABLE.iter().filter(|place| **place == 0).count(), PLACES - NAMES.len());
    }
}
