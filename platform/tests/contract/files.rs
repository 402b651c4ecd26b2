//! Sending files without reading them into this process.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::contract;
use crate::rig::{pattern, read_on_thread};
use crate::site::reset;

/// A file without a name.
fn file(bytes: &[u8]) -> File {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("m0-contract-{}-{number}", std::process::id()));
    let mut file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    std::fs::remove_file(path).unwrap();
    file.write_all(bytes).unwrap();
    file
}

contract! {
    fn all_of_eight_mebibytes(rig) {
        let (client, token) = rig.connect();
        let bytes = pattern(8 << 20, 1);
        let reader = read_on_thread(client, bytes.len());
        rig.backend.send_file(token, file(&bytes).into(), 0, bytes.len() as u64);
        rig.until("the file went", |rig| !rig.seen(token).files.is_empty());
        assert_eq!(*rig.seen(token).files[0].as_ref().unwrap(), bytes.len() as u64);
        assert!(reader.join().unwrap().1 == bytes);
        assert_eq!(rig.backend.send_progress(token), bytes.len() as u64);
    }

    /// A range, between two ordinary sends; the descriptor's own position does not matter.
    fn a_range_between_sends(rig) {
        let (client, token) = rig.connect();
        let bytes = pattern(3 << 20, 2);
        let reader = read_on_thread(client, 4 + (1 << 20) + 4);
        rig.send(token, b"head");
        rig.backend.send_file(token, file(&bytes).into(), 12_345, 1 << 20);
        rig.until("the file went", |rig| !rig.seen(token).files.is_empty());
        rig.send(token, b"tail");
        let (_client, got) = reader.join().unwrap();
        assert!(got[..4] == *b"head" && got[4..4 + (1 << 20)] == bytes[12_345..12_345 + (1 << 20)]);
        assert_eq!(&got[4 + (1 << 20)..], b"tail");
    }

    /// A file that is shorter than was asked for: the number says how much there was.
    fn shorter_than_asked(rig) {
        let (client, token) = rig.connect();
        let reader = read_on_thread(client, 1000);
        rig.backend.send_file(token, file(&pattern(1500, 3)).into(), 500, 1 << 20);
        rig.until("the file went", |rig| !rig.seen(token).files.is_empty());
        assert_eq!(*rig.seen(token).files[0].as_ref().unwrap(), 1000);
        assert!(reader.join().unwrap().1 == pattern(1500, 3)[500..]);
        rig.backend.send_file(token, file(b"short").into(), 5, 10);
        rig.until("nothing went", |rig| rig.seen(token).files.len() == 2);
        assert_eq!(*rig.seen(token).files[1].as_ref().unwrap(), 0);
    }

    fn nothing_of_a_file(rig) {
        let (_client, token) = rig.connect();
        rig.backend.send_file(token, file(b"something").into(), 0, 0);
        rig.until("nothing went", |rig| !rig.seen(token).files.is_empty());
        assert_eq!(*rig.seen(token).files[0].as_ref().unwrap(), 0);
    }

    /// What cannot be sent is an error, and the connection goes on.
    fn not_a_file(rig) {
        let (_client, token) = rig.connect();
        let (reader, _writer) = std::io::pipe().unwrap();
        rig.backend.send_file(token, OwnedFd::from(reader), 0, 10);
        rig.until("it failed", |rig| !rig.seen(token).files.is_empty());
        assert!(rig.seen(token).files[0].is_err());
        rig.send(token, b"on we go");
    }

    /// Receiving goes on while the file is stuck; a FIN that is asked for follows the last byte.
    fn receiving_beside_a_file(rig) {
        let (mut client, token) = rig.connect();
        let bytes = pattern(24 << 20, 4);
        rig.backend.send_file(token, file(&bytes).into(), 0, bytes.len() as u64);
        rig.backend.shutdown_write(token);
        client.write_all(b"not reading yet").unwrap();
        rig.until_received(token, 15);
        assert!(rig.seen(token).files.is_empty(), "nobody has this much room");
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            client.read_to_end(&mut got).unwrap();
            (client, got)
        });
        rig.until("the file went", |rig| !rig.seen(token).files.is_empty());
        rig.until("the peer has read the FIN", |_| reader.is_finished());
        let (mut client, got) = reader.join().unwrap();
        assert!(got == bytes);
        client.write_all(b"thanks").unwrap();
        rig.until_received(token, 21);
    }

    fn reset_while_a_file_is_stuck(rig) {
        let (client, token) = rig.connect();
        let bytes = pattern(24 << 20, 5);
        rig.backend.send_file(token, file(&bytes).into(), 0, bytes.len() as u64);
        rig.turns_for(std::time::Duration::from_millis(30));
        reset(client);
        rig.until("it failed", |rig| !rig.seen(token).files.is_empty());
        assert!(rig.seen(token).files[0].is_err());
    }

    fn closed_while_a_file_is_stuck(rig) {
        let (_client, token) = rig.connect();
        let bytes = pattern(24 << 20, 6);
        rig.backend.send_file(token, file(&bytes).into(), 0, bytes.len() as u64);
        rig.turns_for(std::time::Duration::from_millis(30));
        rig.close(token);
        rig.until_closed(token);
        assert_eq!(rig.seen(token).order, "FC");
        assert!(rig.seen(token).files[0].is_err());
    }
}
