//! Runs one world to its end, under either model.

use std::any::Any;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use m0_platform::{Clock, Waker};
use m0serve::config::LogLevel;
use m0serve::engine::{Engine, Stats};
use m0serve::handoff::{Direct, Link, Outlet, Routes, rings_for};
use m0serve::log::Logger;
use m0serve::model::pump::LoopThread;

use crate::backend::{Shared, Simulated};
use crate::host::Host;
use crate::lines;
use crate::plan::{Model, Plan};
use crate::random::Random;
use crate::side::Side;
use crate::world::World;

/// How a world ended.
#[derive(Debug)]
pub struct Outcome {
    /// The rule that was broken, and how.
    pub failure: Option<String>,
    /// What happened, when that was asked for.
    pub trace: Vec<String>,
    /// Responses that reached their clients in full.
    pub answers: u64,
    /// Things that happened.
    pub steps: u64,
    /// The same for every run of a seed.
    pub digest: u64,
}

/// Runs the world of a seed.
#[must_use]
pub fn run(seed: u64, model: Option<Model>, trace: bool) -> Outcome {
    let mut random = Random::new(seed);
    let plan = Plan::draw(&mut random, model);
    let (clock, hand) = Clock::manual();
    let mut world = World::new(&plan, random, hand, trace);
    world.note(|| format!("{:?} {:?} stop {:?}", plan.model, plan.weather, plan.stop));
    let world = Shared::new(world);
    // A world that broke a rule ends by an error of its wait, which says nothing more.
    let ended = catch_unwind(AssertUnwindSafe(|| match plan.model {
        Model::Inverted => inverted(&world, &plan, clock),
        Model::Pump => pump(&world, &plan, clock),
    }));
    let mut world = world.lock();
    match ended {
        Ok(_) => world.check_end(),
        Err(panic) => world.fail(format!("a panic: {}", message(&*panic))),
    }
    drop(lines::take());
    let (answers, steps) = world.counts();
    Outcome {
        failure: world.failure().map(str::to_owned),
        trace: world.take_trace(),
        answers,
        steps,
        digest: world.digest(),
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref().copied())
        .unwrap_or("without words")
}

fn engine(world: &Shared, plan: &Plan, clock: Clock, waker: Waker) -> io::Result<Engine> {
    let log = Logger::to(LogLevel::Warn, false, clock.clone(), lines::descriptor(), -1);
    let backend = Box::new(Simulated::new(world.clone(), waker));
    let mut engine = Engine::new(backend, plan.settings.clone(), clock, log);
    // No listener is needed where there is no network, but the engine wants a descriptor to own.
    engine.listen(OwnedFd::from(File::open("/dev/null")?))?;
    Ok(engine)
}

/// Everything in one thread: the four lines of a turn, in their order and sometimes in another.
fn inverted(world: &Shared, plan: &Plan, clock: Clock) -> io::Result<()> {
    let mut host = Host::new(plan.callers.len(), plan.stop);
    let mut link = Link::Direct(Box::new(Direct::new(engine(world, plan, clock, Waker::silent())?)));
    loop {
        link.flush()?;
        if host.has_ended() && stats(&mut link).connections == 0 {
            break;
        }
        let ready = link.has_jobs() || world.lock().random.once_in(8);
        let timeout = if ready {
            Some(Duration::ZERO)
        } else {
            time_to(&host, world)
        };
        world.lock().may_block = timeout != Some(Duration::ZERO);
        let Link::Direct(direct) = &mut link else {
            unreachable!("it was made direct")
        };
        direct.engine.wait(timeout)?;
        direct.engine.pass(|_, _| {});
        let most = world.lock().random.from_to(1, 16);
        for _ in 0..most {
            let Some(job) = link.next_job() else { break };
            host.hear(&mut world.lock(), job);
        }
        host.run(&mut world.lock());
        for frame in host.said.0.drain(..) {
            link.push(frame);
        }
    }
    while let Some(job) = link.next_job() {
        host.hear(&mut world.lock(), job);
    }
    check(world, &host, &stats(&mut link), plan);
    Ok(())
}

fn stats(link: &mut Link) -> Stats {
    match link {
        Link::Direct(direct) => direct.engine.stats(),
        Link::Ring(_) => unreachable!("it was made direct"),
    }
}

fn time_to(host: &Host, world: &Shared) -> Option<Duration> {
    let now = world.lock().now();
    host.next_time().map(|at| Duration::from_nanos(at.saturating_sub(now)))
}

/// The loop's thread runs as it does, the host is a part of the world.
fn pump(world: &Shared, plan: &Plan, clock: Clock) -> io::Result<()> {
    let (to_loop, to_host) = (Waker::silent(), Waker::silent());
    let engine = engine(world, plan, clock, to_loop.clone())?;
    let (jobs, frames) = plan.rings;
    let (end, at_loop) = rings_for(jobs, frames, to_loop.clone(), to_host.clone());
    let host = Host::new(plan.callers.len(), plan.stop);
    world.lock().join(Side::new(host, Link::Ring(end), to_host), to_loop);
    let mut run = LoopThread::new(engine, at_loop, Routes::default(), false);
    let stay = || {
        let mut world = world.lock();
        world.may_block = true;
        world.interleave();
        false
    };
    while run.turn(None, &stay)? {}
    let stats = run.stats();
    run.end();
    let side = world.lock().side.take();
    let Some(mut side) = side else { return Ok(()) };
    side.end(&mut world.lock());
    check(world, &side.host, &stats, plan);
    Ok(())
}

/// Nothing is left (R9), and the end was said once.
fn check(world: &Shared, host: &Host, stats: &Stats, plan: &Plan) {
    let mut world = world.lock();
    if world.failure().is_some() {
        return;
    }
    let lines = lines::take();
    if stats.refused > 0 && !lines.contains("refused ") {
        world.fail(format!("R12: {} refusals, and the log says {lines:?}", stats.refused));
    }
    // A server that is stopped at once does not wait for its applications.
    let cut_off = matches!(plan.stop, Some((_, m0serve::handoff::Stop::Now)));
    if stats.connections != 0 || !cut_off && (stats.exchanges != 0 || host.busy() != 0) {
        world.fail(format!("R9: {stats:?} at the end, and {} applications", host.busy()));
    }
    if host.stopped() > 1 || !cut_off && host.stopped() == 0 {
        world.fail(format!("R11: the end of the drain was said {} times", host.stopped()));
    }
}
