//! What every backend keeps of a listening socket.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use socket2::SockRef;

use crate::sys;

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: OwnedFd,
    /// Whether accepting is off, by the owner or after `AcceptFailed`.
    pub(crate) paused: bool,
    tcp: bool,
    /// Our address, when it is bound to one address and so the same for every connection.
    local: Option<SocketAddr>,
}

impl Listener {
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Listener> {
        let local = sys::local_addr(socket.as_fd());
        let tcp = local.is_some();
        if tcp && cfg!(target_os = "linux") {
            // Inherited by what is accepted, which saves a system call per connection.
            SockRef::from(&socket).set_tcp_nodelay(true)?;
        }
        let local = local.filter(|address| !address.ip().is_unspecified());
        Ok(Listener {
            socket,
            paused: false,
            tcp,
            local,
        })
    }

    /// Options of a connection that was accepted here, and (peer, local) addresses.
    pub(crate) fn addresses(&self, connection: BorrowedFd<'_>) -> (Option<SocketAddr>, Option<SocketAddr>) {
        if !self.tcp {
            return (None, None);
        }
        if !cfg!(target_os = "linux") {
            // Fails only on a connection that is gone, which its first receive reports.
            let _ = SockRef::from(&connection).set_tcp_nodelay(true);
        }
        (
            sys::peer_addr(connection),
            self.local.or_else(|| sys::local_addr(connection)),
        )
    }
}
