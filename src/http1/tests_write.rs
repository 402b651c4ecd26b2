//! Responses: heads, framing, chunks, refusals, dates.

use super::tests::{decode, refused};
use super::{
    BodyMode, CHUNK_END, CONTINUE, DateCache, LAST_CHUNK, Refusal, ResponseContext, is_registered, write_chunk_start,
    write_head, write_refusal,
};
use crate::handoff::head::MAX_RESPONSE_FIELDS;
use crate::handoff::{BadHead, ResponseHead, Version};

const NEW: ResponseContext<'static> = ResponseContext {
    version: Version::Http11,
    is_head: false,
    keep_alive: true,
    date: None,
    server: None,
};
const OLD: ResponseContext<'static> = ResponseContext {
    version: Version::Http10,
    ..NEW
};

fn head(status: u16, fields: &[(&str, &str)]) -> ResponseHead {
    let mut head = ResponseHead::new(status).expect("a status");
    for (name, value) in fields {
        head.push(name.as_bytes(), value.as_bytes()).expect("a field");
    }
    head
}

fn written(head: &ResponseHead, context: &ResponseContext<'_>) -> (String, BodyMode, bool) {
    let mut out = b"before".to_vec();
    let (mode, keep_alive) = write_head(&mut out, head, context);
    let text = String::from_utf8(out).expect("ASCII");
    (
        text.strip_prefix("before").expect("it appends").to_owned(),
        mode,
        keep_alive,
    )
}

#[track_caller]
fn expect(head: &ResponseHead, context: &ResponseContext<'_>, text: &str, mode: BodyMode, keep_alive: bool) {
    assert_eq!(written(head, context), (text.to_owned(), mode, keep_alive));
}

#[test]
fn fields_are_composed() {
    let mut head = ResponseHead::new(200).expect("a status");
    head.push(b"X-Thing", b" \ta\tb  c\xff ").expect("a field");
    head.push(b"Set-Cookie", b"A=b; Path=/").expect("a field");
    head.push(b"set-cookie", b"C=d").expect("a field");
    head.push(b"Empty", b"").expect("a field");
    assert_eq!(
        head.fields,
        b"x-thing: a\tb  c\xff\r\nset-cookie: A=b; Path=/\r\nset-cookie: C=d\r\nempty: \r\n"
    );
    let pairs: Vec<_> = head.iter().collect();
    assert_eq!(pairs[1], (&b"set-cookie"[..], &b"A=b; Path=/"[..]));
    assert_eq!(pairs[3], (&b"empty"[..], &b""[..]));
    assert!(!head.has_date && !head.has_server && !head.close && head.content_length.is_none());
    head.push(b"Date", b"now").expect("a field");
    head.push(b"SERVER", b"mine").expect("a field");
    head.push(b"Content-LENGTH", b"007").expect("a field");
    assert!(head.has_date && head.has_server && head.content_length == Some(7));
}

#[test]
fn bad_fields_leave_the_head_as_it_was() {
    for status in [0, 100, 101, 199, 1000, 65535] {
        assert_eq!(ResponseHead::new(status).err(), Some(BadHead::Status), "{status}");
    }
    let mut head = head(200, &[("a", "b"), ("content-length", "5")]);
    let before = head.fields.clone();
    for name in [
        "",
        "a b",
        "a:",
        "a\r\n",
        "a\0",
        "\u{e9}",
        " a",
        "a\n",
        "(",
        "content-length ",
    ] {
        assert_eq!(head.push(name.as_bytes(), b"x"), Err(BadHead::Name), "{name:?}");
    }
    for value in ["a\r\nb: c", "a\nb", "a\rb", "a\0", "\r\n", "\n"] {
        assert_eq!(head.push(b"x", value.as_bytes()), Err(BadHead::Value), "{value:?}");
        assert_eq!(
            head.push(b"connection", value.as_bytes()),
            Err(BadHead::Value),
            "dropped fields are checked, too"
        );
    }
    for value in ["", "-1", "+5", "5, 5", "6", "5a", "18446744073709551616", "5 5"] {
        assert_eq!(
            head.push(b"Content-Length", value.as_bytes()),
            Err(BadHead::ContentLength),
            "{value:?}"
        );
    }
    assert_eq!(head.push(b"content-length", b" 5 "), Ok(()), "an equal one is dropped");
    let large = vec![b'x'; MAX_RESPONSE_FIELDS];
    assert_eq!(head.push(b"x", &large), Err(BadHead::TooLarge));
    assert_eq!(head.push(&large, b"x"), Err(BadHead::TooLarge));
    assert_eq!(head.fields, before);
    let room = MAX_RESPONSE_FIELDS - before.len() - 5;
    assert_eq!(head.push(b"x", &large[..=room]), Err(BadHead::TooLarge));
    assert_eq!(head.push(b"x", &large[..room]), Ok(()));
    assert_eq!(head.push(b"y", b""), Err(BadHead::TooLarge));
}

