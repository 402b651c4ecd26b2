//! The scripted network of the engine's tests, in which the loop's wait is one that shuttle sees.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use m0_platform::{Backend, Hand, Sleeper, Waker};
use m0serve::handoff::lane::STALL;

use super::script::{self, Net};

/// A network with clients that are threads.
#[derive(Clone)]
pub struct Network {
    /// What they have sent and received.
    pub net: Net,
    /// The loop's.
    pub waker: Waker,
    /// Clients that may wait for something to happen.
    clients: Arc<Mutex<Vec<Sleeper>>>,
}

impl Network {
    /// A network without clients.
    pub fn new() -> Network {
        Network {
            net: Net::default(),
            waker: Waker::model(),
            clients: Arc::default(),
        }
    }

    /// The loop's backend, whose short waits pass by themselves.
    pub fn backend(&self, hand: Hand) -> Box<dyn Backend> {
        let kernel = Waits {
            network: self.clone(),
            hand,
            activity: 0,
        };
        self.net.backend(self.waker.clone(), Some(Box::new(kernel)))
    }

    /// The calling thread is a client from here on.
    pub fn join(&self) {
        self.clients.lock().expect("no panic").push(Sleeper::current());
    }

    fn tell_clients(&self) {
        let clients = self.clients.lock().expect("no panic").clone();
        clients.iter().for_each(Sleeper::wake);
    }

    /// A client has done something that the loop may wait for.
    pub fn stir(&self) {
        self.waker.nudge();
    }
}

/// Waits for the loop, as a kernel does.
struct Waits {
    network: Network,
    hand: Hand,
    activity: u64,
}

impl script::Kernel for Waits {
    fn wait(&mut self, timeout: Option<Duration>) {
        match timeout {
            // It hears the bell, as every wait does.
            Some(Duration::ZERO) => self.network.waker.block_unless(|| true),
            Some(limit) if limit <= STALL => {
                self.hand.advance(limit);
                m0_platform::thread::yield_now();
            }
            // Time-outs are not waited for: they would end waits whose wake was lost.
            _ => self.network.waker.block_unless(|| self.network.net.poll()),
        }
    }

    fn moved(&mut self) {
        let activity = self.network.net.activity();
        if std::mem::replace(&mut self.activity, activity) != activity {
            self.network.tell_clients();
        }
    }
}

impl Drop for Waits {
    /// The backend is shut down: clients whose connections it closed last have not heard of it.
    fn drop(&mut self) {
        self.network.tell_clients();
    }
}
