//! A connection that the server ends is read for a while: a request that met a closed socket would be answered by a
//! reset, which can destroy a response on its way (R8; RFC 9112, 9.6).

use std::time::Duration;

use m0serve::engine::Settings;
use m0serve::handoff::{Frame, Stop, Why};

use crate::rig::{Rig, get, head, settings};
use crate::script::{End, Flow};

/// The client may not know yet that its connection ends, and have sent its next request, or be about to.
#[test]
fn a_response_was_lost_to_a_request_behind_it_that_met_a_closed_socket() {
    for why in ["bound", "application", "raises", "breaks", "client", "old", "drain"] {
        let mut rig = Rig::new(Settings {
            max_requests: u32::from(why == "bound"),
            ..settings()
        });
        let client = rig.client(match why {
            "client" => "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".into(),
            "old" => "GET / HTTP/1.0\r\n\r\n".into(),
            _ => get("/"),
        });
        let id = rig.request().id;
        match why {
            "raises" => rig.say(Frame::Abort(id, Why::HostError)),
            "breaks" => {
                rig.say_head(id, 200, &[]);
                rig.say_chunk(id, b"a part");
                rig.credit(id);
                rig.say(Frame::Abort(id, Why::HostError));
            }
            "application" => {
                rig.push(Frame::Head(
                    id,
                    head(200, &[("content-length", "0"), ("connection", "close")]),
                ));
                rig.say(Frame::End(id));
            }
            _ => {
                if why == "drain" {
                    rig.stop(Stop::Drain);
                }
                rig.answer(id, "last");
            }
        }
        assert!(rig.is_over(client) && !rig.is_closed(client), "{why}: it lingers");
        rig.feed(client, get("/on-its-way"));
        assert_eq!(rig.told(), "nothing", "{why}");
        assert_eq!(rig.unread(client), 0, "{why}: it is read");
        rig.leave(client);
        rig.over();
    }
}

/// A reset throws away what the kernel has not sent, and, with some clients, what they have not read.
#[test]
fn what_was_said_before_a_failure_was_lost_to_the_reset_that_shows_it() {
    for half_closed in [false, true] {
        let mut rig = Rig::new(settings());
        let client = rig.client("GET / HTTP/1.0\r\n\r\n");
        let id = rig.request().id;
        if half_closed {
            rig.end(client, End::Fin);
            rig.told();
        }
        rig.say_head(id, 200, &[]);
        rig.say_chunk(id, b"a part");
        rig.credit(id);
        rig.say(Frame::Abort(id, Why::HostError));
        assert!(rig.out(client).ends_with("a part"));
        if !half_closed {
            rig.end(client, End::Fin); // it may read on
        }
        assert!(
            !rig.is_over(client),
            "no FIN, which would make it whole, and no reset that could overtake it"
        );
        rig.pass_time(Duration::from_secs(1));
        assert!(rig.net.peer(client, |peer| peer.closed && peer.reset));
        rig.over();
    }
}

/// A client that has finished sends nothing that could meet a closed socket, and one that was not answered loses nothing.
#[test]
fn nobody_lingers_for_nothing() {
    let mut rig = Rig::new(settings());
    let finished = rig.client("GET / HTTP/1.0\r\n\r\n");
    let id = rig.request().id;
    rig.end(finished, End::Fin);
    assert_eq!(rig.told(), format!("aborted {:?}", Why::PeerFinished));
    rig.answer(id, "all");
    assert!(rig.is_closed(finished));
    let silent = rig.connect();
    let idle = rig.client(get("/"));
    rig.serve("long ago");
    rig.pass_time(settings().idle_timeout * 2);
    assert!(rig.is_closed(silent) && rig.is_closed(idle));
    rig.over();
}

/// Its response waits in the output yet: what is behind it is not known, so it is no idle one.
#[test]
fn a_drain_lingers_after_a_response_that_has_not_left() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/"));
    rig.flow(client, Flow::Held);
    rig.serve("slow reader");
    rig.stop(Stop::Drain);
    rig.flow(client, Flow::Free);
    rig.feed(client, get("/on-its-way"));
    rig.leave(client);
    assert_eq!(rig.stopped(), 1);
    rig.over();
}

