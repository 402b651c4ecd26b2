//! Every wait has a limit and an answer for when it is reached (R7). Time is the test's.

use std::time::Duration;

use bytes::Bytes;
use m0serve::engine::Settings;
use m0serve::handoff::{Frame, WINDOW, Why};

use crate::rig::{Rig, answered, get, head, post, settings};
use crate::script::Flow;

const SECOND: Duration = Duration::from_secs(1);

fn quick() -> Settings {
    Settings {
        header_timeout: 10 * SECOND,
        body_timeout: 20 * SECOND,
        idle_timeout: 100 * SECOND,
        ..settings()
    }
}

/// After so many seconds the condition does not hold yet, and a second later it does.
fn only_after(rig: &mut Rig, seconds: u32, over: impl Fn(&Rig) -> bool) {
    rig.pass_time((seconds - 1) * SECOND);
    assert!(!over(rig), "too early");
    rig.pass_time(2 * SECOND);
    assert!(over(rig), "too late");
}

#[test]
fn a_connection_without_a_byte_is_closed() {
    let mut rig = Rig::new(quick());
    let client = rig.connect();
    only_after(&mut rig, 10, |rig| rig.is_closed(client));
    assert_eq!(rig.out(client), "");
    assert_eq!(rig.stats().timed_out, 1);
    rig.over();
}

#[test]
fn a_head_that_does_not_end_is_answered_408_however_it_trickles() {
    let mut rig = Rig::new(quick());
    let client = rig.client("GET / HTTP/1.1\r\n");
    for _ in 0..9 {
        rig.pass_time(SECOND);
        rig.feed(client, "x");
    }
    assert!(!rig.is_over(client));
    rig.pass_time(2 * SECOND);
    assert!(rig.out(client).starts_with("HTTP/1.1 408 "));
    assert!(rig.is_over(client));
    assert_eq!(rig.told(), "nothing");
    rig.over();
}

#[test]
fn an_idle_connection_is_closed_and_a_served_one_starts_anew() {
    let mut rig = Rig::new(quick());
    let client = rig.client(get("/"));
    rig.serve("one");
    rig.pass_time(90 * SECOND);
    rig.feed(client, get("/"));
    rig.serve("two");
    only_after(&mut rig, 100, |rig| rig.is_closed(client));
    assert_eq!(rig.out(client), answered("one") + &answered("two"));
    rig.over();
}

#[test]
fn a_request_in_progress_is_not_timed() {
    let mut rig = Rig::new(quick());
    let client = rig.client(get("/1") + &get("/2"));
    let id = rig.request().id;
    rig.pass_time(1000 * SECOND);
    rig.answer(id, "one");
    rig.serve("two");
    assert_eq!(rig.out(client), answered("one") + &answered("two"));
    rig.over();
}

#[test]
fn a_body_that_stalls_is_answered_408_and_told() {
    let mut rig = Rig::new(quick());
    let client = rig.client(post("/", 10, "") + "ab");
    let id = rig.request().id;
    rig.pass_time(15 * SECOND);
    rig.feed(client, "c");
    rig.body(id);
    only_after(&mut rig, 20, |rig| rig.is_over(client));
    assert_eq!(rig.told(), format!("reset {:?}", Why::TimedOut));
    assert!(rig.out(client).starts_with("HTTP/1.1 408 "));
    rig.over();
}

#[test]
fn a_body_that_we_do_not_read_is_not_timed() {
    let mut rig = Rig::new(quick());
    let client = rig.client(post("/", 200_000, ""));
    let id = rig.request().id;
    rig.feed(client, vec![b'x'; WINDOW as usize]);
    rig.pass_time(1000 * SECOND);
    assert!(!rig.is_over(client));
    rig.body(id);
    rig.say(Frame::WantBody(id, 70_000));
    only_after(&mut rig, 20, |rig| rig.is_over(client));
    rig.over();
}

#[test]
fn a_client_that_waits_for_continue_is_not_timed() {
    let mut rig = Rig::new(quick());
    let client = rig.client(post("/", 3, "expect: 100-continue\r\n"));
    let id = rig.request().id;
    rig.pass_time(1000 * SECOND);
    assert!(!rig.is_over(client));
    rig.say(Frame::WantBody(id, 0));
    only_after(&mut rig, 20, |rig| rig.is_over(client));
    rig.over();
}

#[test]
fn a_client_that_does_not_read_is_closed_and_told() {
    let mut rig = Rig::new(quick());
    let client = rig.client(get("/"));
    let id = rig.request().id;
    rig.flow(client, Flow::Held);
    rig.say_head(id, 200, &[]);
    only_after(&mut rig, 20, |rig| rig.is_closed(client));
    assert_eq!(rig.told(), format!("reset {:?}", Why::TimedOut));
    rig.over();
}

