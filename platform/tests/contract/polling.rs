//! The descriptor for a loop that is not ours (uvloop): readable whenever a wait would find something.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use bytes::Bytes;
use m0_platform::{Interest, SendBuf};

use crate::contract;
use crate::rig::{PATIENCE, Rig, pattern, polls_readable};

/// Drives the backend as an outer loop does, by its descriptor only, until it holds. Returns the turns it took.
#[track_caller]
fn drive(rig: &mut Rig, fd: RawFd, what: &str, mut holds: impl FnMut(&mut Rig) -> bool) -> usize {
    let mut turns = 0;
    while !holds(rig) {
        rig.backend.submit().unwrap();
        if !rig.backend.is_ready() {
            assert!(
                polls_readable(fd, PATIENCE),
                "the descriptor never became readable: {what}"
            );
        }
        rig.turn(Some(Duration::ZERO));
        turns += 1;
    }
    turns
}

/// Lets it come to rest: not readable, and it stays so.
#[track_caller]
fn comes_to_rest(rig: &mut Rig, fd: RawFd) {
    let start = Instant::now();
    while polls_readable(fd, Duration::from_millis(50)) {
        assert!(
            start.elapsed() < PATIENCE,
            "an idle backend keeps its descriptor readable"
        );
        rig.turn(Some(Duration::ZERO));
    }
}

contract! {
    fn connections_and_large_transfers(rig) {
        let fd = rig.backend.poll_fd().unwrap();
        assert_eq!(rig.backend.poll_fd().unwrap(), fd);
        comes_to_rest(rig, fd);
        let bytes = pattern(4 << 20, 1);
        let client = std::thread::spawn({
            let (bytes, site, address) = (bytes.clone(), rig.site.clone(), rig.address);
            move || {
                let mut client = site.connect(address).unwrap();
                client.write_all(&bytes).unwrap();
                let mut back = vec![0; bytes.len()];
                client.read_exact(&mut back).unwrap();
                assert!(back == bytes);
                client
            }
        });
        drive(rig, fd, "a connection", |rig| !rig.accepted.is_empty());
        let token = rig.accepted[0];
        drive(rig, fd, "four mebibytes", |rig| rig.seen(token).received.len() == bytes.len());
        rig.backend.send(token, SendBuf { bytes: Vec::new(), body: Bytes::from(bytes) });
        drive(rig, fd, "a send", |rig| !rig.seen(token).sent.is_empty());
        let mut client = client.join().unwrap();
        comes_to_rest(rig, fd);
        for round in 1..=100 {
            client.write_all(b"ping").unwrap();
            drive(rig, fd, "a ping", |rig| rig.seen(token).received.len() == (4 << 20) + 4 * round);
            rig.backend.send(token, SendBuf { bytes: b"pong".to_vec(), body: Bytes::new() });
            drive(rig, fd, "a pong", |rig| rig.seen(token).sent.len() == 1 + round);
            client.read_exact(&mut [0; 4]).unwrap();
        }
        drop(client);
        drive(rig, fd, "the end", |rig| rig.seen(token).ended.is_some());
        comes_to_rest(rig, fd);
    }

    fn foreign_descriptors(rig) {
        let fd = rig.backend.poll_fd().unwrap();
        comes_to_rest(rig, fd);
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        rig.backend.watch(ours.as_raw_fd(), Interest::READ).unwrap();
        for _ in 0..20 {
            theirs.write_all(b"x").unwrap();
            for _ in 0..3 {
                rig.foreign.clear();
                drive(rig, fd, "a foreign descriptor", |rig| !rig.foreign.is_empty());
            }
            ours.read_exact(&mut [0; 1]).unwrap();
            comes_to_rest(rig, fd);
        }
        rig.backend.unwatch(ours.as_raw_fd());
        comes_to_rest(rig, fd);
    }

    fn wakes(rig) {
        let fd = rig.backend.poll_fd().unwrap();
        comes_to_rest(rig, fd);
        let waker = rig.backend.waker();
        for _ in 0..20 {
            waker.announce();
            assert!(waker.wake());
            assert!(polls_readable(fd, PATIENCE));
            comes_to_rest(rig, fd);
        }
    }
}
