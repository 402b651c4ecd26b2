//! The engine with its clients and its host, and what must hold after every turn.
//!
//! - R2, R3, R4: what the host is told of an exchange comes in order, once, and nothing follows a reset;
//! - R7: no more is told, kept, queued or credited than the windows and bounds allow;
//! - R8: each request is told as it was sent; [`super::client`] reads the responses.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use m0_platform::Clock;
use m0serve::config::{LogLevel, Trusted};
use m0serve::engine::{Mounts, Settings};
use m0serve::forwarded::Trust;
use m0serve::handoff::{ExchangeId, Job, Request, WINDOW, Why, charge};
use m0serve::http1::Limits;
use m0serve::log::Logger;

use super::super::rig::Rig;
use super::super::wire::Message;
use super::client::Client;
use super::exchange::{Exchange, Said};
use super::input::After;

/// Bytes of further requests that a connection keeps while it answers one, beside the segment that goes past it.
const KEPT: usize = 32 * 1024;
/// Bytes of responses that may wait on a connection when a further request is told: the high-water mark, and what is in
/// flight (what was composed, and a body behind it).
const QUEUED: usize = 64 * 1024 + (72 + 64) * 1024;

/// What the host hears when it looks.
#[derive(Debug)]
pub enum News {
    Opened(usize),
    Credit(usize, u32),
    Gone(usize),
}

/// Everything.
pub struct World {
    pub rig: Rig,
    pub limits: Limits,
    max_requests: u32,
    pub clients: Vec<Client>,
    /// All exchanges that there were.
    pub exchanges: Vec<Exchange>,
    by_id: HashMap<ExchangeId, usize>,
    news: VecDeque<News>,
    /// What the host holds.
    pub live: Vec<usize>,
    pub accept_fails: u64,
    pub stopping: bool,
    /// It is stopped at once: responses may be lost.
    pub stopped_now: bool,
}

impl World {
    pub fn new(bits: u8) -> World {
        let on = |bit: u8| bits & (1 << bit) != 0;
        let limits = if on(0) {
            Limits {
                max_head: 300,
                max_target: 50,
                max_fields: 5,
                max_body: 2000,
            }
        } else {
            Limits::default()
        };
        let settings = Settings {
            mounts: Mounts::default(),
            limits,
            header_timeout: Duration::from_secs(2),
            body_timeout: Duration::from_secs(2),
            idle_timeout: Duration::from_secs(3),
            max_connections: if on(1) { 2 } else { 0 },
            max_requests: if on(2) { 3 } else { 0 },
            date: on(4),
            server: on(4).then(|| b"fuzz".to_vec()),
            access_log: on(3),
            trust: Trust(Trusted::parse("*").ok()),
        };
        let max_requests = settings.max_requests;
        // Lines are composed as ever, and go nowhere.
        let log = |clock: Clock| Logger::to(LogLevel::Debug, on(3), clock, -1, -1);
        World {
            rig: Rig::logging(settings, log),
            limits,
            max_requests,
            clients: Vec::new(),
            exchanges: Vec::new(),
            by_id: HashMap::new(),
            news: VecDeque::new(),
            live: Vec::new(),
            accept_fails: 0,
            stopping: false,
            stopped_now: false,
        }
    }

    /// The engine's turn, and what it led to.
    pub fn turn(&mut self, after: After) {
        match after {
            After::Nothing => return,
            After::Rest => self.rig.settle(),
            After::Turn | After::Deaf => self.rig.turn(),
        }
        self.observe();
        if after != After::Deaf {
            self.hear();
        }
    }

    /// Looks at what the engine has said and sent.
    pub fn observe(&mut self) {
        while let Some(job) = self.rig.jobs.pop_front() {
            self.told(job);
        }
        for id in 0..self.clients.len() {
            let out = self.rig.net.peer(id, |peer| std::mem::take(&mut peer.out));
            let may_close = self.stopping || self.is_last(&self.clients[id]);
            self.clients[id].receive(&out, &self.exchanges, may_close);
            self.check_client(id);
        }
        let stats = self.rig.stats();
        assert_eq!(stats.requests, self.exchanges.len() as u64, "every request is told");
        assert!(stats.exchanges <= self.exchanges.len() as u64);
    }

    /// Whether the next response is the last that the settings allow it, or one before that may be read with it.
    fn is_last(&self, client: &Client) -> bool {
        self.max_requests != 0 && client.told.len() >= self.max_requests as usize
    }

    fn check_client(&self, id: usize) {
        let client = &self.clients[id];
        let (closed, fin) = self.rig.net.peer(id, |peer| (peer.closed, peer.fin));
        if fin || closed {
            if !client.hurt && !self.stopped_now {
                client.check_ended(&self.exchanges);
            }
            let mut told = client.told.iter().map(|serial| &self.exchanges[*serial]);
            let waits = told.find(|exchange| exchange.is_open());
            assert!(
                waits.is_none(),
                "the host was not told that the connection has ended: {waits:?}"
            );
            return;
        }
        // While a request is answered, what was taken from the socket and is not of it is kept, within a bound.
        let taken = client.total - self.rig.net.unread(id);
        let told: usize = client.sent.iter().take(client.told.len()).map(wire_length).sum();
        if client
            .told
            .last()
            .is_some_and(|serial| self.exchanges[*serial].is_open())
        {
            assert!(
                taken <= told + KEPT + client.largest,
                "{taken} bytes taken, {told} told"
            );
        }
    }

