//! Runs either model on a machine until its clients have had enough.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use m0_platform::{Backend, Chunk, Clock, Completion, Kind, ListenerId, SendBuf, Token, Waker};
use m0serve::config::LogLevel;
use m0serve::engine::{Engine, Settings};
use m0serve::handoff::{Direct, Job, Link, Routes, rings};
use m0serve::log::Logger;
use m0serve::model::pump::LoopThread;

use super::asyncio::{Asyncio, respond};
use super::clients::Clients;
use super::ledger::{Cost, Ledger};
use super::machine::{Machine, REQUEST};
use super::profile::{Handoff, Profile};
use crate::plan::{Model, Nanos};

/// What a cell of the table says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Requests a second.
    pub rate: f64,
    /// CPUs in use.
    pub cores: f64,
    /// Median latency.
    pub p50: Nanos,
    /// 99th percentile.
    pub p99: Nanos,
    /// Answers that it is about.
    pub answers: usize,
    /// Where the time went of the loop's thread, and of asyncio's if that is another.
    pub spent: [Ledger; 2],
}

#[derive(Clone)]
struct Shared(Arc<Mutex<Machine>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Machine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// The machine.
    pub profile: Profile,
    /// Between the pump's threads; of no interest to the other model.
    pub handoff: Handoff,
    /// Which model.
    pub model: Model,
    /// CPUs for the server.
    pub cpus: usize,
    /// Connections, each with a request under way.
    pub connections: usize,
    /// Answers after a warm-up.
    pub answers: usize,
}

/// Runs one cell.
///
/// # Panics
/// When the model stands still.
#[must_use]
pub fn measure(cell: &Cell) -> Figures {
    let (clock, hand) = Clock::manual();
    let waker = Waker::silent();
    let clients = Clients::new(&cell.profile, cell.connections, cell.answers);
    let machine = Machine::new(cell.profile, cell.handoff, cell.cpus, clients, hand, waker.clone());
    let machine = Shared(Arc::new(Mutex::new(machine)));
    let log = Logger::to(LogLevel::Error, false, clock.clone(), -1, -1);
    let backend = Priced {
        machine: machine.clone(),
        waker: waker.clone(),
    };
    let mut engine = Engine::new(Box::new(backend), Settings::default(), clock, log);
    let null = File::open("/dev/null").expect("it is everywhere");
    engine
        .listen(OwnedFd::from(null))
        .expect("a listener without a network");
    let ended = match cell.model {
        Model::Inverted => inverted(&machine, engine),
        Model::Pump => pump(&machine, engine, waker, cell),
    };
    let machine = machine.lock();
    assert!(
        ended.is_err() && machine.clients.are_over(),
        "it ends when the clients have had enough"
    );
    let (spent, latencies) = (machine.spent(), machine.clients.latencies());
    let time = spent[0].total() as f64;
    let part = |of: usize| latencies[latencies.len() * of / 100];
    Figures {
        rate: latencies.len() as f64 * 1e9 / time,
        cores: (spent[0].busy() + spent[1].busy()) as f64 / time,
        p50: part(50),
        p99: part(99),
        answers: latencies.len(),
        spent,
    }
}

/// As `Driver::select` and its handle do it: everything in asyncio's thread.
fn inverted(machine: &Shared, engine: Engine) -> io::Result<()> {
    let mut link = Link::Direct(Box::new(Direct::new(engine)));
    let costs = machine.lock().costs;
    loop {
        link.flush()?;
        let Link::Direct(direct) = &mut link else {
            unreachable!("it was made direct")
        };
        direct.engine.wait(None)?;
        direct.engine.pass(|_, _| {});
        if link.has_jobs() {
            machine.lock().spend(Cost::Iteration, costs.iteration);
        }
        while let Some(job) = link.next_job() {
            if let Job::Request(request) = job {
                machine.lock().spend(Cost::App, costs.app);
                respond(request.id, &mut link);
            }
            if !link.has_jobs() {
                link.flush()?;
            }
        }
    }
}

/// The loop's thread as it is; asyncio's is a part of the machine.
fn pump(machine: &Shared, engine: Engine, to_loop: Waker, cell: &Cell) -> io::Result<()> {
    let to_host = Waker::silent();
    let (host, at_loop) = rings(to_loop, to_host.clone());
    machine.lock().asyncio = Some(Box::new(Asyncio::new(Link::Ring(host), to_host, cell.handoff)));
    // The spin came with the rings.
    let spins = cell.cpus > 1 && cell.handoff == Handoff::Memory;
    let mut run = LoopThread::new(engine, at_loop, Routes::default(), spins);
    while run.turn(None, &|| false)? {}
    Ok(())
}

/// A backend whose calls take the machine's time.
struct Priced {
    machine: Shared,
    waker: Waker,
}

/// What a look at a queue takes, while a loop spins.
const LOOK: Nanos = 30;

impl Backend for Priced {
    fn kind(&self) -> Kind {
        Kind::Epoll
    }
    fn listen(&mut self, _socket: OwnedFd) -> io::Result<ListenerId> {
        Ok(ListenerId(0))
    }
    fn pause_accept(&mut self, _listener: ListenerId) {}
    fn resume_accept(&mut self, _listener: ListenerId) {}
    fn unlisten(&mut self, _listener: ListenerId) {}
    fn receive(&mut self, _token: Token) {}
    fn pause_receive(&mut self, _token: Token) {}
    fn send(&mut self, token: Token, buf: SendBuf) {
        self.machine.lock().send(token, buf);
    }
    fn send_file(&mut self, _token: Token, _file: OwnedFd, _offset: u64, _len: u64) {
        unreachable!("no response is a file");
    }
    fn send_progress(&self, _token: Token) -> u64 {
        0
    }
    fn shutdown_write(&mut self, _token: Token) {}
    fn close(&mut self, _token: Token) {}
    fn reset(&mut self, _token: Token) {}
    fn submit(&mut self) -> io::Result<()> {
        Ok(())
    }
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.machine.lock().wait(timeout)
    }
    fn is_ready(&self) -> bool {
        self.machine.lock().spend(Cost::Look, LOOK);
        false
    }
    fn next(&mut self) -> Option<Completion> {
        self.machine.lock().next()
    }
    fn bytes(&self, _chunk: &Chunk) -> &[u8] {
        REQUEST
    }
    fn recycle(&mut self, _chunk: Chunk) {}
    fn waker(&self) -> Waker {
        self.waker.clone()
    }
    fn open_connections(&self) -> usize {
        0
    }
    fn shutdown(&mut self) {}
}
