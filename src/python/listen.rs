//! The listening socket: bound early, so that a port in use is found before the application starts; listening late.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::config::{Config, Place};

/// As many as the kernel allows.
const BACKLOG: i32 = 2048;

/// A socket that is bound, until it is listened on, and what is known of it.
pub struct BoundSocket {
    socket: Mutex<Option<Socket>>,
    /// Its number, and which socket that is: once it is closed the number may be another's.
    number: RawFd,
    inode: Option<u64>,
    /// As it is printed: `http://127.0.0.1:8000`, `unix:/run/app.sock`.
    pub address: String,
    /// The path of a UNIX socket.
    pub path: Option<String>,
    /// The file that was made there, removed at the end.
    made: Option<Identity>,
    /// What to do about an address that is in use.
    fix: &'static str,
}

impl BoundSocket {
    fn new(socket: Socket, address: String, fix: &'static str) -> Self {
        BoundSocket {
            number: socket.as_raw_fd(),
            inode: inode(socket.as_raw_fd()),
            socket: Mutex::new(Some(socket)),
            address,
            path: None,
            made: None,
            fix,
        }
    }

    /// Starts to listen and gives the socket away: whoever closes it ends the backlog.
    ///
    /// # Errors
    /// One sentence: another may have begun to listen there since it was bound, or an inherited socket cannot. A second call.
    pub fn listen(&self) -> io::Result<OwnedFd> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner).take();
        let socket = socket.ok_or_else(|| io::Error::other("the server listens already"))?;
        socket
            .listen(BACKLOG)
            .map_err(|error| explain(&error, &self.address, self.fix))?;
        Ok(socket.into())
    }

    /// In a forked child: lets go of the socket. Otherwise it would listen for as long as the child lives, in its parent's place:
    /// clients would wait for nobody, and no other server could have the address. The number stays taken, since whoever owns
    /// the socket in the child's copy of our memory may close it yet.
    pub fn leave(&self) {
        if self.inode.is_none() || inode(self.number) != self.inode {
            return; // closed before the fork
        }
        if let Ok(nothing) = File::open("/dev/null") {
            // SAFETY: dup2 takes no pointer. The number is our socket's, as was seen just now, and a child that was forked has
            // one thread.
            unsafe { libc::dup2(nothing.as_raw_fd(), self.number) };
        }
    }
}

/// Tells open files from one another; `None` where the number is none's.
fn inode(number: RawFd) -> Option<u64> {
    // SAFETY: whoever owns the number, or nobody, goes on doing so: only its metadata is asked for, and it is not closed here.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(number) });
    file.metadata().ok().map(|metadata| metadata.ino())
}

/// Binds where the configuration says.
///
/// # Errors
/// One sentence that names the address and the fix.
pub fn bind(config: &Config) -> io::Result<BoundSocket> {
    match config.place() {
        Place::Tcp(host, port) => bind_tcp(&host, port),
        Place::Unix(path) => bind_unix(&path),
        Place::Descriptor(fd) => inherit(fd),
    }
}

fn explain(error: &io::Error, what: &str, fix: &str) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("cannot listen on {what}: {}; {fix}", describe(error)),
    )
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "the address is in use".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::AddrNotAvailable => "this machine has no such address".to_owned(),
        _ => error.to_string(),
    }
}

fn bind_tcp(host: &str, port: u16) -> io::Result<BoundSocket> {
    let what = if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    };
    let address = (host, port)
        .to_socket_addrs()
        .and_then(|mut all| all.next().ok_or_else(|| io::Error::other("the name has no address")))
        .map_err(|error| explain(&error, &what, "give an address of this machine with --host"))?;
    let fix = "stop what listens there, or choose another with --host and --port";
    let socket = tcp_socket(address).map_err(|error| match error.kind() {
        io::ErrorKind::AddrNotAvailable => explain(&error, &what, "give an address of this machine with --host"),
        _ => explain(&error, &what, fix),
    })?;
    let local = socket.local_addr()?.as_socket().unwrap_or(address);
    Ok(BoundSocket::new(socket, format!("http://{local}"), fix))
}

