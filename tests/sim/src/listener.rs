//! Listeners of the server's kernel: their names, their backlogs, and what they give to the engine.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use m0_platform::{ListenerId, Token};

use crate::kernel::{Conn, Packet, Ready};
use crate::world::World;

/// Where a listener is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// An address, which may be the wildcard.
    Inet(SocketAddr),
    /// A UNIX socket.
    Local(PathBuf),
}

/// Where clients of a world find the server.
const SERVER: Name = Name::Inet(SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8000));

impl Name {
    /// What a listening socket of the machine is bound to: of it the simulated one has only the name. What is no socket
    /// stands for the server's own.
    fn of(socket: OwnedFd) -> Name {
        let socket = match TcpListener::from(socket) {
            socket if socket.local_addr().is_ok() => return Name::Inet(socket.local_addr().expect("looked at before")),
            socket => UnixListener::from(OwnedFd::from(socket)),
        };
        let path = socket.local_addr().ok();
        path.and_then(|path| path.as_pathname().map(|path| Name::Local(path.to_owned())))
            .unwrap_or(SERVER)
    }

    fn is_reached_by(&self, sought: &Name) -> bool {
        match (self, sought) {
            (Name::Inet(bound), Name::Inet(sought)) if bound.ip().is_unspecified() => {
                bound.port() == sought.port() && bound.is_ipv4() == sought.is_ipv4()
            }
            _ => self == sought,
        }
    }
}

/// A listener.
#[derive(Debug)]
pub(crate) struct Listener {
    name: Name,
    open: bool,
    paused: bool,
    backlog: VecDeque<usize>,
}

impl Listener {
    /// Whether a wait would take a connection from it.
    pub(crate) fn has_ready(&self) -> bool {
        self.open && !self.paused && !self.backlog.is_empty()
    }
}

// --- what the engine calls -----------------------------------------------------------------------------------------

impl World {
    pub(crate) fn listen(&mut self, socket: OwnedFd) -> ListenerId {
        self.kernel.listeners.push(Listener {
            name: Name::of(socket),
            open: true,
            paused: false,
            backlog: VecDeque::new(),
        });
        ListenerId(u32::try_from(self.kernel.listeners.len() - 1).expect("few listeners"))
    }

    pub(crate) fn pause_accept(&mut self, listener: ListenerId, paused: bool) {
        self.note(|| format!("engine: accepting {}", if paused { "pauses" } else { "goes on" }));
        self.kernel.listeners[listener.0 as usize].paused = paused;
    }

    pub(crate) fn unlisten(&mut self, listener: ListenerId) {
        self.note(|| "engine: no longer listens".into());
        let listener = &mut self.kernel.listeners[listener.0 as usize];
        listener.open = false;
        for id in std::mem::take(&mut listener.backlog) {
            self.send_down(id, Packet::Rst);
        }
    }

    /// Takes what waits to be accepted.
    pub(crate) fn take_backlogs(&mut self) {
        for number in 0..self.kernel.listeners.len() {
            self.take_backlog(number);
        }
    }

    fn take_backlog(&mut self, number: usize) {
        while self.kernel.listeners[number].has_ready() {
            if self.random.once_in(self.weather.accept_fails) {
                self.kernel.listeners[number].paused = true;
                self.kernel.ready.push(Ready::AcceptFailed(number));
                return;
            }
            let Some(id) = self.kernel.listeners[number].backlog.pop_front() else {
                return;
            };
            let slots = &mut self.kernel.slots;
            let token = self.kernel.free.pop().unwrap_or_else(|| {
                slots.push(None);
                let index = u32::try_from(slots.len() - 1).expect("few connections");
                Token { index, generation: 0 }
            });
            slots[token.index as usize] = Some(id);
            self.kernel.conns[id].token = Some(token);
            self.kernel.ready.push(Ready::Accept(id));
        }
    }
}

// --- what clients call ---------------------------------------------------------------------------------------------

impl World {
    /// A client connects to the server; the number of its connection, unless nobody listens.
    pub fn connect(&mut self, client: usize) -> Option<usize> {
        self.dial(client, &SERVER)
    }

    /// A client connects to whatever listens there.
    ///
    /// # Panics
    /// After some thousand million connections.
    pub fn dial(&mut self, client: usize, name: &Name) -> Option<usize> {
        let listeners = self.kernel.listeners.iter();
        let found = listeners
            .enumerate()
            .find(|(_, listener)| listener.open && listener.name.is_reached_by(name));
        let listener = found?.0;
        let id = self.kernel.conns.len();
        let addresses = match name {
            Name::Inet(local) => {
                let port = 20_000 + u16::try_from(id % 40_000).expect("less than 40,000");
                Some((SocketAddr::new(local.ip(), port), *local))
            }
            Name::Local(_) => None,
        };
        self.kernel.conns.push(Conn {
            client,
            listener,
            addresses,
            ..Conn::default()
        });
        self.kernel.listeners[listener].backlog.push_back(id);
        Some(id)
    }
}
