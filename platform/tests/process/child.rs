//! Forked children: for tests, and as something that an application does to us.

use std::io::{Read, Write};

use crate::contract;
use crate::rig::pattern;

/// Runs `body` in a forked child and returns its exit code; 101 when it panicked.
///
/// The child has only the thread that forked. glibc keeps its allocator usable there, which is all the bodies need.
pub fn in_child(body: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child runs `body` and ends with `_exit`, without unwinding into the test harness.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(101);
        // SAFETY: ends the child at once, without running the parent's exit handlers.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: `status` is a valid int for the call to fill; `child` is our child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(
        libc::WIFEXITED(status),
        "the child was killed by signal {}",
        libc::WTERMSIG(status)
    );
    libc::WEXITSTATUS(status)
}

/// Where this process has memory shared with a ring.
fn ring_mappings() -> Vec<std::ops::Range<usize>> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let lines = maps.lines().filter(|line| line.contains("[io_uring]"));
    lines.map(|line| range(line.split(' ').next().unwrap())).collect()
}

fn range(text: &str) -> std::ops::Range<usize> {
    let (start, end) = text.split_once('-').unwrap();
    usize::from_str_radix(start, 16).unwrap()..usize::from_str_radix(end, 16).unwrap()
}

fn is_mapped(address: usize) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .any(|line| range(line.split(' ').next().unwrap()).contains(&address))
}

contract! {
    /// A child has neither the rings nor the receive buffers of its parent; what it maps at their addresses is its own,
    /// and dropping the backend does not unmap it.
    fn a_child_gets_no_memory_of_a_ring(rig) {
        if rig.backend.kind() != m0_platform::Kind::IoUring {
            return; // there is no shared memory
        }
        let (mut client, _token) = rig.connect();
        client.write_all(b"x").unwrap();
        let (chunk, buffer) = loop {
            rig.backend.wait(None).unwrap();
            if let Some(m0_platform::Completion::Received { chunk, .. }) = rig.backend.next() {
                let buffer = rig.backend.bytes(&chunk).as_ptr() as usize;
                break (chunk, buffer);
            }
        };
        rig.backend.recycle(chunk);
        let rings = ring_mappings();
        assert!(rings.len() >= 2 && is_mapped(buffer), "queues and entries: {rings:?}");
        let code = in_child(|| {
            if is_mapped(buffer) || rings.iter().any(|ring| is_mapped(ring.start)) {
                return 1;
            }
            let ring = &rings[0];
            let (protection, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
            // SAFETY: nothing is mapped there, as was just checked, and the child has one thread.
            let ours = unsafe { libc::mmap(ring.start as *mut _, ring.len(), protection, flags, -1, 0) };
            if ours as usize != ring.start {
                return 2;
            }
            rig.backend.shutdown();
            if is_mapped(ring.start) { 0 } else { 3 }
        });
        assert_eq!(code, 0);
    }

    /// A close reaches the peer at once, also while a child that was forked meanwhile keeps the descriptor.
    fn a_close_is_told_while_a_child_keeps_the_connection(rig) {
        let (mut client, token) = rig.connect();
        // SAFETY: the child makes no call but this one, until it is killed.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                // SAFETY: no memory is involved.
                unsafe { libc::pause() };
            }
        }
        rig.close(token);
        rig.until_closed(token);
        client.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        let told = client.read(&mut [0]);
        // SAFETY: ends our child, and takes its status, which nobody asks for.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        assert_eq!(told.unwrap(), 0);
    }

    /// A child that drops the backend, watches and unwatches, harms neither itself nor its parent.
    fn drops_in_a_child_do_nothing_to_the_parent(rig) {
        let (mut client, token) = rig.connect();
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&ours);
        rig.backend.watch(fd, m0_platform::Interest::READ).unwrap();
        client.write_all(b"before").unwrap();
        rig.until_received(token, 6);
        rig.block_sending(token);
        for way in 0..4 {
            let code = in_child(|| {
                match way {
                    0 => rig.backend.shutdown(),
                    1 => {
                        rig.backend.unwatch(fd);
                        assert!(rig.backend.watch(fd, m0_platform::Interest::default()).is_err());
                        rig.backend.shutdown();
                        rig.backend.shutdown();
                    }
                    2 => {
                        // A child that goes on as if it were the parent is told that the backend is not its own.
                        rig.backend.pause_accept(rig.listener);
                        rig.backend.pause_receive(token);
                        rig.backend.receive(token);
                        rig.backend.close(token);
                        let _ = rig.backend.next();
                        let _ = rig.backend.submit(); // there may be nothing to submit, which is no error
                        assert!(rig.backend.wait(None).is_err());
                        rig.backend.shutdown();
                        assert!(rig.backend.wait(None).is_err());
                    }
                    _ => {
                        let (other, _) =
                            m0_platform::open(m0_platform::Choice::Only(rig.backend.kind()), &Default::default()).unwrap();
                        drop(std::mem::replace(&mut rig.backend, other));
                    }
                }
                0
            });
            assert_eq!(code, 0);
        }
        client.write_all(b"after").unwrap();
        rig.until_received(token, 11);
        theirs.write_all(b"x").unwrap();
        rig.until("the foreign descriptor is found", |rig| rig.foreign.iter().any(|(found, _)| *found == fd));
        rig.backend.unwatch(fd);
        let reader = crate::rig::read_on_thread(client, 4 + (32 << 20));
        rig.until_sent(token, 1);
        let (_client, bytes) = reader.join().unwrap();
        assert!(bytes[4..] == pattern(32 << 20, 3));
        let _another = rig.connect();
    }
}
