//! Draining and stopping (R11).

use std::os::fd::AsRawFd;
use std::time::Duration;

use m0serve::config::LogLevel;
use m0serve::handoff::{Frame, Stop, Why};
use m0serve::log::Logger;

use crate::responses::file;
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
    let idle = rig.client(get("/"));
    rig.serve("one");
    rig.out(idle);
    rig.pass_time(Duration::from_secs(1));
    let busy = rig.client(get("/busy") + &get("/never"));
    let id = rig.request().id;
    let uploading = rig.client(post("/up", 6, "") + "abc");
    let upload = rig.request().id;
    rig.stop(Stop::Drain);
    assert!(rig.is_closed(idle));
    assert!(!rig.is_over(busy) && !rig.is_over(uploading));
    assert_eq!(rig.stopped(), 0);
    rig.answer(id, "done");
    assert!(rig.out(busy).ends_with("connection: close\r\n\r\ndone"));
    rig.leave(busy);
    assert_eq!(rig.stopped(), 0);
    rig.feed(uploading, "def");
    assert_eq!(rig.body(upload), b"def");
    assert_eq!(rig.told(), "end");
    rig.answer(upload, "read");
    assert!(rig.out(uploading).ends_with("connection: close\r\n\r\nread"));
    assert_eq!(
        rig.stopped(),
        0,
        "it lingers: a client that pipelines may be sending still"
    );
    rig.leave(uploading);
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
    assert_eq!(rig.stopped(), 0);
    rig.leave(client);
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
    rig.leave(client);
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
    rig.leave(client);
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

/// The listener's end would reset them, and a 503 would be an error that nobody needed to see.
#[test]
fn connections_that_the_kernel_had_taken_are_served_by_a_drain() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/"));
    let id = rig.request().id;
    let (asks, silent) = (rig.net.connect(), rig.net.connect());
    rig.net.send(asks, get("/late").as_bytes());
    rig.stop(Stop::Drain);
    assert!(!rig.net.accepting().0);
    rig.serve("served");
    assert!(rig.out(asks).ends_with("connection: close\r\n\r\nserved"));
    rig.answer(id, "done");
    assert!(rig.out(client).ends_with("done"));
    assert!(!rig.is_over(silent), "its request may be on the way");
    assert_eq!(rig.stopped(), 0);
    rig.leave(asks);
    rig.leave(client);
    rig.pass_time(Duration::from_millis(1500));
    assert!(rig.is_closed(silent));
    assert_eq!((rig.out(silent), rig.stopped()), (String::new(), 1));
    rig.over();
}

/// One that was accepted after the last look, and one that has been silent for long.
#[test]
fn a_drain_waits_for_the_first_request_of_new_connections_only() {
    let mut rig = Rig::new(settings());
    let kept = rig.connect();
    rig.pass_time(Duration::from_millis(1500));
    let new = rig.connect();
    rig.stop(Stop::Drain);
    assert!(rig.is_closed(kept) && !rig.is_over(new));
    let late = rig.net.slip_in();
    rig.feed(late, get("/"));
    rig.serve("late");
    assert!(rig.out(late).ends_with("connection: close\r\n\r\nlate"));
    rig.feed(new, get("/"));
    rig.serve("new");
    assert!(rig.out(new).ends_with("connection: close\r\n\r\nnew"));
    rig.leave(late);
    rig.leave(new);
    assert_eq!(rig.stopped(), 1);
    rig.over();
}

/// Its request was dispatched to a host that had ended, and that let go of nothing.
#[test]
fn what_was_accepted_once_the_drain_was_over_was_served() {
    let mut rig = Rig::new(settings());
    rig.stop(Stop::Drain);
    assert_eq!(rig.stopped(), 1);
    let late = rig.net.slip_in();
    rig.net.send(late, get("/").as_bytes());
    rig.settle();
    assert!(rig.is_closed(late));
    assert_eq!(rig.stats().requests, 0);
    rig.over();
}

/// A request that lies in the socket of an idle connection was sent before anything was closed.
#[test]
fn a_drain_serves_what_has_come_on_an_idle_connection() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/"));
    rig.serve("first");
    rig.out(client);
    rig.net.send(client, get("/second").as_bytes());
    rig.stop(Stop::Drain);
    rig.serve("second");
    assert!(rig.out(client).ends_with("connection: close\r\n\r\nsecond"));
    rig.leave(client);
    assert_eq!(rig.stopped(), 1);
    rig.over();
}

/// A client that was promised a connection that goes on has its further requests served, the last of which says so.
#[test]
fn a_drain_serves_what_was_pipelined_behind_a_promise() {
    for tail in ["", "\r\n", "GET / HT"] {
        let mut rig = Rig::new(settings());
        let client = rig.client(get("/1") + &get("/2") + &get("/3") + tail);
        let first = rig.request().id;
        rig.say_head(first, 200, &[("content-length", "3")]);
        rig.stop(Stop::Drain);
        rig.say_chunk(first, b"one");
        rig.credit(first);
        rig.say(Frame::End(first));
        rig.serve("two");
        assert!(rig.out(client).ends_with("connection: close\r\n\r\ntwo"));
        assert_eq!(
            rig.told(),
            "nothing",
            "the response to the second said that it is the last"
        );
        assert_eq!(
            rig.stopped(),
            0,
            "what came behind it is read for a while, so that nothing is lost to a reset"
        );
        rig.leave(client);
        assert_eq!(rig.stopped(), 1);
        rig.over();
    }
    // What has come behind the promise is no request, or not yet a whole one.
    for (tail, after) in [("\r\n", ""), ("GET / HT", "HTTP/1.1 408 ")] {
        let mut rig = Rig::new(settings());
        let client = rig.client(get("/1") + tail);
        let first = rig.request().id;
        rig.say_head(first, 200, &[("content-length", "0")]);
        rig.out(client);
        rig.push(Frame::Stop(Stop::Drain));
        rig.say(Frame::End(first));
        rig.pass_time(Duration::from_millis(2500));
        assert!(rig.out(client).starts_with(after));
        assert!(rig.is_over(client));
        rig.over();
    }
}

