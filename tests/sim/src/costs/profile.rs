//! What things cost on one kind of machine, each with where the number is from. One value a cost, the same in every cell.

use crate::plan::{MICRO, Nanos, SECOND};

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
    /// Threads of the client, each on a CPU of its own.
    pub client_threads: usize,
    /// What a request costs a client's thread.
    pub client: Nanos,
    /// From one end of a connection to the other.
    pub net: Nanos,
}

/// The Linux machine of the record of the original: an aarch64 virtual machine, server and client on CPUs of their own.
///
/// What a request costs its loop thread is measured there, 4.84 µs without a handoff; so is what it costs the inversion on
/// one CPU, 138,105 requests a second. The rest is the application's. How the 4.84 µs divide decides little, since every
/// request takes all of them. The record has no figure for waking a thread: these are what `sim --calibrate` measured on
/// another virtual machine (x86-64, Linux 6.18), where an idle CPU must be fetched from the hypervisor.
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
    client_threads: 4,
    client: 6 * MICRO,
    net: 5 * MICRO,
};

/// The Mac of the record, which is no virtual machine.
///
/// The inversion's p50 at 16 connections is measured there: 181 µs, so 11.3 µs a request, divided as on the other machine.
/// Waking a thread on an idle CPU takes some microseconds where no hypervisor is in between; nobody has measured it on that
/// machine.
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
