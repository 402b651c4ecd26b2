//! What a host says: framing, lengths, aborts, defects, files, the access log (R2, R8, R12).

use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use bytes::Bytes;
use m0serve::config::LogLevel;
use m0serve::engine::Settings;
use m0serve::handoff::{Frame, Why};
use m0serve::log::Logger;

use crate::rig::{Rig, answered, get, head, post, settings};
use crate::script::{End, Flow};

#[test]
fn a_body_without_a_length_is_chunked_and_ends_in_one_empty_chunk() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/"));
    let id = rig.request().id;
    rig.say_head(id, 200, &[]);
    rig.say_chunk(id, b"abc");
    rig.say_chunk(id, b"");
    rig.say(Frame::End(id));
    assert_eq!(
        rig.out(client),
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    );
    rig.over();
}

#[test]
fn a_body_on_http_1_0_ends_with_the_connection() {
    let mut rig = Rig::new(settings());
    let client = rig.client("GET / HTTP/1.0\r\n\r\n");
    let id = rig.request().id;
    rig.say_head(id, 200, &[]);
    rig.say_chunk(id, b"abc");
    rig.say(Frame::End(id));
    assert_eq!(rig.out(client), "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nabc");
    rig.leave(client);
    rig.over();
}

#[test]
fn head_204_and_304_have_no_body_and_keep_the_connection() {
    for (method, status, fields, expected) in [
        (
            "HEAD",
            200,
            &[("content-length", "3")][..],
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n",
        ),
        ("GET", 204, &[], "HTTP/1.1 204 No Content\r\n\r\n"),
        (
            "GET",
            304,
            &[("content-length", "3")],
            "HTTP/1.1 304 Not Modified\r\ncontent-length: 3\r\n\r\n",
        ),
    ] {
        let mut rig = Rig::new(settings());
        let client = rig.client(format!("{method} / HTTP/1.1\r\nhost: a\r\n\r\n") + &get("/next"));
        let id = rig.request().id;
        rig.say_head(id, status, fields);
        rig.say_chunk(id, b"abc");
        assert_eq!(rig.credit(id), 64, "what is dropped is given back (R7)");
        rig.say(Frame::End(id));
        assert_eq!(rig.out(client), expected);
        assert_eq!(rig.told(), "request /next");
        rig.over();
    }
}

#[test]
fn a_body_that_is_too_long_never_reaches_the_next_response() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/1") + &get("/2"));
    let id = rig.request().id;
    rig.say_head(id, 200, &[("content-length", "3")]);
    rig.say_chunk(id, b"ab");
    rig.credit(id);
    rig.say_chunk(id, b"cd");
    assert_eq!(rig.told(), format!("reset {:?}", Why::HostError));
    assert_eq!(rig.told(), "nothing", "the next request is not served");
    assert_eq!(rig.out(client), "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab");
    assert!(rig.is_over(client));
    rig.over();
}

#[test]
fn a_body_that_is_too_short_closes() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/1") + &get("/2"));
    let id = rig.request().id;
    rig.say_head(id, 200, &[("content-length", "3")]);
    rig.say_chunk(id, b"ab");
    rig.credit(id);
    rig.say(Frame::End(id));
    assert_eq!(rig.told(), format!("reset {:?}", Why::HostError));
    assert_eq!(rig.told(), "nothing");
    assert_eq!(rig.out(client), "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab");
    assert!(rig.is_over(client));
    rig.over();
}

#[test]
fn a_second_head_closes_and_never_leaves() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/"));
    let id = rig.request().id;
    rig.say_head(id, 200, &[]);
    rig.say_head(id, 500, &[]);
    assert_eq!(rig.told(), format!("reset {:?}", Why::HostError));
    assert_eq!(rig.out(client), "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
    assert!(rig.is_over(client));
    rig.say_head(id, 500, &[]);
    assert_eq!(rig.out(client), "");
    rig.over();
}

