//! Request heads: targets, fields, what they mean, and what is refused.

use super::tests::{Seen, decode, decode_with, get_with, post_with, refused};
use super::{Finish, Limits, Refusal};
use crate::handoff::{Framing, Upgrade, Version};

fn target(method: &str, target: &str) -> Seen {
    decode(format!("{method} {target} HTTP/1.1\r\nHost: h\r\n\r\n")).one()
}

fn bad_target(method: &str, target: &str) -> Refusal {
    refused(format!("{method} {target} HTTP/1.1\r\nHost: h\r\n\r\n"))
}

fn bad_field(lines: &str) -> Refusal {
    refused(format!("GET / HTTP/1.1\r\nHost: h\r\n{lines}\r\n"))
}

#[test]
fn a_plain_request() {
    let seen =
        decode("GET /a%20b?c=d?e HTTP/1.1\r\nHOST: example.org:80\r\nX-A:1\r\nx-a: \t2 \t\r\nEmpty:\r\n\r\n").one();
    assert_eq!((&*seen.method, &*seen.path, &*seen.query), ("GET", "/a%20b", "c=d?e"));
    let fields: Vec<(&[u8], &[u8])> = seen
        .fields
        .iter()
        .map(|(name, value)| (&name[..], &value[..]))
        .collect();
    assert_eq!(
        fields,
        [
            (&b"host"[..], &b"example.org:80"[..]),
            (b"x-a", b"1"),
            (b"x-a", b"2"),
            (b"empty", b"")
        ],
        "in order, repeated ones repeated, names in lower case, values trimmed"
    );
    assert_eq!(
        (seen.version, seen.framing, seen.keep_alive),
        (Version::Http11, Framing::Empty, true)
    );
    assert_eq!((seen.expect_continue, seen.upgrade), (false, Upgrade::None));
}

#[test]
fn values_pass_untouched() {
    let outcome = decode(b"GET / HTTP/1.1\r\nHost: h\r\nA: a\tb  c \xff\x80,;\"\r\nCookie: A=b; C=D\r\n\r\n").one();
    assert_eq!(outcome.field("a"), Some(&b"a\tb  c \xff\x80,;\""[..]));
    assert_eq!(outcome.field("cookie"), Some(&b"A=b; C=D"[..]));
    let token = "!#$%&'*+-.^_`|~09azAZ";
    let seen = decode(format!("{token} / HTTP/1.1\r\nHost: h\r\n{token}: 1\r\n\r\n")).one();
    assert_eq!(seen.method, token);
    assert_eq!(seen.field("!#$%&'*+-.^_`|~09azaz"), Some(&b"1"[..]));
}

#[test]
fn pipelined_requests_come_in_order() {
    let outcome = decode(
        "GET /1 HTTP/1.1\r\nHost: h\r\n\r\nPOST /2 HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc\
         POST /3 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nde\r\n0\r\n\r\n\
         GET /4 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\nthis is \0 ignored\r\n\r\n",
    );
    assert_eq!(outcome.end, Ok(Finish::Clean));
    let seen: Vec<_> = outcome
        .requests
        .iter()
        .map(|seen| (&*seen.path, &seen.body[..], seen.complete))
        .collect();
    assert_eq!(
        seen,
        [
            ("/1", &b""[..], true),
            ("/2", b"abc", true),
            ("/3", b"de", true),
            ("/4", b"", true)
        ]
    );
}

#[test]
fn what_a_fin_means() {
    for (input, end) in [
        ("", Finish::Clean),
        ("\r", Finish::Clean),
        ("\r\n", Finish::Clean),
        ("G", Finish::CutHead),
        ("GET / HTTP/1.1\r\nHost: h\r\n\r", Finish::CutHead),
        ("GET / HTTP/1.1\r\nHost: h\r\n\r\n", Finish::Clean),
        (
            "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\na",
            Finish::CutBody,
        ),
        (
            "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab",
            Finish::Clean,
        ),
        (
            "GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
            Finish::CutBody,
        ),
        (
            "GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n",
            Finish::CutBody,
        ),
    ] {
        let outcome = decode(input);
        assert_eq!(outcome.end, Ok(end), "{input:?}");
        assert!(
            outcome
                .requests
                .iter()
                .all(|seen| seen.complete == (end != Finish::CutBody))
        );
    }
}

