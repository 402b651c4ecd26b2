//! What clients send: bodies, pipelining, 100-continue, early answers, half close (R2, R8).

use bytes::Bytes;
use m0serve::handoff::{Frame, WINDOW, Why};

use crate::rig::{Rig, answered, get, head, post, settings};
use crate::script::{End, Flow};

#[test]
fn a_request_with_its_body_in_one_segment_is_one_job() {
    let mut rig = Rig::new(settings());
    let client = rig.client(post("/a", 5, "") + "hello");
    let request = rig.request();
    assert_eq!((&request.body[..], request.body_complete), (&b"hello"[..], true));
    assert_eq!(rig.told(), "nothing");
    rig.answer(request.id, "hi");
    assert_eq!(rig.out(client), answered("hi"));
    assert!(!rig.is_over(client));
    rig.over();
}

#[test]
fn a_body_in_pieces_follows_its_request_in_order_and_ends_once() {
    let mut rig = Rig::new(settings());
    let client = rig.client(post("/a", 10, "") + "abc");
    let request = rig.request();
    assert_eq!((&request.body[..], request.body_complete), (&b"abc"[..], false));
    rig.feed(client, "defg");
    assert_eq!(rig.body(request.id), b"defg");
    rig.feed(client, "hij");
    assert_eq!(rig.body(request.id), b"hij");
    assert_eq!(rig.told(), "end");
    assert_eq!(rig.told(), "nothing");
    rig.answer(request.id, "ok");
    assert_eq!(rig.out(client), answered("ok"));
    rig.over();
}

#[test]
fn pipelined_requests_are_dispatched_one_at_a_time_and_answered_in_order() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/1") + &post("/2", 4, "") + "body" + &get("/3"));
    for (path, body) in [("/1", ""), ("/2", "body"), ("/3", "")] {
        let request = rig.request();
        assert_eq!(request.head.get(request.head.path), path.as_bytes());
        assert_eq!((&request.body[..], request.body_complete), (body.as_bytes(), true));
        assert_eq!(rig.told(), "nothing", "the next waits for its turn");
        rig.answer(request.id, path);
        assert_eq!(rig.out(client), answered(path));
    }
    rig.over();
}

#[test]
fn what_follows_a_body_in_the_same_segment_is_the_next_request() {
    let mut rig = Rig::new(settings());
    let client = rig.client(post("/1", 6, "") + "abc");
    let first = rig.request();
    rig.feed(client, "def".to_owned() + &get("/2"));
    assert_eq!(rig.body(first.id), b"def");
    assert_eq!(rig.told(), "end");
    assert_eq!(rig.told(), "nothing");
    rig.answer(first.id, "one");
    assert_eq!(rig.told(), "request /2");
    rig.over();
}

#[test]
fn continue_is_sent_once_and_only_when_the_host_asks() {
    let mut rig = Rig::new(settings());
    let client = rig.client(post("/", 3, "expect: 100-continue\r\n"));
    let request = rig.request();
    assert_eq!(rig.out(client), "");
    rig.say(Frame::WantBody(request.id, 0));
    rig.say(Frame::WantBody(request.id, 10));
    assert_eq!(rig.out(client), "HTTP/1.1 100 Continue\r\n\r\n");
    rig.feed(client, "abc");
    assert_eq!(rig.body(request.id), b"abc");
    assert_eq!(rig.told(), "end");
    rig.answer(request.id, "ok");
    assert_eq!(rig.out(client), answered("ok"), "the connection goes on");
    assert!(!rig.is_over(client));
    rig.over();
}

#[test]
fn continue_is_not_sent_to_a_client_that_did_not_wait_or_after_the_head() {
    let mut rig = Rig::new(settings());
    let eager = rig.client(post("/", 3, "expect: 100-continue\r\n") + "a");
    let request = rig.request();
    rig.say(Frame::WantBody(request.id, 10));
    assert_eq!(rig.out(eager), "");
    rig.feed(eager, "bc");
    rig.body(request.id);
    assert_eq!(rig.told(), "end");
    rig.answer(request.id, "ok");
    assert_eq!(rig.out(eager), answered("ok"));

    let late = rig.client(post("/", 3, "expect: 100-continue\r\n"));
    let request = rig.request();
    rig.say_head(request.id, 200, &[("content-length", "0")]);
    rig.out(late);
    rig.say(Frame::WantBody(request.id, 10));
    assert_eq!(rig.out(late), "", "not after a response has begun");
    rig.over();
}

/// An empty chunked body is complete without a byte of it: its client waits for nothing either.
#[test]
fn a_complete_body_needs_no_continue_and_keeps_the_connection() {
    let mut rig = Rig::new(settings());
    let head = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\nexpect: 100-continue\r\n\r\n";
    let client = rig.client(head.to_owned() + "0\r\n\r\n");
    let request = rig.request();
    assert!(request.body_complete);
    rig.say(Frame::WantBody(request.id, 10));
    assert_eq!(rig.out(client), "");
    rig.answer(request.id, "ok");
    assert_eq!(rig.out(client), answered("ok"));
    assert!(!rig.is_over(client));
    rig.over();
}

