//! Draining and stopping (R11).

use std::time::Duration;

use m0serve::handoff::{Frame, Stop, Why};

use crate::rig::{Rig, answered, get, head, post, settings};
use crate::script::{End, Flow};

#[test]
fn a_drain_of_nothing_is_over_at_once_and_said_once() {
    let mut rig = Rig::new(settings());
    rig.stop(Stop::Drain);
    assert_eq!(rig.stopped(), 1);
    rig.stop(Stop::Drain);
    rig.stop(Stop::Now);
    assert_eq!(rig.stopped(), 1);
    assert!(!rig.net.accepting().0);
    rig.over();
}

/// The pump's loop parks after the flush: it must hear of the end from the flush, not from the next completion.
#[test]
fn the_end_of_a_drain_is_a_job_before_the_next_wait() {
    let mut rig = Rig::new(settings());
    rig.push(Frame::Stop(Stop::Drain));
    rig.engine.flush();
    assert_eq!(rig.engine.jobs(), 1);
    rig.settle();
    assert_eq!(rig.stopped(), 1);
    rig.over();
}

#[test]
fn a_drain_closes_what_is_idle_and_finishes_what_is_in_flight() {
    let mut rig = Rig::new(settings());
    let fresh = rig.connect();
    let idle = rig.client(get("/"));
    rig.serve("one");
    rig.out(idle);
    let busy = rig.client(get("/busy") + &get("/never"));
    let id = rig.request().id;
    let uploading = rig.client(post("/up", 6, "") + "abc");
    let upload = rig.request().id;
    rig.stop(Stop::Drain);
    assert!(rig.is_over(fresh) && rig.is_over(idle));
    assert!(!rig.is_over(busy) && !rig.is_over(uploading));
    assert_eq!(rig.stopped(), 0);
    rig.answer(id, "done");
    assert!(rig.out(busy).ends_with("connection: close\r\n\r\ndone"));
    assert!(rig.is_over(busy));
    assert_eq!(rig.stopped(), 0);
    rig.feed(uploading, "def");
    assert_eq!(rig.body(upload), b"def");
    assert_eq!(rig.told(), "end");
    rig.answer(upload, "read");
    assert!(rig.out(uploading).ends_with("connection: close\r\n\r\nread"));
    assert_eq!(rig.stopped(), 1);
    assert_eq!(rig.told(), "nothing", "nothing further is served");
    rig.over();
}

#[test]
fn a_drain_waits_until_the_last_byte_has_left() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/"));
    rig.flow(client, Flow::Held);
    rig.serve("slow reader");
    rig.stop(Stop::Drain);
    assert_eq!(rig.stopped(), 0);
    assert!(!rig.is_over(client));
    rig.flow(client, Flow::Free);
    assert_eq!(rig.out(client), answered("slow reader"));
    assert_eq!(rig.stopped(), 1);
    rig.over();
}

#[test]
fn a_drain_serves_a_request_whose_head_had_begun() {
    let mut rig = Rig::new(settings());
    let client = rig.client("GET / HTTP/1.1\r\nho");
    rig.stop(Stop::Drain);
    rig.feed(client, "st: a\r\n\r\n");
    rig.serve("last");
    assert!(rig.out(client).ends_with("connection: close\r\n\r\nlast"));
    assert_eq!(rig.stopped(), 1);
    rig.over();
}

#[test]
fn a_drain_finishes_a_response_that_had_begun() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/"));
    let id = rig.request().id;
    rig.say_head(id, 200, &[]);
    rig.stop(Stop::Drain);
    rig.say_chunk(id, b"abc");
    rig.credit(id);
    rig.say(Frame::End(id));
    assert!(rig.out(client).ends_with("3\r\nabc\r\n0\r\n\r\n"));
    assert!(rig.is_over(client));
    assert_eq!(rig.stopped(), 1);
    rig.over();
}

#[test]
fn a_drain_bounds_what_it_waits_for() {
    let mut rig = Rig::new(settings());
    let head_begun = rig.client("GET / HTTP/1.1\r\n");
    let rest_awaited = rig.client(post("/", 10, ""));
    rig.serve("early");
    rig.out(rest_awaited);
    rig.stop(Stop::Drain);
    rig.pass_time(Duration::from_secs(40));
    assert!(rig.is_closed(head_begun) && rig.is_closed(rest_awaited));
    assert_eq!(rig.stopped(), 1);
    rig.over();
}

#[test]
fn a_connection_that_slips_in_during_a_drain_is_refused() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/"));
    let id = rig.request().id;
    // Accepted by the kernel before the listener closed, delivered after.
    let late = rig.net.connect();
    rig.engine.wait(Some(Duration::ZERO)).expect("a scripted wait");
    rig.push(Frame::Stop(Stop::Drain));
    rig.settle();
    assert!(rig.out(late).starts_with("HTTP/1.1 503 "));
    assert!(rig.is_over(late));
    rig.answer(id, "done");
    assert!(rig.out(client).ends_with("done"));
    assert_eq!(rig.stopped(), 1);
    rig.over();
}

