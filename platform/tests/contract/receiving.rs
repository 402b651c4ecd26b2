//! Receiving: chunks, pauses, both kinds of end.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use crate::contract;
use crate::rig::{pattern, reset};

contract! {
    /// Bytes arrive in order; the end of file comes after all of them; the other direction goes on.
    fn bytes_then_end_of_file(rig) {
        let (mut client, token) = rig.connect();
        let bytes = pattern(300_000, 1);
        let writer = std::thread::spawn({
            let bytes = bytes.clone();
            move || {
                client.write_all(&bytes).unwrap();
                client.shutdown(Shutdown::Write).unwrap();
                client
            }
        });
        rig.until_ended(token);
        assert!(rig.seen(token).received == bytes);
        assert!(matches!(rig.seen(token).ended, Some(Ok(()))));
        let mut client = writer.join().unwrap();
        rig.send(token, b"still here");
        let mut answer = [0; 10];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"still here");
    }
}
