//! A thread's time, booked under what it went to.

use crate::plan::Nanos;

/// What time goes to. All but the last two is time on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Cost {
    /// The system call of a wait.
    Wait,
    /// Receiving requests.
    Receive,
    /// From bytes to jobs.
    Parse,
    /// The application.
    App,
    /// Sending responses.
    Send,
    /// Iterations of the event loop.
    Iteration,
    /// Items that come from another thread's cache.
    Cross,
    /// Datagrams between the threads, with what their jobs take.
    Datagram,
    /// The look through outboxes, in each pass of a loop that hands over by datagrams.
    Sweep,
    /// Looks at queues before parking.
    Look,
    /// Ringing for the other thread.
    Bell,
    /// Changing threads on one CPU.
    Switch,
    /// Being woken: on no CPU yet.
    Wake,
    /// Nothing to do, or no CPU to do it on.
    Idle,
}

impl Cost {
    /// All of them, with their names.
    pub const ALL: [(Cost, &'static str); 14] = [
        (Cost::Wait, "wait"),
        (Cost::Receive, "receive"),
        (Cost::Parse, "parse"),
        (Cost::App, "app"),
        (Cost::Send, "send"),
        (Cost::Iteration, "iteration"),
        (Cost::Cross, "cross"),
        (Cost::Datagram, "datagram"),
        (Cost::Sweep, "sweep"),
        (Cost::Look, "look"),
        (Cost::Bell, "bell"),
        (Cost::Switch, "switch"),
        (Cost::Wake, "wake"),
        (Cost::Idle, "idle"),
    ];
}

/// How much went to what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger([Nanos; Cost::ALL.len()]);

impl Ledger {
    /// What went to this.
    #[must_use]
    pub fn of(&self, cost: Cost) -> Nanos {
        self.0[cost as usize]
    }

    /// All of it, asleep and awake.
    #[must_use]
    pub fn total(&self) -> Nanos {
        self.0.iter().sum()
    }

    /// Time on a CPU.
    #[must_use]
    pub fn busy(&self) -> Nanos {
        self.total() - self.of(Cost::Wake) - self.of(Cost::Idle)
    }

    /// What was added since an earlier state of it.
    #[must_use]
    pub fn since(&self, earlier: &Ledger) -> Ledger {
        Ledger(std::array::from_fn(|cost| self.0[cost] - earlier.0[cost]))
    }
}

/// A thread.
#[derive(Default)]
pub struct Thread {
    at: Nanos,
    ledger: Ledger,
}

impl Thread {
    /// Its time.
    pub fn at(&self) -> Nanos {
        self.at
    }

    /// Where its time went.
    pub fn ledger(&self) -> Ledger {
        self.ledger
    }

    /// It takes this long over something.
    pub fn spend(&mut self, cost: Cost, time: Nanos) {
        self.at += time;
        self.ledger.0[cost as usize] += time;
    }

    /// It has no CPU, or no use for one, until then.
    pub fn sleep(&mut self, until: Nanos) {
        self.spend(Cost::Idle, until.saturating_sub(self.at));
    }
}
