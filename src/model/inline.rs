//! A handler thread's life where the threads run the loop themselves: turns of the loop, and views between them.
//!
//! What needs the interpreter is behind [`Between`], so that the models of the whole server schedule what serves. Who may
//! touch the loop stands at the head of [`super::baton`]. Keeps R5: a thread that is about to wait in the loop looks at the
//! lane once more after the wait was announced.

use std::io;
use std::time::Duration;

use m0_platform::sync::Arc;

use super::baton::{After, Baton};
use super::pump::LoopThread;
use crate::handoff::{Crew, Seat, Work};

/// What a thread does between two turns, and how it waits.
pub trait Between {
    /// Calls `f`, which may wait: without the interpreter.
    fn detached<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R;
    /// How long a turn may wait with the interpreter in the thread's hands, before it is given up for a longer wait.
    fn patience(&self) -> Duration;
    /// Whether what was said has waited so long for the turn's end that it leaves before the next view.
    fn is_late(&mut self) -> bool;
    /// What was said has left.
    fn left(&mut self);
    /// Serves one request.
    fn view(&mut self, work: Work, seat: Seat) -> Seat;
    /// A view is over, and the thread of this number has the loop.
    fn viewed(&mut self, index: usize);
}

/// Serves until the baton is closed.
///
/// # Errors
/// What the loop cannot go on from.
pub fn serve(crew: &Crew, baton: &Arc<Baton<LoopThread>>, mut seat: Seat, thread: &mut impl Between) -> io::Result<()> {
    let me = u8::try_from(seat.index).expect("fewer threads than that");
    let mut views = 0;
    baton.join(me);
    seat.runs(Box::new(Arc::clone(baton)));
    while thread.detached(|| baton.wait_for_call(me, || seat.ring())) {
        if !baton.accept(me, || seat.ring()) {
            continue;
        }
        loop {
            if baton.is_closed() {
                baton.retire(me);
                return Ok(());
            }
            let Some(work) = crew.lane.pop() else {
                if !turn(crew, baton, me, thread)? {
                    baton.end(me);
                    break;
                }
                thread.left();
                continue;
            };
            // Responses leave with the turn, since a client that is answered by several system calls in a row is woken once.
            if thread.is_late() {
                baton.with(me, LoopThread::let_out);
                thread.left();
            }
            views += 1;
            seat.lend(views);
            baton.lend(me, views);
            seat = thread.view(work, seat);
            seat.end_loan();
            match baton.reclaim(me, views) {
                After::Kept => {}
                // Whoever has the loop never waits for the GIL, which this thread keeps: views that compute would have it
                // for a switch interval each.
                After::Returning => {
                    seat.ring();
                    if !baton.wait_for_return(me) {
                        break;
                    }
                }
                After::Lost if baton.claim(me, || seat.ring()) => {}
                After::Lost => {
                    seat.ring();
                    break;
                }
            }
            thread.viewed(seat.index);
        }
    }
    Ok(())
}

/// One turn of the loop: at first without waiting for long, which needs no release of the interpreter. Returns false when the
/// loop is over.
fn turn(crew: &Crew, baton: &Baton<LoopThread>, me: u8, thread: &impl Between) -> io::Result<bool> {
    // The lane is looked at once more (R5): what another thread said may have let a pipelined request go on.
    let stay = || baton.is_closed() || !crew.lane.is_empty();
    let goes_on = baton.with(me, |turn| turn.turn(Some(thread.patience()), &stay))?;
    if !goes_on || !crew.lane.is_empty() {
        return Ok(goes_on);
    }
    thread.detached(|| baton.with(me, |turn| turn.turn(None, &stay)))
}
