//! What lies between the server's kernel and its clients: packets on their way, sends that leave bit by bit, and what the
//! clients' own kernels do.

use crate::kernel::{Packet, Ready, take};
use crate::world::{Event, World};

impl World {
    pub(crate) fn queue_input(&mut self, id: usize) {
        let conn = &mut self.kernel.conns[id];
        let there = conn.receiving && (!conn.inbox.is_empty() || conn.fin_in && !conn.end_told);
        let broken = conn.broken && !conn.end_told;
        if conn.accepted && !conn.closing && !conn.input_queued && (there || broken) {
            conn.input_queued = true;
            self.kernel.ready.push(Ready::Input(id));
        }
    }

    pub(crate) fn push_later(&mut self, id: usize) {
        if !std::mem::replace(&mut self.kernel.conns[id].pushing, true) {
            let after = self.random.below(self.weather.turn + 1);
            self.later(after, Event::Push(id));
        }
    }

    pub(crate) fn push(&mut self, id: usize) {
        self.kernel.conns[id].pushing = false;
        self.push_on(id);
    }

    /// Moves some bytes of a send onto the wire.
    pub(crate) fn push_on(&mut self, id: usize) {
        let (most, socket) = (self.weather.leave as u64, self.weather.socket);
        let most = self.random.from_to(1, most) as usize;
        let conn = &mut self.kernel.conns[id];
        let room = conn.room(socket);
        let Some(sending) = conn.sending.as_mut().filter(|sending| !sending.queued) else {
            return;
        };
        if conn.closing {
            return;
        }
        if !conn.broken {
            let len = most.min(room).min(sending.left.len() - sending.at);
            let bytes = sending.left[sending.at..sending.at + len].to_vec();
            sending.at += len;
            conn.progress += len as u64;
            let left = sending.left.len() - sending.at;
            if len > 0 {
                self.send_down(id, Packet::Bytes(bytes));
            }
            if left > 0 {
                if len < room {
                    self.push_later(id);
                } // else the client makes room
                return;
            }
        }
        let conn = &mut self.kernel.conns[id];
        if let Some(sending) = &mut conn.sending {
            sending.queued = true;
            let fin = conn.fin_said;
            self.kernel.ready.push(Ready::Sent(id));
            if fin {
                self.send_down(id, Packet::Fin);
            }
        }
    }

    fn arrival(&mut self, id: usize, up: bool) -> u64 {
        let latency = self.random.below(self.weather.latency + 1);
        let at = self.now() + latency;
        let conn = &mut self.kernel.conns[id];
        let wire = if up { &mut conn.up } else { &mut conn.down };
        wire.last = wire.last.max(at);
        wire.last
    }

    pub(crate) fn send_down(&mut self, id: usize, packet: Packet) {
        if self.random.once_in(self.weather.breaks) {
            self.break_connection(id);
        }
        let at = self.arrival(id, false);
        let wire = &mut self.kernel.conns[id].down;
        if wire.over && !matches!(packet, Packet::Rst) {
            return;
        }
        wire.over |= !matches!(packet, Packet::Bytes(_));
        if let Packet::Bytes(bytes) = &packet {
            wire.flying += bytes.len();
        }
        wire.packets.push_back(packet);
        self.at(at, Event::Down(id));
    }

    fn send_up(&mut self, id: usize, packet: Packet) {
        let at = self.arrival(id, true);
        let wire = &mut self.kernel.conns[id].up;
        wire.over |= !matches!(packet, Packet::Bytes(_));
        if let Packet::Bytes(bytes) = &packet {
            wire.flying += bytes.len();
        }
        wire.packets.push_back(packet);
        self.at(at, Event::Up(id));
    }

    /// The network loses the connection: both ends find out.
    fn break_connection(&mut self, id: usize) {
        let conn = &mut self.kernel.conns[id];
        if conn.down.over {
            return;
        }
        let client = conn.client;
        self.note(|| format!("network: the connection of client {client} breaks"));
        self.excuse(client, "the network broke its connection");
        self.kernel.conns[id].down.over = true;
        self.kernel.conns[id].down.packets.push_back(Packet::Rst);
        let at = self.arrival(id, false);
        self.at(at, Event::Down(id));
        self.send_up(id, Packet::Rst);
    }

