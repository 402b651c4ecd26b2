//! What `kqueue(2)` promises of the filters and flags that are used here, of the kernel's and of the emulation alike.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::{EventFilter, EventFlag, FilterFlag, NOTE_TRIGGER, Queue, kevent};

const READ: EventFilter = EventFilter::EVFILT_READ;
const WRITE: EventFilter = EventFilter::EVFILT_WRITE;
const USER: EventFilter = EventFilter::EVFILT_USER;
const ADD: EventFlag = EventFlag::EV_ADD;
const DELETE: EventFlag = EventFlag::EV_DELETE;
const CLEAR: EventFlag = EventFlag::EV_CLEAR;
const ONESHOT: EventFlag = EventFlag::EV_ONESHOT;
const RECEIPT: EventFlag = EventFlag::EV_RECEIPT;
/// Nothing that is expected takes this long.
const PATIENCE: Duration = Duration::from_secs(20);
/// Enough for what must not come.
const A_WHILE: Duration = Duration::from_millis(20);

fn change(fd: RawFd, filter: EventFilter, flags: EventFlag, udata: usize) -> kevent {
    let mut change = kevent::new(usize::try_from(fd).unwrap(), filter, flags, FilterFlag::empty());
    change.udata = std::ptr::without_provenance_mut(udata);
    change
}

/// What a call with these changes finds.
fn call(queue: &Queue, changes: &[kevent], room: usize, timeout: Duration) -> Vec<kevent> {
    let mut events = vec![kevent::new(0, READ, EventFlag::empty(), FilterFlag::empty()); room];
    let count = queue.kevent(changes, &mut events, Some(timeout)).unwrap();
    events.truncate(count);
    events
}

fn set(queue: &Queue, fd: RawFd, filter: EventFilter, flags: EventFlag, udata: usize) {
    let changes = [change(fd, filter, flags, udata)];
    assert_eq!(queue.kevent(&changes, &mut [], Some(Duration::ZERO)).unwrap(), 0);
}

/// Filters and udata of what is found.
fn found(queue: &Queue, timeout: Duration) -> Vec<(EventFilter, usize)> {
    let events = call(queue, &[], 16, timeout);
    events.iter().map(|event| (event.filter, event.udata.addr())).collect()
}

fn errno(event: &kevent) -> i32 {
    assert!(event.flags.contains(EventFlag::EV_ERROR));
    i32::try_from(event.data).unwrap()
}

fn over(event: &kevent) -> bool {
    event.flags.contains(EventFlag::EV_EOF)
}

fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

#[test]
fn with_clear_an_arrival_is_told_once_and_the_next_one_again() {
    let queue = Queue::new().unwrap();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    set(&queue, ours.as_raw_fd(), READ, ADD | CLEAR, 7);
    assert!(found(&queue, Duration::ZERO).is_empty());
    for _ in 0..3 {
        theirs.write_all(b"x").unwrap();
        assert_eq!(found(&queue, PATIENCE), [(READ, 7)]);
        assert!(
            found(&queue, A_WHILE).is_empty(),
            "nothing was read, and nothing has come"
        );
    }
}

#[test]
fn what_was_there_before_it_was_added_is_told() {
    let queue = Queue::new().unwrap();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(b"x").unwrap();
    let add = change(ours.as_raw_fd(), READ, ADD | CLEAR, 7);
    let events = call(&queue, &[add], 16, Duration::ZERO);
    assert_eq!(events.len(), 1, "by the call that adds it");
    assert_eq!((events[0].ident, events[0].udata.addr()), (add.ident, 7));
}

#[test]
fn without_clear_it_is_told_until_it_is_read() {
    let queue = Queue::new().unwrap();
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    set(&queue, ours.as_raw_fd(), READ, ADD, 7);
    theirs.write_all(b"x").unwrap();
    for _ in 0..3 {
        assert_eq!(found(&queue, PATIENCE), [(READ, 7)]);
    }
    ours.read_exact(&mut [0]).unwrap();
    assert!(found(&queue, A_WHILE).is_empty());
}