#[test]
fn a_body_or_an_end_before_the_head_is_a_500() {
    for chunk in [true, false] {
        let mut rig = Rig::new(settings());
        let client = rig.client(get("/"));
        let id = rig.request().id;
        rig.say(if chunk {
            Frame::Chunk(id, Bytes::from_static(b"abc"))
        } else {
            Frame::End(id)
        });
        assert_eq!(rig.told(), format!("reset {:?}", Why::HostError));
        let out = rig.out(client);
        assert!(
            out.starts_with("HTTP/1.1 500 ") && out.contains("connection: close"),
            "{out}"
        );
        assert!(rig.is_over(client));
        rig.answer(id, "late");
        assert_eq!(rig.out(client), "", "never two heads (R8)");
        rig.over();
    }
}

/// A host that lets go without a word would leave its client waiting for ever.
#[test]
fn a_release_before_the_end_is_a_response_cut_short() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/"));
    let id = rig.request().id;
    rig.say(Frame::Released(id));
    assert!(rig.out(client).starts_with("HTTP/1.1 500 "));
    assert!(rig.is_over(client));
    let client = rig.client(get("/"));
    let id = rig.request().id;
    rig.say_head(id, 200, &[]);
    rig.say(Frame::Released(id));
    assert!(!rig.out(client).contains("0\r\n\r\n"));
    assert!(rig.is_over(client));
    rig.over();
}

#[test]
fn an_abort_is_a_500_before_the_head_and_the_end_after_it() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/"));
    let id = rig.request().id;
    rig.say(Frame::Abort(id, Why::HostError));
    assert_eq!(rig.told(), "nothing", "the host knows");
    assert!(rig.out(client).starts_with("HTTP/1.1 500 "));
    assert!(rig.is_over(client));

    let client = rig.client(get("/"));
    let id = rig.request().id;
    rig.say_head(id, 200, &[]);
    rig.say_chunk(id, b"abc");
    rig.credit(id);
    rig.say(Frame::Abort(id, Why::HostError));
    assert_eq!(rig.told(), "nothing");
    assert!(
        rig.out(client).ends_with("3\r\nabc\r\n"),
        "no last chunk, no second head"
    );
    rig.leave(client);
    rig.over();
}

#[test]
fn the_application_can_close() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/1"));
    let id = rig.request().id;
    rig.push(Frame::Head(
        id,
        head(200, &[("content-length", "0"), ("connection", "close")]),
    ));
    rig.say(Frame::End(id));
    assert_eq!(
        rig.out(client),
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    );
    rig.leave(client);
    rig.over();
}

#[test]
fn the_client_can_close_and_what_follows_is_ignored() {
    let mut rig = Rig::new(settings());
    let client = rig.client("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\nGET /2 \x01nonsense");
    rig.serve("one");
    assert!(rig.out(client).ends_with("connection: close\r\n\r\none"));
    assert!(rig.is_over(client));
    assert_eq!(rig.told(), "nothing");
    rig.over();
}

#[test]
fn the_last_request_of_a_connection_says_so() {
    let mut rig = Rig::new(Settings {
        max_requests: 2,
        ..settings()
    });
    let client = rig.client(get("/1") + &get("/2") + &get("/3"));
    rig.serve("one");
    assert_eq!(rig.out(client), answered("one"));
    rig.serve("two");
    assert!(rig.out(client).ends_with("connection: close\r\n\r\ntwo"));
    assert!(rig.is_over(client));
    assert_eq!(rig.told(), "nothing");
    rig.over();
}

