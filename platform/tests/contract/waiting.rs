//! R1: `wait(0)` never blocks, in any state, and submits what is queued. And the other ends of a wait.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use bytes::Bytes;
use m0_platform::{Interest, Options, SendBuf};

use crate::contract;
use crate::rig::{PATIENCE, Rig, pattern};

/// A wait of zero that blocked would block for ever (the watchdog ends that); one that slept shows in the sum.
#[track_caller]
fn waits_of_zero_are_fast(rig: &mut Rig, drain: bool) {
    let start = Instant::now();
    for _ in 0..50 {
        rig.backend.wait(Some(Duration::ZERO)).unwrap();
        if drain {
            rig.drain();
        }
    }
    let took = start.elapsed();
    assert!(took < Duration::from_secs(1), "fifty waits of zero took {took:?}");
}

/// Makes waits of zero, and no other, until it holds.
#[track_caller]
fn zero_waits_until(rig: &mut Rig, holds: impl Fn(&Rig) -> bool) {
    let start = Instant::now();
    while !holds(rig) {
        assert!(start.elapsed() < PATIENCE, "waits of zero did not find it");
        rig.turn(Some(Duration::ZERO));
    }
}

contract! {
    fn with_nothing_to_do(rig) {
        waits_of_zero_are_fast(rig, true);
    }

    fn with_an_idle_connection(rig) {
        let (_client, _token) = rig.connect();
        waits_of_zero_are_fast(rig, true);
    }

    fn with_a_blocked_send(rig) {
        let (_client, token) = rig.connect();
        rig.block_sending(token);
        waits_of_zero_are_fast(rig, true);
    }

    fn while_paused_with_bytes_waiting(rig) {
        let (mut client, token) = rig.connect();
        rig.pause(token);
        client.write_all(b"wait for me").unwrap();
        waits_of_zero_are_fast(rig, true);
        rig.receive(token);
        rig.until_received(token, 11);
    }

    /// Also when nobody takes what the wait before has found.
    fn with_completions_that_nobody_takes(rig) {
        let (mut client, token) = rig.connect();
        client.write_all(b"take me").unwrap();
        waits_of_zero_are_fast(rig, false);
        rig.until_received(token, 7);
    }

    fn with_a_foreign_descriptor_that_stays_ready(rig) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"x").unwrap();
        rig.backend.watch(ours.as_raw_fd(), Interest::READ).unwrap();
        waits_of_zero_are_fast(rig, true);
        assert!(rig.foreign.len() >= 49, "level-triggered: found by every wait, was {}", rig.foreign.len());
        rig.backend.unwatch(ours.as_raw_fd());
    }

    /// Three hundred connections that all have something to say.
    fn with_many_connections(rig) {
        let mut clients: Vec<_> = (0..300).map(|_| rig.connect()).collect();
        for (client, _) in &mut clients {
            client.write_all(b"all at once").unwrap();
        }
        waits_of_zero_are_fast(rig, true);
        for (_, token) in &clients {
            rig.until_received(*token, 11);
        }
    }

    /// The same on queues far too short for them: completions overflow, and none is lost, though no wait blocks.
    [options = Options { ring_entries: 4, recv_buffers: 64, recv_buffer_size: 256 }]
    fn with_overflowing_queues(rig) {
        let mut clients: Vec<_> = (0..300).map(|_| rig.connect()).collect();
        for round in 1..=3 {
            for (client, _) in &mut clients {
                client.write_all(b"all at once").unwrap();
            }
            zero_waits_until(rig, |rig| clients.iter().all(|(_, token)| rig.seen(*token).received.len() == 11 * round));
            for (_, token) in &clients {
                rig.backend.send(*token, SendBuf { bytes: b"answer".to_vec(), body: Bytes::new() });
            }
            zero_waits_until(rig, |rig| clients.iter().all(|(_, token)| rig.seen(*token).sent.len() == round));
            for (client, _) in &mut clients {
                let mut answer = [0; 6];
                client.read_exact(&mut answer).unwrap();
                assert_eq!(&answer, b"answer");
            }
        }
    }

    /// What is queued leaves with a wait of zero: no other wait is ever made here.
    fn zero_submits_what_is_queued(rig) {
        let (mut client, token) = rig.connect();
        waits_of_zero_are_fast(rig, true); // the receive is armed before there is anything to receive
        client.write_all(b"question").unwrap();
        let start = Instant::now();
        while rig.seen(token).received.len() < 8 {
            assert!(start.elapsed() < PATIENCE);
            rig.turn(Some(Duration::ZERO));
        }
        rig.backend.send(token, SendBuf { bytes: b"answer".to_vec(), body: Bytes::new() });
        rig.turn(Some(Duration::ZERO));
        let mut answer = [0; 6];
        client.read_exact(&mut answer).unwrap();
        while rig.seen(token).sent.is_empty() {
            assert!(start.elapsed() < PATIENCE);
            rig.turn(Some(Duration::ZERO));
        }
    }

    /// `submit` alone is enough for what is queued to leave; it delivers nothing.
    fn submit_submits_what_is_queued(rig) {
        let (mut client, token) = rig.connect();
        rig.backend.send(token, SendBuf { bytes: b"answer".to_vec(), body: Bytes::new() });
        rig.backend.submit().unwrap();
        let mut answer = [0; 6];
        client.read_exact(&mut answer).unwrap();
        assert!(rig.seen(token).sent.is_empty());
        rig.until_sent(token, 1);
    }

    /// Without a limit, but something is ready: it returns.
    fn endless_wait_returns_for_what_is_ready(rig) {
        let (mut client, token) = rig.connect();
        client.write_all(&pattern(200_000, 1)).unwrap();
        while rig.seen(token).received.len() < 200_000 {
            rig.turn(None);
        }
        rig.backend.send(token, SendBuf { bytes: b"answer".to_vec(), body: Bytes::new() });
        while rig.seen(token).sent.is_empty() {
            rig.turn(None);
        }
        rig.close(token);
        while !rig.seen(token).closed {
            rig.turn(None);
        }
    }

    /// With nothing to do it waits for its time, and not much longer.
    fn time_out(rig) {
        rig.turns_for(Duration::from_millis(20)); // what opening it left over
        let start = rig.now();
        rig.backend.wait(Some(Duration::from_millis(60))).unwrap();
        let took = rig.now().since(start);
        assert!(took >= Duration::from_millis(59) && took < Duration::from_secs(5), "waited {took:?}");
        assert!(rig.backend.next().is_none());
    }

    /// Another connection is served while one never stops sending.
    fn an_endless_sender_does_not_starve_others(rig) {
        let (loud, loud_token) = rig.connect();
        let (mut quiet, quiet_token) = rig.connect();
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let shouting = std::thread::spawn({
            let (stop, mut loud) = (stop.clone(), loud);
            move || {
                let noise = vec![b'x'; 1 << 20];
                while !stop.load(std::sync::atomic::Ordering::Relaxed) && loud.write_all(&noise).is_ok() {}
            }
        });
        rig.until_received(loud_token, 4 << 20);
        for round in 1..=50 {
            quiet.write_all(b"hush").unwrap();
            rig.until_received(quiet_token, 4 * round);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        rig.until("the shouting ends", |_| shouting.is_finished());
    }
}