#[test]
fn the_filters_of_a_descriptor_do_not_disturb_each_other() {
    let queue = Queue::new().unwrap();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let fd = ours.as_raw_fd();
    theirs.write_all(b"x").unwrap();
    set(&queue, fd, READ, ADD | CLEAR, 1);
    set(&queue, fd, WRITE, ADD, 2);
    let mut both = found(&queue, PATIENCE);
    both.sort_by_key(|(_, udata)| *udata);
    assert_eq!(both, [(READ, 1), (WRITE, 2)]);
    assert_eq!(
        found(&queue, Duration::ZERO),
        [(WRITE, 2)],
        "the level stays, the edge is spent"
    );
    set(&queue, fd, WRITE, DELETE, 0);
    assert!(
        found(&queue, A_WHILE).is_empty(),
        "and a change of the one is no edge of the other"
    );
    theirs.write_all(b"x").unwrap();
    assert_eq!(found(&queue, PATIENCE), [(READ, 1)]);
}

#[test]
fn oneshot_tells_once_and_is_gone() {
    let queue = Queue::new().unwrap();
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let fd = ours.as_raw_fd();
    set(&queue, fd, WRITE, ADD | ONESHOT, 7);
    assert_eq!(found(&queue, PATIENCE), [(WRITE, 7)]);
    assert!(found(&queue, A_WHILE).is_empty());
    let gone = call(&queue, &[change(fd, WRITE, DELETE, 0)], 1, Duration::ZERO);
    assert_eq!(errno(&gone[0]), libc::ENOENT);
    set(&queue, fd, WRITE, ADD | ONESHOT, 8);
    assert_eq!(found(&queue, PATIENCE), [(WRITE, 8)]);
}

#[test]
fn a_full_socket_is_told_when_it_has_room() {
    let queue = Queue::new().unwrap();
    let (mut ours, mut theirs) = tcp();
    ours.set_nonblocking(true).unwrap();
    let mut written = 0;
    while let Ok(count) = ours.write(&[0; 65536]) {
        written += count;
    }
    set(&queue, ours.as_raw_fd(), WRITE, ADD | ONESHOT, 7);
    assert!(found(&queue, A_WHILE).is_empty());
    theirs.read_exact(&mut vec![0; written]).unwrap();
    assert_eq!(found(&queue, PATIENCE), [(WRITE, 7)]);
    assert!(ours.write(b"x").is_ok());
}

#[test]
fn to_add_again_is_to_change_and_to_look_anew() {
    let queue = Queue::new().unwrap();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let fd = ours.as_raw_fd();
    set(&queue, fd, READ, ADD | CLEAR, 1);
    theirs.write_all(b"x").unwrap();
    assert_eq!(found(&queue, PATIENCE), [(READ, 1)]);
    set(&queue, fd, READ, ADD | CLEAR, 2);
    assert_eq!(found(&queue, PATIENCE), [(READ, 2)]);
    assert!(found(&queue, A_WHILE).is_empty());
}

#[test]
fn a_reader_is_told_the_end_with_the_bytes_before_it_and_the_error_of_a_reset() {
    let queue = Queue::new().unwrap();
    let ((mut client, server), (other, reset)) = (tcp(), tcp());
    set(&queue, server.as_raw_fd(), READ, ADD | CLEAR, 1);
    client.write_all(b"last words").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let mut events = call(&queue, &[], 16, PATIENCE);
    while !over(&events[0]) {
        events = call(&queue, &[], 16, PATIENCE); // the bytes came first
    }
    assert_eq!(events[0].fflags, FilterFlag::empty(), "an orderly end");
    let mut words = String::new();
    (&server).read_to_string(&mut words).unwrap();
    assert_eq!(words, "last words");

    set(&queue, reset.as_raw_fd(), READ, ADD | CLEAR, 2);
    socket2::SockRef::from(&other).set_linger(Some(Duration::ZERO)).unwrap();
    drop(other);
    let events = call(&queue, &[], 16, PATIENCE);
    assert!(over(&events[0]) && events[0].udata.addr() == 2);
    assert_ne!(events[0].fflags, FilterFlag::empty(), "the socket's error");
    assert!(
        reset.take_error().unwrap().is_some(),
        "which is still there to be taken"
    );
}

