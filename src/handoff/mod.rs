//! The seam between the engine and the hosts: what is said ([`Job`], [`Frame`]), the two links that carry it, and the
//! crew of handler threads that may stand beside either.

pub mod crew;
pub mod head;
pub mod lane;
pub mod link;
pub mod mailbox;
pub mod message;
mod posts;
pub mod ring;
pub mod routes;

pub use crew::{Crew, CrewLoop, Seat, crew};
pub use head::{BadHead, Framing, RequestHead, ResponseHead, Span, Upgrade, Version};
pub use lane::{Lane, Work};
pub use link::{Direct, Link, Outlet, RingHost, RingLoop, rings, rings_for};
pub use mailbox::Mailbox;
pub use message::{ExchangeId, Frame, Job, Request, Stop, WINDOW, Why, charge};
pub use routes::Routes;

#[cfg(all(test, feature = "loom"))]
mod loom_tests;
