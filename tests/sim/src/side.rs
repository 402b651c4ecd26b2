//! The host's thread under the pump, as the steps that it takes: it works, announces that it parks, looks again, blocks
//! (R5). Between any two of them the loop's thread may do anything.

use m0_platform::Waker;
use m0serve::handoff::{Link, Outlet};

use crate::host::Host;
use crate::world::{Event, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Park {
    Awake,
    /// Announced; it looks once more next.
    Announced,
    /// Blocked until it is woken or its time has come.
    Blocked,
}

/// The host's side of the pump.
pub struct Side {
    /// The host.
    pub host: Host,
    link: Link,
    waker: Waker,
    park: Park,
    /// It was woken and will run.
    waking: bool,
    stamp: u32,
    /// Something that is none of the loop's business ends its next wait.
    signalled: bool,
}

impl Side {
    /// A host at its end of a link, which is woken by `waker`.
    #[must_use]
    pub fn new(host: Host, link: Link, waker: Waker) -> Side {
        Side {
            host,
            link,
            waker,
            park: Park::Awake,
            waking: false,
            stamp: 0,
            signalled: false,
        }
    }

    /// Takes a step: when its event comes, or (without one) in the middle of the loop's turn.
    pub fn step(&mut self, world: &mut World, stamp: Option<u32>) {
        if stamp.is_some_and(|stamp| stamp != self.stamp) || stamp.is_none() && self.park == Park::Blocked {
            return;
        }
        match self.park {
            Park::Announced => self.look(world),
            Park::Awake => self.work(world),
            Park::Blocked => {
                world.note(|| "host: awake".into());
                self.waker.retract();
                self.waking = false;
                self.park = Park::Awake;
                self.work(world);
            }
        }
    }

    fn work(&mut self, world: &mut World) {
        self.signalled = false;
        // Between what it hears and what it says the loop may come with more: a step may be the one or the other.
        let part = world.random.below(4);
        if part != 0 {
            for _ in 0..world.random.from_to(1, 16) {
                let Some(job) = self.link.next_job() else { break };
                self.host.hear(world, job);
            }
        }
        if part == 1 {
            return self.again(world);
        }
        self.host.run(world);
        for frame in self.host.said.0.drain(..) {
            self.link.push(frame);
        }
        let flushes = world.random.below(4) != 0;
        if flushes {
            self.link.flush().expect("rings do not fail");
        }
        if flushes && !self.link.has_jobs() {
            self.waker.announce();
            self.park = Park::Announced;
        }
        self.again(world);
    }

    /// Looks again, and blocks if there is still nothing to do.
    fn look(&mut self, world: &mut World) {
        let due = self.host.next_time().is_some_and(|at| at <= world.now());
        // A bell that was rung since the announcement ends the wait that would follow.
        let rung = !self.waker.is_parked();
        if self.link.has_jobs() || due || rung || self.signalled {
            self.waker.retract();
            self.park = Park::Awake;
            return self.again(world);
        }
        world.note(|| "host: blocks".into());
        self.park = Park::Blocked;
        self.stamp += 1;
        if let Some(at) = self.host.next_time() {
            world.at(at, Event::Host(self.stamp));
        }
    }

    /// It is made to look, wherever it is.
    pub fn signal(&mut self, world: &mut World) {
        self.signalled = true;
        self.again(world);
    }

    fn again(&mut self, world: &mut World) {
        self.stamp += 1;
        let after = 1 + world.random.below(world.weather.turn + 1);
        world.later(after, Event::Host(self.stamp));
    }

    /// Sees whether it was woken: then it runs, if late.
    pub fn mind_wake(&mut self, world: &mut World) {
        if self.park == Park::Blocked && !self.waking && !self.waker.is_parked() {
            self.waking = true;
            self.stamp += 1;
            let late = world.random.below(world.weather.wake + 1);
            world.note(|| format!("host: woken, {late} ns late"));
            world.later(late, Event::Host(self.stamp));
        }
    }

    /// Where it stands, for the trace.
    pub fn describe(&mut self) -> String {
        let (jobs, owes) = (self.link.has_jobs(), self.link.needs_flush());
        let held = self.host.busy();
        format!(
            "host: {:?}, has jobs: {jobs}, owes frames: {owes}, holds {held}",
            self.park
        )
    }

    /// Takes what the loop said last, when the loop has ended.
    pub fn end(&mut self, world: &mut World) {
        while let Some(job) = self.link.next_job() {
            self.host.hear(world, job);
        }
    }
}
