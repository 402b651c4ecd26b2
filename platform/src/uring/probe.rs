//! Finds out whether io_uring works here, by using it: a ring, a buffer ring, and a multishot receive.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use io_uring::{cqueue, opcode, types};

use super::buffers::{Buffers, GROUP};
use super::ring::Ring;
use crate::probe::Failure;

/// Tries everything that the backend stands on.
pub(crate) fn probe() -> Result<(), Failure> {
    let mut ring = Ring::new(8).map_err(|error| setup_failure(&error))?;
    let buffers = Buffers::new(&ring, 2, 64).map_err(|error| failure("registering a buffer ring", &error))?;
    let result = receive_once(&mut ring, &buffers);
    drop(ring); // before the buffers that it points at
    drop(buffers);
    result
}

fn receive_once(ring: &mut Ring, buffers: &Buffers) -> Result<(), Failure> {
    ring.enable().map_err(|error| failure("enabling the ring", &error))?;
    let (ours, mut theirs) = UnixStream::pair().map_err(|error| failure("socketpair", &error))?;
    let entry = opcode::RecvMulti::new(types::Fd(ours.as_raw_fd()), GROUP)
        .build()
        .user_data(1);
    // SAFETY: the receive writes to provided buffers only, which outlive the ring. What the entry names is no memory: the
    // request holds the socket's file once it is submitted, which the first wait does.
    unsafe { ring.push(entry) };
    theirs
        .write_all(b"m0")
        .map_err(|error| failure("writing to a socketpair", &error))?;
    let first = wait_for_one(ring)?;
    let index = cqueue::buffer_select(first.flags());
    match (first.result(), index) {
        (2, Some(index)) if buffers.bytes(index, 2) == b"m0" && cqueue::more(first.flags()) => {}
        (result, _) if result < 0 => {
            return Err(failure("a multishot receive", &io::Error::from_raw_os_error(-result)));
        }
        _ => {
            return Err(Failure::Unusable(
                "io_uring: this kernel has no multishot receive".to_owned(),
            ));
        }
    }
    drop(theirs);
    let last = wait_for_one(ring)?;
    if cqueue::more(last.flags()) {
        return Err(Failure::Unusable(
            "io_uring: a multishot receive did not end at the end of file".to_owned(),
        ));
    }
    Ok(())
}

fn wait_for_one(ring: &mut Ring) -> Result<cqueue::Entry, Failure> {
    let mut reaped = VecDeque::new();
    // More than one try, since a signal ends a wait early.
    for _ in 0..10 {
        ring.wait(Some(Duration::from_millis(500)))
            .map_err(|error| failure("io_uring_enter", &error))?;
        ring.reap(&mut reaped);
        if let Some(entry) = reaped.pop_front() {
            return Ok(entry);
        }
    }
    Err(Failure::Unusable("io_uring: a receive did not complete".to_owned()))
}

/// Why a ring could not be made, in the words that help an operator.
pub(super) fn setup_failure(error: &io::Error) -> Failure {
    let hint = match error.raw_os_error() {
        Some(libc::EPERM) => match std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").as_deref() {
            Ok(value @ ("1\n" | "2\n")) => format!("kernel.io_uring_disabled={}", value.trim()),
            _ => "blocked by a seccomp profile?".to_owned(),
        },
        Some(libc::ENOSYS) => "not in this kernel, or blocked by a seccomp profile".to_owned(),
        Some(libc::EINVAL) => "needs Linux 6.1 or later".to_owned(),
        _ => return failure("io_uring_setup", error),
    };
    Failure::Unusable(format!("io_uring_setup: {} ({hint})", errno_name(error)))
}

/// A step that failed.
pub(super) fn failure(step: &str, error: &io::Error) -> Failure {
    crate::probe::classify(&format!("io_uring: {step}"), error)
}

fn errno_name(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM) => "EPERM",
        Some(libc::ENOSYS) => "ENOSYS",
        Some(libc::EINVAL) => "EINVAL",
        _ => "failed",
    }
}
