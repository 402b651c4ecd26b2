//! Who runs the four lines of a turn (docs/tour.md): the pump's loop thread, asyncio itself, or
//! whichever handler thread has the baton.

pub mod baton;
pub mod inline;
pub mod pump;

use crate::log::Logger;

/// Ends the process: nothing could be served any more, and a supervisor must see that rather than a server that hangs.
pub fn cannot_go_on(log: &Logger, error: &std::io::Error) -> ! {
    log.error("loop", format_args!("the event loop cannot go on: {error}"));
    std::process::exit(1)
}
