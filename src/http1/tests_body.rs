//! Bodies: by length, chunked, their limits, trailers.

use super::tests::{decode_with, post_with, run};
use super::{Finish, Limits, Refusal};

const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";

fn chunked(body: &str) -> Vec<u8> {
    let seen = post_with(CHUNKED, body).one();
    seen.body
}

fn bad(body: &str) -> Refusal {
    let outcome = post_with(CHUNKED, body);
    assert!(!outcome.requests[0].complete, "{body:?}");
    outcome.end.expect_err("refused")
}

#[test]
fn chunks() {
    assert_eq!(chunked("0\r\n\r\n"), b"");
    assert_eq!(chunked("000\r\n\r\n"), b"");
    assert_eq!(chunked("3\r\nabc\r\n0\r\n\r\n"), b"abc");
    assert_eq!(
        chunked("1\r\na\r\n2\r\nbc\r\n0000000000000003\r\ndef\r\n0\r\n\r\n"),
        b"abcdef"
    );
    assert_eq!(
        chunked("a\r\n0123456789\r\nB\r\n0123456789\n\r\n0\r\n\r\n"),
        b"01234567890123456789\n"
    );
    assert_eq!(chunked("2\r\n\r\n\r\n0\r\n\r\n"), b"\r\n");
    assert_eq!(chunked("5;a=b;c=\"d e\"\r\n0\r\n\r\n\r\n0;x\r\n\r\n"), b"0\r\n\r\n");
    assert_eq!(chunked("1;\t \u{e9}\r\na\r\n0\r\n\r\n"), b"a");
}

#[test]
fn chunk_sizes() {
    for size in [
        "",
        "+1",
        "-1",
        " 1",
        "1 ",
        "1\t",
        "\t1",
        "0x1",
        "1_0",
        "g",
        "1g",
        "00000000000000001",
        "11111111111111111",
        "1.",
        "1,",
        "\u{ff11}",
        "\0",
    ] {
        assert_eq!(
            bad(&format!("{size}\r\na\r\n0\r\n\r\n")),
            Refusal::ChunkSize,
            "{size:?}"
        );
        assert_eq!(
            bad(&format!("1\r\na\r\n{size}\r\na\r\n0\r\n\r\n")),
            Refusal::ChunkSize,
            "{size:?}"
        );
    }
    assert_eq!(bad(";a\r\n\r\n"), Refusal::ChunkSize);
    assert_eq!(bad("1\na\r\n0\r\n\r\n"), Refusal::ChunkSize);
    assert_eq!(bad("1\ra\r\n0\r\n\r\n"), Refusal::LineEnd);
    assert_eq!(bad("1\r\r\na\r\n0\r\n\r\n"), Refusal::LineEnd);
    let largest = post_with(CHUNKED, "ffffffffffffffff\r\nabc");
    assert_eq!(
        (&largest.requests[0].body[..], largest.end),
        (&b"abc"[..], Ok(Finish::CutBody))
    );
    assert_eq!(
        bad("1\r\na\r\nffffffffffffffff\r\nabc"),
        Refusal::BodyTooLarge,
        "the sum does not fit 64 bits"
    );
}

#[test]
fn chunk_ends() {
    for end in ["", "\n", "\r", "\r\r\n", " \r\n", "b\r\n", "\n\r", "\0\0"] {
        assert_eq!(bad(&format!("1\r\na{end}0\r\n\r\n")), Refusal::ChunkEnd, "{end:?}");
    }
    for last in ["0\n\r\n", "0\r\n\n", "0\r\n\rX", "0\r\n \r\n", "0\r\n\0\r\n"] {
        assert_eq!(bad(last).status(), 400, "{last:?}");
    }
}

