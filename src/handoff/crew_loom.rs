//! Models of a handler thread and the loop: what the thread says wakes a loop that parks, and a thread that is found in
//! a view which does not end is counted right, whatever it does at that moment.

use std::time::Duration;

use loom::thread;
use m0_platform::Clock;

use super::super::lane::STALL;
use super::super::loom_tests::work;
use super::*;

const ID: ExchangeId = ExchangeId {
    index: 0,
    generation: 0,
};

/// Frames are heard once and in order by a loop that parks whenever it has none.
#[test]
fn loom_seat_wakes_a_loop_that_parks() {
    loom::model(|| {
        let clock = Clock::manual().0;
        let waker = Waker::model();
        let (crew, mut side) = crew(1, Lane::new(1, 1, clock.clone(), false), waker.clone(), clock);
        let speaker = thread::spawn(move || {
            let mut seat = crew.sit().expect("a seat");
            for n in 0..2 {
                seat.push(Frame::WantBody(ID, n));
            }
            seat.flush();
        });
        let mut heard = 0;
        while heard < 2 {
            while let Some(frame) = side.frames[0].pop() {
                assert!(matches!(frame, Frame::WantBody(_, n) if n == heard), "in order (R2)");
                heard += 1;
            }
            waker.announce();
            if heard < 2 && !side.has_frames() {
                waker.block();
            }
            waker.retract();
        }
        speaker.join().unwrap();
    });
}

/// The loop takes a thread for one whose view does not end, just as that comes back and parks. It must count as awake
/// exactly while it is: one too many, and the next push would wake nobody.
#[test]
fn loom_crew_counts_a_thread_that_was_found_slow() {
    loom::model(|| {
        let (clock, hand) = Clock::manual();
        let waker = Waker::model();
        let (crew, mut side) = crew(1, Lane::new(1, 2, clock.clone(), false), waker, clock);
        let served = Arc::new(AtomicUsize::new(0));
        crew.lane.push(work(0));
        let seat = crew.sit().expect("a seat");
        let handler = thread::spawn({
            let (crew, served) = (crew.clone(), served.clone());
            move || {
                loop {
                    match crew.lane.pop() {
                        Some(work) => {
                            crew.begin(seat.index, [b"GET", b"/"]);
                            crew.end(seat.index, work.request.mount);
                            served.fetch_add(1, Ordering::Relaxed);
                        }
                        None if crew.lane.idle() => {}
                        None => return,
                    }
                }
            }
        });
        crew.lane.push(work(0));
        while side.look_for_stall() {
            hand.advance(STALL + Duration::from_nanos(1));
            thread::yield_now();
        }
        crew.lane.push(work(0));
        while served.load(Ordering::Relaxed) < 3 {
            thread::yield_now();
        }
        crew.lane.close();
        handler.join().unwrap();
    });
}
