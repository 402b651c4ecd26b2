//! What httparse accepts and we refuse (R8). Each input is given to both, so that the list stays true.

use super::Refusal;
use super::tests::{decode, refused};

/// Whether httparse takes it for a whole request, and how many bytes of it.
fn httparse_takes(input: &[u8]) -> Option<usize> {
    let mut headers = [httparse::EMPTY_HEADER; 16];
    match httparse::Request::new(&mut headers).parse(input) {
        Ok(httparse::Status::Complete(length)) => Some(length),
        Ok(httparse::Status::Partial) | Err(_) => None,
    }
}

fn lenient(input: &str, ours: Refusal) {
    assert_eq!(
        httparse_takes(input.as_bytes()),
        Some(input.len()),
        "httparse: {input:?}"
    );
    assert_eq!(refused(input), ours, "{input:?}");
}

#[test]
fn line_ends() {
    lenient("GET / HTTP/1.1\nHost: h\r\n\r\n", Refusal::BareLf);
    lenient("GET / HTTP/1.1\r\nHost: h\n\r\n", Refusal::BareLf);
    lenient("GET / HTTP/1.1\r\nHost: h\r\n\n", Refusal::BareLf);
    lenient("GET / HTTP/1.1\r\nHost: h\r\nA:\n\r\n", Refusal::BareLf);
    lenient("GET / HTTP/1.1\nHost: h\n\n", Refusal::BareLf);
    lenient("GET / HTTP/1.0\n\n", Refusal::BareLf);
}

#[test]
fn leading_lines() {
    lenient("\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", Refusal::EmptyLines);
    lenient("\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", Refusal::BareLf);
    lenient("\r\n\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", Refusal::BareLf);
    lenient("\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", Refusal::BareLf);
}

#[test]
fn targets() {
    for (target, ours) in [
        ("/#a", Refusal::Target),
        ("/?a#b", Refusal::Target),
        ("/\u{e9}", Refusal::Target),
        ("*", Refusal::Target),
        ("**", Refusal::Target),
        ("a", Refusal::Target),
        ("?a", Refusal::Target),
        ("#", Refusal::Target),
        ("h:80", Refusal::Target),
        ("ftp://h/", Refusal::Target),
        ("http:/h", Refusal::Target),
        ("http://", Refusal::Host),
        ("http:///", Refusal::Host),
        ("http://:80/", Refusal::Host),
        ("http://u@h/", Refusal::Host),
        ("http://h:80:80/", Refusal::Host),
        ("http://h\\/", Refusal::Host),
        ("http://[::1/", Refusal::Host),
    ] {
        lenient(&format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"), ours);
    }
    lenient("CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n", Refusal::Connect);
    lenient("CONNECT / HTTP/1.1\r\nHost: h\r\n\r\n", Refusal::Connect);
    lenient("OPTIONS *?a HTTP/1.1\r\nHost: h\r\n\r\n", Refusal::Target);
}

#[test]
fn fields_that_decide() {
    lenient("GET / HTTP/1.1\r\n\r\n", Refusal::HostMissing);
    for (lines, ours) in [
        ("Host: g\r\n", Refusal::HostRepeated),
        ("Content-Length: +1\r\n", Refusal::ContentLength),
        ("Content-Length: 0x1\r\n", Refusal::ContentLength),
        ("Content-Length:\r\n", Refusal::ContentLength),
        ("Content-Length: 1, 1\r\n", Refusal::ContentLength),
        ("Content-Length: 1\u{a0}\r\n", Refusal::ContentLength),
        ("Content-Length: 18446744073709551616\r\n", Refusal::ContentLength),
        (
            "Content-Length: 1\r\nContent-Length: 1\r\n",
            Refusal::ContentLengthRepeated,
        ),
        (
            "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n",
            Refusal::LengthAndEncoding,
        ),
        ("Transfer-Encoding: x\r\n", Refusal::TransferEncoding),
        ("Transfer-Encoding: \u{a0}chunked\r\n", Refusal::TransferEncoding),
        ("Transfer-Encoding: chunked, chunked\r\n", Refusal::TransferEncoding),
        ("Transfer-Encoding: x, chunked\r\n", Refusal::CodingNotSupported),
    ] {
        lenient(&format!("GET / HTTP/1.1\r\nHost: h\r\n{lines}\r\n"), ours);
    }
    for host in ["a b", "a/b", "u@h", "h:80a", "[::1", "%zz", "\u{e9}"] {
        lenient(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"), Refusal::Host);
    }
    lenient(
        "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        Refusal::EncodingOnHttp10,
    );
}

/// Bytes outside URIs that both take: they are the application's to judge, and no parser ends a target at them.
#[test]
fn what_both_take() {
    for target in ["/\"<>\\^`{|}", "/%", "/%zz", "/?\"", "/[]"] {
        let input = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(httparse_takes(input.as_bytes()), Some(input.len()));
        assert_eq!(decode(&input).requests.len(), 1, "{target}");
    }
}

/// httparse's own parser of chunk sizes is not ours: it takes these.
#[test]
fn chunk_sizes() {
    for line in ["1 \r\n", "1\t\r\n", "\r\n", ";a\r\n", "1;\0\r\n", "1;\n\r\n"] {
        assert!(
            matches!(
                httparse::parse_chunk_size(line.as_bytes()),
                Ok(httparse::Status::Complete(_))
            ),
            "{line:?}"
        );
        let input = format!("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{line}a\r\n0\r\n\r\n");
        let refusal = refused(&input);
        assert!(
            matches!(refusal, Refusal::ChunkSize | Refusal::ChunkExtension),
            "{line:?}: {refusal:?}"
        );
    }
}
