//! A client on its own thread: it asks, and compares what it receives with the only right answer, byte for byte.

use m0_platform::Sleeper;
use shuttle::rand::{Rng, thread_rng};

use super::network::Network;
use super::script::End;

/// One request.
#[derive(Clone, Debug)]
pub struct Ask {
    pub path: &'static str,
    pub body: usize,
}

impl Ask {
    pub fn get(path: &'static str) -> Ask {
        Ask { path, body: 0 }
    }

    pub fn post(path: &'static str, body: usize) -> Ask {
        Ask { path, body }
    }

    fn bytes(&self) -> Vec<u8> {
        let (path, body) = (self.path, self.body);
        let method = if body == 0 { "GET" } else { "POST" };
        let mut bytes = format!("{method} {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {body}\r\n\r\n").into_bytes();
        bytes.resize(bytes.len() + body, b'b');
        bytes
    }
}

/// What every application answers: its path and how long the request's body was, and much more where the path ends so.
pub fn answer(path: &str, body: usize) -> Vec<u8> {
    let mut bytes = format!("{path} {body}").into_bytes();
    if path.ends_with("/large") {
        bytes.resize(150_000, b'l');
    }
    bytes
}

fn response(ask: &Ask) -> Vec<u8> {
    let body = answer(ask.path, ask.body);
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.into_bytes(), body].concat()
}

/// How a client asks.
#[derive(Clone, Debug)]
pub struct Client {
    pub asks: Vec<Ask>,
    /// All at once, without a look at the answers.
    pub pipelined: bool,
    /// The server may stop before it has answered.
    pub hurried: bool,
}

impl Client {
    /// The client's life, until its connection is closed.
    pub fn run(self, network: &Network) {
        network.join();
        let id = network.net.connect();
        network.stir();
        let mut expected = Vec::new();
        for ask in &self.asks {
            self.send(network, id, &ask.bytes());
            expected.extend(response(ask));
            if !self.pipelined && !self.receive(network, id, &expected) {
                break;
            }
        }
        self.receive(network, id, &expected);
        network.net.end(id, End::Fin);
        network.stir();
        while !self.is_over(network, id) {
            Sleeper::sleep();
        }
        self.compare(network, id, &expected, !self.hurried);
    }

    /// Sends, in up to three segments.
    fn send(&self, network: &Network, id: usize, bytes: &[u8]) {
        let mut cuts = [thread_rng().gen_range(0..bytes.len()), bytes.len() - 1];
        cuts.sort_unstable();
        for segment in [&bytes[..cuts[0]], &bytes[cuts[0]..cuts[1]], &bytes[cuts[1]..]] {
            if !segment.is_empty() {
                network.net.send(id, segment);
                network.stir();
            }
        }
    }

    /// Waits for all that is expected so far. Whether the connection goes on.
    fn receive(&self, network: &Network, id: usize, expected: &[u8]) -> bool {
        loop {
            let (received, over) = (network.net.peer(id, |peer| peer.out.len()), self.is_over(network, id));
            if received >= expected.len() || over {
                self.compare(network, id, expected, !self.hurried);
                return !over;
            }
            Sleeper::sleep();
        }
    }

    fn is_over(&self, network: &Network, id: usize) -> bool {
        network.net.peer(id, |peer| peer.fin || peer.closed || peer.reset)
            || self.hurried && network.net.is_arriving(id) && !network.net.accepting().0
    }

    /// Nothing but the answers, each once and in order (R8); all of them, if the server was given the time.
    fn compare(&self, network: &Network, id: usize, expected: &[u8], complete: bool) {
        let received = network.net.peer(id, |peer| peer.out.clone());
        let text = String::from_utf8(received).expect("what the applications say");
        let text = text.replace("connection: close\r\n", "");
        assert!(expected.starts_with(text.as_bytes()), "{self:?} received {text:.400}");
        assert!(
            !complete || text.len() == expected.len(),
            "{self:?} received only {text:.400}"
        );
    }
}
