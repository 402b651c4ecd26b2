//! A host without an interpreter: applications that wait, stream, raise and abandon as their plans say.
//!
//! It uses the product's own halves of a body ([`Incoming`], [`Outgoing`]) and checks all that it is told: each request
//! once and in order, every byte of its body, nothing after a reset (R2), no exchange twice (R4), windows kept (R7).

use std::collections::VecDeque;

use bytes::Bytes;
use m0serve::handoff::{ExchangeId, Frame, Job, Outlet, Request, Stop, Why};

use crate::plan::Nanos;
use crate::task::Task;
use crate::world::World;

/// Frames that were said and are not on the link yet.
#[derive(Debug, Default)]
pub struct Said(pub VecDeque<Frame>);

impl Outlet for Said {
    fn push(&mut self, frame: Frame) {
        self.0.push_back(frame);
    }
}

/// The host.
#[derive(Debug)]
pub struct Host {
    /// By the exchange's index.
    tasks: Vec<Option<Box<Task>>>,
    busy: usize,
    /// By client: requests seen.
    seen: Vec<usize>,
    /// What it has to say.
    pub said: Said,
    /// An exchange that it let go of.
    gone: Option<ExchangeId>,
    stop: Option<(Nanos, Stop)>,
    stopping: Option<Stop>,
    stopped: u32,
}

impl Host {
    /// A host that says to stop when the plan says so.
    #[must_use]
    pub fn new(clients: usize, stop: Option<(Nanos, Stop)>) -> Host {
        Host {
            tasks: Vec::new(),
            busy: 0,
            seen: vec![0; clients],
            said: Said::default(),
            gone: None,
            stop,
            stopping: None,
            stopped: 0,
        }
    }

    /// Exchanges that it holds.
    #[must_use]
    pub fn busy(&self) -> usize {
        self.busy
    }

    /// How often it was told that the drain is over.
    #[must_use]
    pub fn stopped(&self) -> u32 {
        self.stopped
    }

    /// Takes what the engine has said.
    pub fn hear(&mut self, world: &mut World, job: Job) {
        world.note(|| format!("host: hears {}", describe(&job)));
        let result = match job {
            Job::Request(request) => self.request(world, *request),
            Job::Body(id, bytes) => self.tell(id, |task| task.body(bytes)),
            Job::BodyEnd(id) => self.tell(id, Task::body_end),
            Job::BodyAborted(id, why) => self.tell(id, |task| task.aborted(why)),
            Job::Credit(id, charged) => self.tell(id, |task| task.credit(charged)),
            Job::FileSent(id, well) => self.tell(id, |task| task.file_sent(well)),
            Job::Reset(id, why) => self.tell(id, |task| task.reset(why)),
            Job::Stopped => {
                self.stopped += 1;
                if self.stopped > 1 || self.stopping.is_none() {
                    Err("R2: the end of a drain that was not asked for, or twice".into())
                } else {
                    Ok(())
                }
            }
        };
        if let Err(error) = result {
            world.fail(error);
        }
    }

    fn request(&mut self, world: &mut World, request: Request) -> Result<(), String> {
        let id = request.id;
        let task = Task::begin(world, request)?;
        let (client, number) = task.name();
        let seen = &mut self.seen[client];
        if *seen != number {
            return Err(format!("R8: request {number} of client {client} comes as its {seen}th"));
        }
        *seen += 1;
        world.seen(client, number);
        let index = id.index as usize;
        if self.tasks.len() <= index {
            self.tasks.resize_with(index + 1, || None);
        }
        if self.tasks[index].is_some() {
            return Err(format!("R4: {id:?} is used while its slot is held"));
        }
        self.busy += 1;
        self.tasks[index] = Some(Box::new(task));
        Ok(())
    }

    fn tell(&mut self, id: ExchangeId, f: impl FnOnce(&mut Task) -> Result<(), String>) -> Result<(), String> {
        match self.tasks.get_mut(id.index as usize) {
            Some(Some(task)) if task.id() == id => f(task),
            // It let go a moment ago, and the engine had not heard of it.
            _ => Ok(()),
        }
    }

    /// Lets every application do what it can, and says to stop when it is time.
    pub fn run(&mut self, world: &mut World) {
        for index in 0..self.tasks.len() {
            let Some(mut task) = self.tasks[index].take() else {
                continue;
            };
            match task.advance(world, &mut self.said) {
                Ok(false) => self.tasks[index] = Some(task),
                Ok(true) => {
                    self.busy -= 1;
                    self.gone = Some(task.id());
                    self.said.push(Frame::Released(task.id()));
                }
                Err(error) => world.fail(error),
            }
        }
        if world.faults() && world.random.once_in(world.weather.ghosts) {
            self.haunt();
        }
        self.mind_stop(world);
    }

    /// Says something of an exchange that it has let go of: none of it may have an effect (R3).
    fn haunt(&mut self) {
        let Some(id) = self.gone else { return };
        self.said.push(Frame::Chunk(id, Bytes::from_static(b"ghost")));
        self.said.push(Frame::WantBody(id, 1 << 20));
        self.said.push(Frame::End(id));
        self.said.push(Frame::Abort(id, Why::HostError));
        self.said.push(Frame::Released(id));
    }

    fn mind_stop(&mut self, world: &mut World) {
        let now = world.now();
        let over = world.clients_are_done() && self.busy == 0;
        let how = match (self.stopping, self.stop) {
            (None, Some((at, how))) if at <= now => how,
            (None, _) if over => Stop::Drain,
            (Some(Stop::Drain), _) if self.stopped > 0 && self.busy == 0 => Stop::Now,
            _ => return,
        };
        world.note(|| format!("host: says {how:?}"));
        world.told_to_stop(how);
        self.stopping = Some(how);
        self.said.push(Frame::Stop(how));
    }

    /// When it has something to do by itself.
    #[must_use]
    pub fn next_time(&self) -> Option<Nanos> {
        let stop = self.stop.filter(|_| self.stopping.is_none()).map(|(at, _)| at);
        let tasks = self.tasks.iter().flatten().filter_map(|task| task.wakes_at());
        tasks.chain(stop).min()
    }

    /// Whether it has said that everything is to be closed.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.stopping == Some(Stop::Now)
    }
}

fn describe(job: &Job) -> String {
    match job {
        Job::Request(request) => format!("request {:?} of slot {}", request.id, request.connection.index),
        Job::Body(id, bytes) => format!("{} bytes for {id:?}", bytes.len()),
        other => format!("{other:?}"),
    }
}
