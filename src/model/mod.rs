//! Who runs the four lines of a turn (docs/tour.md): the pump's loop thread, or asyncio itself.

pub mod pump;
