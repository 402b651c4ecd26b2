//! Descriptors: all given back at the end, and what happens when there are none left.

use std::fs::File;
use std::io::{Read, Write};
use std::time::Duration;

use m0_platform::{Choice, Kind, Options};

use crate::child::in_child;
use crate::contract;
use crate::rig::{Rig, pattern};
use crate::site::reset;

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Everything that makes descriptors, and everything that ends them.
fn exercise(kind: Kind) {
    let mut rig = match crate::site::open(kind, &Options::default()) {
        Ok((backend, site)) => Rig::new(backend, site),
        Err(why) => return crate::site::skipped(kind, &why),
    };
    rig.backend.poll_fd().unwrap();
    for round in 0..100 {
        let (mut client, token) = rig.connect();
        client.write_all(&pattern(1000, round)).unwrap();
        rig.until_received(token, 1000);
        match round % 4 {
            0 => {
                rig.send(token, b"answer");
                client.read_exact(&mut [0; 6]).unwrap();
                rig.close(token);
            }
            1 => {
                reset(client);
                rig.until_ended(token);
                rig.close(token);
            }
            2 => {
                let file = File::open("/proc/self/exe").unwrap();
                rig.backend.send_file(token, file.into(), 0, 100_000);
                rig.close(token);
            }
            _ => {} // left to `finish`
        }
    }
    let waker = rig.backend.waker();
    rig.finish();
    drop(rig);
    drop(waker);
}

contract! {
    /// Descriptors are all back at the end, however the connections ended (R9).
    fn all_descriptors_come_back(rig) {
        let kind = rig.backend.kind();
        exercise(kind); // whatever the first use of anything keeps
        let before = open_descriptors();
        for _ in 0..3 {
            exercise(kind);
        }
        assert_eq!(open_descriptors(), before);
    }

    /// Out of descriptors: accepting pauses and says so once, does not spin, and goes on when told to.
    fn accept_without_descriptors(rig) {
        let (mut old, token) = rig.connect();
        // io_uring takes the limit when the accept is armed, so it is armed anew under the lower one.
        let limit = set_soft_limit(200);
        rig.backend.pause_accept(rig.listener);
        rig.turns_for(Duration::from_millis(10));
        rig.backend.resume_accept(rig.listener);
        rig.turns_for(Duration::from_millis(10));
        // These wait in the backlog until the next wait, and then there is no descriptor left.
        let clients: Vec<_> = (0..4).map(|_| rig.dial().unwrap()).collect();
        let mut hoard = Vec::new();
        while let Ok(file) = File::open("/dev/null") {
            hoard.push(file);
        }
        rig.until("accepting fails", |rig| !rig.accept_failures.is_empty());
        assert_eq!(rig.accept_failures[0].raw_os_error(), Some(libc::EMFILE));
        rig.turns_for(Duration::from_millis(50));
        assert_eq!(rig.accept_failures.len(), 1, "it pauses");
        old.write_all(b"I was here before").unwrap();
        rig.until_received(token, 17);
        // Still none: it fails and pauses again.
        rig.backend.resume_accept(rig.listener);
        rig.until("accepting fails again", |rig| rig.accept_failures.len() == 2);
        drop(hoard);
        rig.backend.resume_accept(rig.listener);
        rig.until("all are accepted", |rig| rig.accepted.len() == 1 + clients.len());
        set_soft_limit(limit);
    }

    /// A listening socket that another process has shut down: accepting pauses, where it went round for ever.
    fn accept_on_a_socket_that_was_shut_down(rig) {
        let socket = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let elsewhere = socket.try_clone().unwrap();
        let listener = rig.backend.listen(socket.into()).unwrap();
        rig.turns_for(Duration::from_millis(10));
        socket2::SockRef::from(&elsewhere).shutdown(std::net::Shutdown::Both).unwrap();
        rig.until("accepting fails", |rig| !rig.accept_failures.is_empty());
        assert_eq!(rig.accept_failures[0].raw_os_error(), Some(libc::EINVAL));
        rig.turns_for(Duration::from_millis(50));
        assert_eq!(rig.accept_failures.len(), 1, "it pauses");
        let _others = rig.connect();
        rig.backend.unlisten(listener);
    }
}

/// Sets the soft limit of open files and returns what it was.
fn set_soft_limit(soft: u64) -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a valid rlimit, filled by the first call and read by the second.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        let before = limit.rlim_cur;
        limit.rlim_cur = soft;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
        before
    }
}

/// Out of descriptors while opening: an error that surfaces, not a reason to fall back.
#[test]
fn opening_without_descriptors_is_an_error() {
    let _guard = crate::guard();
    let code = in_child(|| {
        set_soft_limit(64);
        let mut hoard = Vec::new();
        while let Ok(file) = File::open("/dev/null") {
            hoard.push(file);
        }
        let refused = m0_platform::open(Choice::Auto, &Options::default()).err();
        drop(hoard);
        match refused {
            Some(refused) if !refused.unsupported && refused.sentence.contains("Too many open files") => 0,
            Some(refused) => {
                eprintln!("{}", refused.sentence);
                1
            }
            None => 2,
        }
    });
    assert_eq!(code, 0);
}
