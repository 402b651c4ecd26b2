//! What clients, network, clock and application do.

use std::time::Duration;

use bytes::Bytes;
use m0_platform::{Chunk, Completion, EndOfReceive, SendBuf};
use m0serve::handoff::{Frame, ResponseHead, Stop, Why};

use super::super::script::{End, Flow};
use super::client::Client;
use super::exchange;
use super::input::{PHRASES, Step};
use super::world::World;

/// Clients, at most.
const MOST_CLIENTS: usize = 10;
/// Bytes that a client sends, at most.
const MOST_SENT: usize = 300_000;

impl World {
    pub fn step(&mut self, step: &Step) {
        match step {
            Step::Connect => self.connect(),
            Step::Send(who, bytes) => self.send(*who, &bytes.0),
            Step::Phrase(who, phrase, at, twice) => {
                let bytes = PHRASES[*phrase].as_bytes();
                let (front, back) = bytes.split_at(usize::from(*at).min(bytes.len()));
                self.send(*who, front);
                if *twice {
                    self.send(*who, back);
                }
            }
            Step::Repeat(who, phrase, times) => self.send(*who, PHRASES[*phrase].repeat((*times).into()).as_bytes()),
            Step::Fill(who, length) => {
                let bytes: Vec<u8> = (0..*length).map(|at| b'a' + (at % 26) as u8).collect();
                self.send(*who, &bytes);
            }
            Step::End(who, end) => self.end_client(*who, *end),
            Step::Flow(who, flow) => self.set_flow(*who, *flow),
            Step::Time(tenths) => self.pass_time(Duration::from_millis(100 * u64::from(*tenths))),
            Step::AcceptFails => {
                self.accept_fails += 1;
                self.rig.net.fail_accept();
            }
            Step::LateCompletion(who, kind) => self.late_completion(*who, *kind),
            Step::Stop(now) => self.stop(*now),
            step => self.host(step),
        }
    }

    fn connect(&mut self) {
        if self.clients.len() < MOST_CLIENTS {
            self.rig.net.connect();
            self.clients.push(Client::new(&self.limits));
        }
    }

    fn pick_client(&self, who: u8) -> Option<usize> {
        usize::from(who).checked_rem(self.clients.len())
    }

    fn send(&mut self, who: u8, bytes: &[u8]) {
        let Some(id) = self.pick_client(who) else { return };
        let client = &mut self.clients[id];
        if !bytes.is_empty() && !client.fin && client.total + bytes.len() <= MOST_SENT {
            client.send(bytes);
            self.rig.net.send(id, bytes);
        }
    }

    fn end_client(&mut self, who: u8, end: End) {
        let Some(id) = self.pick_client(who) else { return };
        self.clients[id].fin = true;
        self.clients[id].hurt |= end == End::Reset;
        self.rig.net.end(id, end);
    }

    fn set_flow(&mut self, who: u8, flow: Flow) {
        let Some(id) = self.pick_client(who) else { return };
        self.clients[id].slow = flow != Flow::Free;
        self.clients[id].hurt |= flow == Flow::Broken;
        self.rig.net.peer(id, |peer| peer.flow = flow);
    }

    pub fn pass_time(&mut self, time: Duration) {
        for client in &mut self.clients {
            client.hurt |= client.slow;
        }
        self.rig.pass_time(time);
        self.observe();
    }

    /// What the backend must not say, but what an older generation could: dropped (R3).
    fn late_completion(&mut self, who: u8, kind: u8) {
        let Some(id) = self.pick_client(who) else { return };
        let (token, closed) = self.rig.net.peer(id, |peer| (peer.token, peer.closed));
        if !closed {
            return;
        }
        let gone = || std::io::Error::from_raw_os_error(libc::ECONNRESET);
        let bytes = b"GET /late HTTP/1.1\r\nhost: h\r\n\r\n";
        let buf = SendBuf::default();
        let end = EndOfReceive::Failed(gone());
        let completion = match kind % 6 {
            0 => Completion::Received {
                token,
                chunk: Chunk::new(0, bytes.len() as u32),
            },
            1 => Completion::Sent {
                token,
                result: Ok(()),
                buf,
            },
            2 => Completion::Sent {
                token,
                result: Err(gone()),
                buf,
            },
            3 => Completion::FileSent { token, result: Ok(1) },
            4 => Completion::ReceiveEnded { token, end },
            _ => Completion::Closed { token },
        };
        self.rig.net.make(completion, bytes);
    }

    fn stop(&mut self, now: bool) {
        self.stopping = true;
        self.stopped_now |= now;
        self.rig.push(Frame::Stop(if now { Stop::Now } else { Stop::Drain }));
        // It acts at once: a drain takes what has come, a stop closes.
        self.rig.listen();
        self.observe();
    }