#[test]
fn extensions_are_bounded() {
    for bad_byte in ["\0", "\x01", "\n", "\x7f", "\x1b", "\x0b"] {
        assert_eq!(
            bad(&format!("1;a{bad_byte}b\r\na\r\n0\r\n\r\n")),
            Refusal::ChunkExtension,
            "{bad_byte:?}"
        );
    }
    let with = |length: usize| format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(length));
    assert_eq!(chunked(&with(1024)), b"a");
    let twice = format!(
        "1;{0}\r\na\r\n1;{0}\r\nb\r\n0;{0}\r\nA: {1}\r\n\r\n",
        "x".repeat(1000),
        "y".repeat(8000)
    );
    let input = format!("POST / HTTP/1.1\r\nHost: h\r\n{CHUNKED}\r\n{twice}");
    assert_eq!(
        run(&Limits::default(), [input.as_bytes()]).one().body,
        b"ab",
        "each chunk and the trailers count anew"
    );
    assert_eq!(bad(&with(1025)), Refusal::ChunkExtension);
    assert_eq!(
        bad(&with(1025)[..1027]),
        Refusal::ChunkExtension,
        "noticed before the line ends"
    );
}

#[test]
fn trailers_are_checked_and_dropped() {
    let outcome = post_with(
        CHUNKED,
        "1\r\na\r\n0\r\nA: b\r\nContent-Type: c\r\nEmpty:\r\nX:\t\u{e9} \r\n\r\n",
    );
    let seen = outcome.one();
    assert_eq!((&seen.body[..], seen.fields.len()), (&b"a"[..], 2));
    for (trailer, refusal) in [
        ("A : b\r\n", Refusal::FieldName),
        (" A: b\r\n", Refusal::FieldName),
        (": b\r\n", Refusal::FieldName),
        ("A\r\n", Refusal::FieldName),
        ("A: b\r\n c\r\n", Refusal::FieldName),
        ("A: b\n", Refusal::FieldValue),
        ("A: \0\r\n", Refusal::FieldValue),
        ("A: b\x7f\r\n", Refusal::FieldValue),
        ("A: b\rc\r\n", Refusal::LineEnd),
        ("A: b\r\r\n", Refusal::LineEnd),
        ("\n", Refusal::FieldName),
    ] {
        assert_eq!(bad(&format!("0\r\n{trailer}\r\n")), refusal, "{trailer:?}");
    }
    let limits = Limits::default();
    let with = |length: usize| {
        let value = "b".repeat(length - 5);
        format!("POST / HTTP/1.1\r\nHost: h\r\n{CHUNKED}\r\n0\r\nA: {value}\r\n\r")
    };
    // All of the trailers' bytes but the last LF count.
    assert_eq!(run(&limits, [with(8191).as_bytes(), b"\n"]).one().body, b"");
    assert_eq!(
        run(&limits, [with(8192).as_bytes()]).end,
        Err(Refusal::TrailersTooLarge)
    );
    assert_eq!(Refusal::TrailersTooLarge.status(), 431);
}

#[test]
fn no_trailer_says_where_the_message_ends_or_whom_it_is_for() {
    for name in ["Content-Length", "transfer-encoding", "HOST"] {
        for before in ["", "A: b\r\n", "Content-: 1\r\n"] {
            let trailers = format!("0\r\n{before}{name}: 1\r\n\r\n");
            assert_eq!(bad(&trailers), Refusal::TrailerField, "{trailers:?}");
        }
        let shorter = &name[..name.len() - 1];
        let other = format!("0\r\n{shorter}: 1\r\n{name}s: 1\r\nX{name}: 1\r\n{name}-{name}: 1\r\n\r\n");
        assert_eq!(post_with(CHUNKED, &other).one().body, b"");
    }
    let long = format!("0\r\n{}: 1\r\nhost: 1\r\n\r\n", "h".repeat(300));
    assert_eq!(bad(&long), Refusal::TrailerField);
}

