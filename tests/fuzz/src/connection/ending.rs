//! The end of a script: faults stop, the application answers everything, and all comes to rest within a bound.
//!
//! Then clients fall silent, and every connection ends by itself; nothing is left (R9).

use std::time::Duration;

use super::super::script::{End, Flow};
use super::exchange::{Mode, Said};
use super::input::After;
use super::world::World;

/// Rounds in which the application answers all that it has been told of.
const ROUNDS: usize = 40_000;

impl World {
    pub fn end(mut self) {
        for id in 0..self.clients.len() {
            self.rig.net.peer(id, |peer| {
                if peer.flow != Flow::Broken {
                    peer.flow = Flow::Free;
                }
            });
            self.clients[id].slow = false;
        }
        self.answer_all();
        self.pass_time(Duration::from_secs(1)); // before the reset of what was cut short
        self.answer_all();
        for id in 0..self.clients.len() {
            self.check_served(id);
        }
        // Accepting that fails is tried again soon; time-outs and lingering take less than twelve.
        for seconds in [2 * self.accept_fails + 1, 12] {
            self.pass_time(Duration::from_secs(seconds));
            self.answer_all();
        }
        self.check_over();
        assert_eq!(self.rig.stopped(), u32::from(self.stopping), "a stop ends once");
        for id in 0..self.clients.len() {
            self.rig.net.end(id, End::Reset);
        }
        self.rig.over();
    }

    /// The application answers what it is told of until there is nothing more.
    fn answer_all(&mut self) {
        self.turn(After::Rest);
        let mut rounds = 0..ROUNDS;
        while !self.live.is_empty() {
            rounds.next().expect("an end of answering");
            for serial in self.live.clone() {
                self.answer(serial);
            }
            self.turn(After::Rest);
        }
    }

    /// The application goes on with a response until it is complete, as far as its window allows.
    fn answer(&mut self, serial: usize) {
        let exchange = &self.exchanges[serial];
        if exchange.heard_gone || exchange.said != Said::Open {
            return self.release(serial);
        }
        if exchange.planned.is_none() {
            self.want(serial, 1 << 20);
            self.head(serial, 200, Some(3), false);
        }
        let lacking = usize::try_from(self.exchanges[serial].lacking()).expect("a small body");
        if lacking > 0 {
            self.chunk(serial, lacking.min(20_000));
        }
        if self.exchanges[serial].lacking() == 0 {
            self.finish(serial);
            self.release(serial);
        }
    }

    /// All that a client has asked for is answered, or its connection is over; and that only for a reason.
    fn check_served(&self, id: usize) {
        let client = &self.clients[id];
        if client.hurt || self.stopped_now || self.rig.net.is_arriving(id) {
            return;
        }
        let (over, reset) = self.rig.net.peer(id, |peer| (peer.closed || peer.fin, peer.reset));
        assert!(over || !client.refused, "what must be refused was not");
        if !over {
            assert!(client.is_served(), "a response is missing, of {:?}", client.told);
            assert_eq!(client.told.len(), client.sent.len(), "a request was not told");
            assert!(!client.fin, "a connection that the client has finished stays");
            return;
        }
        let complete = |serial: &usize| self.exchanges[*serial].said == Said::Done;
        let whole = client.told.iter().all(complete);
        let by_closing = |serial: &usize| {
            let mode = self.exchanges[*serial].planned.map(|planned| planned.mode);
            mode == Some(Mode::UntilClose)
        };
        if client.told.last().is_some_and(by_closing) {
            assert_eq!(reset, !whole, "a reset tells what is cut from what is whole");
        }
        let unasked = !client.refused && !client.fin && !self.stopping && self.rig.stats().timed_out == 0;
        if unasked && whole && client.is_served() {
            assert!(
                client.close,
                "a connection closed that was to be kept, after {:?}",
                client.told
            );
        }
    }

    /// Every connection has ended.
    fn check_over(&self) {
        for id in 0..self.clients.len() {
            let closed = self.rig.net.peer(id, |peer| peer.closed);
            let left_out = self.stopping && self.rig.net.is_arriving(id);
            assert!(closed || left_out, "client {id} is still there");
        }
        assert!(self.live.is_empty());
        let stats = self.rig.stats();
        let done = self
            .exchanges
            .iter()
            .filter(|exchange| exchange.said == Said::Done)
            .count();
        assert_eq!(
            (stats.connections, stats.exchanges),
            (0, 0),
            "what is made is freed (R9)"
        );
        // One with a file that was too short was complete by what the application said.
        let short = self.exchanges.iter().filter(|exchange| exchange.short).count();
        let counted = stats.responses as usize;
        assert!(
            (done..=done + short).contains(&counted),
            "{counted} responses counted, of {done} and {short}"
        );
    }
}
