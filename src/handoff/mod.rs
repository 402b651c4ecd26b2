//! The seam between the engine and the hosts: what is said ([`Job`], [`Frame`]) and the two links that carry it.

pub mod head;
pub mod link;
pub mod message;
pub mod ring;

pub use head::{BadHead, Framing, RequestHead, ResponseHead, Span, Upgrade, Version};
pub use link::{Direct, Link, RingHost, RingLoop, rings};
pub use message::{ExchangeId, Frame, Job, Request, Stop, WINDOW, Why, charge};