#[test]
fn empty_lines_before_a_request() {
    assert_eq!(decode("\r\nGET /a HTTP/1.1\r\nHost: h\r\n\r\n").one().path, "/a");
    let two = decode("GET /1 HTTP/1.1\r\nHost: h\r\n\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!((two.requests.len(), two.end), (2, Ok(Finish::Clean)));
    assert_eq!(
        refused("\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n"),
        Refusal::EmptyLines
    );
    assert_eq!(refused("\nGET / HTTP/1.1\r\nHost: h\r\n\r\n"), Refusal::BareLf);
    assert_eq!(refused("\r\n\nGET / HTTP/1.1\r\nHost: h\r\n\r\n"), Refusal::BareLf);
    assert_eq!(refused("\rGET / HTTP/1.1\r\nHost: h\r\n\r\n"), Refusal::LineEnd);
}

#[test]
fn line_ends() {
    assert_eq!(refused("GET / HTTP/1.1\nHost: h\r\n\r\n"), Refusal::BareLf);
    assert_eq!(refused("GET / HTTP/1.1\r\nHost: h\n\r\n"), Refusal::BareLf);
    assert_eq!(refused("GET / HTTP/1.1\r\nHost: h\r\n\n"), Refusal::BareLf);
    assert_eq!(
        refused("GET / HTTP/1.1\r\nHost: h\r\nA: b\nC: d\r\n\r\n"),
        Refusal::BareLf
    );
    assert_eq!(refused("GET / HTTP/1.1\r\n\nHost: h\r\n\r\n"), Refusal::BareLf);
    for lines in [
        "A: b\rC: d\r\n",
        "A: b\r\r\n",
        "A: \r\r\n",
        "A:\rb\r\n",
        "A\r: b\r\n",
        "\rA: b\r\n",
    ] {
        assert_eq!(bad_field(lines).status(), 400, "{lines:?}");
    }
    assert_eq!(refused("GET / HTTP/1.1\r\r\nHost: h\r\n\r\n").status(), 400);
    assert_eq!(refused("GET /\r HTTP/1.1\r\nHost: h\r\n\r\n").status(), 400);
    assert_eq!(
        refused("\x16\x03\x01\x02\x00\x01"),
        Refusal::Method,
        "a TLS hello is refused at its first byte"
    );
}

#[test]
fn methods() {
    for method in [
        "GE T", "GE\tT", "G\0T", "G(T", "GET,", "\"GET\"", "G\u{e9}T", " GET", "", "@",
    ] {
        let refusal = bad_target(method, "/");
        assert_eq!(refusal.status(), 400, "{method:?}: {refusal:?}");
    }
    assert_eq!(bad_target("G(T", "/"), Refusal::Method);
    assert_eq!(target("get", "/").method, "get");
    assert_eq!(target("PROPFIND", "/").method, "PROPFIND");
    for at in ["h:443", "/", "http://h/"] {
        assert_eq!(bad_target("CONNECT", at).status(), 501, "{at}");
    }
}

#[test]
fn versions() {
    for (version, status) in [
        ("HTTP/2.0", 505),
        ("HTTP/3.0", 505),
        ("HTTP/0.9", 505),
        ("HTTP/1.2", 505),
        ("HTTP/1.", 400),
        ("HTTP/1.10", 400),
        ("HTTP/11", 400),
        ("HTTP/a.b", 400),
        ("http/1.1", 400),
        ("HTTP 1.1", 400),
        ("HTTPS/1.1", 400),
        ("HTTP/1.1 ", 400),
        (" HTTP/1.1", 400),
        ("\tHTTP/1.1", 400),
        ("", 400),
    ] {
        assert_eq!(
            refused(format!("GET / {version}\r\nHost: h\r\n\r\n")).status(),
            status,
            "{version:?}"
        );
    }
    assert_eq!(refused("GET /\r\n"), Refusal::Version, "HTTP/0.9, at once");
    assert_eq!(
        refused("PRI * HTTP/2.0\r\n"),
        Refusal::VersionNotSupported,
        "the preface of HTTP/2, at once"
    );
    let seen = decode("GET / HTTP/1.0\r\n\r\n").one();
    assert_eq!((seen.version, seen.keep_alive), (Version::Http10, false));
}

#[test]
fn origin_form_targets() {
    for (whole, path, query) in [
        ("/", "/", ""),
        ("/?", "/", ""),
        ("/?a", "/", "a"),
        ("//x//y", "//x//y", ""),
        ("/a?b?c", "/a", "b?c"),
        ("/%00%zz%", "/%00%zz%", ""),
        ("/|{}^`\"<>\\", "/|{}^`\"<>\\", ""),
        ("/http://x/", "/http://x/", ""),
        ("/*", "/*", ""),
    ] {
        let seen = target("GET", whole);
        assert_eq!((&*seen.path, &*seen.query), (path, query), "{whole}");
    }
    for bad in [
        "", "a", "?a", "#", "/#", "/a#b", "/?a#b", "/a?#", "/\t", "/\0", "/\x1f", "/\x7f", "/\u{e9}", "h:80",
    ] {
        assert_eq!(bad_target("GET", bad), Refusal::Target, "{bad:?}");
    }
    assert_eq!(bad_target("GET", "/ ").status(), 400);
    assert_eq!(refused(b"GET /\xff\xfe HTTP/1.1\r\nHost: h\r\n\r\n"), Refusal::Target);
    assert_eq!(refused(b"GET /\xc3\xa9 HTTP/1.1\r\nHost: h\r\n\r\n"), Refusal::Target);
}

#[test]
fn asterisk_form_is_for_options() {
    assert_eq!(target("OPTIONS", "*").path, "*");
    assert_eq!(bad_target("GET", "*"), Refusal::Target);
    assert_eq!(bad_target("OPTIONS", "*?a"), Refusal::Target);
    assert_eq!(bad_target("OPTIONS", "**"), Refusal::Target);
}

#[test]
fn absolute_form_is_reduced_and_its_host_wins() {
    for (whole, host, path, query) in [
        ("http://example.org/a?b", "example.org", "/a", "b"),
        ("HTTP://EXAMPLE.org:8080/", "EXAMPLE.org:8080", "/", ""),
        ("https://[::1]:80", "[::1]:80", "/", ""),
        ("http://x?q=/r", "x", "/", "q=/r"),
        ("http://x?", "x", "/", ""),
        ("http://x//y", "x", "//y", ""),
    ] {
        let seen = target("GET", whole);
        assert_eq!((&*seen.path, &*seen.query), (path, query), "{whole}");
        assert_eq!(seen.fields, [(b"host".to_vec(), host.as_bytes().to_vec())], "{whole}");
        let old = decode(format!("GET {whole} HTTP/1.0\r\nA: b\r\n\r\n")).one();
        assert_eq!(
            old.field("host"),
            Some(host.as_bytes()),
            "HTTP/1.0 without Host: {whole}"
        );
        assert_eq!(old.field("a"), Some(&b"b"[..]));
    }
    for bad in ["http:/x", "ftp://x/", "http//x/", "ws://x/", "http:x"] {
        assert_eq!(bad_target("GET", bad), Refusal::Target, "{bad}");
    }
    for bad in [
        "http://",
        "http:///",
        "http://?a",
        "http://u@x/",
        "http://u:p@x/",
        "http://x\\y/",
        "http://a|b/",
    ] {
        assert_eq!(bad_target("GET", bad), Refusal::Host, "{bad}");
    }
    assert_eq!(bad_target("GET", "http://x/#a"), Refusal::Target);
    assert_eq!(bad_target("GET", "http://x#a"), Refusal::Target);
    assert_eq!(refused("GET http://x/ HTTP/1.1\r\nA: b\r\n\r\n"), Refusal::HostMissing);
    assert_eq!(
        refused("GET http://x/ HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"),
        Refusal::HostRepeated
    );
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
        "a b", "a/b", "u@h", "a?b", "a#b", "a\tb", "a\"b", "a\\b", "<a>", "h\u{e9}",
    ] {
        assert_eq!(
            refused(format!("GET / HTTP/1.1\r\nHost: {bad}\r\n\r\n")),
            Refusal::Host,
            "{bad:?}"
        );
    }
    for good in ["", "h", "h_1:80", "[::1]:8000", "127.0.0.1", "xn--a-b.example."] {
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
        assert_eq!(bad_target("GET", &format!("/{fill}\x7f{fill}")), Refusal::Target);
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
    let old = decode(format!("GET / HTTP/1.0\r\n{websocket}\r\n")).one();
    assert_eq!(old.upgrade, Upgrade::None, "HTTP/1.0 cannot upgrade");
    let body = post_with("Upgrade: h2c\r\nConnection: upgrade\r\nContent-Length: 2\r\n", "ab").one();
    assert_eq!(
        (body.upgrade, &body.body[..]),
        (Upgrade::None, &b"ab"[..]),
        "the body is intact"
    );
}

#[test]
fn head_limits() {
    let limits = Limits {
        max_head: 300,
        max_target: 20,
        max_fields: 3,
        max_body: 0,
    };
    let check = |input: &str| decode_with(&limits, input.as_bytes()).end.map_err(Refusal::status);
    let at = |length: usize| format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(length - 1));
    assert_eq!(check(&at(20)), Ok(Finish::Clean));
    assert_eq!(check(&at(21)), Err(414));
    assert_eq!(check(&at(200)), Err(414));
    assert_eq!(check(&at(2000)), Err(414));
    assert_eq!(
        check(&"a".repeat(86)),
        Ok(Finish::CutHead),
        "64 bytes beside the target, and CRLF"
    );
    assert_eq!(check(&"a".repeat(87)), Err(414), "noticed without the end of the line");
    // 16 + 9 + 6 bytes of lines and CRLF around the value, then the empty line.
    let long = |length: usize| format!("GET / HTTP/1.1\r\nHost: h\r\nA: {}\r\n\r\n", "b".repeat(length - 32));
    assert_eq!(long(300).len(), 300);
    assert_eq!(check(&long(300)), Ok(Finish::Clean));
    assert_eq!(check(&long(301)), Err(431));
    assert_eq!(check(&long(5000)), Err(431));
    assert_eq!(check(&long(5000)[..300]), Ok(Finish::CutHead));
    assert_eq!(
        check(&long(5000)[..301]),
        Err(431),
        "noticed without the end of the head"
    );
    let fields = |count: usize| format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "A: b\r\n".repeat(count - 1));
    assert_eq!(check(&fields(3)), Ok(Finish::Clean));
    assert_eq!(check(&fields(4)), Err(431));

    let many = Limits {
        max_fields: 1000,
        ..Limits::default()
    };
    assert_eq!(
        super::tests::run(&many, [fields(1000).as_bytes()]).one().fields.len(),
        1000
    );
    assert_eq!(
        super::tests::run(&many, [fields(1001).as_bytes()]).end,
        Err(Refusal::TooManyFields)
    );
    let tight = Limits {
        max_head: 40,
        ..Limits::default()
    };
    assert_eq!(
        decode_with(&tight, "a".repeat(50).as_bytes()).end,
        Err(Refusal::TargetTooLong)
    );
}
