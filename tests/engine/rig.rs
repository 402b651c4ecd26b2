//! An engine between a scripted network and a scripted host, on a clock that the test moves.

use std::collections::{HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::time::Duration;

use bytes::Bytes;
use m0_platform::{Clock, Hand, Waker};
use m0serve::config::LogLevel;
use m0serve::engine::{Engine, Settings, Stats};
use m0serve::handoff::{ExchangeId, Frame, Job, Request, ResponseHead, Stop, Why};
use m0serve::log::Logger;

use super::script::{End, Flow, Net};

/// The test's hold on everything.
pub struct Rig {
    pub engine: Engine,
    pub net: Net,
    hand: Hand,
    /// What the engine said and the test has not looked at.
    pub jobs: VecDeque<Job>,
    /// Exchanges that the host was told of and has not released.
    held: HashSet<ExchangeId>,
    stopped: u32,
}

/// Settings without the fields that vary.
pub fn settings() -> Settings {
    Settings {
        date: false,
        server: None,
        ..Settings::default()
    }
}

/// A response's head with these fields.
pub fn head(status: u16, fields: &[(&str, &str)]) -> Box<ResponseHead> {
    let mut head = ResponseHead::new(status).expect("a good status");
    for (name, value) in fields {
        head.push(name.as_bytes(), value.as_bytes()).expect("a good field");
    }
    Box::new(head)
}

impl Rig {
    pub fn new(settings: Settings) -> Rig {
        Rig::logging(settings, |clock| Logger::new(LogLevel::Error, false, clock))
    }

    pub fn logging(settings: Settings, log: impl FnOnce(Clock) -> Logger) -> Rig {
        let net = Net::default();
        let (clock, hand) = Clock::manual();
        let mut engine = Engine::new(net.backend(Waker::silent(), None), settings, clock.clone(), log(clock));
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        engine.listen(OwnedFd::from(listener)).expect("a scripted listener");
        Rig {
            engine,
            net,
            hand,
            jobs: VecDeque::new(),
            held: HashSet::new(),
            stopped: 0,
        }
    }

    /// One turn without a host: flush, wait, pass.
    pub fn turn(&mut self) {
        self.engine.flush();
        self.engine.wait(Some(Duration::ZERO)).expect("a scripted wait");
        self.engine.pass(|_, _| {});
        self.listen();
    }

    /// Takes what the engine has said.
    pub fn listen(&mut self) {
        while let Some(job) = self.engine.pop_job() {
            match &job {
                Job::Request(request) => assert!(self.held.insert(request.id), "an exchange is new (R4)"),
                Job::Stopped => {
                    self.stopped += 1;
                    continue;
                }
                _ => {}
            }
            self.jobs.push_back(job);
        }
    }

    /// Turns until nothing moves; a thing that moves for ever is a defect.
    pub fn settle(&mut self) {
        for _ in 0..100_000 {
            let before = (self.net.activity(), self.jobs.len());
            self.turn();
            let after = (self.net.activity(), self.jobs.len());
            if before == after && !self.engine.is_ready() {
                return;
            }
        }
        panic!("it never comes to rest");
    }

    /// Time passes in steps no longer than a tick of the timing wheel, with turns between, as it does for a server.
    pub fn pass_time(&mut self, time: Duration) {
        let step = Duration::from_millis(250);
        let mut left = time;
        while left > Duration::ZERO {
            self.hand.advance(left.min(step));
            left = left.saturating_sub(step);
            self.turn();
        }
        self.settle();
    }

    /// Time passes all at once, as while the application keeps the loop.
    pub fn keep_the_loop(&mut self, time: Duration) {
        self.hand.advance(time);
    }

    pub fn connect(&mut self) -> usize {
        let id = self.net.connect();
        self.settle();
        id
    }

    /// The client sends bytes, as one segment.
    pub fn feed(&mut self, id: usize, bytes: impl AsRef<[u8]>) {
        self.net.send(id, bytes.as_ref());
        self.settle();
    }

    pub fn end(&mut self, id: usize, end: End) {
        self.net.end(id, end);
        self.settle();
    }

    /// A new connection that has sent this.
    pub fn client(&mut self, bytes: impl AsRef<[u8]>) -> usize {
        let id = self.connect();
        self.feed(id, bytes);
        id
    }

    /// What the client has received since this was last asked.
    pub fn out(&mut self, id: usize) -> String {
        let bytes = self.net.peer(id, |peer| std::mem::take(&mut peer.out));
        String::from_utf8(bytes).expect("responses of text")
    }

    pub fn flow(&mut self, id: usize, flow: Flow) {
        self.net.peer(id, |peer| peer.flow = flow);
        self.settle();
    }

    /// FIN or the end has reached the client.
    pub fn is_over(&self, id: usize) -> bool {
        self.net.peer(id, |peer| peer.closed || peer.fin)
    }

    /// Bytes of a client that nobody has read.
    pub fn unread(&self, id: usize) -> usize {
        self.net.unread(id)
    }

    /// A client that has seen the end of its connection closes its own side.
    pub fn leave(&mut self, id: usize) {
        assert!(
            self.is_over(id) && !self.is_closed(id),
            "the server ends it, and lingers"
        );
        self.end(id, End::Fin);
        assert!(self.is_closed(id));
    }

    pub fn is_closed(&self, id: usize) -> bool {
        self.net.peer(id, |peer| peer.closed)
    }

    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// The next thing that the host was told, which is a request.
    pub fn request(&mut self) -> Box<Request> {
        match self.jobs.pop_front() {
            Some(Job::Request(request)) => request,
            other => panic!("a request was expected: {other:?}"),
        }
    }

    /// Body bytes that the host was told of next, as long as nothing else comes.
    pub fn body(&mut self, id: ExchangeId) -> Vec<u8> {
        let mut body = Vec::new();
        while let Some(Job::Body(of, bytes)) = self.jobs.front() {
            assert_eq!(*of, id);
            body.extend_from_slice(bytes);
            self.jobs.pop_front();
        }
        body
    }

    /// Credit that the host was given next, as long as nothing else comes.
    pub fn credit(&mut self, id: ExchangeId) -> u32 {
        let mut credit = 0;
        while let Some(Job::Credit(of, charged)) = self.jobs.front() {
            assert_eq!(*of, id);
            credit += charged;
            self.jobs.pop_front();
        }
        credit
    }

    /// The next thing that the host was told, in short.
    pub fn told(&mut self) -> String {
        match self.jobs.pop_front() {
            None => "nothing".into(),
            Some(Job::Request(request)) => format!("request {}", text(request.head.get(request.head.path))),
            Some(Job::Body(_, bytes)) => format!("body {}", bytes.len()),
            Some(Job::BodyEnd(_)) => "end".into(),
            Some(Job::BodyAborted(_, why)) => format!("aborted {why:?}"),
            Some(Job::Credit(_, charged)) => format!("credit {charged}"),
            Some(Job::FileSent(_, well)) => format!("file {well}"),
            Some(Job::Reset(_, why)) => format!("reset {why:?}"),
            Some(Job::Stopped) => unreachable!("counted by the turn"),
        }
    }

    /// The host says something; it has its effect with the next turn.
    pub fn push(&mut self, frame: Frame) {
        if let Frame::Released(id) = &frame {
            self.held.remove(id);
        }
        self.engine.apply(frame);
    }

    pub fn say(&mut self, frame: Frame) {
        self.push(frame);
        self.settle();
    }

    pub fn say_head(&mut self, id: ExchangeId, status: u16, fields: &[(&str, &str)]) {
        self.say(Frame::Head(id, head(status, fields)));
    }

    pub fn say_chunk(&mut self, id: ExchangeId, bytes: &[u8]) {
        self.say(Frame::Chunk(id, Bytes::copy_from_slice(bytes)));
    }

    /// A whole response, and the release.
    pub fn answer(&mut self, id: ExchangeId, body: &str) {
        let length = body.len().to_string();
        self.push(Frame::Head(id, head(200, &[("content-length", &length)])));
        if !body.is_empty() {
            self.push(Frame::Chunk(id, Bytes::copy_from_slice(body.as_bytes())));
        }
        self.push(Frame::End(id));
        self.say(Frame::Released(id));
    }

    /// The next request is answered; its exchange.
    pub fn serve(&mut self, body: &str) -> ExchangeId {
        let id = self.request().id;
        self.answer(id, body);
        id
    }

    pub fn stop(&mut self, how: Stop) {
        self.say(Frame::Stop(how));
    }

    /// How often the host was told that the drain is over.
    pub fn stopped(&self) -> u32 {
        self.stopped
    }

    /// Every client leaves and the host lets go of everything: nothing is left (R9). Ends each test.
    pub fn over(mut self) {
        let clients = self.net.peer_count();
        for id in 0..clients {
            self.net.end(id, End::Reset);
        }
        self.settle();
        for id in std::mem::take(&mut self.held) {
            self.push(Frame::Abort(id, Why::PeerGone));
            self.push(Frame::Released(id));
        }
        self.settle();
        let stats = self.engine.stats();
        assert_eq!(
            (stats.connections, stats.exchanges),
            (0, 0),
            "what is made is freed (R9)"
        );
        assert_eq!(
            (self.net.open(), self.engine.jobs()),
            (0, 0),
            "what is made is freed (R9)"
        );
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A GET of a path.
pub fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n")
}

/// A POST with so much body announced.
pub fn post(path: &str, length: usize, more: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n{more}\r\n")
}

/// What [`Rig::answer`] puts on the wire for this body.
pub fn answered(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}
