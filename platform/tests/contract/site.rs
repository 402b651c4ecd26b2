//! Where the suite runs: over the kernel's own sockets, by each real backend. `tests/sim/tests/contract/site.rs` is the
//! simulator's, with the same names.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use m0_platform::{Backend, Choice, Clock, Kind, Options};

use crate::rig::{PATIENCE, Rig};

/// A client's end of a connection.
pub type Client = TcpStream;

/// One backend's network and time.
#[derive(Clone, Debug, Default)]
pub struct Site {
    /// The time that its waits take.
    pub clock: Clock,
}

impl Site {
    /// Connects a client.
    pub fn connect(&self, address: SocketAddr) -> io::Result<Client> {
        let client = TcpStream::connect(address)?;
        client.set_nodelay(true)?;
        client.set_read_timeout(Some(PATIENCE))?;
        client.set_write_timeout(Some(PATIENCE))?;
        Ok(client)
    }

    /// Connects a client to a UNIX socket.
    pub fn connect_local(&self, path: &Path) -> io::Result<UnixStream> {
        UnixStream::connect(path)
    }

    /// Bytes that a client can have written and a backend not read: the largest buffers of both ends, as Linux tells them
    /// (tcp(7)). Elsewhere each is no larger than macOS lets any socket's be, which is 8 MiB (`kern.ipc.maxsockbuf`).
    pub fn buffers(&self) -> usize {
        if cfg!(not(target_os = "linux")) {
            return 2 * (8 << 20);
        }
        let largest = |name| {
            let sizes = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap();
            sizes.split_whitespace().last().unwrap().parse::<usize>().unwrap()
        };
        largest("tcp_rmem") + largest("tcp_wmem")
    }
}

/// Closes with a reset instead of a FIN.
pub fn reset(client: Client) {
    socket2::SockRef::from(&client)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(client);
}

/// Opens a backend, or says why this machine has none.
pub fn open(kind: Kind, options: &Options) -> Result<(Box<dyn Backend>, Site), String> {
    let (backend, resolved) = m0_platform::open(Choice::Only(kind), options).map_err(|why| why.sentence)?;
    assert_eq!((backend.kind(), resolved.kind), (kind, kind));
    Ok((backend, Site::default()))
}

/// Runs a test on one backend, or says loudly that it was not run.
pub fn on(kind: Kind, options: &Options, test: impl FnOnce(&mut Rig)) {
    let opened = || open(kind, options).inspect_err(|why| skipped(kind, why)).ok();
    crate::rig::run(opened, test);
}

/// Says so where nobody can miss it, once for each backend.
pub fn skipped(kind: Kind, why: &str) {
    static SAID: std::sync::Mutex<Vec<Kind>> = std::sync::Mutex::new(Vec::new());
    let mut said = SAID.lock().unwrap();
    if !said.contains(&kind) {
        said.push(kind);
        crate::rig::say(&format!("SKIPPED: every test on {}: {why}", kind.name()));
    }
}

/// The tests that [`crate::contract!`] makes of one: `name::epoll`, `name::io_uring` and `name::kqueue`.
#[macro_export]
macro_rules! on_each_backend {
    () => {
        #[test]
        fn epoll() {
            $crate::site::on(m0_platform::Kind::Epoll, &options(), check);
        }
        #[test]
        fn io_uring() {
            $crate::site::on(m0_platform::Kind::IoUring, &options(), check);
        }
        #[test]
        fn kqueue() {
            $crate::site::on(m0_platform::Kind::Kqueue, &options(), check);
        }
    };
}
