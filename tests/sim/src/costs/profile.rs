//! What things cost on one kind of machine, and where the numbers are from, as far as they are from anywhere. One value a
//! cost, the same in every cell.

use crate::plan::{MICRO, Nanos, SECOND};

/// How the pump's threads hand over to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handoff {
    /// By rings, as the product does: a thread that parks is rung for, and the loop spins before it parks.
    Memory,
    /// By datagrams, as the original of the record did: one for the jobs of a pass, and one for what an iteration of the
    /// event loop said.
    Datagrams,
}

impl Handoff {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Handoff::Memory => "memory",
            Handoff::Datagrams => "datagrams",
        }
    }
}

/// A machine.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Its name in a file.
    pub name: &'static str,
    /// Its name in a text.
    pub title: &'static str,
    /// The system call of a wait, whatever it finds.
    pub wait: Nanos,
    /// Receiving one request, with what the kernel does for it.
    pub receive: Nanos,
    /// From its bytes to its job: parser and engine.
    pub parse: Nanos,
    /// From its frames to its send, and that, with what the kernel does for it.
    pub send: Nanos,
    /// The application's part, in its event loop.
    pub app: Nanos,
    /// One iteration of that loop, whatever it runs.
    pub iteration: Nanos,
    /// An item that crosses from one thread's cache to the other's.
    pub cross: Nanos,
    /// Ringing the bell of a thread that is parked, whose CPU is idle.
    pub bell: Nanos,
    /// The same, of one that shares the CPU.
    pub bell_here: Nanos,
    /// From the bell to the thread's first instruction on an idle CPU of its own.
    pub wake: Nanos,
    /// From one thread to the other on the same CPU.
    pub switch: Nanos,
    /// Sending or receiving a datagram between the threads, where that is the handoff and neither has to be woken.
    pub datagram: Nanos,
    /// What a job in a datagram takes of a thread that sends or receives it; there it is paid in place of `cross`.
    pub in_datagram: Nanos,
    /// What the loop does once a pass beside its work, where the handoff is datagrams: it looks through its outboxes.
    pub sweep: Nanos,
    /// Threads of the client, each on a CPU of its own.
    pub client_threads: usize,
    /// What a request costs a client's thread.
    pub client: Nanos,
    /// From one end of a connection to the other.
    pub net: Nanos,
}

impl Profile {
    /// Sending or receiving a datagram about so many jobs.
    #[must_use]
    pub fn datagram_of(&self, jobs: u64) -> Nanos {
        self.datagram + jobs * self.in_datagram
    }

    /// The same machine, if ringing for a thread on an idle CPU and waking it took so long together.
    #[must_use]
    pub fn with_wake(self, both: Nanos) -> Profile {
        let bell = (both * VIRTUAL.bell / (VIRTUAL.bell + VIRTUAL.wake)).max(self.bell_here);
        let wake = both.saturating_sub(bell);
        Profile { bell, wake, ..self }
    }
}

/// What a job in a datagram takes of either thread: half of what the record has for both (see [`VIRTUAL`]).
const IN_DATAGRAM: Nanos = 430 / 2;

/// The Linux machine of the record of the original: an aarch64 virtual machine, server and client on CPUs of their own.
///
/// What a request costs its loop thread is measured there, 4.84 µs without a handoff; so is what it costs the inversion on
/// one CPU, 138,105 requests a second. The rest is the application's. How the 4.84 µs divide decides little, since every
/// request takes all of them. The record has no figure for waking a thread: these are what `sim --calibrate` measured on
/// another virtual machine (x86-64, Linux 6.18), where an idle CPU must be fetched from the hypervisor.
///
/// `wait`, `iteration`, `cross`, `bell_here`, `switch`, `client` and `net` have no source: nobody has measured them on that
/// machine. They are of the order that such things have, are those of the first profile, and were not touched since. How
/// long a client takes until it asks again (`client` and twice `net`) is the one that matters: `--wakes` shows what follows
/// from another.
///
/// The handoff of the original has two figures in the record: 1.85 µs a request for four system calls, where each datagram
/// carries one job, and 0.43 µs a request of the loop's thread at 256 connections, where it carries many and the calls are
/// shared. So a job takes half of 0.43 µs where it is sent and where it is received, and a call a quarter of the rest. The
/// record also measured what its loop does in each pass, as a pause that can be had by a spin of 1.2 µs. It spins for nothing
/// else: the spin before it parks came with rings.
pub const VIRTUAL: Profile = Profile {
    name: "linux-vm",
    title: "Linux, a virtual machine",
    wait: 200,
    receive: 740,
    parse: 700,
    send: 3_400,
    app: SECOND / 138_105 - 4_840,
    iteration: 800,
    cross: 60,
    bell: 12_000,
    wake: 22 * MICRO,
    bell_here: 500,
    switch: 1_500,
    datagram: (1_850 - 4 * IN_DATAGRAM) / 4,
    in_datagram: IN_DATAGRAM,
    sweep: 1_200,
    client_threads: 4,
    client: 6 * MICRO,
    net: 5 * MICRO,
};

/// The Mac of the record, which is no virtual machine.
///
/// The inversion's p50 at 16 connections is measured there: 181 µs, so 11.3 µs a request, divided as on the other machine.
/// Waking a thread on an idle CPU takes some microseconds where no hypervisor is in between; nobody has measured it on that
/// machine. The record does not say which of its machines the figures of the handoff are from: they are used for both.
pub const MAC: Profile = Profile {
    name: "macos",
    title: "macOS, no virtual machine",
    wait: 310,
    receive: 1_160,
    parse: 1_090,
    send: 5_310,
    app: 3_750,
    iteration: 1_250,
    bell: 500,
    wake: 5 * MICRO,
    ..VIRTUAL
};