fn tcp_socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // `--host ::` is every address, also IPv4's, whatever the machine's default is.
        socket.set_only_v6(false)?;
    }
    socket.bind(&SockAddr::from(address))?;
    Ok(socket)
}

fn bind_unix(path: &str) -> io::Result<BoundSocket> {
    let fix = "remove it, or choose another with --uds";
    let what = format!("the UNIX socket {path}");
    let address = SockAddr::unix(path).map_err(|error| explain(&error, &what, "choose a shorter path"))?;
    if let Ok(metadata) = std::fs::symlink_metadata(path) {
        if !metadata.file_type().is_socket() {
            let error = io::Error::new(io::ErrorKind::AlreadyExists, "the path exists and is no socket");
            return Err(explain(&error, &what, fix));
        }
        if !is_left_behind(&address)? {
            return Err(explain(&io::Error::from(io::ErrorKind::AddrInUse), &what, fix));
        }
        std::fs::remove_file(path).map_err(|error| explain(&error, &what, fix))?;
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket
        .bind(&address)
        .map_err(|error| explain(&error, &what, "choose another path with --uds"))?;
    // Any local user may connect, as with a TCP port; the folder's permissions are the place to restrict it.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(path, mode)?;
    Ok(BoundSocket {
        path: Some(path.to_owned()),
        made: Some(identity(path)?),
        ..BoundSocket::new(socket, format!("unix:{path}"), fix)
    })
}

/// Whether nobody answers on a UNIX socket: a process ended without removing it. One with a full backlog says EAGAIN, and one of
/// another type or another user's has an answer too (`connect(2)`).
fn is_left_behind(address: &SockAddr) -> io::Result<bool> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    Ok(socket.connect(address).is_err_and(refused))
}

/// Tells a file from another one at the same path: its device, its number there, and when it was made where the file system
/// knows, since a number is soon another's.
type Identity = (u64, u64, Option<SystemTime>);

fn identity(path: &str) -> io::Result<Identity> {
    let metadata = std::fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino(), metadata.created().ok()))
}

fn inherit(fd: i32) -> io::Result<BoundSocket> {
    let what = format!("the inherited descriptor {fd}");
    let fix = "pass the number of a bound stream socket with --fd";
    // SAFETY: fcntl with F_DUPFD_CLOEXEC only makes a new descriptor; on a number that is not open it gives EBADF.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(explain(&io::Error::last_os_error(), &what, fix));
    }
    // SAFETY: the descriptor was made a moment ago and nobody else knows it.
    let socket = Socket::from(unsafe { OwnedFd::from_raw_fd(copy) });
    // Some sockets of other kinds can listen, but what comes out of them is no stream.
    match socket.r#type() {
        Ok(Type::STREAM) => {}
        Ok(_) => return Err(explain(&io::Error::other("it is no stream socket"), &what, fix)),
        Err(error) => return Err(explain(&error, &what, fix)),
    }
    let local = socket.local_addr().map_err(|error| explain(&error, &what, fix))?;
    if local.as_socket().is_some_and(|local| local.port() == 0) {
        // It would listen all the same, on any port of every address.
        return Err(explain(&io::Error::other("it is not bound"), &what, fix));
    }
    let address = match (local.as_socket(), local.as_pathname()) {
        (Some(local), _) => format!("http://{local}"),
        (None, Some(path)) => format!("unix:{}", path.display()),
        (None, None) => format!("fd:{fd}"),
    };
    Ok(BoundSocket::new(socket, address, fix))
}

/// Removes the file of a UNIX socket that we made. A server that was started during our drain has put its own in its place.
pub fn clean_up(bound: &BoundSocket) {
    if let (Some(path), Some(made)) = (&bound.path, bound.made)
        && identity(path).is_ok_and(|there| there == made)
    {
        // Somebody else may have removed it; there is nothing left to do about a failure at the end.
        let _ = std::fs::remove_file(path);
    }
}