#[test]
fn a_final_answer_without_continue_closes_since_a_body_may_or_may_not_follow() {
    let mut rig = Rig::new(settings());
    let client = rig.client(post("/", 3, "expect: 100-continue\r\n"));
    rig.serve("no");
    assert!(rig.out(client).contains("\r\nconnection: close\r\n"));
    assert!(rig.is_over(client));
    rig.feed(client, "abc".to_owned() + &get("/next"));
    assert_eq!((rig.told(), rig.out(client)), ("nothing".into(), String::new()));
    rig.over();
}

#[test]
fn an_early_answer_keeps_the_connection_when_the_rest_of_the_body_has_come() {
    let mut rig = Rig::new(settings());
    let client = rig.client(post("/1", 100_000, "") + "abc");
    rig.serve("early");
    assert_eq!(rig.out(client), answered("early"));
    for _ in 0..99 {
        rig.feed(client, [b'x'; 1000]);
    }
    assert_eq!(rig.told(), "nothing", "the rest is thrown away");
    rig.feed(client, "x".repeat(997) + &get("/2"));
    assert_eq!(rig.told(), "request /2");
    rig.over();
}

#[test]
fn an_early_answer_reads_on_although_the_window_was_used_up() {
    let mut rig = Rig::new(settings());
    let window = WINDOW as usize;
    let client = rig.client(post("/1", window + 30_000, ""));
    let request = rig.request();
    rig.feed(client, vec![b'x'; window]);
    assert!(
        !rig.net.peer(client, |peer| peer.receiving),
        "the window is used up (R7)"
    );
    rig.body(request.id);
    rig.answer(request.id, "early");
    rig.feed(client, "x".repeat(30_000) + &get("/2"));
    assert_eq!(rig.told(), "request /2");
    rig.over();
}

#[test]
fn beyond_the_bound_an_early_answer_closes() {
    let mut rig = Rig::new(settings());
    let client = rig.client(post("/1", 5_000_000, ""));
    rig.serve("early");
    let mut sent = 0;
    while !rig.is_over(client) {
        rig.feed(client, vec![b'x'; 50_000]);
        sent += 50_000;
        assert!(sent < 2_000_000, "the bound is a mebibyte");
    }
    assert!(sent >= 1024 * 1024);
    assert_eq!(rig.out(client), answered("early"));
    assert!(
        !rig.is_closed(client),
        "it lingers, so that the answer is not destroyed"
    );
    rig.over();
}

/// Closing at once would reset the connection and could destroy the answer that has just been sent.
#[test]
fn a_bad_rest_of_an_answered_request_lingers_too() {
    let mut rig = Rig::new(settings());
    let client = rig.client("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n");
    rig.serve("early");
    rig.feed(client, "zz\r\n");
    assert_eq!(rig.out(client), answered("early"), "never two responses (R8)");
    assert!(rig.is_over(client) && !rig.is_closed(client));
    rig.over();
}

#[test]
fn a_refusal_in_a_body_is_told_and_answered_once() {
    let mut rig = Rig::new(settings());
    let client = rig.client("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n");
    let request = rig.request();
    rig.feed(client, "zz\r\n");
    assert_eq!(rig.told(), format!("reset {:?}", Why::Refused));
    assert!(rig.out(client).starts_with("HTTP/1.1 400 "));
    rig.answer(request.id, "too late");
    assert_eq!(rig.out(client), "");
    rig.over();
}

#[test]
fn a_refusal_in_a_body_after_the_head_closes_without_a_second_head() {
    let mut rig = Rig::new(settings());
    let client = rig.client("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n");
    let request = rig.request();
    rig.say_head(request.id, 200, &[]);
    rig.out(client);
    rig.feed(client, "zz\r\n");
    assert_eq!(rig.told(), format!("reset {:?}", Why::Refused));
    assert_eq!(rig.out(client), "");
    assert!(rig.is_over(client));
    rig.over();
}

#[test]
fn a_request_that_was_bad_as_a_whole_is_never_told() {
    let mut rig = Rig::new(settings());
    let client = rig.client("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n");
    assert_eq!(rig.told(), "nothing");
    assert!(rig.out(client).starts_with("HTTP/1.1 400 "));
    assert_eq!((rig.stats().requests, rig.stats().refused), (0, 1));
    rig.over();
}

#[test]
fn half_close_between_requests_closes() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/"));
    rig.serve("one");
    rig.end(client, End::Fin);
    assert!(rig.is_closed(client));
    rig.over();
}

