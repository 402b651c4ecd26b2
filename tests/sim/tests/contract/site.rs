//! Where the suite runs here: over a world of sockets alone, with its network and its time. The names are those of
//! `platform/tests/contract/site.rs`.
//!
//! Clients are threads, and what one of them waits for makes the world go on, as a wait of the backend does.

use std::cell::Cell;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::path::Path;

use m0_platform::{Backend, Clock, Options, Waker};
use m0_sim::backend::{Shared, Simulated};
use m0_sim::listener::Name;
use m0_sim::plan::{MICRO, Weather};
use m0_sim::random::Random;
use m0_sim::world::World;

use crate::NOT_HERE;
use crate::rig::{PATIENCE, Rig, say};

/// Bytes that a socket holds, each way.
const SOCKET: usize = 200_000;

/// One world.
#[derive(Clone)]
pub struct Site {
    /// Its time.
    pub clock: Clock,
    world: Shared,
}

impl Site {
    /// Connects a client.
    pub fn connect(&self, address: SocketAddr) -> io::Result<Client> {
        self.dial(&Name::Inet(address))
    }

    /// Connects a client to a UNIX socket.
    pub fn connect_local(&self, path: &Path) -> io::Result<Client> {
        self.dial(&Name::Local(path.to_owned()))
    }

    fn dial(&self, name: &Name) -> io::Result<Client> {
        let id = self.world.lock().dial(0, name).ok_or(ErrorKind::ConnectionRefused)?;
        Ok(Client {
            world: self.world.clone(),
            id,
            waits: Cell::new(true),
            has_left: false,
        })
    }

    /// Bytes that a client can have written and a backend not read.
    #[allow(clippy::unused_self)]
    pub fn buffers(&self) -> usize {
        2 * SOCKET
    }
}

/// A client's end of a connection.
pub struct Client {
    world: Shared,
    id: usize,
    /// Whether it waits for room.
    waits: Cell<bool>,
    has_left: bool,
}

impl Client {
    /// What gives something, once it does.
    fn until<R>(&self, mut look: impl FnMut(&mut World) -> Option<io::Result<R>>) -> io::Result<R> {
        let start = std::time::Instant::now();
        while start.elapsed() < PATIENCE {
            let mut world = self.world.lock();
            if let Some(found) = look(&mut world) {
                return found;
            }
            if !world.happen() {
                drop(world);
                std::thread::yield_now(); // it is for the test to go on
            }
        }
        Err(ErrorKind::TimedOut.into())
    }

    fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        let addresses = self.world.lock().kernel.conns[self.id].addresses;
        addresses.ok_or(ErrorKind::Unsupported.into())
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.addresses().map(|(ours, _)| ours)
    }

    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.addresses().map(|(_, theirs)| theirs)
    }

    /// Of writing, which is all that the suite asks for.
    #[allow(clippy::unnecessary_wraps)]
    pub fn set_nonblocking(&self, is: bool) -> io::Result<()> {
        self.waits.set(!is);
        Ok(())
    }

    #[allow(clippy::unnecessary_wraps)]
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        assert_eq!(how, Shutdown::Write);
        self.world.lock().client_finishes(self.id);
        Ok(())
    }
}

impl Read for Client {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.until(|world| {
            let conn = &world.kernel.conns[self.id];
            if !conn.arrived.is_empty() {
                let bytes = world.client_reads(self.id, into.len());
                into[..bytes.len()].copy_from_slice(&bytes);
                return Some(Ok(bytes.len()));
            }
            let reset = conn.reset.then(|| Err(ErrorKind::ConnectionReset.into()));
            reset.or_else(|| conn.fin.then_some(Ok(0)))
        })
    }
}

impl Write for &Client {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.until(|world| {
            if world.kernel.conns[self.id].reset {
                return Some(Err(ErrorKind::BrokenPipe.into()));
            }
            let len = world.room(self.id).min(bytes.len());
            if len > 0 {
                world.client_sends(self.id, bytes[..len].to_vec());
                return Some(Ok(len));
            }
            (!self.waits.get()).then(|| Err(ErrorKind::WouldBlock.into()))
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for Client {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if !self.has_left {
            self.world.lock().client_leaves(self.id, false);
        }
    }
}

/// Closes with a reset instead of a FIN.
pub fn reset(mut client: Client) {
    client.has_left = true;
    client.world.lock().client_leaves(client.id, true);
}

/// A kernel that does what the contract allows: cuts what it receives and sends anywhere, and completes in any order, or a
/// wait late.
fn weather(options: &Options) -> Weather {
    Weather {
        receive: options.recv_buffer_size as usize,
        buffers: usize::from(options.recv_buffers),
        leave: 100_000,
        latency: 10 * MICRO,
        turn: 5 * MICRO,
        socket: SOCKET,
        shuffled: true,
        late: 4,
        wake: 50 * MICRO,
        completes_anyway: true,
        ..Weather::default()
    }
}

fn open(options: &Options) -> (Box<dyn Backend>, Site) {
    let (clock, hand) = Clock::manual();
    let waker = Waker::silent();
    let world = Shared::new(World::bare(weather(options), Random::new(1), hand, waker.clone()));
    (Box::new(Simulated::new(world.clone(), waker)), Site { clock, world })
}

/// Runs a test, unless it asks for what is not here: then it says so, once for each reason.
pub fn on(module: &str, options: &Options, test: impl FnOnce(&mut Rig)) {
    static SAID: std::sync::Mutex<Vec<&str>> = std::sync::Mutex::new(Vec::new());
    let name = module.strip_prefix("contract::suite::").expect("a test of the suite");
    let Some((why, names)) = NOT_HERE.iter().find(|(_, names)| names.contains(&name)) else {
        return crate::rig::run(|| Some(open(options)), test);
    };
    let mut said = SAID.lock().unwrap();
    if !said.contains(why) {
        said.push(why);
        say(&format!(
            "SKIPPED: on the simulated kernel: {}: {why}",
            names.join(", ")
        ));
    }
}

/// The test that [`crate::contract!`] makes of one.
#[macro_export]
macro_rules! on_each_backend {
    () => {
        #[test]
        fn simulated() {
            $crate::site::on(module_path!(), &options(), check);
        }
    };
}
