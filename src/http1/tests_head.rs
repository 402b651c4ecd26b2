//! Request heads: targets, fields, what they mean, and what is refused.

use super::tests::{Seen, decode, decode_with, refused};
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
fn a_control_byte_anywhere_in_a_target() {
    // At every distance from the ends of the vectors that a parser compares at once.
    for length in 0..70 {
        let fill = "x".repeat(length);
        assert_eq!(bad_target("GET", &format!("/{fill}\x7f{fill}")), Refusal::Target);
    }
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
        "http://:80/",
        "http://x:a/",
        "http://x:80:80/",
        "http://[::1/",
        "http://[/]/",
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
    let method = |length: usize| format!("{} / HTTP/1.1\r\nHost: h\r\n\r\n", "M".repeat(length));
    assert_eq!(check(&method(73)), Ok(Finish::Clean));
    assert_eq!(check(&method(74)), Err(414), "the line is too long, if not its target");
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