#[test]
fn fields_of_the_connection_are_the_engines() {
    let fields = [
        ("Transfer-Encoding", "chunked"),
        ("Connection", "keep-alive"),
        ("Keep-Alive", "timeout=5"),
        ("a", "b"),
    ];
    let with = head(200, &fields);
    assert_eq!((&with.fields[..], with.close), (&b"a: b\r\n"[..], false));
    assert!(head(200, &[("connection", "x, Close")]).close);
    assert!(!head(200, &[("connection", "closed")]).close);
    expect(
        &with,
        &NEW,
        "HTTP/1.1 200 OK\r\na: b\r\ntransfer-encoding: chunked\r\n\r\n",
        BodyMode::Chunked,
        true,
    );
}

#[test]
fn framing_of_the_body() {
    let sized = head(200, &[("content-length", "5")]);
    let unsized_ = head(200, &[]);
    let ok = "HTTP/1.1 200 OK\r\n";
    expect(
        &sized,
        &NEW,
        &format!("{ok}content-length: 5\r\n\r\n"),
        BodyMode::Length(5),
        true,
    );
    expect(
        &unsized_,
        &NEW,
        &format!("{ok}transfer-encoding: chunked\r\n\r\n"),
        BodyMode::Chunked,
        true,
    );
    let kept = format!("{ok}content-length: 5\r\nconnection: keep-alive\r\n\r\n");
    expect(&sized, &OLD, &kept, BodyMode::Length(5), true);
    expect(
        &unsized_,
        &OLD,
        &format!("{ok}connection: close\r\n\r\n"),
        BodyMode::UntilClose,
        false,
    );
    let zero = head(200, &[("content-length", "0")]);
    expect(
        &zero,
        &NEW,
        &format!("{ok}content-length: 0\r\n\r\n"),
        BodyMode::Length(0),
        true,
    );
}

#[test]
fn responses_without_a_body() {
    let of_head = ResponseContext { is_head: true, ..NEW };
    let of_old_head = ResponseContext { is_head: true, ..OLD };
    let ok = "HTTP/1.1 200 OK\r\n";
    let sized = head(200, &[("content-length", "5")]);
    expect(
        &sized,
        &of_head,
        &format!("{ok}content-length: 5\r\n\r\n"),
        BodyMode::None,
        true,
    );
    let chunked = format!("{ok}transfer-encoding: chunked\r\n\r\n");
    expect(&head(200, &[]), &of_head, &chunked, BodyMode::None, true);
    expect(
        &head(200, &[]),
        &of_old_head,
        &format!("{ok}connection: keep-alive\r\n\r\n"),
        BodyMode::None,
        true,
    );
    let no_content = "HTTP/1.1 204 No Content\r\n";
    expect(
        &head(204, &[]),
        &NEW,
        &format!("{no_content}\r\n"),
        BodyMode::None,
        true,
    );
    let sized = head(204, &[("a", "b"), ("content-length", "0"), ("content-length-x", "c")]);
    let text = format!("{no_content}a: b\r\ncontent-length-x: c\r\n\r\n");
    expect(&sized, &NEW, &text, BodyMode::None, true);
    expect(&sized, &of_head, &text, BodyMode::None, true);
    let not_modified = head(304, &[("content-length", "9")]);
    let text = "HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n";
    expect(&not_modified, &NEW, text, BodyMode::None, true);
    expect(
        &head(304, &[]),
        &NEW,
        "HTTP/1.1 304 Not Modified\r\n\r\n",
        BodyMode::None,
        true,
    );
    let kept = "HTTP/1.1 304 Not Modified\r\nconnection: keep-alive\r\n\r\n";
    expect(&head(304, &[]), &OLD, kept, BodyMode::None, true);
}

#[test]
fn closing() {
    let closing = ResponseContext {
        keep_alive: false,
        ..NEW
    };
    let text = "HTTP/1.1 200 OK\r\ncontent-length: 1\r\nconnection: close\r\n\r\n";
    expect(
        &head(200, &[("content-length", "1")]),
        &closing,
        text,
        BodyMode::Length(1),
        false,
    );
    let asked = head(200, &[("content-length", "1"), ("connection", "close")]);
    expect(&asked, &NEW, text, BodyMode::Length(1), false);
    let old = ResponseContext {
        keep_alive: false,
        ..OLD
    };
    expect(&asked, &old, text, BodyMode::Length(1), false);
    let text = "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";
    expect(&head(204, &[]), &closing, text, BodyMode::None, false);
}