#[test]
fn half_close_in_a_head_closes_without_an_answer() {
    let mut rig = Rig::new(settings());
    let client = rig.client("GET / HT");
    rig.end(client, End::Fin);
    assert!(rig.is_closed(client));
    assert_eq!((rig.out(client), rig.told()), (String::new(), "nothing".into()));
    rig.over();
}

#[test]
fn half_close_after_a_request_lets_its_response_out() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/"));
    let request = rig.request();
    rig.end(client, End::Fin);
    assert_eq!(rig.told(), format!("aborted {:?}", Why::PeerFinished));
    assert!(!rig.is_over(client));
    rig.answer(request.id, "still");
    assert_eq!(rig.out(client), answered("still"));
    assert!(rig.is_closed(client));
    rig.over();
}

/// A request that waited for the output of the one before it was once thrown away by the client's FIN.
#[test]
fn half_close_while_much_is_queued_loses_no_request() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/first") + &get("/second"));
    rig.flow(client, Flow::Held);
    let id = rig.request().id;
    let (large, small) = ("x".repeat(66_000), "y".repeat(5_000));
    let length = (large.len() + small.len()).to_string();
    rig.push(Frame::Head(id, head(200, &[("content-length", &length)])));
    rig.push(Frame::Chunk(id, Bytes::from(large)));
    rig.push(Frame::Chunk(id, Bytes::from(small)));
    rig.push(Frame::End(id));
    rig.say(Frame::Released(id));
    rig.end(client, End::Fin);
    rig.flow(client, Flow::Free);
    assert_eq!(rig.told(), "request /second");
    rig.over();
}

#[test]
fn half_close_in_a_body_never_looks_like_its_end() {
    let mut rig = Rig::new(settings());
    let client = rig.client(post("/", 10, "") + "abc");
    let request = rig.request();
    rig.end(client, End::Fin);
    assert_eq!(rig.told(), format!("aborted {:?}", Why::PeerFinished));
    assert_eq!(rig.told(), "nothing");
    rig.answer(request.id, "short");
    assert!(rig.out(client).ends_with("connection: close\r\n\r\nshort"));
    assert!(rig.is_closed(client));
    rig.over();
}

#[test]
fn half_close_while_the_rest_is_thrown_away_closes() {
    let mut rig = Rig::new(settings());
    let client = rig.client(post("/", 10, "") + "abc");
    rig.serve("early");
    rig.end(client, End::Fin);
    assert!(rig.is_closed(client));
    assert_eq!(rig.told(), "nothing");
    rig.over();
}

#[test]
fn half_close_behind_pipelined_requests_answers_them_all() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/1") + &get("/2") + &get("/3"));
    rig.end(client, End::Fin);
    for path in ["/1", "/2", "/3"] {
        let request = rig.request();
        assert_eq!(rig.told(), format!("aborted {:?}", Why::PeerFinished), "{path}");
        rig.answer(request.id, path);
        assert_eq!(rig.out(client), answered(path));
    }
    assert!(rig.is_closed(client));
    rig.over();
}

/// The FIN was seen while an earlier request was worked on; the next one is known to be cut when it is dispatched.
#[test]
fn half_close_in_the_body_of_a_pipelined_request_is_told_with_it() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/1") + &post("/2", 10, "") + "abc");
    rig.end(client, End::Fin);
    let first = rig.request();
    assert_eq!(rig.told(), format!("aborted {:?}", Why::PeerFinished));
    rig.answer(first.id, "one");
    let second = rig.request();
    assert!(!second.body_complete);
    assert_eq!(rig.told(), format!("aborted {:?}", Why::PeerFinished));
    assert_eq!(rig.told(), "nothing");
    rig.answer(second.id, "two");
    assert!(rig.out(client).ends_with("connection: close\r\n\r\ntwo"));
    assert!(rig.is_closed(client));
    rig.over();
}

#[test]
fn a_reset_is_told_once_and_frees_the_exchange_with_its_release() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/"));
    let request = rig.request();
    rig.end(client, End::Reset);
    assert_eq!(rig.told(), format!("reset {:?}", Why::PeerGone));
    assert_eq!(rig.told(), "nothing");
    assert!(rig.is_closed(client));
    assert_eq!((rig.stats().exchanges, rig.stats().abandoned), (1, 1));
    rig.answer(request.id, "nobody");
    assert_eq!(rig.stats().exchanges, 0);
    rig.over();
}

#[test]
fn a_websocket_handshake_is_refused_and_another_upgrade_is_ignored() {
    let mut rig = Rig::new(settings());
    let fields = "connection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let client = rig.client(format!(
        "GET / HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\n{fields}\r\n"
    ));
    assert_eq!(rig.told(), "nothing");
    assert!(rig.out(client).starts_with("HTTP/1.1 501 "));
    assert!(rig.is_over(client));
    let client = rig.client("GET /h2 HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n");
    assert_eq!(rig.told(), "request /h2");
    assert_eq!(rig.out(client), "");
    rig.over();
}
