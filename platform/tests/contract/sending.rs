//! Sending: one and two pieces, small and large, to readers that are slow or gone.

use bytes::Bytes;
use m0_platform::SendBuf;

use crate::contract;
use crate::rig::{pattern, read_on_thread};

contract! {
    /// Two pieces leave in order, also when together they are far larger than the socket's buffer.
    fn two_pieces_of_any_size(rig) {
        let (client, token) = rig.connect();
        let (head, body) = (pattern(300, 1), pattern(8 << 20, 2));
        let reader = read_on_thread(client, head.len() + body.len());
        rig.backend.send(token, SendBuf { bytes: head.clone(), body: Bytes::from(body.clone()) });
        rig.until_sent(token, 1);
        assert!(rig.seen(token).sent[0].is_ok());
        let (_client, bytes) = reader.join().unwrap();
        assert!(bytes[..head.len()] == head && bytes[head.len()..] == body);
    }
}