/// A drain closed what had been answered a moment before, and a request that came then had the answer destroyed on its way:
/// one world in some 35,000.
#[test]
fn a_drain_lost_what_was_answered_a_moment_before() {
    for idle_timeout in [settings().idle_timeout, Duration::from_millis(200)] {
        let mut rig = Rig::new(Settings {
            idle_timeout,
            ..settings()
        });
        let client = rig.client(get("/"));
        rig.serve("a moment before");
        rig.stop(Stop::Drain);
        rig.feed(client, get("/on-its-way"));
        assert!(
            rig.is_over(client) && !rig.is_closed(client),
            "FIN is sent, and it lingers"
        );
        assert_eq!(rig.stats().requests, 1, "what comes then is not served");
        rig.leave(client);
        assert_eq!(rig.stopped(), 1);
        rig.over();
    }
}

/// A client that did not close after its last response kept a server with nothing to do from ending for two seconds.
#[test]
fn a_drain_does_not_wait_long_for_who_lingers() {
    let mut rig = Rig::new(Settings {
        max_requests: 1,
        ..settings()
    });
    let client = rig.client(get("/"));
    rig.serve("last");
    rig.stop(Stop::Drain);
    rig.pass_time(Duration::from_millis(400));
    assert!(!rig.is_closed(client), "what it was sent has time to arrive");
    rig.pass_time(Duration::from_millis(400));
    assert!(rig.is_closed(client));
    assert_eq!(rig.stopped(), 1);
    rig.over();
}

/// Beside the time, which `timers.rs` shows.
#[test]
fn lingering_is_bounded_in_bytes() {
    let mut rig = Rig::new(settings());
    let client = rig.client("nonsense\r\n\r\n");
    let segment = "x".repeat(16 * 1024 * 1024);
    for _ in 0..15 {
        rig.feed(client, &segment);
    }
    assert!(!rig.is_closed(client), "too early");
    rig.feed(client, &segment);
    assert!(rig.is_closed(client), "too late");
    rig.over();
}

/// And so is what is thrown away while the answer does not get out.
#[test]
fn a_client_that_floods_and_does_not_read_is_not_read_for_ever() {
    let mut rig = Rig::new(settings());
    let client = rig.connect();
    rig.flow(client, Flow::Held);
    rig.feed(client, "nonsense\r\n\r\n");
    let segment = "x".repeat(64 * 1024 * 1024);
    for _ in 0..5 {
        rig.feed(client, &segment);
    }
    assert_eq!(rig.unread(client), segment.len());
    rig.flow(client, Flow::Free);
    assert!(rig.is_closed(client));
    rig.over();
}

/// Whose last response has left takes no place of those that could be served, as those that were refused take none.
#[test]
fn lingering_takes_no_place() {
    let mut rig = Rig::new(Settings {
        max_connections: 1,
        max_requests: 1,
        ..settings()
    });
    for _ in 0..3 {
        let client = rig.client(get("/"));
        rig.serve("last");
        assert!(rig.is_over(client) && !rig.is_closed(client), "it lingers");
    }
    rig.over();
}

/// Clients that did not close after their last response kept the descriptors from those that waited for them: each batch
/// for two seconds.
#[test]
fn lingering_is_short_while_descriptors_are() {
    let mut rig = Rig::new(Settings {
        max_requests: 1,
        ..settings()
    });
    let before = rig.client(get("/"));
    rig.serve("last");
    rig.net.fail_accept();
    rig.settle();
    let waits = rig.net.connect();
    rig.pass_time(Duration::from_millis(400));
    assert!(!rig.is_closed(before), "what it was sent has time to arrive");
    rig.pass_time(Duration::from_millis(400));
    assert!(rig.is_closed(before) && !rig.net.is_arriving(waits));
    rig.feed(waits, get("/"));
    rig.serve("soon");
    rig.pass_time(Duration::from_millis(800));
    assert!(rig.is_closed(waits), "they are not plenty yet");
    rig.pass_time(Duration::from_secs(12));
    let later = rig.client(get("/"));
    rig.serve("later");
    rig.pass_time(Duration::from_millis(1500));
    assert!(!rig.is_closed(later));
    rig.leave(later);
    rig.over();
}
