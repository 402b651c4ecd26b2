//! The connection state machine: the real engine between a scripted network and a scripted application.
//!
//! Clients send arbitrary bytes in arbitrary pieces, finish, reset, stop reading; sends are cut, fail; time passes; the
//! application says what it likes, late, early, or against the rules. What can be seen of the rules is checked after
//! every step ([`world`], [`client`]), and when the script is over, that everything comes to its end ([`ending`]).

mod client;
mod ending;
mod exchange;
mod input;
mod steps;
mod world;

pub use input::Input;

use world::World;

impl Input {
    /// Panics when the engine breaks a rule.
    pub fn check(&self) {
        let mut world = World::new(self.settings);
        for (step, after) in &self.steps {
            world.step(step);
            world.turn(*after);
        }
        world.end();
    }
}