#[test]
fn stop_now_closes_everything_and_tells_every_host() {
    let mut rig = Rig::new(settings());
    let clients = [
        rig.connect(),
        rig.client(get("/")),
        rig.client(post("/", 9, "") + "abc"),
    ];
    let (first, second) = (rig.request().id, rig.request().id);
    rig.flow(clients[1], Flow::Held);
    rig.say_head(first, 200, &[]);
    rig.stop(Stop::Now);
    assert!(clients.iter().all(|client| rig.is_closed(*client)));
    assert_eq!(rig.told(), format!("reset {:?}", Why::Stopping));
    assert_eq!(rig.told(), format!("reset {:?}", Why::Stopping));
    assert_eq!(
        (rig.stopped(), rig.stats().connections, rig.stats().exchanges),
        (1, 0, 2)
    );
    rig.answer(first, "late");
    rig.answer(second, "late");
    assert_eq!(rig.stats().exchanges, 0);
    rig.over();
}

#[test]
fn stop_now_cuts_a_drain_short() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/"));
    let id = rig.request().id;
    rig.stop(Stop::Drain);
    assert_eq!(rig.stopped(), 0);
    rig.stop(Stop::Now);
    assert!(rig.is_closed(client));
    assert_eq!(rig.stopped(), 1);
    rig.answer(id, "late");
    rig.over();
}

#[test]
fn an_abort_because_of_the_stop_sends_nothing() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/"));
    let id = rig.request().id;
    rig.stop(Stop::Drain);
    rig.say(Frame::Abort(id, Why::Stopping));
    assert_eq!(rig.out(client), "");
    assert!(rig.is_closed(client));
    assert_eq!(rig.stopped(), 1);
    rig.over();
}

/// A half-closed client with much queued, in a drain: the drain ends when the client has read.
#[test]
fn a_drain_ends_with_a_half_closed_client_that_reads_late() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/"));
    rig.end(client, End::Fin);
    let id = rig.request().id;
    rig.flow(client, Flow::Held);
    rig.say(Frame::Head(id, head(200, &[])));
    for _ in 0..3 {
        rig.say_chunk(id, &[b'x'; 30_000]);
    }
    rig.say(Frame::End(id));
    rig.stop(Stop::Drain);
    rig.flow(client, Flow::Free);
    assert_eq!(rig.stopped(), 1);
    rig.over();
}

/// A response that only the connection's end would end looked whole although it had been cut short (RFC 9112, 6.3).
#[test]
fn a_response_cut_short_looked_whole_where_only_closing_ends_it() {
    for (version, reset) in [("1.0", true), ("1.1", false)] {
        for how in ["abort", "release", "drain over"] {
            let mut rig = Rig::new(settings());
            let client = rig.client(format!("GET / HTTP/{version}\r\nhost: a\r\n\r\n"));
            let id = rig.request().id;
            rig.say_head(id, 200, &[]);
            rig.say_chunk(id, b"a part");
            match how {
                "abort" => rig.say(Frame::Abort(id, Why::HostError)),
                "release" => rig.say(Frame::Released(id)),
                _ => rig.stop(Stop::Now),
            }
            assert!(rig.out(client).contains("a part"), "{version} {how}");
            assert!(rig.is_over(client), "{version} {how}");
            assert_eq!(rig.net.peer(client, |peer| peer.reset), reset, "{version} {how}");
        }
    }
}

/// A whole one ends with a FIN as ever.
#[test]
fn a_whole_response_is_not_reset() {
    let mut rig = Rig::new(settings());
    let client = rig.client("GET / HTTP/1.0\r\n\r\n");
    let id = rig.request().id;
    rig.say_head(id, 200, &[]);
    rig.say_chunk(id, b"all");
    rig.say(Frame::End(id));
    assert!(rig.is_over(client));
    assert!(!rig.net.peer(client, |peer| peer.reset));
}

/// The close of a socket with unread input is a reset, which could overtake what had been sent before it.
#[test]
fn a_response_cut_short_within_an_upload_was_lost_to_a_reset() {
    let mut rig = Rig::new(settings());
    let client = rig.client(post("/", 100_000, "") + "abc");
    let id = rig.request().id;
    rig.say_head(id, 200, &[]);
    rig.say_chunk(id, b"a part");
    rig.say(Frame::Abort(id, Why::HostError));
    assert!(rig.net.peer(client, |peer| peer.fin && !peer.closed), "it lingers");
    rig.end(client, End::Fin);
    assert!(rig.net.peer(client, |peer| peer.closed));
}
