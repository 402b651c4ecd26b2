//! What the kqueue backend leaves for the next call, seen from inside: what the contract suite cannot reach.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::kqueue::Kqueue;
use super::{Event, Poller, Readiness};
use crate::backend::{Backend, Completion, EndOfReceive, Token};

/// Nothing that is expected takes this long.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));
/// No process has so many.
const NOBODY: RawFd = 1_000_000;

fn found(poller: &mut Kqueue) -> Vec<Event> {
    let mut events = Vec::new();
    poller.wait(Some(Duration::ZERO), &mut events).unwrap();
    events
}

#[test]
fn what_the_kernel_refuses_is_told_by_the_next_wait_however_it_was_submitted() {
    for submitted in [false, true] {
        let mut poller = Kqueue::new().unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"x").unwrap();
        poller.add_connection(NOBODY, 1).unwrap();
        poller.add_connection(ours.as_raw_fd(), 2).unwrap();
        if submitted {
            poller.submit().unwrap();
        }
        let events = found(&mut poller);
        assert_eq!((events[0].data, events[0].refused), (1, Some(libc::EBADF)));
        assert!(!events[0].readable && !events[0].broken);
        let mut others = events[1..].to_vec();
        others.extend(found(&mut poller));
        assert_eq!(others.len(), 1);
        assert!(others[0].data == 2 && others[0].readable && others[0].refused.is_none());
    }
}

#[test]
fn more_changes_than_one_call_takes_are_all_made() {
    let mut poller = Kqueue::new().unwrap();
    let mut pairs: Vec<_> = (0..400).map(|_| UnixStream::pair().unwrap()).collect();
    for (at, (ours, theirs)) in pairs.iter_mut().enumerate() {
        theirs.write_all(b"x").unwrap();
        poller.add_connection(ours.as_raw_fd(), at as u64).unwrap();
        poller.add_connection(NOBODY, 1000 + at as u64).unwrap();
    }
    let mut seen: Vec<u64> = (0..20)
        .flat_map(|_| found(&mut poller))
        .map(|event| event.data)
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..400).chain(1000..1400).collect::<Vec<u64>>());
}

#[test]
fn what_was_not_said_of_a_closed_connection_is_not_said_of_who_gets_its_number() {
    let mut poller = Kqueue::new().unwrap();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(b"x").unwrap();
    let fd = ours.as_raw_fd();
    poller.add_connection(fd, 1).unwrap();
    poller.await_writable(fd, 1);
    poller.forget_connection(fd);
    assert!(found(&mut poller).is_empty());
    poller.add_connection(fd, 2).unwrap();
    let events = found(&mut poller);
    assert!(events.len() == 1 && events[0].data == 2 && !events[0].writable);
}

#[test]
fn a_closed_poller_gives_errors() {
    let mut poller = Kqueue::new().unwrap();
    let bell = poller.bell(1).unwrap();
    poller.add_connection(NOBODY, 2).unwrap();
    poller.close();
    assert!(poller.wait(PATIENCE, &mut Vec::new()).is_err());
    assert!(poller.set_level(0, 3, crate::Interest::default(), None).is_err());
    poller.submit().unwrap();
    drop(bell);
}

/// A connection that the kernel will not watch would wait for ever.
#[test]
fn a_connection_that_cannot_be_watched_ends() {
    let mut backend = Readiness::<Kqueue>::new().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    backend.listen(OwnedFd::from(listener)).unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"hello").unwrap();
    backend.wait(PATIENCE).unwrap();
    let Some(Completion::Accepted { token, .. }) = backend.next() else {
        panic!("a connection waits");
    };
    assert!(backend.next().is_none());
    // Before it has been registered its number is given to a regular file, which epoll will not watch.
    let fd = socket_of(&mut backend, token);
    let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    // SAFETY: `fd` is the backend's, which goes on owning whatever it names.
    assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), fd) }, fd);
    backend.wait(PATIENCE).unwrap();
    match backend.next() {
        Some(Completion::ReceiveEnded {
            token: ended,
            end: EndOfReceive::Failed(error),
        }) => assert_eq!((ended, error.raw_os_error()), (token, Some(libc::EPERM))),
        other => panic!("{other:?}"),
    }
    backend.close(token);
    backend.wait(PATIENCE).unwrap();
    assert!(matches!(backend.next(), Some(Completion::Closed { .. })));
}

fn socket_of(backend: &mut Readiness<Kqueue>, token: Token) -> RawFd {
    let conn = backend.live(token).expect("it is open");
    conn.socket.as_ref().expect("it is open").as_raw_fd()
}