#[test]
fn pipes_tell_the_end_on_both_sides() {
    let queue = Queue::new().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    set(&queue, reader.as_raw_fd(), READ, ADD, 1);
    assert!(found(&queue, A_WHILE).is_empty());
    drop(writer);
    let events = call(&queue, &[], 16, PATIENCE);
    assert!(events.len() == 1 && over(&events[0]));
    drop(reader);
    let (reader, writer) = std::io::pipe().unwrap();
    set(&queue, writer.as_raw_fd(), WRITE, ADD | CLEAR, 2);
    let events = call(&queue, &[], 16, PATIENCE);
    assert!(events.len() == 1 && !over(&events[0]));
    drop(reader);
    let events = call(&queue, &[], 16, PATIENCE);
    assert!(events.len() == 1 && over(&events[0]));
}

#[test]
fn a_change_that_fails_is_an_event_and_the_others_are_made() {
    let queue = Queue::new().unwrap();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let fd = ours.as_raw_fd();
    theirs.write_all(b"x").unwrap();
    let nobody = 1_000_000;
    let changes = [
        change(nobody, READ, ADD, 1),
        change(fd, READ, ADD, 2),
        change(fd, WRITE, DELETE, 3),
        change(nobody, USER, EventFlag::empty(), 4),
    ];
    let events = call(&queue, &changes, 16, PATIENCE);
    let errors: Vec<(usize, i32)> = events.iter().map(|event| (event.udata.addr(), errno(event))).collect();
    assert_eq!(errors, [(1, libc::EBADF), (3, libc::ENOENT), (4, libc::ENOENT)]);
    assert_eq!(found(&queue, PATIENCE), [(READ, 2)], "only then what is pending");
}

#[test]
fn without_room_for_its_error_a_call_fails_and_stops() {
    let queue = Queue::new().unwrap();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(b"x").unwrap();
    let changes = [change(1_000_000, READ, ADD, 1), change(ours.as_raw_fd(), READ, ADD, 2)];
    let error = queue.kevent(&changes, &mut [], None).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    assert!(found(&queue, A_WHILE).is_empty());
}

#[test]
fn with_receipts_every_change_is_answered_and_nothing_pending_is_taken() {
    let queue = Queue::new().unwrap();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let fd = ours.as_raw_fd();
    theirs.write_all(b"x").unwrap();
    let changes = [
        change(fd, READ, ADD | CLEAR | RECEIPT, 1),
        change(fd, WRITE, DELETE | RECEIPT, 2),
    ];
    let receipts = call(&queue, &changes, 2, PATIENCE);
    assert_eq!(receipts.iter().map(errno).collect::<Vec<_>>(), [0, libc::ENOENT]);
    assert_eq!(found(&queue, PATIENCE), [(READ, 1)]);
}

#[test]
fn a_user_event_ends_a_wait_of_another_thread_and_many_triggers_are_one_event() {
    let queue = std::sync::Arc::new(Queue::new().unwrap());
    set(&queue, 0, USER, ADD | CLEAR, 7);
    assert!(found(&queue, A_WHILE).is_empty(), "it was not triggered");
    let trigger = || {
        let mut trigger = change(0, USER, EventFlag::empty(), 7);
        trigger.fflags = NOTE_TRIGGER;
        trigger
    };
    for _ in 0..100 {
        let other = queue.clone();
        let thread = std::thread::spawn(move || other.kevent(&[trigger()], &mut [], None).unwrap());
        assert_eq!(found(&queue, PATIENCE), [(USER, 7)]);
        assert_eq!(thread.join().unwrap(), 0, "with no room it returns at once");
    }
    for _ in 0..10 {
        queue.kevent(&[trigger()], &mut [], None).unwrap();
    }
    assert_eq!(found(&queue, PATIENCE), [(USER, 7)]);
    assert!(found(&queue, A_WHILE).is_empty());
}

#[test]
fn a_user_event_is_not_lost_where_there_is_room_for_one_event_only() {
    let queue = Queue::new().unwrap();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(b"x").unwrap();
    set(&queue, ours.as_raw_fd(), READ, ADD, 1);
    set(&queue, 0, USER, ADD | CLEAR, 2);
    let mut trigger = change(0, USER, EventFlag::empty(), 2);
    trigger.fflags = NOTE_TRIGGER;
    queue.kevent(&[trigger], &mut [], None).unwrap();
    let seen: Vec<usize> = (0..4)
        .flat_map(|_| call(&queue, &[], 1, PATIENCE))
        .map(|event| event.udata.addr())
        .collect();
    assert_eq!(seen.iter().filter(|udata| **udata == 2).count(), 1, "{seen:?}");
}

