//! Accepting: addresses, options, pauses, several listeners, many connections.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use socket2::SockRef;

use crate::contract;
use crate::rig::{Rig, pattern};
use crate::site::{Client, reset};

/// The server's end of a connection, found among this process's descriptors.
fn server_end(client: &Client) -> OwnedFd {
    let (ours, theirs) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
    for entry in std::fs::read_dir("/dev/fd").unwrap() {
        let fd: i32 = entry.unwrap().file_name().to_str().unwrap().parse().unwrap();
        // SAFETY: the number may be stale, then every call on it fails; nothing is closed through it.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
        let socket = SockRef::from(&borrowed);
        let addresses = (socket.peer_addr(), socket.local_addr());
        if let (Ok(peer), Ok(local)) = addresses
            && (peer.as_socket(), local.as_socket()) == (Some(ours), Some(theirs))
        {
            return borrowed.try_clone_to_owned().unwrap();
        }
    }
    panic!("no descriptor is the other end of {ours}");
}

fn listen_on(rig: &mut Rig, address: &str) -> SocketAddr {
    let socket = TcpListener::bind(address).unwrap();
    let bound = socket.local_addr().unwrap();
    rig.backend.listen(socket.into()).unwrap();
    bound
}

contract! {
    fn addresses_of_a_specific_listener(rig) {
        let (client, token) = rig.connect();
        assert_eq!(rig.seen(token).peer, Some(client.local_addr().unwrap()));
        assert_eq!(rig.seen(token).local, Some(client.peer_addr().unwrap()));
    }

    fn addresses_of_a_wildcard_listener(rig) {
        let port = listen_on(rig, "0.0.0.0:0").port();
        rig.address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (client, token) = rig.connect();
        assert_eq!(rig.seen(token).peer, Some(client.local_addr().unwrap()));
        assert_eq!(rig.seen(token).local, Some(client.peer_addr().unwrap()));
    }

    fn ipv6(rig) {
        if TcpListener::bind("[::1]:0").is_err() {
            eprintln!("SKIPPED: no IPv6 on this machine");
            return;
        }
        rig.address = listen_on(rig, "[::1]:0");
        let (mut client, token) = rig.connect();
        assert_eq!(rig.seen(token).peer, Some(client.local_addr().unwrap()));
        assert_eq!(rig.seen(token).local, Some(client.peer_addr().unwrap()));
        client.write_all(b"six").unwrap();
        rig.until_received(token, 3);
    }

    /// A UNIX socket works like TCP and has no addresses.
    fn unix_socket(rig) {
        let path = std::env::temp_dir().join(format!("m0-contract-{}-{}.sock", std::process::id(), rig.address.port()));
        let socket = UnixListener::bind(&path).unwrap();
        rig.backend.listen(socket.into()).unwrap();
        let mut client = rig.site.connect_local(&path).unwrap();
        let token = rig.accept();
        assert_eq!((rig.seen(token).peer, rig.seen(token).local), (None, None));
        let bytes = pattern(3 << 20, 1);
        let writer = std::thread::spawn({
            let bytes = bytes.clone();
            move || {
                client.write_all(&bytes).unwrap();
                let mut back = vec![0; bytes.len()];
                client.read_exact(&mut back).unwrap();
                back
            }
        });
        rig.until_received(token, bytes.len());
        assert!(rig.seen(token).received == bytes);
        rig.send(token, &bytes);
        assert!(writer.join().unwrap() == bytes);
        rig.until_ended(token);
        std::fs::remove_file(path).unwrap();
    }

    /// Accepted sockets do not delay small segments, and do not leak into child processes.
    fn options_of_accepted_sockets(rig) {
        let (client, _token) = rig.connect();
        let server = server_end(&client);
        assert!(SockRef::from(&server).tcp_nodelay().unwrap());
        // The duplicate has its own close-on-exec flag; what counts is the original's.
        let original = std::fs::read_dir("/dev/fd")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
            .filter(|fd| *fd != server.as_raw_fd())
            .find(|fd| {
                // SAFETY: as in `server_end`.
                let borrowed = unsafe { BorrowedFd::borrow_raw(*fd) };
                let peer = SockRef::from(&borrowed).peer_addr().ok().and_then(|address| address.as_socket());
                peer == Some(client.local_addr().unwrap())
            })
            .unwrap();
        // SAFETY: F_GETFD takes no pointer.
        let flags = unsafe { libc::fcntl(original, libc::F_GETFD) };
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
    }

    /// While paused the backlog fills; what waits there is accepted after.
    fn pause_and_resume(rig) {
        rig.backend.pause_accept(rig.listener);
        rig.turns_for(Duration::from_millis(10));
        let clients: Vec<Client> = (0..20).map(|_| rig.dial().unwrap()).collect();
        rig.turns_for(Duration::from_millis(60));
        assert!(rig.accepted.is_empty());
        rig.backend.resume_accept(rig.listener);
        rig.until("all are accepted", |rig| rig.accepted.len() == clients.len());
        // In quick succession it ends up as it was last told.
        for _ in 0..3 {
            rig.backend.pause_accept(rig.listener);
            rig.backend.resume_accept(rig.listener);
        }
        let _last = rig.connect();
    }

    /// A listener that is let go refuses new clients; its connections live on.
    fn unlisten(rig) {
        let (mut client, token) = rig.connect();
        rig.backend.unlisten(rig.listener);
        rig.until("nobody listens", |rig| rig.dial().is_err());
        client.write_all(b"still").unwrap();
        rig.until_received(token, 5);
    }

    fn two_listeners(rig) {
        let first = rig.address;
        let second = listen_on(rig, "127.0.0.1:0");
        for address in [first, second, first, second] {
            rig.address = address;
            let (_client, token) = rig.connect();
            assert_eq!(rig.seen(token).local, Some(address));
        }
    }

    /// A burst of clients that are gone before they are accepted, and one that stays.
    fn clients_that_are_gone_at_once(rig) {
        for _ in 0..100 {
            reset(rig.dial().unwrap());
        }
        let mut client = rig.dial().unwrap();
        client.write_all(b"I stay").unwrap();
        rig.until("the one that stays is heard", |rig| rig.seen.values().any(|seen| seen.received == b"I stay"));
    }

    /// A thousand connections, each of which asks and is answered, twice.
    fn a_thousand_connections(rig) {
        m0_platform::thread::raise_open_files().unwrap();
        let mut clients: Vec<_> = (0..1000).map(|_| rig.connect()).collect();
        assert_eq!(rig.backend.open_connections(), 1000);
        for round in 1..=2 {
            for (client, _) in &mut clients {
                client.write_all(b"who am I?").unwrap();
            }
            for (number, (client, token)) in clients.iter_mut().enumerate() {
                rig.until_received(*token, 9 * round);
                rig.send(*token, format!("{number:04}").as_bytes());
                let mut answer = [0; 4];
                client.read_exact(&mut answer).unwrap();
                assert_eq!(answer, format!("{number:04}").as_bytes());
            }
        }
        drop(clients);
        rig.until("all have ended", |rig| rig.seen.values().all(|seen| seen.ended.is_some()));
    }
}
