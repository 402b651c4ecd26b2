//! Measures what a profile needs of the machine that it runs on: system calls, loopback, and how long a parked thread takes
//! to run. To be run on a quiet machine, with two CPUs at least.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use m0_platform::{Backend, Choice, Kind, Options, Waker};

/// Repetitions of each measurement; the median of the times counts.
const TIMES: usize = 20_000;

fn epoll() -> io::Result<Box<dyn Backend>> {
    let opened = m0_platform::open(Choice::Only(Kind::Epoll), &Options::default());
    opened
        .map(|(backend, _)| backend)
        .map_err(|refused| io::Error::other(format!("{refused:?}")))
}

fn median(mut times: Vec<u64>) -> u64 {
    times.sort_unstable();
    times[times.len() / 2]
}

fn quartiles(mut times: Vec<u64>) -> [u64; 3] {
    times.sort_unstable();
    [1, 2, 3].map(|part| times[times.len() * part / 4])
}

fn nanos(since: Instant) -> u64 {
    since.elapsed().as_nanos() as u64
}

/// Prints the costs, in nanoseconds.
///
/// # Errors
/// What a socket gave.
pub fn calibrate() -> io::Result<()> {
    let mut backend = epoll()?;
    let start = Instant::now();
    for _ in 0..TIMES {
        backend.wait(Some(Duration::ZERO))?;
    }
    println!("wait    {:>7}", nanos(start) / TIMES as u64);
    let (receive, send) = loopback()?;
    println!("receive {receive:>7}");
    println!("send    {send:>7}");
    let (there, back) = datagrams()?;
    println!("datagram sent     {there:>7}");
    println!("datagram received {back:>7}");
    println!("a bell, and from it to the woken thread's first instruction: quartiles");
    for idle in [10, 50, 200, 1000].map(Duration::from_micros) {
        let (bells, wakes) = wakes(idle)?;
        println!("idle for {idle:>6?}: {:?} {:?}", quartiles(bells), quartiles(wakes));
    }
    Ok(())
}

/// A request's and a response's bytes over loopback: what reading and writing them takes.
fn loopback() -> io::Result<(u64, u64)> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut receive, mut send, mut room) = (Vec::new(), Vec::new(), [0; 4096]);
    for _ in 0..TIMES {
        client.write_all(super::machine::REQUEST)?;
        let start = Instant::now();
        let _read = server.read(&mut room)?;
        receive.push(nanos(start));
        let start = Instant::now();
        server.write_all(&room[..150])?;
        send.push(nanos(start));
        let _read = client.read(&mut room)?;
    }
    Ok((median(receive), median(send)))
}

/// A datagram of one job (a pointer, a slot and its generation) between two threads that are both awake: sending it, and
/// receiving it.
fn datagrams() -> io::Result<(u64, u64)> {
    let (near, far) = UnixDatagram::pair()?;
    let (mut sent, mut received, mut room) = (Vec::new(), Vec::new(), [0; 256]);
    for _ in 0..TIMES {
        let start = Instant::now();
        near.send(&[1; 16])?;
        sent.push(nanos(start));
        let start = Instant::now();
        let _read = far.recv(&mut room)?;
        received.push(nanos(start));
    }
    Ok((median(sent), median(received)))
}

/// Two threads that park and wake each other: ringing the bell, and from there to the other's first instruction.
fn wakes(idle: Duration) -> io::Result<(Vec<u64>, Vec<u64>)> {
    let (mut here, there) = (epoll()?, epoll()?);
    let (to_here, to_there) = (here.waker(), there.waker());
    let stamp = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let other = {
        let (stamp, to_here) = (stamp.clone(), to_here.clone());
        m0_platform::thread::spawn("other", move || echo(there, &to_here, &stamp, start))?
    };
    let mut bells = Vec::new();
    for _ in 0..TIMES / 10 {
        while !to_there.is_parked() {
            std::hint::spin_loop();
        }
        // A thread that has announced that it parks has not parked yet.
        let settled = Instant::now();
        while settled.elapsed() < idle {
            std::hint::spin_loop();
        }
        to_here.announce();
        stamp.store(nanos(start), Ordering::Release);
        let rung = Instant::now();
        to_there.wake();
        bells.push(nanos(rung));
        here.wait(None)?;
        to_here.retract();
        while here.next().is_some() {}
    }
    stamp.store(u64::MAX, Ordering::Release);
    while !other.is_finished() {
        to_there.wake();
    }
    let wakes = other.join().map_err(|_| io::ErrorKind::Other)??;
    Ok((bells, wakes))
}

fn echo(mut backend: Box<dyn Backend>, to: &Waker, stamp: &AtomicU64, start: Instant) -> io::Result<Vec<u64>> {
    let (mut wakes, mut last, waker) = (Vec::new(), 0, backend.waker());
    loop {
        waker.announce();
        let news = stamp.load(Ordering::Acquire) != last;
        backend.wait(if news { Some(Duration::ZERO) } else { None })?;
        let now = nanos(start);
        waker.retract();
        while backend.next().is_some() {}
        match stamp.load(Ordering::Acquire) {
            u64::MAX => return Ok(wakes),
            seen if seen == last => {}
            seen => {
                last = seen;
                wakes.push(now - seen);
                to.wake();
            }
        }
    }
}