#[test]
fn what_finds_no_room_comes_with_the_next_call() {
    let queue = Queue::new().unwrap();
    let mut pairs: Vec<_> = (0..10).map(|_| UnixStream::pair().unwrap()).collect();
    for (at, (ours, theirs)) in pairs.iter_mut().enumerate() {
        theirs.write_all(b"x").unwrap();
        set(&queue, ours.as_raw_fd(), READ, ADD | CLEAR, at);
    }
    let mut seen = Vec::new();
    while seen.len() < 10 {
        let events = call(&queue, &[], 3, PATIENCE);
        assert!((1..=3).contains(&events.len()));
        seen.extend(events.iter().map(|event| event.udata.addr()));
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..10).collect::<Vec<_>>());
}

#[test]
fn zero_never_blocks_and_a_time_is_waited_for_to_the_microsecond() {
    let queue = Queue::new().unwrap();
    let start = Instant::now();
    for _ in 0..1000 {
        assert!(found(&queue, Duration::ZERO).is_empty());
    }
    assert!(start.elapsed() < Duration::from_secs(5));
    for micros in [300, 300, 20_000] {
        let (time, start) = (Duration::from_micros(micros), Instant::now());
        assert!(found(&queue, time).is_empty());
        let took = start.elapsed();
        assert!(took >= time && took < PATIENCE, "{took:?}");
    }
    // Of many short waits one is over before a millisecond has passed, also on a busy machine.
    let short = (0..200).any(|_| {
        let start = Instant::now();
        found(&queue, Duration::from_micros(50));
        start.elapsed() < Duration::from_micros(900)
    });
    assert!(short, "times are not rounded up to milliseconds");
}

#[test]
fn a_time_that_was_not_used_up_ends_no_later_wait() {
    let queue = Queue::new().unwrap();
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    set(&queue, ours.as_raw_fd(), READ, ADD, 1);
    theirs.write_all(b"x").unwrap();
    assert_eq!(found(&queue, Duration::from_millis(5)).len(), 1);
    ours.read_exact(&mut [0]).unwrap();
    std::thread::sleep(Duration::from_millis(10));
    let start = Instant::now();
    assert!(found(&queue, Duration::from_millis(40)).is_empty());
    assert!(start.elapsed() >= Duration::from_millis(40));
}

#[test]
fn a_closed_descriptor_is_forgotten_and_its_number_is_anothers() {
    let queue = Queue::new().unwrap();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let fd = ours.as_raw_fd();
    set(&queue, fd, READ, ADD | CLEAR, 1);
    theirs.write_all(b"x").unwrap();
    let (fresh, mut other) = UnixStream::pair().unwrap();
    // SAFETY: `fd` is ours, and `ours` goes on owning whatever it names.
    assert_eq!(unsafe { libc::dup2(fresh.as_raw_fd(), fd) }, fd);
    assert!(
        found(&queue, A_WHILE).is_empty(),
        "what had come to the old one is gone with it"
    );
    other.write_all(b"x").unwrap();
    assert!(found(&queue, A_WHILE).is_empty(), "nobody asked about the new one");
    set(&queue, fd, READ, ADD | CLEAR, 2);
    assert_eq!(found(&queue, PATIENCE), [(READ, 2)]);
}

#[test]
fn its_descriptor_polls_readable_while_something_is_pending() {
    let queue = Queue::new().unwrap();
    let readable = || {
        let mut entry = libc::pollfd {
            fd: queue.fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid pollfd.
        unsafe { libc::poll(&raw mut entry, 1, 20) == 1 }
    };
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    set(&queue, ours.as_raw_fd(), READ, ADD | CLEAR, 1);
    assert!(!readable());
    theirs.write_all(b"x").unwrap();
    assert!(readable());
    assert_eq!(found(&queue, Duration::ZERO).len(), 1);
    assert!(!readable());
}
