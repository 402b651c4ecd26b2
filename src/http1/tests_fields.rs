//! Fields of request heads: their form, and what they say about the message and the connection.

use super::tests::{decode, get_with, post_with, refused};
use super::{Finish, Refusal};
use crate::handoff::{Framing, Upgrade};

fn bad_field(lines: &str) -> Refusal {
    refused(format!("GET / HTTP/1.1\r\nHost: h\r\n{lines}\r\n"))
}

#[test]
fn hosts() {
    assert_eq!(refused("GET / HTTP/1.1\r\n\r\n"), Refusal::HostMissing);
    assert_eq!(
        refused("GET / HTTP/1.1\r\nHost: h\r\nhost: h\r\n\r\n"),
        Refusal::HostRepeated
    );
    assert_eq!(
        refused("GET / HTTP/1.0\r\nHost: h\r\nhost: h\r\n\r\n"),
        Refusal::HostRepeated
    );
    for bad in [
        "a b",
        "a/b",
        "u@h",
        "a?b",
        "a#b",
        "a\tb",
        "a\"b",
        "a\\b",
        "<a>",
        "h\u{e9}",
        "h:80a",
        "h:80:80",
        "h: 80",
        "h:-1",
        "h:+1",
        "[::1",
        "::1",
        "[]",
        "[]:80",
        "[::1]a",
        "[::1]80",
        "a[::1]",
        "[[::1]]",
        "a]",
        "[a/b]",
        "%",
        "a%2",
        "%zz",
        "h%4g:80",
        "[::1]:80:80",
        "a,b:80,c",
    ] {
        assert_eq!(
            refused(format!("GET / HTTP/1.1\r\nHost: {bad}\r\n\r\n")),
            Refusal::Host,
            "{bad:?}"
        );
    }
    for good in [
        "",
        "h",
        "h_1:80",
        "[::1]:8000",
        "[::1]",
        "[v1.a:b]",
        "127.0.0.1",
        "xn--a-b.example.",
        "h:",
        ":80",
        "0.0.0.0=5000",
        "a,b",
        "%41b%2F:1",
        "[fe80::1%25eth0]",
        "h:123456",
    ] {
        let seen = decode(format!("GET / HTTP/1.1\r\nHost: {good}\r\n\r\n")).one();
        assert_eq!(seen.field("host"), Some(good.as_bytes()));
    }
}

#[test]
fn field_lines() {
    for (lines, refusal) in [
        ("A : b\r\n", Refusal::FieldName),
        ("A\t: b\r\n", Refusal::FieldName),
        (" A: b\r\n", Refusal::FieldName),
        (": b\r\n", Refusal::FieldName),
        ("A\r\n", Refusal::FieldName),
        ("A b: c\r\n", Refusal::FieldName),
        ("A(: c\r\n", Refusal::FieldName),
        ("A\0: c\r\n", Refusal::FieldName),
        ("\u{e9}: c\r\n", Refusal::FieldName),
        ("A: b\r\n c\r\n", Refusal::FieldName),
        ("A: b\r\n\tc\r\n", Refusal::FieldName),
        ("A: b\r\n \r\n", Refusal::FieldName),
        ("A:\r\n b\r\n", Refusal::FieldName),
        ("A: b\0c\r\n", Refusal::FieldValue),
        ("A: \0\r\n", Refusal::FieldValue),
        ("A: b\x01\r\n", Refusal::FieldValue),
        ("A: b\x1b\r\n", Refusal::FieldValue),
        ("A: b\x7f\r\n", Refusal::FieldValue),
        ("A: \x0bb\r\n", Refusal::FieldValue),
        ("A: b\x0c\r\n", Refusal::FieldValue),
    ] {
        assert_eq!(bad_field(lines), refusal, "{lines:?}");
    }
    assert_eq!(refused("GET / HTTP/1.1\r\n Host: h\r\n\r\n"), Refusal::FieldName);
    // At every distance from the end of the vectors that a parser compares at once.
    for length in 0..70 {
        let fill = "x".repeat(length);
        assert_eq!(bad_field(&format!("A: {fill}\x08{fill}\r\n")), Refusal::FieldValue);
        assert_eq!(bad_field(&format!("A: {fill}\x7f\r\n")), Refusal::FieldValue);
        assert_eq!(bad_field(&format!("A{fill}\x7f{fill}: b\r\n")), Refusal::FieldName);
    }
}

#[test]
fn content_lengths() {
    for good in ["0", "00", "000000000000000000000000000"] {
        assert_eq!(
            post_with(&format!("Content-Length: {good}\r\n"), "").one().framing,
            Framing::Empty
        );
    }
    let seen = post_with("Content-Length:  003 \r\n", "abc").one();
    assert_eq!((seen.framing, &seen.body[..]), (Framing::Length(3), &b"abc"[..]));
    let outcome = post_with("Content-Length: 18446744073709551615\r\n", "abc");
    assert_eq!(outcome.requests[0].framing, Framing::Length(u64::MAX));
    assert_eq!(
        (&outcome.requests[0].body[..], outcome.end),
        (&b"abc"[..], Ok(Finish::CutBody))
    );
    let bad = [
        "",
        "+1",
        "-1",
        "1 1",
        "1,1",
        "1, 1",
        "0x1",
        "1a",
        "a",
        "18446744073709551616",
        "1.0",
        "1;",
        "\u{663}",
        ",",
    ];
    for bad in bad {
        assert_eq!(
            bad_field(&format!("Content-Length: {bad}\r\n")),
            Refusal::ContentLength,
            "{bad:?}"
        );
    }
    for (first, second) in [("3", "3"), ("3", "4"), ("0", "0"), ("0", "3")] {
        let lines = format!("Content-Length: {first}\r\ncontent-length: {second}\r\n");
        assert_eq!(bad_field(&lines), Refusal::ContentLengthRepeated);
    }
}

