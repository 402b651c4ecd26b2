//! Closing: what is in flight, what comes after, and the reuse of slots (R3, R4).

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use bytes::Bytes;
use m0_platform::{Options, SendBuf};

use crate::contract;
use crate::rig::pattern;
use crate::site::reset;

contract! {
    /// The peer reads the end of file; `Closed` is the only completion.
    fn idle_connection(rig) {
        let (mut client, token) = rig.connect();
        rig.close(token);
        rig.until_closed(token);
        assert_eq!(rig.seen(token).order, "C");
        assert_eq!(client.read(&mut [0; 8]).unwrap(), 0);
        assert_eq!(rig.backend.open_connections(), 0);
    }

    /// A send in flight gives its failure first, then `Closed`.
    fn with_a_send_in_flight(rig) {
        let (_client, token) = rig.connect();
        rig.block_sending(token);
        rig.close(token);
        rig.until_closed(token);
        assert_eq!(rig.seen(token).order, "SC");
        assert!(rig.seen(token).sent[0].is_err());
    }

    /// A reset is no end of file: the peer knows that what it got is not the whole.
    fn with_a_reset(rig) {
        let (mut client, token) = rig.connect();
        rig.send(token, b"a part");
        client.read_exact(&mut [0; 6]).unwrap();
        rig.reset(token);
        rig.until_closed(token);
        let error = client.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        assert_eq!(rig.backend.open_connections(), 0);
    }

    /// There is none on a UNIX socket: the peer takes what it got for the whole.
    fn with_a_reset_of_a_unix_socket(rig) {
        let name = format!("m0-contract-reset-{}-{}.sock", std::process::id(), rig.address.port());
        let path = std::env::temp_dir().join(name);
        rig.backend.listen(UnixListener::bind(&path).unwrap().into()).unwrap();
        let mut client = rig.site.connect_local(&path).unwrap();
        let token = rig.accept();
        rig.send(token, b"a part");
        client.read_exact(&mut [0; 6]).unwrap();
        rig.reset(token);
        rig.until_closed(token);
        assert_eq!(client.read(&mut [0; 8]).unwrap(), 0);
        std::fs::remove_file(path).unwrap();
    }

    /// What was sent just before reaches the peer, when it fits the socket's buffer.
    fn right_after_a_send(rig) {
        for _ in 0..20 {
            let (mut client, token) = rig.connect();
            rig.backend.send(token, SendBuf { bytes: b"good".to_vec(), body: Bytes::from_static(b"bye") });
            rig.close(token);
            rig.until_closed(token);
            assert_eq!(rig.seen(token).order, "SC");
            let mut bytes = Vec::new();
            client.read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes, b"goodbye");
        }
    }

    /// Bytes that keep coming are dropped: no completion between `close` and `Closed` but the send's.
    fn while_the_peer_sends(rig) {
        for _ in 0..20 {
            let (mut client, token) = rig.connect();
            let writer = std::thread::spawn(move || {
                let noise = pattern(100_000, 9);
                while client.write_all(&noise).is_ok() {}
            });
            rig.until_received(token, 1);
            rig.backend.wait(Some(Duration::from_millis(5))).unwrap(); // found, and not taken
            rig.close(token);
            rig.until_closed(token);
            rig.until("the writer is told", |_| writer.is_finished());
        }
    }

    /// Closed twice is closed once.
    fn twice(rig) {
        let (_client, token) = rig.connect();
        rig.close(token);
        rig.close(token);
        rig.until_closed(token);
        rig.close(token);
        rig.turns_for(Duration::from_millis(20));
        assert_eq!(rig.seen(token).order, "C");
    }

    /// Closed in every state of receiving: paused, holding bytes, at its end, broken.
    fn in_every_state_of_receiving(rig) {
        for state in 0..5 {
            let (mut client, token) = rig.connect();
            if state > 0 {
                rig.pause(token);
            }
            match state {
                2 => client.write_all(b"held").unwrap(),
                3 => client.shutdown(std::net::Shutdown::Write).unwrap(),
                _ => {}
            }
            rig.turns_for(Duration::from_millis(10));
            if state == 4 {
                reset(client);
                rig.until_ended(token);
            }
            rig.close(token);
            rig.until_closed(token);
        }
    }

    /// The slot comes back with another generation; the old token does nothing to the new connection.
    fn old_tokens_do_nothing(rig) {
        let (_client, old) = rig.connect();
        rig.close(old);
        rig.until_closed(old);
        let (mut client, token) = rig.connect();
        assert_eq!(token.index, old.index, "the slot is reused");
        assert_ne!(token.generation, old.generation);
        rig.backend.pause_receive(old);
        rig.backend.shutdown_write(old);
        rig.backend.send(old, SendBuf { bytes: b"ghost".to_vec(), body: Bytes::new() });
        let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        rig.backend.send_file(old, file.into(), 0, 10);
        rig.backend.receive(old);
        rig.backend.close(old);
        assert_eq!(rig.backend.send_progress(old), 0);
        client.write_all(b"alive").unwrap();
        rig.until_received(token, 5);
        rig.send(token, b"indeed");
        let mut answer = [0; 6];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"indeed");
        assert_eq!(rig.seen(token).order, "RS");
    }

    /// Connections that come, say something and are closed at any moment, on very few receive buffers: whatever
    /// path a completion took, its buffer came back, or the transfer at the end would starve.
    [options = Options { recv_buffers: 4, recv_buffer_size: 512, ..Options::default() }]
    fn no_buffer_is_lost_on_any_path(rig) {
        for round in 0..300 {
            let (mut client, token) = rig.connect();
            client.write_all(&pattern(700, round)).unwrap();
            match round % 6 {
                0 => rig.close(token),
                1 => {
                    rig.backend.wait(Some(Duration::from_millis(5))).unwrap();
                    rig.close(token);
                }
                2 => {
                    rig.until_received(token, 1);
                    rig.close(token);
                }
                3 => {
                    rig.pause(token);
                    rig.turns_for(Duration::from_millis(1));
                    rig.close(token);
                }
                4 => {
                    rig.pause(token);
                    rig.turns_for(Duration::from_millis(1));
                    rig.receive(token);
                    rig.until_received(token, 700);
                    rig.close(token);
                }
                _ => {
                    reset(client);
                    rig.until_ended(token);
                    rig.close(token);
                }
            }
            rig.until_closed(token);
        }
        let (mut client, token) = rig.connect();
        let bytes = pattern(200_000, 1);
        client.write_all(&bytes).unwrap();
        rig.until_received(token, bytes.len());
        assert!(rig.seen(token).received == bytes);
    }

    /// `shutdown` with everything in flight closes it all, and a second one does nothing.
    fn shutdown_with_everything_in_flight(rig) {
        let (mut reading, first) = rig.connect();
        let (_stuck, second) = rig.connect();
        rig.block_sending(second);
        reading.write_all(b"unread").unwrap();
        rig.backend.wait(Some(Duration::from_millis(5))).unwrap();
        rig.backend.shutdown();
        assert_eq!(rig.backend.open_connections(), 0);
        // Reset, since bytes were left unread, or an end of file.
        assert!(matches!(reading.read(&mut [0; 8]), Ok(0) | Err(_)));
        assert!(rig.dial().is_err(), "the listener is closed too");
        rig.backend.shutdown();
        for token in [first, second] {
            rig.seen.get_mut(&token).unwrap().closed = true;
        }
    }
}