/// RFC 9112, section 7.1.1: it is to be removed, before a semicolon. Without one it is no extension.
#[test]
fn white_space_between_size_and_extension() {
    for line in ["1 ;a", "1\t; a = b", "1 \t ;", "1;a ;b"] {
        assert_eq!(chunked(&format!("{line}\r\na\r\n0 ;\r\n\r\n")), b"a", "{line:?}");
    }
    for line in ["1 ", "1\t", "1 1", "1 a;", "1 \0;", "1 \n;", " ;", " 1;"] {
        assert_eq!(
            bad(&format!("{line}\r\na\r\n0\r\n\r\n")),
            Refusal::ChunkSize,
            "{line:?}"
        );
    }
    let padded = format!("1{};\r\na\r\n0\r\n\r\n", " ".repeat(1026));
    assert_eq!(bad(&padded), Refusal::ChunkExtension);
}

#[test]
fn a_body_over_the_limit() {
    let limits = Limits {
        max_body: 5,
        ..Limits::default()
    };
    let post = |lines: &str, body: &str| {
        let input = format!("POST / HTTP/1.1\r\nHost: h\r\n{lines}\r\n{body}");
        decode_with(&limits, input.as_bytes())
    };
    assert_eq!(post("Content-Length: 5\r\n", "abcde").one().body, b"abcde");
    let declared = post("Content-Length: 6\r\n", "");
    assert_eq!(
        (declared.requests.len(), declared.end),
        (0, Err(Refusal::BodyTooLarge)),
        "not dispatched"
    );
    assert_eq!(post(CHUNKED, "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n").one().body, b"abcde");
    let over = post(CHUNKED, "3\r\nabc\r\n3\r\n");
    assert_eq!(
        (over.requests[0].complete, over.end),
        (false, Err(Refusal::BodyTooLarge))
    );
    assert_eq!(post(CHUNKED, "ffffffffffffffff\r\n").end, Err(Refusal::BodyTooLarge));
    assert_eq!(Refusal::BodyTooLarge.status(), 413);
}

#[test]
fn framing_must_not_outweigh_the_body() {
    let head = format!("POST / HTTP/1.1\r\nHost: h\r\n{CHUNKED}\r\n");
    let body = |chunk: &str, count: usize| format!("{head}{}0\r\n\r\n", chunk.repeat(count));
    let free = Limits::default();
    let tiny = body("1\r\na\r\n", 100_000);
    assert_eq!(
        run(&free, [tiny.as_bytes()]).one().body.len(),
        100_000,
        "chunks of one byte pass without a limit"
    );
    let padded = body("0000000000000001\r\na\r\n", 100_000);
    assert_eq!(run(&free, [padded.as_bytes()]).end, Err(Refusal::ChunkOverhead));
    let extended = body(&format!("1;{}\r\na\r\n", "x".repeat(1000)), 70);
    assert_eq!(run(&free, [extended.as_bytes()]).end, Err(Refusal::ChunkOverhead));
    assert_eq!(
        run(
            &free,
            [body(&format!("1;{}\r\na\r\n", "x".repeat(1000)), 60).as_bytes()]
        )
        .one()
        .body
        .len(),
        60
    );
    let promise = format!(
        "{head}{}fffff;{}\r\n",
        format!("1;{}\r\na\r\n", "x".repeat(1000)).repeat(65),
        "x".repeat(1000)
    );
    assert_eq!(
        run(&free, [promise.as_bytes()]).end,
        Err(Refusal::ChunkOverhead),
        "a chunk to come pays for nothing"
    );
    let small = Limits {
        max_body: 20_000,
        ..free
    };
    assert_eq!(
        run(&small, [body("1\r\na\r\n", 15_000).as_bytes()]).one().body.len(),
        15_000
    );
    let over = run(&small, [body("1\r\na\r\n", 19_000).as_bytes()]);
    assert_eq!(
        over.end,
        Err(Refusal::ChunkOverhead),
        "the wire counts as well as what it carries"
    );
    assert_eq!(Refusal::ChunkOverhead.status(), 413);
    assert_eq!(run(&small, over_the_wire(&body("1\r\na\r\n", 19_000))).end, over.end);
}

/// The same bytes in pieces of 7.
fn over_the_wire(input: &str) -> impl Iterator<Item = &[u8]> {
    input.as_bytes().chunks(7)
}