/// A file of ten bytes, `0123456789`, without a name.
pub fn file() -> OwnedFd {
    let path = std::env::temp_dir().join(format!(
        "m0serve-engine-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    let mut file = std::fs::File::options()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .open(&path)
        .expect("a temporary file");
    std::fs::remove_file(&path).expect("it was made");
    file.write_all(b"0123456789").expect("room for ten bytes");
    file.into()
}

#[test]
fn a_file_is_sent_as_the_body_and_its_end_is_told() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/"));
    let id = rig.request().id;
    rig.say_head(id, 200, &[("content-length", "4")]);
    rig.say(Frame::File(id, file(), 3, 4));
    assert_eq!(rig.told(), "file true");
    rig.say(Frame::End(id));
    assert_eq!(rig.out(client), "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n3456");
    let chunked = rig.client(get("/"));
    let id = rig.request().id;
    rig.push(Frame::Head(id, head(200, &[])));
    rig.push(Frame::File(id, file(), 0, 10));
    rig.say(Frame::End(id));
    assert!(rig.out(chunked).ends_with("\r\n\r\na\r\n0123456789\r\n0\r\n\r\n"));
    assert_eq!(rig.told(), "nothing", "what is complete needs no answer");
    rig.over();
}

#[test]
fn a_file_that_became_shorter_closes() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/1") + &get("/2"));
    let id = rig.request().id;
    rig.push(Frame::Head(id, head(200, &[("content-length", "8")])));
    rig.say(Frame::File(id, file(), 5, 8));
    assert_eq!(rig.told(), format!("reset {:?}", Why::HostError));
    assert_eq!(rig.told(), "nothing");
    assert!(rig.out(client).ends_with("56789"));
    rig.pass_time(Duration::from_secs(1));
    assert!(rig.is_closed(client));
    rig.over();
}

#[test]
fn a_file_for_a_head_request_or_of_no_bytes_is_done_at_once() {
    let mut rig = Rig::new(settings());
    let client = rig.client("HEAD / HTTP/1.1\r\nhost: a\r\n\r\n");
    let id = rig.request().id;
    rig.say_head(id, 200, &[("content-length", "10")]);
    rig.say(Frame::File(id, file(), 0, 10));
    assert_eq!(rig.told(), "file true");
    rig.say(Frame::End(id));
    assert!(rig.out(client).ends_with("\r\n\r\n"));
    rig.feed(client, get("/"));
    let id = rig.request().id;
    rig.say_head(id, 200, &[]);
    rig.say(Frame::File(id, file(), 0, 0));
    assert_eq!(rig.told(), "file true");
    rig.say(Frame::End(id));
    assert!(rig.out(client).ends_with("\r\n\r\n0\r\n\r\n"));
    rig.over();
}

/// The text of a 500 or 408 of the server's own came after the head, where a client looks for the next response.
#[test]
fn an_answer_of_the_servers_own_to_head_has_no_body() {
    let mut rig = Rig::new(settings());
    let failed = rig.client("HEAD / HTTP/1.1\r\nhost: a\r\n\r\n");
    let id = rig.request().id;
    rig.say(Frame::Abort(id, Why::HostError));
    let slow = rig.client("HEAD / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n");
    rig.pass_time(Duration::from_secs(31));
    for (client, status) in [(failed, "500"), (slow, "408")] {
        let out = rig.out(client);
        assert!(out.starts_with(&format!("HTTP/1.1 {status} ")), "{out}");
        assert!(
            out.contains("\r\ncontent-length: ") && out.ends_with("\r\n\r\n"),
            "{out}"
        );
    }
    rig.over();
}

#[test]
fn a_send_that_fails_resets_the_exchange() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/"));
    let id = rig.request().id;
    rig.flow(client, Flow::Broken);
    rig.say_head(id, 200, &[]);
    assert_eq!(rig.told(), format!("reset {:?}", Why::PeerGone));
    assert!(rig.is_closed(client));
    rig.say_chunk(id, b"abc");
    assert_eq!(rig.told(), "nothing");
    rig.over();
}

#[test]
fn a_large_body_arrives_whole_however_little_leaves_at_a_time() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/"));
    let id = rig.request().id;
    rig.flow(client, Flow::Trickle(997));
    let body: String = (0..60_000).map(|n| char::from(b'a' + (n % 26) as u8)).collect();
    rig.answer(id, &body);
    assert_eq!(rig.out(client), answered(&body));
    rig.over();
}

#[test]
fn every_answered_request_has_a_line_in_the_access_log() {
    let log = access_log(settings(), |rig| {
        let client = rig.client(get("/a?b=c") + &post("/post", 1, "") + "x" + &get("/aborted"));
        rig.serve("one");
        rig.serve("two");
        let id = rig.request().id;
        rig.say(Frame::Abort(id, Why::HostError));
        rig.out(client);
    });
    assert_eq!(
        log,
        [
            "\"GET /a?b=c HTTP/1.1\" 200",
            "\"POST /post HTTP/1.1\" 200",
            "\"GET /aborted HTTP/1.1\" 500"
        ]
    );
}

