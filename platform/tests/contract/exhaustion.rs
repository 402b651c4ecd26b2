//! More senders than receive buffers, and queues far too short: everything arrives all the same.

use std::io::Write;
use std::time::Duration;

use m0_platform::Options;

use crate::contract;
use crate::rig::pattern;

contract! {
    /// Fifty senders share four small buffers.
    [options = Options { recv_buffers: 4, recv_buffer_size: 1024, ..Options::default() }]
    fn more_senders_than_buffers(rig) {
        let clients: Vec<_> = (0..50).map(|_| rig.connect()).collect();
        let tokens: Vec<_> = clients.iter().map(|(_, token)| *token).collect();
        let writers: Vec<_> = clients
            .into_iter()
            .enumerate()
            .map(|(number, (mut client, _))| {
                std::thread::spawn(move || client.write_all(&pattern(100_000, number as u64)).map(|()| client))
            })
            .collect();
        for (number, token) in tokens.iter().enumerate() {
            rig.until_received(*token, 100_000);
            assert!(rig.seen(*token).received == pattern(100_000, number as u64));
        }
        let clients: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap().unwrap()).collect();
        drop(clients);
        for token in tokens {
            rig.until_ended(token);
        }
    }

    /// The same while half of them are paused now and then.
    [options = Options { recv_buffers: 2, recv_buffer_size: 256, ring_entries: 2 }]
    fn starved_paused_and_closed(rig) {
        let clients: Vec<_> = (0..30).map(|_| rig.connect()).collect();
        let tokens: Vec<_> = clients.iter().map(|(_, token)| *token).collect();
        let writers: Vec<_> = clients
            .into_iter()
            .map(|(mut client, _)| {
                std::thread::spawn(move || {
                    // Fails where the connection is closed below.
                    let _ = client.write_all(&pattern(50_000, 1));
                    client
                })
            })
            .collect();
        for round in 0..200_usize {
            rig.turn(Some(Duration::from_millis(1)));
            let token = tokens[round % 30];
            match round % 4 {
                0 if !rig.closing.contains(&token) => rig.pause(token),
                _ if round % 30 == 7 => rig.close(token),
                _ => {}
            }
        }
        let open: Vec<_> = tokens.into_iter().filter(|token| !rig.closing.contains(token)).collect();
        assert!(open.len() >= 20);
        for token in open {
            rig.receive(token);
            rig.until_received(token, 50_000);
            assert!(rig.seen(token).received == pattern(50_000, 1));
        }
        rig.until("the writers are done", |_| writers.iter().all(|writer| writer.is_finished()));
    }
}