/// Nothing further is served on the connection, so nothing is gained by reading the rest; but it lingers.
#[test]
fn a_drain_does_not_wait_for_the_rest_of_a_request_that_is_answered() {
    let mut rig = Rig::new(settings());
    let before = rig.client(post("/", 100, ""));
    rig.serve("early");
    let during = rig.client(post("/", 100, ""));
    let id = rig.request().id;
    rig.say_head(id, 200, &[("content-length", "0")]);
    rig.stop(Stop::Drain);
    rig.say(Frame::End(id));
    assert!(rig.is_over(before) && rig.is_over(during));
    rig.feed(before, "more");
    assert!(
        !rig.is_closed(before) && !rig.is_closed(during),
        "a reset could destroy the response"
    );
    assert_eq!(rig.stopped(), 0);
    rig.end(before, End::Fin);
    rig.pass_time(Duration::from_millis(2500));
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
    rig.leave(client);
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
            rig.pass_time(Duration::from_secs(1));
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

/// The host had completed it, so its exchange was gone when the file turned out short or the client took too long: then a
/// FIN made what had left look like all of it.
#[test]
fn a_completed_response_that_cannot_be_sent_whole_is_reset() {
    for how in ["short file", "time-out", "stop"] {
        let mut rig = Rig::new(settings());
        let client = rig.client("GET / HTTP/1.0\r\n\r\n");
        let id = rig.request().id;
        rig.say_head(id, 200, &[]);
        if how == "short file" {
            rig.push(Frame::File(id, file(), 5, 50));
        } else {
            rig.flow(client, Flow::Held);
            rig.say_chunk(id, b"never read");
        }
        rig.say(Frame::End(id));
        match how {
            "time-out" => rig.pass_time(Duration::from_secs(40)),
            "stop" => rig.stop(Stop::Now),
            _ => {
                assert!(rig.out(client).ends_with("56789"));
                rig.pass_time(Duration::from_secs(1));
            }
        }
        assert!(rig.net.peer(client, |peer| peer.closed && peer.reset), "{how}");
        rig.say(Frame::Released(id));
        rig.over();
    }
}

/// It was taken for a client that had gone: nothing in the log, and a FIN where only the close ends a response.
#[test]
fn a_file_that_cannot_be_read_ended_its_response_in_silence() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let fd = writer.as_raw_fd();
    let mut rig = Rig::logging(settings(), |clock| Logger::to(LogLevel::Warn, false, clock, fd, fd));
    let client = rig.client("GET / HTTP/1.0\r\n\r\n");
    let id = rig.request().id;
    rig.say_head(id, 200, &[]);
    let unreadable = std::fs::File::options()
        .write(true)
        .open("/dev/null")
        .expect("it is there");
    rig.push(Frame::File(id, unreadable.into(), 0, 10));
    rig.say(Frame::End(id));
    rig.pass_time(Duration::from_secs(1));
    assert!(rig.net.peer(client, |peer| peer.closed && peer.reset));
    rig.say(Frame::Released(id));
    rig.over();
    drop(writer);
    let log = std::io::read_to_string(reader).expect("lines of text");
    let says = "m0serve: error: a response was cut short: a file could not be read: ";
    assert!(log.starts_with(says) && log.lines().count() == 1, "{log}");
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
    rig.over();
}

/// The host has completed it, and cannot name it any more (R12).
#[test]
fn a_response_that_is_cut_off_in_the_socket_is_said() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let fd = writer.as_raw_fd();
    let mut rig = Rig::logging(settings(), |clock| Logger::to(LogLevel::Warn, false, clock, fd, fd));
    let client = rig.client(get("/"));
    rig.flow(client, Flow::Held);
    rig.serve("never taken");
    let taken = rig.client(get("/"));
    rig.serve("taken");
    rig.out(taken);
    rig.stop(Stop::Drain);
    assert_eq!(rig.stopped(), 0);
    rig.stop(Stop::Now);
    assert_eq!(rig.stopped(), 1);
    rig.over();
    drop(writer);
    let log = std::io::read_to_string(reader).expect("lines of text");
    assert_eq!(
        log,
        "m0serve: warning: 1 response was cut off that its client had not taken in full\n"
    );
}

/// The pump's host stops what the drain left, and stops again when it closes: the loop thread may find both at once.
#[test]
fn a_response_that_was_cut_off_was_said_twice() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let fd = writer.as_raw_fd();
    let mut rig = Rig::logging(settings(), |clock| Logger::to(LogLevel::Warn, false, clock, fd, fd));
    let client = rig.client(get("/"));
    rig.flow(client, Flow::Held);
    rig.serve("never taken");
    rig.push(Frame::Stop(Stop::Now));
    rig.push(Frame::Stop(Stop::Now));
    rig.settle();
    assert_eq!(rig.stopped(), 1);
    rig.over();
    drop(writer);
    let log = std::io::read_to_string(reader).expect("lines of text");
    assert_eq!(log.lines().count(), 1, "{log}");
}
