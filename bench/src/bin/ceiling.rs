//! A server without HTTP and without Python: what the backends and the load generator allow at most.
//!
//! `ceiling PORT io_uring|epoll`. It counts the ends of heads in what arrives and answers each with the same bytes; it
//! runs until a signal ends it. Only for comparison with the arms of bench/run.py.

#![forbid(unsafe_code)]
// R10 is about what serves; this program is a measuring device.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::io;
use std::net::TcpListener;
use std::process::ExitCode;

use m0_platform::{Backend, Choice, Completion, Kind, Options, SendBuf, Token};

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 13\r\n\r\nHello, world!";
const HEAD_END: &[u8] = b"\r\n\r\n";

/// What a connection has open.
#[derive(Debug, Default)]
struct Client {
    /// How many bytes of [`HEAD_END`] the input so far ends with.
    matched: usize,
    /// Answers that wait for the send in flight.
    owed: usize,
    sending: bool,
    spare: Vec<u8>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let kind = match arguments.get(1).map(String::as_str) {
        Some("io_uring") => Kind::IoUring,
        Some("epoll") => Kind::Epoll,
        _ => {
            eprintln!("usage: ceiling PORT io_uring|epoll");
            return ExitCode::from(2);
        }
    };
    match serve(arguments[0].parse().unwrap_or(8000), kind) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn serve(port: u16, kind: Kind) -> io::Result<()> {
    let (mut backend, _) =
        m0_platform::open(Choice::Only(kind), &Options::default()).map_err(|why| io::Error::other(why.sentence))?;
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    listener.set_nonblocking(true)?;
    backend.listen(listener.into())?;
    eprintln!("ceiling ready on http://127.0.0.1:{port} (backend {})", kind.name());
    let mut clients: Vec<Client> = Vec::new();
    loop {
        backend.wait(None)?;
        while let Some(completion) = backend.next() {
            match completion {
                Completion::Accepted { token, .. } => {
                    let index = token.index as usize;
                    if clients.len() <= index {
                        clients.resize_with(index + 1, Client::default);
                    }
                    clients[index] = Client::default();
                    backend.receive(token);
                }
                Completion::Received { token, chunk } => {
                    let client = &mut clients[token.index as usize];
                    client.owed += heads(&mut client.matched, backend.bytes(&chunk));
                    backend.recycle(chunk);
                    answer(&mut *backend, client, token);
                }
                Completion::Sent { token, result, buf } => {
                    let client = &mut clients[token.index as usize];
                    client.sending = false;
                    client.spare = buf.bytes;
                    match result {
                        Ok(()) => answer(&mut *backend, client, token),
                        Err(_) => backend.close(token),
                    }
                }
                Completion::ReceiveEnded { token, .. } => backend.close(token),
                Completion::AcceptFailed { error, .. } => return Err(error),
                Completion::Closed { .. } | Completion::Foreign { .. } | Completion::FileSent { .. } => {}
            }
        }
    }
}

/// Sends what is owed, unless a send is in flight.
fn answer(backend: &mut dyn Backend, client: &mut Client, token: Token) {
    if client.sending || client.owed == 0 {
        return;
    }
    let mut bytes = std::mem::take(&mut client.spare);
    bytes.clear();
    for _ in 0..std::mem::take(&mut client.owed) {
        bytes.extend_from_slice(RESPONSE);
    }
    client.sending = true;
    backend.send(
        token,
        SendBuf {
            bytes,
            ..SendBuf::default()
        },
    );
}

/// Ends of heads in `input`, also one that began in an earlier piece.
fn heads(matched: &mut usize, input: &[u8]) -> usize {
    let mut found = 0;
    for byte in input {
        *matched = match *byte {
            byte if byte == HEAD_END[*matched] => *matched + 1,
            b'\r' => 1,
            _ => 0,
        };
        if *matched == HEAD_END.len() {
            *matched = 0;
            found += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::heads;

    #[test]
    fn heads_are_counted_across_every_split() {
        let input = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\r\n\r\n";
        for at in 0..input.len() {
            let mut matched = 0;
            assert_eq!(
                heads(&mut matched, &input[..at]) + heads(&mut matched, &input[at..]),
                2,
                "split at {at}"
            );
        }
    }
}
