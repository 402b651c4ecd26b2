//! What the machine refuses and what clients may not have: descriptors, connections (R7, R12).

use std::os::fd::AsRawFd;
use std::time::Duration;

use m0serve::engine::Settings;
use m0serve::handoff::{Frame, Job, Stop};
use m0serve::log::{LogLevel, Logger};

use crate::rig::{Rig, answered, get, settings};
use crate::script::End;

#[test]
fn out_of_descriptors_accepting_pauses_and_is_tried_again_a_second_later() {
    let mut rig = Rig::new(settings());
    rig.net.fail_accept();
    rig.settle();
    assert_eq!(rig.net.accepting(), (false, 0));
    let client = rig.net.connect();
    rig.pass_time(Duration::from_millis(750));
    assert_eq!(rig.net.accepting(), (false, 0), "it does not spin");
    assert!(rig.net.is_arriving(client));
    rig.pass_time(Duration::from_millis(500));
    assert_eq!(rig.net.accepting(), (true, 1));
    rig.feed(client, get("/"));
    rig.serve("at last");
    assert_eq!(rig.out(client), answered("at last"));
    rig.over();
}

#[test]
fn out_of_descriptors_a_connection_that_closes_makes_room() {
    let mut rig = Rig::new(settings());
    let first = rig.connect();
    rig.net.fail_accept();
    rig.settle();
    let second = rig.connect();
    assert_eq!(rig.stats().connections, 1);
    rig.end(first, End::Fin);
    assert_eq!(rig.net.accepting(), (true, 1));
    rig.feed(second, get("/"));
    rig.serve("in");
    assert_eq!(rig.out(second), answered("in"));
    rig.over();
}

/// A connection that is idle and one that waits, with its request, for a descriptor.
fn at_the_limit() -> (Rig, usize, usize) {
    let mut rig = Rig::new(settings());
    let idle = rig.client(get("/"));
    rig.serve("first");
    rig.out(idle);
    rig.net.fail_accept();
    rig.settle();
    let late = rig.net.connect();
    rig.net.send(late, get("/late").as_bytes());
    (rig, idle, late)
}

/// They were reset, although the drain closes what is idle, which makes room for them.
#[test]
fn at_the_limit_of_descriptors_a_drain_reset_what_the_kernel_had_taken() {
    let (mut rig, idle, late) = at_the_limit();
    rig.settle();
    assert!(rig.net.is_arriving(late));
    rig.stop(Stop::Drain);
    assert!(!rig.net.accepting().0);
    rig.serve("served");
    assert!(rig.out(late).ends_with("connection: close\r\n\r\nserved"));
    rig.leave(late);
    assert!(rig.is_closed(idle));
    assert_eq!(rig.stopped(), 1);
    rig.over();
}

/// It was said while the last idle connection had closed for the sake of those in the backlog, and none of them was
/// accepted yet: what was dispatched then was cut off.
#[test]
fn at_the_limit_of_descriptors_a_drain_was_over_before_it_had_begun() {
    let (mut rig, _, late) = at_the_limit();
    rig.push(Frame::Stop(Stop::Drain));
    rig.engine.flush();
    rig.turn();
    assert_eq!(rig.stopped(), 0, "a request is in flight");
    rig.serve("served");
    assert!(rig.out(late).ends_with("connection: close\r\n\r\nserved"));
    rig.leave(late);
    assert_eq!(rig.stopped(), 1);
    rig.over();
}

/// Each connection that ended let one in and was said again, ten times a second.
#[test]
fn at_the_limit_of_descriptors_the_log_had_a_line_for_every_connection() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let fd = writer.as_raw_fd();
    let mut rig = Rig::logging(settings(), |clock| Logger::to(LogLevel::Warn, false, clock, fd, fd));
    for pause in [3, 3, 3, 30, 3] {
        let client = rig.connect();
        rig.net.fail_accept();
        rig.settle();
        rig.end(client, End::Fin);
        assert!(rig.net.accepting().0, "there is room again");
        rig.pass_time(Duration::from_secs(pause));
    }
    rig.over();
    drop(writer);
    let log = std::io::read_to_string(reader).expect("lines of text");
    assert_eq!(log.matches("accepting is paused").count(), 2, "{log}");
}

#[test]
fn accepting_that_failed_is_a_deadline_of_its_own() {
    let mut rig = Rig::new(settings());
    rig.net.fail_accept();
    rig.settle();
    rig.engine.wait(None).expect("a scripted wait");
    assert_eq!(rig.net.waited(), Some(Duration::from_secs(1)));
    rig.over();
}

#[test]
fn past_the_limit_of_connections_a_client_is_refused() {
    let mut rig = Rig::new(Settings {
        max_connections: 2,
        ..settings()
    });
    let (first, second) = (rig.connect(), rig.connect());
    let third = rig.connect();
    let out = rig.out(third);
    assert!(
        out.starts_with("HTTP/1.1 503 ") && out.contains("connection: close"),
        "{out}"
    );
    rig.feed(third, get("/"));
    assert_eq!(rig.told(), "nothing");
    rig.feed(first, get("/"));
    rig.serve("one");
    assert_eq!(rig.out(first), answered("one"));
    rig.end(third, End::Fin);
    rig.end(second, End::Fin);
    let fourth = rig.client(get("/"));
    rig.serve("four");
    assert_eq!(rig.out(fourth), answered("four"));
    rig.over();
}

/// Clients that were refused linger for a while; they must not take the places of those that could be served.
#[test]
fn those_that_were_refused_do_not_count() {
    let mut rig = Rig::new(Settings {
        max_connections: 1,
        ..settings()
    });
    let first = rig.connect();
    for _ in 0..5 {
        let refused = rig.connect();
        assert!(rig.out(refused).starts_with("HTTP/1.1 503 "));
        assert!(!rig.is_closed(refused), "it lingers");
    }
    rig.end(first, End::Fin);
    let next = rig.client(get("/"));
    rig.serve("room");
    assert_eq!(rig.out(next), answered("room"));
    rig.over();
}

#[test]
fn counters_count() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/1") + &get("/2") + "nonsense\r\n\r\n");
    rig.serve("one");
    rig.serve("two");
    assert!(rig.out(client).contains("HTTP/1.1 400 "));
    let stats = rig.stats();
    assert_eq!((stats.accepted, stats.connections), (1, 1));
    assert_eq!((stats.requests, stats.responses, stats.refused), (2, 2, 1));
    rig.over();
}

/// A host that was stuck once let clients that came, asked and went pile up jobs without end.
#[test]
fn a_host_that_takes_no_jobs_stops_accepting_until_it_does() {
    let mut rig = Rig::new(settings());
    let mut came = 0;
    while rig.net.accepting().0 {
        assert!(came < 10_000, "{} jobs wait", rig.engine.jobs());
        let client = rig.net.connect();
        came += 1;
        for step in 0..3 {
            match step {
                0 => {}
                1 => rig.net.send(client, get("/").as_bytes()),
                _ => rig.net.end(client, End::Reset),
            }
            rig.engine.flush();
            rig.engine.wait(Some(Duration::ZERO)).expect("a scripted wait");
            rig.engine.pass(|_, _| {});
        }
    }
    assert!(came >= 2_000, "paused after {came} clients");
    // The host comes back to life.
    rig.settle();
    assert!(rig.net.accepting().0);
    while let Some(job) = rig.jobs.pop_front() {
        if let Job::Request(request) = job {
            rig.push(Frame::Released(request.id));
        }
    }
    rig.over();
}