    /// The application, on an exchange that it holds.
    fn host(&mut self, step: &Step) {
        if let Step::LateFrame(which, kind) = step {
            return self.late_frame(*which, *kind);
        }
        let pick = |which: &u8| usize::from(*which).checked_rem(self.live.len()).map(|at| self.live[at]);
        match step {
            Step::Want(which, window) => pick(which)
                .into_iter()
                .for_each(|serial| self.want(serial, (*window).into())),
            Step::Head(which, status, length, close) => {
                if let Some(serial) = pick(which) {
                    self.head(serial, *status, *length, *close);
                }
            }
            Step::Chunk(which, length) => {
                if let Some(serial) = pick(which) {
                    self.chunk(serial, (*length).into());
                }
            }
            Step::Rest(which) => {
                if let Some(serial) = pick(which) {
                    let lacking = self.exchanges[serial].lacking();
                    self.chunk(serial, usize::try_from(lacking).expect("a small body"));
                }
            }
            Step::File(which, offset, length) => {
                if let Some(serial) = pick(which) {
                    self.file(serial, (*offset).into(), usize::from(*length) % exchange::FILE);
                }
            }
            Step::Finish(which) => pick(which).into_iter().for_each(|serial| self.finish(serial)),
            Step::Abort(which) => {
                if let Some(serial) = pick(which) {
                    self.exchanges[serial].plan_abort();
                    self.rig.push(Frame::Abort(self.exchanges[serial].id, Why::HostError));
                }
            }
            Step::Release(which) => pick(which).into_iter().for_each(|serial| self.release(serial)),
            Step::Answer(which, length, sized) => {
                if let Some(serial) = pick(which) {
                    let length = usize::from(*length).min(30_000);
                    self.head(serial, 200, sized.then_some(length as u64), false);
                    self.chunk(serial, length);
                    self.finish(serial);
                    self.release(serial);
                }
            }
            other => unreachable!("not the application's: {other:?}"),
        }
    }

    pub fn want(&mut self, serial: usize, window: u32) {
        let exchange = &mut self.exchanges[serial];
        exchange.wanted += u64::from(window);
        exchange.asked |= exchange.planned.is_none();
        self.rig.push(Frame::WantBody(exchange.id, window));
    }

    pub fn head(&mut self, serial: usize, status: u16, length: Option<u64>, close: bool) {
        let exchange = &mut self.exchanges[serial];
        let mut head = ResponseHead::new(status).expect("a good status");
        let mut push = |name: &[u8], value: &str| head.push(name, value.as_bytes()).expect("a good field");
        push(b"X-Id", &serial.to_string());
        if let Some(length) = length {
            push(b"Content-Length", &length.to_string());
        }
        push(b"transfer-encoding", "gzip, chunked");
        if close {
            push(b"Connection", "x, Close");
        }
        exchange.plan_head(status, length, close);
        self.rig.push(Frame::Head(exchange.id, Box::new(head)));
    }

    /// Sends a body piece if the window has room for it.
    pub fn chunk(&mut self, serial: usize, length: usize) {
        let exchange = &mut self.exchanges[serial];
        if exchange.has_room(length) {
            let bytes = exchange.next_bytes(length);
            exchange.charge(length);
            exchange.plan_body(&bytes, length);
            self.rig.push(Frame::Chunk(exchange.id, Bytes::from(bytes)));
        }
    }

    fn file(&mut self, serial: usize, offset: usize, length: usize) {
        let exchange = &mut self.exchanges[serial];
        let (bytes, found) = exchange::file_bytes(offset, length);
        exchange.files += 1;
        exchange.plan_body(&bytes, found);
        let frame = Frame::File(exchange.id, exchange::open_file(), offset as u64, length as u64);
        self.rig.push(frame);
    }

    pub fn finish(&mut self, serial: usize) {
        self.exchanges[serial].plan_end();
        self.rig.push(Frame::End(self.exchanges[serial].id));
    }

    pub fn release(&mut self, serial: usize) {
        self.exchanges[serial].plan_abort();
        self.exchanges[serial].released = true;
        self.live.retain(|live| *live != serial);
        self.rig.push(Frame::Released(self.exchanges[serial].id));
    }

    /// A frame about an exchange that the host has released, whose slot may be another's by now: dropped (R3).
    fn late_frame(&mut self, which: u8, kind: u8) {
        let released: Vec<usize> = (0..self.exchanges.len())
            .filter(|at| self.exchanges[*at].released)
            .collect();
        let Some(at) = usize::from(which).checked_rem(released.len()) else {
            return;
        };
        let id = self.exchanges[released[at]].id;
        self.rig.push(match kind % 7 {
            0 => Frame::WantBody(id, 1000),
            1 => Frame::Head(id, Box::new(ResponseHead::new(599).expect("a status"))),
            2 => Frame::Chunk(id, Bytes::from_static(b"late")),
            3 => Frame::File(id, exchange::open_file(), 0, 4),
            4 => Frame::End(id),
            5 => Frame::Abort(id, Why::HostError),
            _ => Frame::Released(id),
        });
    }
}
