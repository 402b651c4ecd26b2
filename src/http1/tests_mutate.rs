//! Damaged input: nothing panics, and no split changes what it means.

use super::tests::run;
use super::{Limits, RequestDecoder};

const SEEDS: [&str; 8] = [
    "GET /a?b=c HTTP/1.1\r\nHost: example.org\r\nAccept: */*\r\nCookie: a=b; c=d\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\nHost: h\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\na;x=y\r\n0123456789\r\n0\r\nT: v\r\n\r\n",
    "GET http://example.org:80/x HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, upgrade\r\nUpgrade: websocket\r\n\r\n",
    "\r\nOPTIONS * HTTP/1.0\r\nConnection: keep-alive\r\n\r\nHEAD / HTTP/1.0\r\n\r\n",
    "PUT /p HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
    "CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\nContent-Length: 1, 1\r\nA :\tb\r\n c\r\n\r\n",
];

/// Bytes that mean something to a parser of HTTP.
const SHARP: &[u8] = b"\r\n\0 \t:,;/?#*@%0159afAFGhH.-+=\"\x7f\x80\xff\x0b";

struct Xorshift(u64);

impl Xorshift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

fn mutate(random: &mut Xorshift, input: &mut Vec<u8>) {
    let at = random.below(input.len());
    match random.below(7) {
        0 if !input.is_empty() => input[at] = SHARP[random.below(SHARP.len())],
        1 if !input.is_empty() => input[at] ^= 1 << random.below(8),
        2 => input.insert(at, SHARP[random.below(SHARP.len())]),
        3 if !input.is_empty() => {
            input.remove(at);
        }
        4 => input.truncate(at),
        5 => {
            let end = (at + 1 + random.below(30)).min(input.len());
            let copy = input[at..end].to_vec();
            let to = random.below(input.len());
            input.splice(to..to, copy);
        }
        _ => {
            let other = SEEDS[random.below(SEEDS.len())].as_bytes();
            input.truncate(at);
            input.extend_from_slice(&other[random.below(other.len())..]);
        }
    }
}

#[test]
fn damaged_input_means_the_same_in_every_split() {
    let mut random = Xorshift(0x9e37_79b9_7f4a_7c15);
    let roomy = Limits::default();
    let tight = Limits {
        max_head: 70,
        max_target: 6,
        max_fields: 2,
        max_body: 6,
    };
    let (mut clean, mut refused) = (0, 0);
    for round in 0..100_000 {
        let mut input = SEEDS[random.below(SEEDS.len())].as_bytes().to_vec();
        for _ in 0..random.below(4) {
            mutate(&mut random, &mut input);
        }
        let limits = if round % 4 == 0 { &tight } else { &roomy };
        let whole = run(limits, [&input[..]]);
        let (front, back) = input.split_at(random.below(input.len()));
        let (back, last) = back.split_at(random.below(back.len()));
        assert_eq!(
            run(limits, [front, back, last]),
            whole,
            "{:?}",
            input.escape_ascii().to_string()
        );
        if round % 4 < 2 {
            assert_eq!(
                run(limits, input.chunks(1)),
                whole,
                "{:?}",
                input.escape_ascii().to_string()
            );
        }
        if whole.end.is_ok() { clean += 1 } else { refused += 1 }
    }
    assert!(
        clean > 20_000 && refused > 20_000,
        "both sides are exercised: {clean} clean, {refused} refused"
    );
}

#[test]
fn noise_never_panics() {
    let mut random = Xorshift(42);
    let limits = Limits {
        max_head: 1000,
        ..Limits::default()
    };
    for _ in 0..20_000 {
        let input: Vec<u8> = (0..random.below(200))
            .map(|_| SHARP[random.below(SHARP.len())])
            .collect();
        let mut decoder = RequestDecoder::new(&limits);
        for start in [
            &b""[..],
            b"GET / HTTP/1.1\r\nHost: h\r\n",
            b"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            let mut bytes = start;
            while let Ok(Some(_)) = decoder.decode(&mut bytes) {}
            let mut bytes = &input[..];
            while let Ok(Some(_)) = decoder.decode(&mut bytes) {}
        }
    }
}