    /// The host looks at what it was told.
    pub fn hear(&mut self) {
        while let Some(news) = self.news.pop_front() {
            match news {
                News::Opened(serial) => self.live.push(serial),
                News::Credit(serial, charged) => {
                    let outstanding = &mut self.exchanges[serial].outstanding;
                    *outstanding = outstanding
                        .checked_sub(charged.into())
                        .expect("credit for what was charged (R7)");
                }
                News::Gone(serial) => self.exchanges[serial].heard_gone = true,
            }
        }
    }

    fn told(&mut self, job: Job) {
        if let Job::Request(request) = &job {
            return self.opened(request);
        }
        let id = job.exchange().expect("the end of a drain is counted by the rig");
        let serial = *self.by_id.get(&id).expect("an exchange that was told");
        let exchange = &mut self.exchanges[serial];
        assert!(!exchange.reset, "{job:?} follows a reset (R2): {exchange:?}");
        let client = &self.clients[exchange.client];
        match job {
            Job::Body(_, bytes) => {
                assert!(!exchange.body_over && !exchange.finish_told, "{exchange:?}");
                let sent = &client.sent[exchange.number];
                take_body(exchange, sent, &bytes, client.largest);
            }
            Job::BodyEnd(_) => {
                let sent = &client.sent[exchange.number];
                assert!(!exchange.body_over && !exchange.finish_told, "{exchange:?}");
                assert!(
                    sent.complete && sent.body.len() == exchange.taken,
                    "an end that is none: {exchange:?}"
                );
                exchange.body_over = true;
            }
            Job::BodyAborted(_, why) => {
                assert!(client.fin && why == Why::PeerFinished, "{why:?}: {exchange:?}");
                assert!(!std::mem::replace(&mut exchange.finish_told, true), "{exchange:?}");
            }
            Job::Credit(_, charged) => {
                exchange.credited += u64::from(charged);
                assert!(
                    exchange.credited <= exchange.charged,
                    "more than was charged (R7): {exchange:?}"
                );
                self.news.push_back(News::Credit(serial, charged));
            }
            Job::FileSent(..) => {
                exchange.files = exchange.files.checked_sub(1).expect("a file that was said");
            }
            Job::Reset(..) => {
                exchange.reset = true;
                assert_ne!(exchange.said, Said::Done, "a reset of what is complete: {exchange:?}");
                self.news.push_back(News::Gone(serial));
            }
            Job::Request(_) | Job::Stopped => unreachable!("handled above"),
        }
    }

    fn opened(&mut self, request: &Request) {
        let serial = self.exchanges.len();
        let token = request.connection;
        let at = (0..self.clients.len()).find(|id| self.rig.net.peer(*id, |peer| peer.token == token && !peer.closed));
        // A connection that was closed in the same turn, perhaps.
        let at = at.or_else(|| (0..self.clients.len()).find(|id| self.rig.net.peer(*id, |peer| peer.token == token)));
        let at = at.expect("a client");
        let client = &mut self.clients[at];
        let number = client.told.len();
        let sent = client.sent.get(number).expect("a request that was sent");
        let mut exchange = Exchange::new(request, serial, at, number);
        let mut head = Message::begin(&request.head);
        (head.body, head.complete) = (sent.body.clone(), sent.complete);
        assert_eq!(&head, sent, "a request as it was sent (R8)");
        take_body(&mut exchange, sent, &request.body, client.largest);
        if request.body_complete {
            assert!(sent.complete && sent.body.len() == exchange.taken);
        }
        if let Some(before) = client.told.last() {
            assert_ne!(self.exchanges[*before].said, Said::Open, "one at a time");
        }
        let said: usize = client.told.iter().map(|told| self.exchanges[*told].body.len()).sum();
        let received = client.received + self.rig.net.peer(at, |peer| peer.out.len());
        assert!(
            said <= received + QUEUED,
            "{said} bytes said, {received} received, and a further request is told (R7)"
        );
        client.told.push(serial);
        self.exchanges.push(exchange);
        self.by_id.insert(request.id, serial);
        self.news.push_back(News::Opened(serial));
    }
}

/// Body bytes are told: those that were sent, in order, and not many more than the host is ready to take.
fn take_body(exchange: &mut Exchange, sent: &Message, bytes: &[u8], largest: usize) {
    if bytes.is_empty() {
        return;
    }
    let end = exchange.taken + bytes.len();
    assert!(
        sent.body.get(exchange.taken..end) == Some(bytes),
        "the body as it was sent: {exchange:?}"
    );
    exchange.taken = end;
    exchange.taken_charge += u64::from(charge(bytes.len()));
    let ready = u64::from(WINDOW) + exchange.wanted + (KEPT + largest) as u64;
    assert!(
        exchange.taken_charge <= ready,
        "more than the host is ready to take (R7): {exchange:?}"
    );
}

/// More bytes than a message took on the wire: framing of eight times the body and 64 KiB is allowed.
fn wire_length(message: &Message) -> usize {
    let fields: usize = message
        .fields
        .iter()
        .map(|(name, value)| name.len() + value.len() + 50)
        .sum();
    let line = message.method.len() + message.path.len() + message.query.len() + 200;
    let framing = match message.framing {
        m0serve::handoff::Framing::Chunked => 80 * 1024 + 8 * message.body.len(),
        _ => 0,
    };
    fields + line + message.body.len() + framing
}
