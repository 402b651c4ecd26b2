//! Descriptors that are not the backend's: level-triggered, changed, forgotten, closed behind its back.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use m0_platform::Interest;

use crate::contract;
use crate::rig::{PATIENCE, Rig};

const READ: Interest = Interest::READ;
const WRITE: Interest = Interest {
    read: false,
    write: true,
};
const BOTH: Interest = Interest {
    read: true,
    write: true,
};

/// What the next wait with this time-out says of a descriptor.
fn found(rig: &mut Rig, fd: RawFd, timeout: Duration) -> Vec<Interest> {
    rig.foreign.clear();
    rig.turn(Some(timeout));
    rig.foreign
        .iter()
        .filter(|(other, _)| *other == fd)
        .map(|(_, ready)| *ready)
        .collect()
}

/// Waits until a descriptor is found.
#[track_caller]
fn until_found(rig: &mut Rig, fd: RawFd, timeout: Duration) -> Interest {
    let start = Instant::now();
    loop {
        if let [ready] = found(rig, fd, timeout)[..] {
            return ready;
        }
        assert!(start.elapsed() < PATIENCE);
    }
}

contract! {
    /// Found by every wait while it is readable, by waits of zero too, and no more once it was read.
    fn level_triggered(rig) {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let fd = ours.as_raw_fd();
        rig.backend.watch(fd, READ).unwrap();
        for timeout in [Duration::ZERO, Duration::from_millis(5)] {
            assert!(found(rig, fd, timeout).is_empty());
            theirs.write_all(b"xy").unwrap();
            assert_eq!(until_found(rig, fd, timeout), READ);
            for _ in 0..5 {
                assert_eq!(found(rig, fd, timeout), [READ]);
            }
            ours.read_exact(&mut [0; 1]).unwrap();
            assert_eq!(found(rig, fd, timeout), [READ]);
            ours.read_exact(&mut [0; 1]).unwrap();
            found(rig, fd, Duration::from_millis(5)); // may have been on its way
            assert!(found(rig, fd, timeout).is_empty());
        }
        rig.backend.unwatch(fd);
    }

    /// Something that becomes ready ends a wait that is under way.
    fn ends_a_long_wait(rig) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        rig.backend.watch(ours.as_raw_fd(), READ).unwrap();
        let (_client, _token) = rig.connect();
        rig.turn(Some(Duration::from_millis(10)));
        let waker = rig.backend.waker();
        let writer = std::thread::spawn(move || {
            theirs.write_all(b"x").unwrap();
            drop(waker);
            theirs
        });
        let start = Instant::now();
        while rig.foreign.is_empty() {
            rig.turn(Some(Duration::from_secs(100)));
        }
        assert!(start.elapsed() < PATIENCE);
        writer.join().unwrap();
    }

    /// What it is watched for can be changed, and limits what is said.
    fn modify(rig) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let fd = ours.as_raw_fd();
        theirs.write_all(b"x").unwrap();
        rig.backend.watch(fd, READ).unwrap();
        assert_eq!(until_found(rig, fd, Duration::ZERO), READ);
        rig.backend.watch(fd, WRITE).unwrap();
        assert_eq!(until_found(rig, fd, Duration::ZERO), WRITE);
        rig.backend.watch(fd, BOTH).unwrap();
        assert_eq!(until_found(rig, fd, Duration::ZERO), BOTH);
        rig.backend.unwatch(fd);
        for _ in 0..3 {
            assert!(found(rig, fd, Duration::from_millis(2)).is_empty());
        }
        rig.backend.watch(fd, READ).unwrap();
        assert_eq!(until_found(rig, fd, Duration::ZERO), READ);
    }

    /// Forgotten between the wait that found it and the delivery: not a word of it.
    fn unwatch_before_delivery(rig) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let fd = ours.as_raw_fd();
        theirs.write_all(b"x").unwrap();
        rig.backend.watch(fd, READ).unwrap();
        rig.backend.wait(Some(Duration::from_millis(20))).unwrap();
        rig.backend.unwatch(fd);
        rig.drain();
        assert!(rig.foreign.is_empty());
        rig.backend.unwatch(fd);
    }

    /// A reader hears of a hang-up, and so does a writer.
    fn hang_up(rig) {
        let (reader, writer) = std::io::pipe().unwrap();
        let fd = reader.as_raw_fd();
        rig.backend.watch(fd, READ).unwrap();
        assert!(found(rig, fd, Duration::from_millis(5)).is_empty());
        drop(writer);
        assert_eq!(until_found(rig, fd, Duration::from_millis(5)), READ);
        rig.backend.unwatch(fd);
        let (reader, writer) = std::io::pipe().unwrap();
        let fd = writer.as_raw_fd();
        drop(reader);
        rig.backend.watch(fd, WRITE).unwrap();
        assert_eq!(until_found(rig, fd, Duration::from_millis(5)), WRITE);
        rig.backend.unwatch(fd);
    }

    /// A descriptor that was closed without a word can be forgotten, and its number watched anew.
    fn closed_behind_our_back(rig) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let fd = ours.as_raw_fd();
        rig.backend.watch(fd, READ).unwrap();
        let (fresh, mut other) = UnixStream::pair().unwrap();
        // The number now names another open file; the old one left the set when its last descriptor went.
        // SAFETY: `fd` is ours, and `ours` goes on owning whatever it names.
        assert_eq!(unsafe { libc::dup2(fresh.as_raw_fd(), fd) }, fd);
        drop((fresh, theirs));
        assert!(found(rig, fd, Duration::from_millis(5)).is_empty());
        rig.backend.watch(fd, READ).unwrap();
        other.write_all(b"x").unwrap();
        assert_eq!(until_found(rig, fd, Duration::from_millis(5)), READ);
        drop(ours);
        rig.backend.unwatch(fd);
        rig.backend.unwatch(fd);
    }

    /// What cannot be watched is refused: nothing, a regular file. (The BSDs' kqueue watches regular files.)
    fn refused(rig) {
        let error = rig.backend.watch(-1, READ).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        let error = rig.backend.watch(1_000_000_000, READ).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        let watched = rig.backend.watch(file.as_raw_fd(), READ);
        if cfg!(target_os = "linux") {
            assert_eq!(watched.unwrap_err().raw_os_error(), Some(libc::EPERM));
        } else {
            watched.unwrap();
            assert_eq!(until_found(rig, file.as_raw_fd(), Duration::ZERO), READ);
            rig.backend.unwatch(file.as_raw_fd());
        }
    }

    /// A descriptor that was closed without a word, and whose number is a connection's by now: to forget it does not
    /// make the connection deaf.
    fn closed_behind_our_back_and_accepted(rig) {
        for _ in 0..20 {
            let (ours, _theirs) = UnixStream::pair().unwrap();
            let fd = ours.as_raw_fd();
            rig.backend.watch(fd, READ).unwrap();
            // Takes the lowest number; the connection gets the next one, which is the one that is given back now.
            let mut client = rig.dial().unwrap();
            drop(ours);
            let token = rig.accept();
            rig.turn(Some(Duration::ZERO));
            rig.backend.unwatch(fd);
            client.write_all(b"heard").unwrap();
            rig.until_received(token, 5);
            rig.send(token, b"said");
            client.write_all(b", and again").unwrap();
            rig.until_received(token, 16);
            rig.close(token);
            rig.until_closed(token);
        }
    }

    /// Hundreds at once, beside connections.
    fn many_at_once(rig) {
        let (mut client, token) = rig.connect();
        let mut pairs: Vec<_> = (0..300).map(|_| UnixStream::pair().unwrap()).collect();
        for (ours, theirs) in &mut pairs {
            rig.backend.watch(ours.as_raw_fd(), READ).unwrap();
            theirs.write_all(b"x").unwrap();
        }
        client.write_all(b"me too").unwrap();
        let all: std::collections::HashSet<RawFd> = pairs.iter().map(|(ours, _)| ours.as_raw_fd()).collect();
        rig.until("all are found", |rig| {
            rig.foreign.iter().map(|(fd, _)| *fd).collect::<std::collections::HashSet<_>>() == all
        });
        rig.until_received(token, 6);
        all.into_iter().for_each(|fd| rig.backend.unwatch(fd));
    }
}
