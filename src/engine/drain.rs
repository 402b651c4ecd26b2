//! The end: draining and stopping (R11).
//!
//! A drain serves what has come: the connections that the kernel had taken, the requests that lay in their sockets, the
//! heads that had begun, and, on a connection whose response had promised to keep it, the requests behind that one.
//! Everything else closes, and what is served says `connection: close` wherever its head has not left yet.

use std::time::Duration;

use m0_platform::{Completion, canary};

use super::Engine;
use super::conn::{Conn, Phase, Timer};
use super::core::Core;
use super::exchange::Response;
use crate::handoff::{Stop, Why};

/// Waits of no time, at most, in which a drain takes what has come. One takes 64 connections from a listener's backlog,
/// which holds 2,048, and each connection takes one more for its bytes.
const LAST_LOOKS: u32 = 64;
/// What a drain gives a connection that has not sent a byte yet: it has its request on the way, or else is one that its
/// client keeps in reserve.
const FIRST_BYTE: Duration = Duration::from_secs(1);
/// What it gives a head that has begun: time for a packet that was lost to be sent again.
const REST_OF_HEAD: Duration = Duration::from_secs(2);

impl Engine {
    /// Accepts no more, and drains or closes everything.
    pub(super) fn stop(&mut self, how: Stop) {
        if how == Stop::Drain && !self.core.draining {
            self.take_what_has_come();
            if self.accept_again.is_some() {
                // What waits in the backlog waits for descriptors, and what is idle has them. It is no drain yet: one is
                // over once there are no connections, and there may be none in between.
                self.core.end_idle();
                self.take_what_has_come();
            }
        }
        for listener in self.listeners.drain(..) {
            self.backend.unlisten(listener);
        }
        self.accept_again = None;
        match how {
            Stop::Drain => self.core.drain(),
            Stop::Now => self.core.stop(),
        }
    }

    /// Closing a listener resets what waits in its backlog, and closing a connection loses the request that lies in its
    /// socket: clients that had been served a moment ago would be told nothing.
    fn take_what_has_come(&mut self) {
        for _ in 0..LAST_LOOKS {
            self.flush();
            let time = Duration::from_secs(u64::from(canary!("r11-drain-waits")));
            if self.backend.wait(Some(time)).is_err() {
                return; // said by the next turn's wait
            }
            let mut found = false;
            while let Some(completion) = self.backend.next() {
                // Foreign descriptors are found again by the next turn's wait.
                if !matches!(completion, Completion::Foreign { .. }) {
                    found = true;
                    self.complete(completion);
                }
            }
            if !found {
                break;
            }
        }
        self.flush();
    }
}

impl Core {
    /// Starts to drain: what is idle closes, the rest after its response.
    fn drain(&mut self) {
        self.draining = true;
        self.end_idle();
    }

    /// What is idle closes.
    fn end_idle(&mut self) {
        for token in self.tokens() {
            self.with_conn(token, Core::drain_conn);
        }
    }

    fn drain_conn(&mut self, conn: &mut Conn) {
        if conn.phase != Phase::Open {
            conn.touched |= conn.phase == Phase::Linger; // as below
            return;
        }
        if let Some(id) = conn.exchange {
            let exchange = self.exchanges.get(id).expect("an attached exchange is open");
            if exchange.response == Response::Complete {
                // Only the rest of its request was awaited, for the sake of the requests that would have followed.
                self.leave(conn, id);
                conn.finish();
            }
        } else if conn.is_idle() && (conn.served > 0 || self.is_in_reserve(conn)) {
            self.finish_idle(conn);
        } else {
            conn.touched = true; // its time-out is shorter from here on
        }
    }

    /// Whether a connection has been silent for so long that its first request is not merely on the way.
    fn is_in_reserve(&self, conn: &Conn) -> bool {
        let Some(rest) = self.settings.header_timeout.checked_sub(FIRST_BYTE) else {
            return false;
        };
        conn.timer == Timer::Fresh && conn.deadline <= self.wheel.tick_after(self.now, rest)
    }

    /// How long a head may take; in a drain there is not that much time.
    pub(super) fn head_time(&self, timer: Timer) -> Duration {
        let most = match timer {
            _ if !self.draining => Duration::MAX,
            Timer::Fresh => FIRST_BYTE,
            _ => REST_OF_HEAD,
        };
        self.settings.header_timeout.min(most)
    }

    /// In a drain a connection goes on after its response only for what has come already, if it was promised to.
    pub(super) fn goes_on(&self, conn: &Conn, promised: bool) -> bool {
        promised && !(self.draining && conn.pending.is_empty())
    }

    /// Closes everything.
    fn stop(&mut self) {
        self.draining = true;
        // Responses that the host has completed: it cannot name them any more. The pump's host says this twice, and what
        // the first time has cut off may be closing still.
        let untaken = |conn: &Conn| conn.phase != Phase::Closed && conn.exchange.is_none() && !conn.output.is_empty();
        match self.conns.iter().flatten().filter(|conn| untaken(conn)).count() {
            0 => {}
            1 => self.log.warn(
                "cut off",
                "1 response was cut off that its client had not taken in full",
            ),
            count => {
                let what = format_args!("{count} responses were cut off that their clients had not taken in full");
                self.log.warn("cut off", what);
            }
        }
        for token in self.tokens() {
            self.with_conn(token, |core, conn| core.kill(conn, Why::Stopping));
        }
    }

    fn tokens(&self) -> Vec<m0_platform::Token> {
        self.conns.iter().flatten().map(|conn| conn.token).collect()
    }

    /// Whether a drain has nothing more to wait for. A connection that lingers after its response counts, for the little
    /// time it has: the end of the process would reset it, and could destroy the response on its way.
    pub(super) fn is_drained(&self) -> bool {
        self.conns.iter().flatten().all(|conn| conn.phase == Phase::Closed)
    }
}