#[test]
fn date_and_server() {
    let mut dates = DateCache::new();
    let date = *dates.get(784_111_777);
    let named = ResponseContext {
        date: Some(&date),
        server: Some(b"m0serve"),
        ..NEW
    };
    let empty = head(200, &[("content-length", "0")]);
    let text = "HTTP/1.1 200 OK\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\nserver: m0serve\r\ncontent-length: 0\r\n\r\n";
    expect(&empty, &named, text, BodyMode::Length(0), true);
    let own = head(200, &[("Server", "mine"), ("Date", "today"), ("content-length", "0")]);
    let text = "HTTP/1.1 200 OK\r\nserver: mine\r\ndate: today\r\ncontent-length: 0\r\n\r\n";
    expect(&own, &named, text, BodyMode::Length(0), true);
}

#[test]
fn status_lines() {
    let line = |status| {
        written(&head(status, &[]), &NEW)
            .0
            .lines()
            .next()
            .expect("a line")
            .to_owned()
    };
    assert_eq!(line(404), "HTTP/1.1 404 Not Found");
    assert_eq!(line(299), "HTTP/1.1 299 ", "the space stays");
    assert_eq!(line(999), "HTTP/1.1 999 ");
    for (status, text, is) in [
        (200, "200 OK", true),
        (503, "503 Service Unavailable", true),
        (200, "200 ok", false),
        (200, "200", false),
        (200, "404 Not Found", false),
        (700, "700 ", false),
    ] {
        assert_eq!(is_registered(status, text.as_bytes()), is, "{text}");
    }
    for status in 200..1000 {
        assert!(line(status).starts_with(&format!("HTTP/1.1 {status} ")), "{status}");
    }
}

#[test]
fn chunk_framing() {
    for (length, text) in [
        (1, "1\r\n"),
        (10, "a\r\n"),
        (16, "10\r\n"),
        (255, "ff\r\n"),
        (65_536, "10000\r\n"),
        (usize::MAX, "ffffffffffffffff\r\n"),
    ] {
        let mut out = b"x".to_vec();
        write_chunk_start(&mut out, length);
        assert_eq!(out, format!("x{text}").as_bytes());
    }
    // What we write, we read.
    let mut request = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for piece in [&b"hello"[..], b" ", &[b'x'; 300]] {
        write_chunk_start(&mut request, piece.len());
        request.extend_from_slice(piece);
        request.extend_from_slice(CHUNK_END);
    }
    request.extend_from_slice(LAST_CHUNK);
    assert_eq!(decode(&request).one().body.len(), 306);
    assert!(CONTINUE.starts_with(b"HTTP/1.1 100 ") && CONTINUE.ends_with(b"\r\n\r\n"));
}

#[test]
#[should_panic(expected = "a chunk of size zero ends the body")]
fn a_chunk_of_nothing_is_a_mistake() {
    write_chunk_start(&mut Vec::new(), 0);
}

#[test]
fn refusals_are_complete_responses() {
    let refusal = refused("GET / HTTP/1.1\r\n\r\n");
    let mut out = Vec::new();
    write_refusal(
        &mut out,
        refusal.status(),
        refusal.reason(),
        false,
        Some(DateCache::new().get(0)),
        None,
    );
    assert_eq!(
        String::from_utf8(out).expect("ASCII"),
        "HTTP/1.1 400 Bad Request\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\ncontent-type: text/plain; charset=utf-8\r\n\
         content-length: 24\r\nconnection: close\r\n\r\nthe request has no Host\n"
    );
    assert_eq!(Refusal::Host.to_string(), Refusal::Host.reason());
}

#[test]
fn dates() {
    let mut dates = DateCache::new();
    for (second, text) in [
        (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
        (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
        (951_782_399, "Mon, 28 Feb 2000 23:59:59 GMT"),
        (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
        (951_868_800, "Wed, 01 Mar 2000 00:00:00 GMT"),
        (1_709_164_800, "Thu, 29 Feb 2024 00:00:00 GMT"),
        (1_735_689_599, "Tue, 31 Dec 2024 23:59:59 GMT"),
        (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        (253_402_300_799, "Fri, 31 Dec 9999 23:59:59 GMT"),
        (253_402_300_800, "Fri, 31 Dec 9999 23:59:59 GMT"),
        (u64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
        (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
    ] {
        assert_eq!(std::str::from_utf8(dates.get(second)), Ok(text), "{second}");
    }
    // Day by day through four centuries, against a calendar that counts.
    let (mut year, mut month, mut day) = (1970, 1, 1);
    for days in 0..146_097u64 {
        let text = dates.get(days * 86_400).to_vec();
        assert_eq!(text[5..7], *format!("{day:02}").as_bytes());
        assert_eq!(text[12..16], *format!("{year:04}").as_bytes());
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let length = match month {
            2 => 28 + i32::from(leap),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        day += 1;
        if day > length {
            (day, month) = (1, month + 1);
        }
        if month > 12 {
            (month, year) = (1, year + 1);
        }
    }
    assert_eq!((year, month, day), (2370, 1, 1));
}
