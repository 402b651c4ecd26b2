//! Receiving: chunks, pauses, both kinds of end.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::contract;
use crate::rig::{Rig, pattern};
use crate::site::reset;

/// A reset is noticed within a second.
#[track_caller]
fn broken_within_a_second(rig: &mut Rig, token: m0_platform::Token) {
    let start = rig.now();
    rig.until_ended(token);
    let took = rig.now().since(start);
    assert!(took < Duration::from_secs(1), "noticed after {took:?}");
    assert!(
        matches!(rig.seen(token).ended, Some(Err(_))),
        "{:?}",
        rig.seen(token).ended
    );
}

contract! {
    /// Bytes arrive in order; the end of file comes after all of them; the other direction goes on.
    fn bytes_then_end_of_file(rig) {
        let (mut client, token) = rig.connect();
        let bytes = pattern(300_000, 1);
        let writer = std::thread::spawn({
            let bytes = bytes.clone();
            move || {
                client.write_all(&bytes).unwrap();
                client.shutdown(Shutdown::Write).unwrap();
                client
            }
        });
        rig.until_ended(token);
        assert!(rig.seen(token).received == bytes);
        assert!(matches!(rig.seen(token).ended, Some(Ok(()))));
        let mut client = writer.join().unwrap();
        rig.send(token, b"still here");
        let mut answer = [0; 10];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"still here");
    }

    /// A few bytes and a FIN that come together, which an edge tells of only once.
    fn bytes_and_fin_in_one_segment(rig) {
        for _ in 0..50 {
            let (mut client, token) = rig.connect();
            client.write_all(b"last words").unwrap();
            drop(client);
            rig.until_ended(token);
            assert_eq!(rig.seen(token).received, b"last words");
            assert!(matches!(rig.seen(token).ended, Some(Ok(()))));
            rig.close(token);
        }
    }

    /// An accepted connection does not receive until it is told to.
    fn nothing_is_received_before_receive(rig) {
        rig.receive_at_once = false;
        let (mut client, token) = rig.connect();
        rig.paused.insert(token);
        client.write_all(b"early").unwrap();
        rig.turns_for(Duration::from_millis(50));
        rig.receive(token);
        rig.until_received(token, 5);
        assert_eq!(rig.seen(token).received, b"early");
    }

    /// Calling it twice changes nothing.
    fn receive_twice(rig) {
        let (mut client, token) = rig.connect();
        rig.receive(token);
        rig.turn(Some(Duration::ZERO));
        rig.receive(token);
        client.write_all(b"once").unwrap();
        rig.until_received(token, 4);
        client.shutdown(Shutdown::Write).unwrap();
        rig.until_ended(token);
        assert_eq!(rig.seen(token).received, b"once");
    }

    /// Paused and resumed all the time, in every rhythm: nothing is lost, doubled or out of order.
    fn pause_keeps_everything(rig) {
        let (mut client, token) = rig.connect();
        let bytes = pattern(6 << 20, 7);
        let writer = std::thread::spawn({
            let bytes = bytes.clone();
            move || {
                for piece in bytes.chunks(70_001) {
                    client.write_all(piece).unwrap();
                }
                client
            }
        });
        let start = Instant::now();
        let mut round = 0_u32;
        while rig.seen(token).received.len() < bytes.len() {
            round += 1;
            assert!(start.elapsed() < crate::rig::PATIENCE, "received {}", rig.seen(token).received.len());
            rig.backend.wait(Some(Duration::from_millis(5))).unwrap();
            // Pauses also in the middle of what a wait has found.
            let mut taken = 0;
            while let Some(completion) = rig.backend.next() {
                rig.note(completion);
                taken += 1;
                if taken == round % 5 {
                    rig.pause(token);
                }
            }
            match round % 7 {
                0 => rig.pause(token),
                1 => {
                    rig.pause(token);
                    rig.receive(token);
                    rig.pause(token);
                }
                3 | 5 | 6 => rig.receive(token),
                _ => {}
            }
        }
        assert!(rig.seen(token).received == bytes);
        drop(writer.join().unwrap());
        rig.receive(token);
        rig.until_ended(token);
        assert!(rig.seen(token).received == bytes);
    }

    /// The end of file waits behind the pause, and behind the bytes before it.
    fn end_of_file_while_paused(rig) {
        let (mut client, token) = rig.connect();
        rig.pause(token);
        client.write_all(b"before the end").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        rig.turns_for(Duration::from_millis(60));
        assert!(rig.seen(token).order.is_empty());
        rig.receive(token);
        rig.until_ended(token);
        assert_eq!(rig.seen(token).received, b"before the end");
        assert!(matches!(rig.seen(token).ended, Some(Ok(()))));
    }

    /// A sender is slowed down by a pause: beyond the kernel's two buffers, what we hold for it is a few chunks.
    fn a_pause_slows_the_sender_down(rig) {
        let (client, token) = rig.connect();
        client.set_nonblocking(true).unwrap();
        rig.pause(token);
        let bound = rig.site.buffers() + (2 << 20);
        let piece = vec![b'x'; 64 * 1024];
        let (mut written, mut full) = (0_usize, 0);
        while full < 50 {
            match (&client).write(&piece) {
                Ok(len) => (written, full) = (written + len, 0),
                Err(_) => full += 1,
            }
            rig.turn(Some(Duration::from_millis(1)));
            assert!(written <= bound, "{written} bytes, and nothing slows the sender down");
        }
        rig.receive(token);
        rig.until_received(token, written);
    }

    fn reset_while_receiving(rig) {
        let (client, token) = rig.connect();
        rig.turn(Some(Duration::ZERO));
        reset(client);
        broken_within_a_second(rig, token);
    }

    fn reset_while_paused(rig) {
        let (client, token) = rig.connect();
        rig.pause(token);
        rig.turn(Some(Duration::from_millis(5)));
        reset(client);
        broken_within_a_second(rig, token);
    }

    /// What was paused after a while of receiving, with bytes that nobody took.
    fn reset_while_paused_with_bytes_waiting(rig) {
        let (mut client, token) = rig.connect();
        client.write_all(b"first").unwrap();
        rig.until_received(token, 5);
        rig.pause(token);
        client.write_all(b"second").unwrap();
        rig.turns_for(Duration::from_millis(20));
        reset(client);
        broken_within_a_second(rig, token);
    }

    /// A FIN came while paused; the reset that follows is noticed all the same.
    fn reset_after_fin_while_paused(rig) {
        let (client, token) = rig.connect();
        rig.pause(token);
        client.shutdown(Shutdown::Write).unwrap();
        rig.turns_for(Duration::from_millis(20));
        assert!(rig.seen(token).ended.is_none());
        reset(client);
        broken_within_a_second(rig, token);
    }

    fn reset_before_receive(rig) {
        rig.receive_at_once = false;
        let (client, token) = rig.connect();
        rig.turns_for(Duration::from_millis(10));
        reset(client);
        broken_within_a_second(rig, token);
    }

    /// Broken while it waited to be accepted, and told of once it was. (Not every kernel hands out what is gone.)
    fn reset_before_it_is_accepted(rig) {
        rig.receive_at_once = false;
        rig.backend.pause_accept(rig.listener);
        rig.turns_for(Duration::from_millis(10));
        reset(rig.dial().unwrap());
        let stays = rig.dial().unwrap();
        let address = stays.local_addr().unwrap();
        rig.turns_for(Duration::from_millis(10));
        rig.backend.resume_accept(rig.listener);
        let all = if cfg!(target_os = "linux") { 2 } else { 1 };
        rig.until("all are accepted", |rig| {
            rig.accepted.len() >= all && rig.seen.values().any(|seen| seen.peer == Some(address))
        });
        for token in rig.accepted.clone() {
            if rig.seen(token).peer != Some(address) {
                broken_within_a_second(rig, token);
            }
        }
    }

    /// An idle connection that nobody has said a word on for a while.
    fn reset_of_one_of_many_idle(rig) {
        let mut clients: Vec<_> = (0..50).map(|_| rig.connect()).collect();
        rig.turns_for(Duration::from_millis(20));
        let (client, token) = clients.swap_remove(25);
        reset(client);
        broken_within_a_second(rig, token);
        for (_, token) in &clients {
            assert!(rig.seen(*token).order.is_empty());
        }
    }

    /// Bytes that a FIN of ours does not stop.
    fn receiving_goes_on_after_our_fin(rig) {
        let (mut client, token) = rig.connect();
        rig.backend.shutdown_write(token);
        let mut nothing = Vec::new();
        client.read_to_end(&mut nothing).unwrap();
        assert!(nothing.is_empty());
        client.write_all(b"and you hear me").unwrap();
        rig.until_received(token, 15);
        client.shutdown(Shutdown::Write).unwrap();
        rig.until_ended(token);
        assert!(matches!(rig.seen(token).ended, Some(Ok(()))));
    }

    /// What a paused connection had to hold once grew with every resume while its peer was the faster one.
    fn a_fast_sender_does_not_run_ahead_of_a_reader_that_pauses(rig) {
        const TOTAL: usize = 96 << 20;
        let (mut client, token) = rig.connect();
        let sent = Arc::new(AtomicUsize::new(0));
        let writer = std::thread::spawn({
            let sent = sent.clone();
            move || {
                let piece = vec![b'x'; 256 << 10];
                for _ in 0..TOTAL / piece.len() {
                    client.write_all(&piece).unwrap();
                    sent.fetch_add(piece.len(), Ordering::Relaxed);
                }
                client
            }
        });
        // What the kernel holds, what the backend may hold, and some for what is on its way.
        let most = rig.site.buffers() + (24 << 20);
        let mut received = 0;
        while received < TOTAL {
            rig.backend.receive(token);
            rig.backend.wait(Some(Duration::from_secs(5))).unwrap();
            while let Some(completion) = rig.backend.next() {
                let m0_platform::Completion::Received { chunk, .. } = completion else { continue };
                received += chunk.len();
                rig.backend.recycle(chunk);
                // A reader that takes one piece and thinks about it.
                rig.backend.pause_receive(token);
            }
            let ahead = sent.load(Ordering::Relaxed).saturating_sub(received);
            assert!(ahead < most, "{ahead} bytes ahead of the reader, at most {most} expected");
        }
        drop(writer.join().unwrap());
        rig.receive(token);
        rig.until_ended(token);
    }
}