#[test]
fn a_client_that_reads_slowly_is_not_closed_until_it_stops() {
    let mut rig = Rig::new(quick());
    let client = rig.client(get("/"));
    let id = rig.request().id;
    rig.flow(client, Flow::Held);
    rig.push(Frame::Head(id, head(200, &[])));
    rig.say(Frame::Chunk(id, Bytes::from(vec![b'x'; 50_000])));
    for _ in 0..20 {
        rig.pass_time(10 * SECOND);
        rig.net.peer(client, |peer| peer.flow = Flow::Trickle(100));
        rig.turn();
        rig.net.peer(client, |peer| peer.flow = Flow::Held);
        assert!(!rig.is_closed(client));
    }
    // What left last is noticed at the next look, an eighth of the time-out later at most: that starts the time anew.
    rig.pass_time(19 * SECOND);
    assert!(!rig.is_closed(client));
    rig.pass_time(4 * SECOND);
    assert!(rig.is_closed(client));
    rig.over();
}

/// It was given up only after twice the time-out, because what it took of the send before counted as news.
#[test]
fn a_client_that_stops_reading_in_the_middle_is_given_one_time_out_and_no_more() {
    let mut rig = Rig::new(quick());
    let client = rig.client(get("/"));
    let id = rig.request().id;
    rig.push(Frame::Head(id, head(200, &[])));
    rig.say_chunk(id, &[b'x'; 10_000]);
    rig.pass_time(5 * SECOND);
    rig.flow(client, Flow::Trickle(100));
    rig.push(Frame::Chunk(id, Bytes::from(vec![b'x'; 50_000])));
    rig.turn();
    rig.net.peer(client, |peer| peer.flow = Flow::Held);
    rig.pass_time(19 * SECOND);
    assert!(!rig.is_closed(client), "too early");
    rig.pass_time(4 * SECOND);
    assert!(rig.is_closed(client), "too late");
    assert_eq!(rig.stats().timed_out, 1);
    rig.over();
}

#[test]
fn a_client_that_does_not_finish_lingers_two_seconds() {
    let mut rig = Rig::new(quick());
    let client = rig.client("nonsense\r\n\r\n");
    assert!(rig.out(client).starts_with("HTTP/1.1 400 "));
    assert!(rig.is_over(client) && !rig.is_closed(client));
    rig.pass_time(SECOND);
    rig.feed(client, "what it still sends is thrown away");
    assert!(!rig.is_closed(client));
    rig.pass_time(2 * SECOND);
    assert!(rig.is_closed(client));
    rig.over();
}

#[test]
fn a_client_that_finishes_ends_the_lingering() {
    let mut rig = Rig::new(quick());
    let client = rig.client("nonsense\r\n\r\n");
    rig.end(client, crate::script::End::Fin);
    assert!(rig.is_closed(client));
    rig.over();
}

#[test]
fn the_rest_of_an_answered_request_is_awaited_five_seconds_however_it_trickles() {
    let mut rig = Rig::new(quick());
    let client = rig.client(post("/", 1000, ""));
    rig.serve("early");
    for _ in 0..4 {
        rig.pass_time(SECOND);
        rig.feed(client, "x");
    }
    assert!(!rig.is_over(client));
    rig.pass_time(2 * SECOND);
    assert!(rig.is_over(client));
    assert_eq!(rig.out(client), answered("early"));
    rig.over();
}

#[test]
fn a_wait_ends_at_the_next_deadline_and_an_idle_engine_wakes_seldom() {
    let mut rig = Rig::new(quick());
    rig.connect();
    rig.engine.wait(None).expect("a scripted wait");
    let waited = rig.net.waited().expect("a deadline is near");
    assert!(waited > 9 * SECOND && waited <= 11 * SECOND, "{waited:?}");
    rig.engine.wait(Some(SECOND)).expect("a scripted wait");
    assert_eq!(rig.net.waited(), Some(SECOND));
    rig.pass_time(20 * SECOND);
    rig.engine.wait(None).expect("a scripted wait");
    assert_eq!(rig.net.waited(), None, "nothing is open");
    rig.over();
}

/// Each late pass put deadlines off anew: on a server that was never quick again no time-out ever fired.
#[test]
fn time_outs_fire_on_a_server_that_is_always_late_and_always_busy() {
    let mut rig = Rig::new(quick());
    let slow = rig.client("GET / HTTP/1.1\r\n");
    let busy = rig.client(post("/", 1_000_000, ""));
    let id = rig.request().id;
    let late = Duration::from_millis(300);
    let mut turns = 0;
    while !rig.is_over(slow) {
        rig.net.send(busy, b"x");
        rig.keep_the_loop(late);
        rig.turn();
        rig.body(id);
        turns += 1;
        assert!(turns * late < 13 * SECOND, "ten seconds and what is put off");
    }
    assert!(turns * late >= 10 * SECOND);
    assert!(rig.out(slow).starts_with("HTTP/1.1 408 "));
    rig.over();
}

/// A connection is filed anew for each deadline that is nearer than what is filed; stale entries must not act.
#[test]
fn time_outs_of_a_busy_connection_do_not_fire_between_requests() {
    let mut rig = Rig::new(quick());
    let client = rig.connect();
    for _ in 0..200 {
        rig.feed(client, post("/", 2, "") + "a");
        rig.pass_time(3 * SECOND);
        rig.feed(client, "b");
        let id = rig.request().id;
        rig.body(id);
        assert_eq!(rig.told(), "end");
        rig.pass_time(SECOND);
        rig.answer(id, "ok");
    }
    assert_eq!(rig.out(client), answered("ok").repeat(200));
    assert_eq!(rig.stats().timed_out, 0);
    rig.over();
}
