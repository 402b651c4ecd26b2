//! Generations: nothing of an older connection or exchange touches its successor (R3), and no slot is reused early (R4).

use bytes::Bytes;
use m0_platform::{Chunk, Completion, EndOfReceive, SendBuf, Token};
use m0serve::handoff::{ExchangeId, Frame, Why};

use crate::rig::{Rig, answered, get, head, settings};
use crate::script::{End, Flow};

/// A connection that took the slot of an earlier one, and the earlier one's token.
fn successor(rig: &mut Rig) -> (usize, Token) {
    let first = rig.client(get("/old"));
    rig.serve("old");
    let old = rig.net.peer(first, |peer| peer.token);
    rig.end(first, End::Fin);
    assert!(rig.is_closed(first));
    let second = rig.client(get("/new"));
    let new = rig.net.peer(second, |peer| peer.token);
    assert_eq!(new.index, old.index);
    assert_ne!(new.generation, old.generation);
    (second, old)
}

#[test]
fn late_completions_of_an_older_connection_do_nothing() {
    let mut rig = Rig::new(settings());
    let (client, token) = successor(&mut rig);
    let id = rig.request().id;
    let chunk = Chunk::new(0, 4);
    rig.net.make(Completion::Received { token, chunk }, b"\0\0\0\0");
    let gone = || std::io::Error::from_raw_os_error(libc::ECONNRESET);
    let buf = SendBuf::default();
    let result = Err(gone());
    rig.net.make(Completion::Sent { token, result, buf }, b"");
    let result = Err(gone());
    rig.net.make(Completion::FileSent { token, result }, b"");
    let end = EndOfReceive::Failed(gone());
    rig.net.make(Completion::ReceiveEnded { token, end }, b"");
    rig.net.make(Completion::Closed { token }, b"");
    rig.settle();
    assert_eq!(rig.told(), "nothing");
    rig.answer(id, "new");
    assert_eq!(rig.out(client), answered("new"));
    assert_eq!(rig.stats().connections, 1);
    rig.over();
}

#[test]
fn tokens_and_exchanges_out_of_range_do_nothing() {
    let mut rig = Rig::new(settings());
    let token = Token {
        index: 99,
        generation: 0,
    };
    rig.net.make(Completion::Closed { token }, b"");
    let id = ExchangeId {
        index: 99,
        generation: 0,
    };
    rig.say_head(id, 200, &[]);
    rig.say(Frame::Released(id));
    assert_eq!(rig.stats().exchanges, 0);
    rig.over();
}

#[test]
fn frames_of_an_older_exchange_never_reach_the_next() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/1") + &get("/2"));
    let old = rig.serve("one");
    rig.out(client);
    let new = rig.request().id;
    assert_eq!(new.index, old.index, "the slot was free");
    rig.say(Frame::WantBody(old, 1000));
    rig.say_head(old, 500, &[]);
    rig.say_chunk(old, b"ghost");
    rig.say(Frame::End(old));
    rig.say(Frame::Abort(old, Why::HostError));
    rig.say(Frame::Released(old));
    assert_eq!((rig.out(client), rig.told()), (String::new(), "nothing".into()));
    rig.answer(new, "two");
    assert_eq!(rig.out(client), answered("two"));
    rig.over();
}

#[test]
fn a_complete_exchange_takes_no_more_frames_while_its_host_holds_it() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/1") + &get("/2"));
    let old = rig.request().id;
    rig.push(Frame::Head(old, head(200, &[("content-length", "0")])));
    rig.say(Frame::End(old));
    rig.out(client);
    let new = rig.request().id;
    rig.say_chunk(old, b"ghost");
    rig.say(Frame::End(old));
    rig.say_head(old, 500, &[]);
    assert_eq!(rig.out(client), "");
    rig.answer(new, "two");
    assert_eq!(rig.out(client), answered("two"));
    rig.over();
}

#[test]
fn an_exchange_is_reused_only_after_its_release() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/1") + &get("/2") + &get("/3"));
    let first = rig.request().id;
    rig.push(Frame::Head(first, head(200, &[("content-length", "0")])));
    rig.say(Frame::End(first));
    let second = rig.request().id;
    assert_ne!(
        second.index, first.index,
        "the first is held by its host: a background task (R4)"
    );
    rig.say(Frame::Released(first));
    rig.say(Frame::Released(first));
    rig.answer(second, "two");
    let third = rig.request().id;
    rig.feed(client, get("/4"));
    rig.answer(third, "three");
    let fourth = rig.request().id;
    assert!(third.index < 2 && fourth.index < 2, "two slots are enough");
    rig.over();
}

#[test]
fn a_released_exchange_is_kept_while_its_request_is_still_read() {
    let mut rig = Rig::new(settings());
    let uploading = rig.client("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nabc");
    let first = rig.serve("early");
    let other = rig.client(get("/"));
    let second = rig.serve("other");
    assert_ne!(first.index, second.index, "the connection still holds the first (R4)");
    rig.feed(uploading, "defghij".to_owned() + &get("/next"));
    rig.out(uploading);
    rig.serve("next");
    assert_eq!(rig.out(uploading), answered("next"));
    assert_eq!(rig.out(other), answered("other"));
    rig.over();
}

/// The acknowledgement of one response once credited the next one.
#[test]
fn bytes_of_one_response_never_credit_the_next() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/1") + &get("/2"));
    let first = rig.request().id;
    rig.push(Frame::Head(first, head(200, &[])));
    rig.settle();
    rig.flow(client, Flow::Held);
    for body in ["a", "b"] {
        rig.say_chunk(first, body.repeat(9000).as_bytes());
    }
    rig.push(Frame::End(first));
    rig.say(Frame::Released(first));
    let second = rig.request().id;
    assert_eq!(
        second.index, first.index,
        "the slot is recycled while bytes of the first are under way"
    );
    rig.push(Frame::Head(second, head(200, &[])));
    rig.say(Frame::Chunk(second, Bytes::from_static(b"hello")));
    rig.flow(client, Flow::Free);
    assert_eq!(rig.credit(second), 64);
    assert_eq!(rig.told(), "nothing");
    rig.over();
}

#[test]
fn a_slot_of_a_connection_is_its_own_until_it_is_closed() {
    let mut rig = Rig::new(settings());
    let client = rig.client(get("/"));
    let id = rig.request().id;
    rig.flow(client, Flow::Held);
    rig.say_head(id, 200, &[]);
    rig.net.end(client, End::Reset);
    let other = rig.connect();
    assert!(rig.is_closed(client));
    let (old, new) = (
        rig.net.peer(client, |peer| peer.token),
        rig.net.peer(other, |peer| peer.token),
    );
    assert_ne!(old, new);
    let third = rig.client(get("/third"));
    assert_eq!(rig.net.peer(third, |peer| peer.token.index), old.index);
    rig.say_chunk(id, b"ghost");
    assert_eq!(rig.out(third), "");
    rig.over();
}
