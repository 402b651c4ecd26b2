//! Nothing is unbounded: windows both ways, pipelined input, queued output (R7).

use bytes::Bytes;
use m0serve::handoff::{Frame, WINDOW, charge};

use crate::responses::file;
use crate::rig::{Rig, answered, get, head, post, settings};
use crate::script::{End, Flow};

#[test]
fn a_body_that_the_host_does_not_take_is_not_read_beyond_its_window() {
    let mut rig = Rig::new(settings());
    let client = rig.client(post("/", 1_000_000, ""));
    let id = rig.request().id;
    for _ in 0..20 {
        rig.net.send(client, &[b'x'; 10_000]);
    }
    rig.settle();
    assert!(!rig.net.peer(client, |peer| peer.receiving));
    let taken = rig.body(id).len();
    assert!(taken >= WINDOW as usize && taken < WINDOW as usize + 10_000, "{taken}");
    assert_eq!(rig.net.unread(client), 200_000 - taken);
    rig.settle();
    assert_eq!(rig.told(), "nothing");

    rig.say(Frame::WantBody(id, 20_000));
    let more = rig.body(id).len();
    assert!((10_000..=30_000).contains(&more), "{more}");
    rig.say(Frame::WantBody(id, 1_000_000));
    assert_eq!(taken + more + rig.body(id).len(), 200_000);
    rig.over();
}

#[test]
fn small_pieces_of_a_body_are_charged_for_what_they_cost() {
    let mut rig = Rig::new(settings());
    let client = rig.client(post("/", 10_000, ""));
    let id = rig.request().id;
    for _ in 0..2 * WINDOW / charge(1) {
        rig.net.send(client, b"x");
    }
    rig.settle();
    assert_eq!(rig.body(id).len(), (WINDOW / charge(1)) as usize);
    rig.over();
}

#[test]
fn pipelined_input_is_not_read_beyond_its_bound() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/"));
    let id = rig.request().id;
    let batch = get("/next").repeat(50);
    for _ in 0..100 {
        rig.net.send(client, batch.as_bytes());
    }
    rig.settle();
    let kept = 100 * batch.len() - rig.net.unread(client);
    assert!(kept >= 32 * 1024 && kept < 32 * 1024 + batch.len(), "{kept}");
    assert!(!rig.net.peer(client, |peer| peer.receiving));
    rig.answer(id, "");
    for _ in 0..5000 {
        rig.serve("");
    }
    assert_eq!(rig.told(), "nothing");
    assert_eq!(rig.out(client), answered("").repeat(5001));
    assert!(rig.net.peer(client, |peer| peer.receiving));
    rig.over();
}

#[test]
fn credit_gives_back_exactly_what_was_charged_when_the_bytes_have_left() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/"));
    let id = rig.request().id;
    rig.flow(client, Flow::Held);
    rig.push(Frame::Head(id, head(200, &[])));
    let sizes = [1, 63, 64, 65, 8192, 8193, 20_000, 3];
    for size in sizes {
        rig.push(Frame::Chunk(id, Bytes::from(vec![b'x'; size])));
    }
    rig.settle();
    assert_eq!(rig.told(), "nothing", "nothing has left");
    rig.flow(client, Flow::Free);
    assert_eq!(rig.credit(id), sizes.iter().map(|size| charge(*size)).sum::<u32>());
    rig.push(Frame::Chunk(id, Bytes::from_static(b"last")));
    rig.say(Frame::End(id));
    assert_eq!(rig.told(), "nothing", "a complete response needs no credit");
    rig.over();
}

/// Responses to a client that does not read: no further request is dispatched above the high-water mark.
fn dispatched_to_a_client_that_does_not_read(answer: impl Fn(&mut Rig, m0serve::handoff::ExchangeId)) -> usize {
    let mut rig = Rig::new(settings());
    let client = rig.connect();
    rig.flow(client, Flow::Held);
    for _ in 0..50 {
        rig.net.send(client, get("/").repeat(200).as_bytes());
    }
    rig.settle();
    let mut dispatched = 0;
    while !rig.jobs.is_empty() && dispatched < 10_000 {
        let id = rig.request().id;
        answer(&mut rig, id);
        rig.say(Frame::Released(id));
        dispatched += 1;
    }
    rig.flow(client, Flow::Free);
    assert_eq!(rig.told(), "request /", "it goes on when the client reads");
    rig.over();
    dispatched
}

#[test]
fn queued_bodies_stop_dispatch() {
    let dispatched = dispatched_to_a_client_that_does_not_read(|rig, id| {
        rig.push(Frame::Head(id, head(200, &[("content-length", "10000")])));
        rig.push(Frame::Chunk(id, Bytes::from(vec![b'x'; 10_000])));
        rig.say(Frame::End(id));
    });
    assert!((7..=9).contains(&dispatched), "{dispatched}");
}

#[test]
fn queued_heads_without_bodies_stop_dispatch_too() {
    let field = "v".repeat(950);
    let dispatched = dispatched_to_a_client_that_does_not_read(|rig, id| {
        rig.push(Frame::Head(id, head(204, &[("x", &field)])));
        rig.say(Frame::End(id));
    });
    assert!((60..=80).contains(&dispatched), "{dispatched}");
}

#[test]
fn queued_files_stop_dispatch_too_since_each_is_a_descriptor() {
    let dispatched = dispatched_to_a_client_that_does_not_read(|rig, id| {
        rig.push(Frame::Head(id, head(200, &[("content-length", "10")])));
        rig.push(Frame::File(id, file(), 0, 10));
        rig.say(Frame::End(id));
    });
    assert!(dispatched <= 2, "{dispatched}");
}

/// The output was high when the half-closed connection looked for its next request; its end must not be forgotten.
#[test]
fn a_half_closed_client_that_read_late_is_closed_when_it_has_read() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/"));
    rig.end(client, End::Fin);
    let id = rig.request().id;
    rig.flow(client, Flow::Held);
    rig.push(Frame::Head(id, head(200, &[])));
    rig.settle();
    for _ in 0..3 {
        rig.push(Frame::Chunk(id, Bytes::from(vec![b'x'; 30_000])));
    }
    rig.push(Frame::End(id));
    rig.say(Frame::Released(id));
    rig.flow(client, Flow::Free);
    assert!(rig.is_closed(client), "at once, not after the idle time-out");
    rig.over();
}

/// A host copies once, out of the application's object; from there on a large body is handed on, never copied again.
#[test]
fn a_large_chunk_reaches_the_backend_where_the_host_put_it() {
    for framing in [&[][..], &[("content-length", "120000")]] {
        let mut rig = Rig::new(settings());
        let client = rig.client(get("/"));
        let id = rig.request().id;
        let chunks = [60_000, 9_000, 51_000].map(|size| Bytes::from(vec![b'x'; size]));
        let addresses = chunks.each_ref().map(|chunk| chunk.as_ptr() as usize);
        rig.push(Frame::Head(id, head(200, framing)));
        for chunk in chunks {
            rig.push(Frame::Chunk(id, chunk));
        }
        rig.say(Frame::End(id));
        assert_eq!(rig.net.peer(client, |peer| peer.bodies.clone()), addresses);
        assert!(rig.out(client).len() > 120_000);
        rig.over();
    }
}