/// Only what was answered by the application had one.
#[test]
fn what_is_refused_or_cut_has_a_line_in_the_access_log_too() {
    let mut small = Settings {
        max_connections: 1,
        body_timeout: Duration::from_secs(5),
        ..settings()
    };
    small.limits.max_body = 10;
    let chunked = "transfer-encoding: chunked\r\n\r\n";
    let log = access_log(small, |rig| {
        let mut refused = |bytes: &str| {
            let client = rig.client(bytes);
            rig.end(client, End::Fin);
            assert!(rig.is_closed(client));
        };
        refused("\x16\x03 \"TLS\"");
        refused(&post("/declared", 11, ""));
        refused(&format!("POST /at-once HTTP/1.1\r\nhost: a\r\n{chunked}B\r\n"));
        refused("GET /ws HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n");

        let client = rig.client(format!("POST /grows HTTP/1.1\r\nhost: a\r\n{chunked}"));
        assert_eq!(rig.told(), "request /grows");
        let second = rig.connect();
        rig.end(second, End::Fin);
        rig.feed(client, "B\r\n");
        rig.end(client, End::Fin);

        let client = rig.client(post("/stalls", 5, "") + "x");
        assert_eq!(rig.told(), format!("reset {:?}", Why::Refused));
        assert_eq!(rig.told(), "request /stalls");
        rig.pass_time(Duration::from_secs(6));
        rig.end(client, End::Fin);

        let client = rig.client(get("/leaves"));
        rig.end(client, End::Reset);
        rig.jobs.clear();
        let client = rig.client(get("/leaves-the-stream"));
        let id = rig.request().id;
        rig.say_head(id, 200, &[]);
        rig.end(client, End::Reset);
    });
    let log: Vec<&str> = log.iter().map(String::as_str).collect();
    assert_eq!(
        log,
        [
            "\"\\x16\\x03 \\x22TLS\\x22\" 400",
            "\"POST /declared HTTP/1.1\" 413",
            "\"POST /at-once HTTP/1.1\" 413",
            "\"GET /ws HTTP/1.1\" 501",
            "\"-\" 503",
            "\"POST /grows HTTP/1.1\" 413",
            "\"POST /stalls HTTP/1.1\" 408",
            "\"GET /leaves HTTP/1.1\" 499",
            "\"GET /leaves-the-stream HTTP/1.1\" 200",
        ]
    );
}

/// The lines that the access log has after this, without their addresses.
fn access_log(settings: Settings, what: impl FnOnce(&mut Rig)) -> Vec<String> {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let fd = writer.as_raw_fd();
    let settings = Settings {
        access_log: true,
        ..settings
    };
    let mut rig = Rig::logging(settings, |clock| Logger::to(LogLevel::Error, true, clock, fd, fd));
    what(&mut rig);
    rig.over();
    drop(writer);
    let log = std::io::read_to_string(reader).expect("lines of text");
    let without_address = |line: &str| line.split_once(" - ").expect("an address").1.to_owned();
    log.lines().map(without_address).collect()
}

#[test]
fn date_and_server_are_there_unless_the_application_sets_them() {
    let mut rig = Rig::new(Settings::default());
    let client = rig.client(get("/") + &get("/"));
    rig.serve("");
    let date = "date: Sat, 01 Jan 2000 00:00:00 GMT\r\n";
    assert_eq!(
        rig.out(client),
        format!("HTTP/1.1 200 OK\r\n{date}server: m0serve\r\ncontent-length: 0\r\n\r\n")
    );
    let id = rig.request().id;
    rig.say_head(
        id,
        200,
        &[("date", "today"), ("server", "mine"), ("content-length", "0")],
    );
    rig.say(Frame::End(id));
    assert_eq!(
        rig.out(client),
        "HTTP/1.1 200 OK\r\ndate: today\r\nserver: mine\r\ncontent-length: 0\r\n\r\n"
    );
    rig.over();
}
