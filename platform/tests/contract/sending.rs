//! Sending: one and two pieces, small and large, to readers that are slow or gone.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::time::Duration;

use bytes::Bytes;
use m0_platform::SendBuf;

use crate::contract;
use crate::rig::{pattern, read_on_thread};
use crate::site::reset;

contract! {
    /// Every mix of empty, small and large pieces.
    fn two_pieces_of_any_size(rig) {
        let (mut client, token) = rig.connect();
        for (count, (head, body)) in
            [(0, 1), (1, 0), (1, 1), (300, 70_000), (3 << 20, 3 << 20), (300, 8 << 20), (8 << 20, 0), (0, 8 << 20)]
                .into_iter()
                .enumerate()
        {
            let (head, body) = (pattern(head, 1), pattern(body, 2));
            let reader = read_on_thread(client, head.len() + body.len());
            rig.backend.send(token, SendBuf { bytes: head.clone(), body: Bytes::from(body.clone()) });
            rig.until_sent(token, count + 1);
            assert!(rig.seen(token).sent[count].is_ok());
            let (back, bytes) = reader.join().unwrap();
            assert!(bytes[..head.len()] == head && bytes[head.len()..] == body);
            client = back;
        }
    }

    /// With a socket buffer of the smallest size every send goes in many pieces.
    fn partial_sends_through_a_small_buffer(rig) {
        // The accepted socket inherits the listener's buffer size.
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.set_send_buffer_size(4096).unwrap();
        socket.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
        socket.listen(16).unwrap();
        rig.address = socket.local_addr().unwrap().as_socket().unwrap();
        let listener = rig.backend.listen(socket.into()).unwrap();
        let (client, token) = rig.connect();
        let (head, body) = (pattern(100_000, 4), pattern(8 << 20, 5));
        let reader = read_on_thread(client, head.len() + body.len());
        rig.backend.send(token, SendBuf { bytes: head.clone(), body: Bytes::from(body.clone()) });
        rig.until_sent(token, 1);
        assert!(rig.seen(token).sent[0].is_ok());
        let (_client, bytes) = reader.join().unwrap();
        assert!(bytes[..head.len()] == head && bytes[head.len()..] == body);
        rig.backend.unlisten(listener);
    }

    /// The buffer comes back with its allocation and its bytes; the body comes back empty.
    fn the_buffer_comes_back(rig) {
        let (_client, token) = rig.connect();
        let mut bytes = Vec::with_capacity(777);
        bytes.extend_from_slice(b"reuse me");
        let place = bytes.as_ptr();
        rig.backend.send(token, SendBuf { bytes, body: Bytes::from_static(b"body") });
        let start = std::time::Instant::now();
        let buf = loop {
            rig.backend.wait(Some(Duration::from_millis(10))).unwrap();
            if let Some(m0_platform::Completion::Sent { buf, result, .. }) = rig.backend.next() {
                result.unwrap();
                break buf;
            }
            assert!(start.elapsed() < crate::rig::PATIENCE);
        };
        assert_eq!((buf.bytes.as_ptr(), buf.bytes.capacity()), (place, 777));
        assert!(buf.body.is_empty());
    }

    /// `send_progress` moves while a slow reader reads, and stands still while it does not.
    fn progress_tells_slow_from_stuck(rig) {
        let (mut client, token) = rig.connect();
        rig.block_sending(token);
        let mut values = HashSet::from([rig.backend.send_progress(token)]);
        let mut read = 0;
        let mut buffer = vec![0; 256 * 1024];
        while read < 16 << 20 {
            read += client.read(&mut buffer).unwrap();
            rig.turn(Some(Duration::ZERO));
            values.insert(rig.backend.send_progress(token));
        }
        assert!(values.len() >= 4, "sixteen mebibytes were read and progress was {values:?}");
        assert!(rig.seen(token).sent.is_empty());
    }

    /// Receiving goes on while a send is stuck, and the other way round.
    fn both_directions_at_once(rig) {
        let (mut client, token) = rig.connect();
        rig.block_sending(token);
        client.write_all(b"I am not reading").unwrap();
        rig.until_received(token, 16);
        rig.pause(token);
        client.write_all(b"more").unwrap();
        let total = 4 + (32 << 20);
        let reader = read_on_thread(client, total);
        rig.until_sent(token, 1);
        let (_client, bytes) = reader.join().unwrap();
        assert!(bytes[..4] == *b"head" && bytes[4..] == pattern(32 << 20, 3));
        rig.receive(token);
        rig.until_received(token, 20);
    }

    /// A FIN that is asked for while a send is in flight follows the last byte.
    fn shutdown_waits_for_the_send(rig) {
        let (mut client, token) = rig.connect();
        let body = pattern(8 << 20, 6);
        rig.backend.send(token, SendBuf { bytes: Vec::new(), body: Bytes::from(body.clone()) });
        rig.backend.shutdown_write(token);
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            client.read_to_end(&mut bytes).unwrap();
            bytes
        });
        rig.until_sent(token, 1);
        rig.until("the peer has read the FIN", |_| reader.is_finished());
        assert!(reader.join().unwrap() == body);
    }

    /// A send to a peer that is gone fails; there is no SIGPIPE.
    fn send_after_a_reset_fails(rig) {
        let (client, token) = rig.connect();
        reset(client);
        rig.until_ended(token);
        for _ in 0..3 {
            let before = rig.seen(token).sent.len();
            rig.backend.send(token, SendBuf { bytes: b"hello?".to_vec(), body: Bytes::from_static(b"anyone?") });
            rig.until_sent(token, before + 1);
            assert!(rig.seen(token).sent[before].is_err());
        }
    }

    /// A send that is stuck fails when its peer is reset.
    fn reset_ends_a_stuck_send(rig) {
        let (client, token) = rig.connect();
        rig.block_sending(token);
        reset(client);
        rig.until_sent(token, 1);
        assert!(rig.seen(token).sent[0].is_err());
    }

    /// A thousand sends back to back, each after the one before was over.
    fn one_after_the_other(rig) {
        let (client, token) = rig.connect();
        let reader = read_on_thread(client, 5000);
        for number in 0..1000_u32 {
            rig.send(token, format!("{number:04}\n").as_bytes());
        }
        let (_client, bytes) = reader.join().unwrap();
        let expected: String = (0..1000).map(|number| format!("{number:04}\n")).collect();
        assert_eq!(bytes, expected.into_bytes());
    }
}
