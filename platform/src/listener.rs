//! What every backend keeps of a listening socket.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

use crate::sys;

/// After so much silence the kernel asks whether a peer is still there, so often, this far apart; then the connection is
/// broken.
const SILENCE: Duration = Duration::from_secs(60);
const PROBES: u32 = 4;
const BETWEEN_PROBES: Duration = Duration::from_secs(15);

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
        if tcp {
            // Inherited by what is accepted, which saves system calls per connection; where TCP_NODELAY is not, it is set
            // there. A peer that is gone without a word, or whose FIN lies behind bytes that nobody reads, would not be
            // noticed otherwise as long as nothing is sent to it: by an application that only waits, never.
            let asks = TcpKeepalive::new()
                .with_time(SILENCE)
                .with_interval(BETWEEN_PROBES)
                .with_retries(PROBES);
            SockRef::from(&socket).set_tcp_keepalive(&asks)?;
            if cfg!(target_os = "linux") {
                SockRef::from(&socket).set_tcp_nodelay(true)?;
            }
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

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// A client that pipelined more than is kept, and closed, was never noticed while its request waited: its FIN lay
    /// behind the bytes, and nothing was sent to it.
    #[test]
    fn a_peer_that_is_gone_was_not_noticed_while_nothing_was_read_or_sent() {
        let listening = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = listening.local_addr().expect("it is bound");
        let listener = Listener::new(listening.into()).expect("options of a socket");
        let _client = TcpStream::connect(address).expect("it listens");
        let (connection, _) = SockRef::from(&listener.socket).accept().expect("a connection");
        assert!(connection.keepalive().expect("an option"), "the kernel asks");
        if cfg!(target_os = "linux") {
            assert_eq!(connection.tcp_keepalive_time().expect("an option"), SILENCE);
            assert_eq!(connection.tcp_keepalive_interval().expect("an option"), BETWEEN_PROBES);
            assert_eq!(connection.tcp_keepalive_retries().expect("an option"), PROBES);
        }
    }
}
