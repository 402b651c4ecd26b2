//! The system calls that the standard library does not offer, each once, with its portable fallback (R10).
//!
//! Every function here retries EINTR, and none of them raises SIGPIPE.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use socket2::SockRef;

#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
const SEND_FLAGS: libc::c_int = libc::MSG_NOSIGNAL;
/// Where there is no MSG_NOSIGNAL the accepted socket has SO_NOSIGPIPE.
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
const SEND_FLAGS: libc::c_int = 0;

/// Calls `call` until it is not interrupted; a negative result becomes errno.
fn retry(mut call: impl FnMut() -> libc::ssize_t) -> io::Result<usize> {
    loop {
        if let Ok(done) = usize::try_from(call()) {
            return Ok(done);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// `recv(2)`; zero is the end of file.
pub(crate) fn recv(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the kernel writes at most `buffer.len()` bytes to it and does not keep the pointer.
    retry(|| unsafe { libc::recv(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) })
}

/// `send(2)` of the first piece that is not empty, or `sendmsg(2)` of both.
pub(crate) fn send(fd: BorrowedFd<'_>, first: &[u8], second: &[u8]) -> io::Result<usize> {
    let one = match (first.is_empty(), second.is_empty()) {
        (false, true) => first,
        (true, _) => second,
        (false, false) => return send_both(fd, first, second),
    };
    // SAFETY: the kernel reads at most `one.len()` bytes of it and does not keep the pointer.
    retry(|| unsafe { libc::send(fd.as_raw_fd(), one.as_ptr().cast(), one.len(), SEND_FLAGS) })
}

fn send_both(fd: BorrowedFd<'_>, first: &[u8], second: &[u8]) -> io::Result<usize> {
    let mut pieces = [iovec(first), iovec(second)];
    // SAFETY: all-zero is a valid msghdr: null pointers with zero lengths.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = pieces.as_mut_ptr();
    message.msg_iovlen = 2;
    // SAFETY: `message` points at two iovecs that outlive the call, and they at two slices that do; the kernel only
    // reads them.
    retry(|| unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, SEND_FLAGS) })
}

/// A slice as the kernel wants it. Only for calls that read.
pub(crate) fn iovec(slice: &[u8]) -> libc::iovec {
    libc::iovec {
        iov_base: slice.as_ptr().cast_mut().cast(),
        iov_len: slice.len(),
    }
}

/// `accept4(2)`: close-on-exec and non-blocking.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: null address and length ask for no address.
    let fd = retry(|| unsafe {
        libc::accept4(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags) as libc::ssize_t
    })?;
    Ok(own(fd))
}

/// `accept(2)`, then close-on-exec, non-blocking and without SIGPIPE.
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    use std::os::fd::AsFd;
    // SAFETY: null address and length ask for no address.
    let fd = retry(|| unsafe {
        libc::accept(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut()) as libc::ssize_t
    })?;
    let socket = own(fd);
    SockRef::from(&socket).set_cloexec(true)?;
    #[cfg(target_vendor = "apple")]
    SockRef::from(&socket).set_nosigpipe(true)?;
    set_nonblocking(socket.as_fd(), true)?;
    Ok(socket)
}

fn own(fd: usize) -> OwnedFd {
    let fd = RawFd::try_from(fd).expect("the kernel returns descriptors as int");
    // SAFETY: the kernel just made `fd` for us, nobody else owns it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// `sendfile(2)`: how much went; zero where the file ends.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn sendfile(socket: BorrowedFd<'_>, file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<usize> {
    let mut offset = libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    // SAFETY: `offset` is a valid off_t that the kernel updates and does not keep.
    retry(|| unsafe { libc::sendfile(socket.as_raw_fd(), file.as_raw_fd(), &raw mut offset, len) })
}

/// `sendfile(2)` as macOS has it: how much went, also when it would block after some; zero where the file ends.
#[cfg(target_vendor = "apple")]
pub(crate) fn sendfile(socket: BorrowedFd<'_>, file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<usize> {
    let offset = libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    retry(|| {
        let mut went = libc::off_t::try_from(len).unwrap_or(libc::off_t::MAX);
        let (from, to, none) = (file.as_raw_fd(), socket.as_raw_fd(), std::ptr::null_mut());
        // SAFETY: `went` is a valid off_t, in: how much, out: how much went; no headers.
        let result = unsafe { libc::sendfile(from, to, offset, &raw mut went, none, 0) };
        some_or_failed(result, went)
    })
}

/// `sendfile(2)` as FreeBSD has it: how much went, also when it would block after some; zero where the file ends.
#[cfg(target_os = "freebsd")]
pub(crate) fn sendfile(socket: BorrowedFd<'_>, file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<usize> {
    let offset = libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    retry(|| {
        let mut went: libc::off_t = 0;
        let (from, to, none) = (file.as_raw_fd(), socket.as_raw_fd(), std::ptr::null_mut());
        // SAFETY: `went` is a valid off_t for the call to fill; no headers.
        let result = unsafe { libc::sendfile(from, to, offset, len, none, &raw mut went, 0) };
        some_or_failed(result, went)
    })
}

