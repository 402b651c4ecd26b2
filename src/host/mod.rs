//! Hosts turn jobs into calls of an application, and what it says into frames. The engine never knows which it talks to.

pub mod forwarded;

#[cfg(feature = "python")]
pub mod asgi;