#[test]
fn transfer_encodings() {
    for good in ["chunked", "CHUNKED", " \tchunked\t"] {
        assert_eq!(
            post_with(&format!("Transfer-Encoding: {good}\r\n"), "0\r\n\r\n")
                .one()
                .framing,
            Framing::Chunked
        );
    }
    for bad in [
        "",
        ",",
        "chunked,",
        ",chunked",
        "chunked, chunked",
        "chunked, gzip",
        "gzip",
        "identity",
        "chunked;q=1",
        "xchunked",
        "chunked chunked",
        "\"chunked\"",
        "chunked, identity",
        "gzip,,chunked",
    ] {
        assert_eq!(
            bad_field(&format!("Transfer-Encoding: {bad}\r\n")),
            Refusal::TransferEncoding,
            "{bad:?}"
        );
    }
    let twice = "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n";
    assert_eq!(bad_field(twice), Refusal::TransferEncoding);
    assert_eq!(
        bad_field("Transfer-Encoding: chunked\r\nTransfer-Encoding:\r\n"),
        Refusal::TransferEncoding
    );
    assert_eq!(bad_field("Transfer-Encoding: gzip, chunked\r\n").status(), 501);
    assert_eq!(
        bad_field("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n").status(),
        501
    );
    assert_eq!(
        bad_field("Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n"),
        Refusal::TransferEncoding
    );
    let both = [
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 0\r\n",
    ];
    for lines in both {
        assert_eq!(bad_field(lines), Refusal::LengthAndEncoding);
    }
    let old = "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(refused(old), Refusal::EncodingOnHttp10);
    assert_eq!(bad_field("Transfer-Encoding : chunked\r\n"), Refusal::FieldName);
    assert_eq!(bad_field("Transfer-Encoding: \x0bchunked\r\n"), Refusal::FieldValue);
}

#[test]
fn keep_alive() {
    for (lines, new, old) in [
        ("", true, false),
        ("Connection: close\r\n", false, false),
        ("Connection: Keep-Alive\r\n", true, true),
        ("Connection: x, CLOSE ,y\r\n", false, false),
        ("Connection: keep-alive, close\r\n", false, false),
        ("Connection: keep-alive\r\nConnection: close\r\n", false, false),
        ("Connection: x,keep-alive\r\n", true, true),
        ("Connection: closed\r\n", true, false),
        ("Connection:\r\n", true, false),
        ("Connection: ,,\r\n", true, false),
        ("Keep-Alive: timeout=5\r\n", true, false),
        ("Proxy-Connection: close\r\n", true, false),
    ] {
        assert_eq!(get_with(lines).one().keep_alive, new, "{lines:?}");
        assert_eq!(
            decode(format!("GET / HTTP/1.0\r\n{lines}\r\n")).one().keep_alive,
            old,
            "HTTP/1.0, {lines:?}"
        );
    }
    let post = post_with("Connection: close\r\nContent-Length: 2\r\n", "ab GARBAGE \r\n").one();
    assert_eq!(
        (&post.body[..], post.keep_alive),
        (&b"ab"[..], false),
        "what follows the last request is ignored"
    );
    let old = decode("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /2 HTTP/1.0\r\n\r\n(");
    assert_eq!((old.requests.len(), old.end), (2, Ok(Finish::Clean)));
}

#[test]
fn expectations() {
    let wait = "Expect: 100-Continue\r\n";
    assert!(
        post_with(&format!("{wait}Content-Length: 1\r\n"), "a")
            .one()
            .expect_continue
    );
    assert!(
        post_with(&format!("{wait}Transfer-Encoding: chunked\r\n"), "0\r\n\r\n")
            .one()
            .expect_continue
    );
    assert!(
        !post_with(wait, "").one().expect_continue,
        "there is no body to wait with"
    );
    assert!(
        !post_with("Expect: 200-ok\r\nContent-Length: 1\r\n", "a")
            .one()
            .expect_continue
    );
    let old = decode("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\na");
    assert!(!old.one().expect_continue, "HTTP/1.0 knows no 100");
}

#[test]
fn upgrades() {
    let websocket = "Upgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n";
    assert_eq!(get_with(websocket).one().upgrade, Upgrade::WebSocket);
    assert_eq!(
        get_with("Upgrade: h2c, websocket\r\nConnection: upgrade\r\n")
            .one()
            .upgrade,
        Upgrade::WebSocket
    );
    for lines in [
        "Upgrade: websocket\r\n",
        "Upgrade: websocket\r\nConnection: keep-alive\r\n",
        "Connection: upgrade\r\n",
        "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQ\r\n",
        "Upgrade: websockets\r\nConnection: upgrade\r\n",
    ] {
        assert_eq!(get_with(lines).one().upgrade, Upgrade::None, "{lines:?}");
    }
    assert_eq!(post_with(websocket, "").one().upgrade, Upgrade::None, "only GET");
    let with_body = decode(format!(
        "GET / HTTP/1.1\r\nHost: h\r\n{websocket}Content-Length: 1\r\n\r\na"
    ))
    .one();
    assert_eq!(
        with_body.upgrade,
        Upgrade::None,
        "bytes that follow would be body and messages"
    );
    let old = decode(format!("GET / HTTP/1.0\r\n{websocket}\r\n")).one();
    assert_eq!(old.upgrade, Upgrade::None, "HTTP/1.0 cannot upgrade");
    let body = post_with("Upgrade: h2c\r\nConnection: upgrade\r\nContent-Length: 2\r\n", "ab").one();
    assert_eq!(
        (body.upgrade, &body.body[..]),
        (Upgrade::None, &b"ab"[..]),
        "the body is intact"
    );
}