/// An error counts only when nothing went before it: the next call gives it again.
#[cfg(any(target_vendor = "apple", target_os = "freebsd"))]
fn some_or_failed(result: libc::c_int, went: libc::off_t) -> libc::ssize_t {
    if result != 0 && went == 0 {
        return -1;
    }
    libc::ssize_t::try_from(went).unwrap_or(libc::ssize_t::MAX)
}

/// Sets or clears O_NONBLOCK of the open file, in one call (FIONBIO, `ioctl_tty(2)` and `socket(7)`).
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    let mut on = libc::c_int::from(on);
    // SAFETY: FIONBIO reads one int through the pointer and does not keep it.
    retry(|| unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONBIO, &raw mut on) as libc::ssize_t }).map(drop)
}

/// Sends FIN. A socket whose peer is gone already is not worth an error: the next send or receive reports it.
pub(crate) fn shutdown_write(fd: BorrowedFd<'_>) {
    let _ = SockRef::from(&fd).shutdown(std::net::Shutdown::Write);
}

/// Makes the close of a socket a reset: nothing unsent is sent any more.
pub(crate) fn reset_on_close(fd: BorrowedFd<'_>) {
    // A socket that is broken already needs no reset.
    let _ = SockRef::from(&fd).set_linger(Some(std::time::Duration::ZERO));
}

/// Ends both directions: whatever is blocked on the socket comes back, and the peer is sent FIN, which the close of a
/// descriptor does only where no forked child has kept another.
pub(crate) fn shutdown_both(fd: BorrowedFd<'_>) {
    // ENOTCONN: it was over already.
    let _ = SockRef::from(&fd).shutdown(std::net::Shutdown::Both);
}

/// A bell: an eventfd that is never read. It is watched for edges, and every write is one (`epoll(7)`). With `rung` the
/// first look finds it.
#[cfg(target_os = "linux")]
pub(crate) fn bell(rung: bool) -> io::Result<OwnedFd> {
    let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
    // SAFETY: no pointers.
    retry(|| unsafe { libc::eventfd(u32::from(rung), flags) as libc::ssize_t }).map(own)
}

/// Rings a bell. Its counter would have to be rung 2^64 times to fill.
#[cfg(target_os = "linux")]
pub(crate) fn ring(bell: BorrowedFd<'_>) {
    let one: u64 = 1;
    // SAFETY: eight readable bytes, which is what an eventfd takes (eventfd(2)).
    let written = unsafe { libc::write(bell.as_raw_fd(), (&raw const one).cast(), 8) };
    debug_assert_eq!(written, 8, "an eventfd takes a write until its counter is full");
}

/// Takes the socket's pending error (SO_ERROR).
pub(crate) fn take_error(fd: BorrowedFd<'_>) -> Option<io::Error> {
    SockRef::from(&fd).take_error().unwrap_or_else(Some)
}

/// The peer's address of a TCP connection.
pub(crate) fn peer_addr(fd: BorrowedFd<'_>) -> Option<SocketAddr> {
    SockRef::from(&fd).peer_addr().ok()?.as_socket()
}

/// Our address of a TCP connection or listener.
pub(crate) fn local_addr(fd: BorrowedFd<'_>) -> Option<SocketAddr> {
    SockRef::from(&fd).local_addr().ok()?.as_socket()
}

/// Whether an accept failed with something that does not pass by itself: descriptors or memory are short, another process has
/// shut the socket down (EINVAL), a filter of system calls forbids it (EPERM). What passes is a connection that was gone
/// before it was taken, by its own error or by one of the network's (`accept(2)`), a signal, and a cancel of ours.
pub(crate) fn is_lasting(error: &io::Error) -> bool {
    #[cfg(target_os = "linux")]
    if error.raw_os_error() == Some(libc::ENONET) {
        return false;
    }
    !matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNABORTED
                | libc::ECONNRESET
                | libc::ETIMEDOUT
                | libc::EPROTO
                | libc::ENOPROTOOPT
                | libc::EOPNOTSUPP
                | libc::ENETDOWN
                | libc::ENETUNREACH
                | libc::EHOSTDOWN
                | libc::EHOSTUNREACH
                | libc::EINTR
                | libc::EAGAIN
                | libc::ECANCELED
        )
    )
}

/// Which process this is, in the line of forks: compares equal until a fork, in the parent for ever.
///
/// The only state of this crate that is not a backend's: what it counts belongs to the process. A handler that
/// `pthread_atfork(3)` runs in every child keeps it, so that asking costs a load and not a system call.
pub(crate) fn process_generation() -> u32 {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the handler only adds to an atomic, which is allowed in the child of a process with threads.
        let result = unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
        assert_eq!(result, 0, "pthread_atfork fails only without memory");
    });
    GENERATION.load(Ordering::Relaxed)
}

static GENERATION: AtomicU32 = AtomicU32::new(0);

extern "C" fn count_fork() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Whether this is a forked child of the process in which `creator` was taken.
pub(crate) fn is_other_process(creator: u32) -> bool {
    GENERATION.load(Ordering::Relaxed) != creator
}