    /// A packet arrives at the server.
    pub(crate) fn arrive_up(&mut self, id: usize) {
        let conn = &mut self.kernel.conns[id];
        let Some(packet) = conn.up.packets.pop_front() else {
            return;
        };
        match packet {
            Packet::Bytes(bytes) => {
                conn.up.flying -= bytes.len();
                if conn.closing || conn.closed {
                    return self.nobody_reads(id);
                }
                conn.inbox.extend(bytes);
            }
            Packet::Fin => conn.fin_in = true,
            Packet::Rst => {
                conn.broken = true;
                if conn.sending.is_some() {
                    self.push_later(id);
                }
            }
        }
        self.queue_input(id);
    }

    /// Bytes came for a socket that is closed: the kernel answers with a reset, also after a FIN.
    fn nobody_reads(&mut self, id: usize) {
        let conn = &mut self.kernel.conns[id];
        if conn.reset_by_kernel || conn.reset {
            return;
        }
        conn.reset_by_kernel = true;
        conn.down.packets.push_back(Packet::Rst);
        let at = self.arrival(id, false);
        self.at(at, Event::Down(id));
    }

    /// A packet arrives at the client.
    pub(crate) fn arrive_down(&mut self, id: usize) {
        let loses = self.random.once_in(2);
        let conn = &mut self.kernel.conns[id];
        let Some(packet) = conn.down.packets.pop_front() else {
            return;
        };
        match packet {
            Packet::Bytes(bytes) => {
                conn.down.flying -= bytes.len();
                if conn.left {
                    return self.send_up(id, Packet::Rst);
                }
                conn.arrived.extend(bytes);
            }
            Packet::Fin => conn.fin = true,
            Packet::Rst => {
                conn.reset = true;
                if loses {
                    conn.arrived.clear(); // some systems throw away what was not read
                }
            }
        }
        let client = conn.client;
        self.wake_client(client);
    }
}

// --- what clients call ---------------------------------------------------------------------------------------------

impl World {
    /// Bytes that a client may send now.
    #[must_use]
    pub fn room(&self, id: usize) -> usize {
        let conn = &self.kernel.conns[id];
        self.weather.socket.saturating_sub(conn.up.flying + conn.inbox.len())
    }

    /// A client sends; no more than there is room for.
    pub fn client_sends(&mut self, id: usize, bytes: Vec<u8>) {
        let client = self.kernel.conns[id].client;
        self.note(|| format!("client {client}: sends {} bytes", bytes.len()));
        if !self.kernel.conns[id].up.over {
            self.send_up(id, Packet::Bytes(bytes));
        }
    }

    /// A client takes what has arrived.
    pub fn client_reads(&mut self, id: usize, most: usize) -> Vec<u8> {
        let arrived = &mut self.kernel.conns[id].arrived;
        let len = arrived.len().min(most);
        let bytes = take(arrived, len);
        if self.kernel.conns[id].sending.is_some() {
            self.push_later(id);
        }
        bytes
    }

    /// A client has finished sending.
    pub fn client_finishes(&mut self, id: usize) {
        if !self.kernel.conns[id].up.over {
            self.send_up(id, Packet::Fin);
        }
    }

    /// A client leaves: with a FIN, or with a reset.
    pub fn client_leaves(&mut self, id: usize, reset: bool) {
        let unread = !self.kernel.conns[id].arrived.is_empty();
        self.kernel.conns[id].left = true;
        self.kernel.conns[id].arrived.clear();
        if reset || unread {
            self.send_up(id, Packet::Rst);
        } else {
            self.client_finishes(id);
        }
        if self.kernel.conns[id].sending.is_some() {
            self.push_later(id);
        }
    }
}
