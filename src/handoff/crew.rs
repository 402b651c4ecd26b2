//! Handler threads beside a loop: requests go to a [`Lane`], what follows to the exchange's [`Mailbox`], frames come
//! back by a ring of each thread.
//!
//! An exchange stays on the thread that popped its request, so its frames travel in one FIFO (R2). The loop forgets a
//! mailbox when the exchange's `Released` comes by (R4).

use std::time::Duration;

use m0_platform::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use m0_platform::sync::{Arc, Mutex};
use m0_platform::{Clock, Instant, Waker};

use super::lane::{Lane, Look, Work};
use super::link::Outlet;
use super::mailbox::Mailbox;
use super::message::{ExchangeId, Frame, Job};
use super::posts::{Post, Seen};
use super::ring::{Consumer, Producer, ring};
use crate::engine::Engine;

/// Frames of one thread that the loop has not taken. A thread that finds its ring full waits: the loop never does. A model
/// has few, so that it comes to that.
const FRAMES: usize = if cfg!(feature = "modelled") { 2 } else { 1024 };

/// How often a thread is looked at that may have begun to wait.
const LOOK_EVERY: Duration = Duration::from_micros(500);

/// What the threads share.
pub struct Crew {
    /// Requests.
    pub lane: Lane,
    seats: Mutex<Vec<Seat>>,
    posts: Vec<Post>,
    /// How many are at something.
    at_work: AtomicUsize,
    to_loop: Waker,
    /// This is a child that an application forked. What is shared with its parent, sockets among them, is not its own.
    forked: Arc<AtomicBool>,
    /// The loop takes nothing any more.
    ended: Arc<AtomicBool>,
}

/// A loop that a thread lends while it is in a view. Boxed where it is kept: loom's `Arc` cannot hold a `dyn`.
pub trait Lender: Send + Sync {
    /// Lets out what was said, if the thread still lends the loop. Whether it did.
    fn let_out(&self, thread: usize, n: u64) -> bool;
    /// The thread gives the loop up. Whether the loop's waker must be rung.
    fn give_up(&self, thread: usize, n: u64) -> bool;
}

/// One thread's way to speak to the loop.
pub struct Seat {
    frames: Producer<Frame>,
    to_loop: Waker,
    /// The loop that the thread runs between its views, where it does.
    lender: Option<Box<dyn Lender>>,
    /// The number of the view that the thread has lent it for.
    lent: Option<u64>,
    forked: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
    /// Which thread.
    pub index: usize,
}

/// The loop's side.
pub struct CrewLoop {
    crew: Arc<Crew>,
    frames: Vec<Consumer<Frame>>,
    /// By the exchange's slot.
    boxes: Vec<Option<(ExchangeId, Arc<Mailbox>)>>,
    look: Option<Look>,
    /// The threads run the loop themselves, with the baton: none waits at the lane.
    inline: bool,
    right: Option<Right>,
    seen: Vec<Seen>,
    clock: Clock,
}

/// What is known of the view whose thread may keep the right to start views.
#[derive(Clone, Copy, Debug)]
struct Right {
    thread: u8,
    n: u64,
    /// When it was last looked at.
    looked: Instant,
}

/// A crew of so many threads at a lane, none of which has taken its seat yet. `to_loop` wakes the loop.
#[must_use]
pub fn crew(threads: usize, lane: Lane, to_loop: Waker, clock: Clock) -> (Arc<Crew>, CrewLoop) {
    let (mut seats, mut frames) = (Vec::new(), Vec::new());
    let (forked, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    for index in (0..threads).rev() {
        let (producer, consumer) = ring(FRAMES);
        frames.push(consumer);
        seats.push(Seat {
            frames: producer,
            to_loop: to_loop.clone(),
            lender: None,
            lent: None,
            forked: forked.clone(),
            ended: ended.clone(),
            index,
        });
    }
    let crew = Arc::new(Crew {
        lane,
        seats: Mutex::new(seats),
        posts: (0..threads).map(|_| Post::default()).collect(),
        at_work: AtomicUsize::new(0),
        to_loop,
        forked,
        ended,
    });
    let side = CrewLoop {
        crew: crew.clone(),
        frames,
        boxes: Vec::new(),
        look: None,
        inline: false,
        right: None,
        seen: vec![Seen::default(); threads],
        clock,
    };
    (crew, side)
}

impl Crew {
    /// The calling thread's seat, once; none when all are taken.
    #[must_use]
    pub fn sit(&self) -> Option<Seat> {
        let seat = self
            .seats
            .lock()
            .expect("nothing panics while it holds the seats")
            .pop()?;
        self.posts[seat.index].take();
        self.lane.join();
        self.ring(); // the loop may have found nobody to wake for what is queued
        Some(seat)
    }

    /// Ends the wait of whoever runs the loop.
    pub fn ring(&self) {
        self.to_loop.wake();
    }

    /// Says that this is a child that an application forked. Takes no lock: another thread may have held it.
    pub fn set_forked(&self) {
        self.forked.store(true, Ordering::Relaxed);
    }

    /// Whether it is.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.forked.load(Ordering::Relaxed)
    }

    /// How many threads it is made for.
    #[must_use]
    pub fn size(&self) -> usize {
        self.posts.len()
    }

    /// A thread goes into a view that it has popped, of a request with this method and path.
    pub fn begin(&self, index: usize, [method, path]: [&[u8]; 2]) {
        self.at_work.fetch_add(1, Ordering::Relaxed);
        self.posts[index].begin([method, b" ", path]);
    }

    /// The view, of this application, is over.
    pub fn end(&self, index: usize, application: u16) {
        self.at_work.fetch_sub(1, Ordering::Relaxed);
        let slow = self.posts[index].end();
        self.lane.done(application, slow);
    }

    /// What the threads are at.
    #[must_use]
    pub fn at_work(&self) -> Vec<String> {
        self.posts.iter().filter_map(Post::at).collect()
    }

    /// Whether threads other than the calling one, which has just finished, are within views.
    #[must_use]
    pub fn has_others_at_work(&self) -> bool {
        self.at_work.load(Ordering::Relaxed) > 0
    }

    /// Whether another thread than that one seems to have come back from a wait within its view since this was last asked,
    /// and so to want the GIL. A few system calls.
    #[must_use]
    pub fn has_returned(&self, index: usize) -> bool {
        let mut returned = false;
        for (at, post) in self.posts.iter().enumerate() {
            returned |= at != index && post.has_returned();
        }
        returned
    }

    /// Whether a view has been found that computes beside others, or for long.
    #[must_use]
    pub fn has_computing(&self) -> bool {
        self.posts.iter().any(Post::computes)
    }

    /// Whether a thread may want the GIL: it is within a view, or there is something to be begun.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.has_others_at_work() || !self.lane.is_empty()
    }
}

impl Outlet for Seat {
    /// Waits while the ring is full, which the loop empties whatever the threads do, until it has ended: then nobody hears
    /// what is said.
    fn push(&mut self, mut frame: Frame) {
        while let Err(back) = self.frames.push(frame) {
            if self.ended.load(Ordering::Relaxed) {
                return;
            }
            frame = back;
            self.to_loop.wake();
            m0_platform::thread::yield_now();
        }
    }
}

impl Seat {
    /// Whether this is a forked child's copy, by which nothing may be said.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.forked.load(Ordering::Relaxed)
    }

    /// Whether so many frames can be pushed without a wait.
    pub fn has_room(&mut self, frames: usize) -> bool {
        self.frames.has_room_for(frames) || self.ended.load(Ordering::Relaxed)
    }

    /// What was said is heard now.
    pub fn flush(&self) {
        let heard = match (&self.lender, self.lent) {
            (Some(lender), Some(n)) => lender.let_out(self.index, n),
            _ => false,
        };
        if !heard {
            self.to_loop.wake();
        }
    }

    /// What was said is heard, and the thread is about to wait within its view: it lends the loop no longer, but gives it
    /// up.
    pub fn about_to_wait(&mut self) {
        match (&self.lender, self.lent.take()) {
            (Some(lender), Some(n)) if !lender.give_up(self.index, n) => {}
            _ => {
                self.to_loop.wake();
            }
        }
    }

    /// The thread runs this loop between its views.
    pub fn runs(&mut self, lender: Box<dyn Lender>) {
        self.lender = Some(lender);
    }

    /// The thread lends the loop for its `n`th view.
    pub fn lend(&mut self, n: u64) {
        self.lent = Some(n);
    }

    /// The view is over.
    pub fn end_loan(&mut self) {
        self.lent = None;
    }

    /// Ends the wait of whoever runs the loop.
    pub fn ring(&self) {
        self.to_loop.wake();
    }
}

/// What a lane that does not move asks: who waits in a view, or computes in it for long or beside others, does not count as
/// awake until it is back.
fn find_slow(crew: &Crew, seen: &mut [Seen], now: Instant) {
    let is_shared = crew.has_computing();
    for (post, seen) in crew.posts.iter().zip(seen) {
        if !post.counts_as_awake() {
            continue;
        }
        seen.look(post, now);
        let is_short = seen.computes && !is_shared && !seen.is_long();
        if !is_short && post.mark_slow(*seen) {
            crew.lane.leave();
        }
    }
}

impl CrewLoop {
    /// Hands a job to the thread that it is for, or to the lane.
    pub fn give(&mut self, job: Job) {
        let Some(id) = job.exchange() else {
            return; // the host beside is told
        };
        let index = id.index as usize;
        if let Job::Request(request) = job {
            let mailbox = Arc::new(Mailbox::default());
            if self.boxes.len() <= index {
                self.boxes.resize_with(index + 1, || None);
            }
            self.boxes[index] = Some((id, mailbox.clone()));
            return self.crew.lane.push(Work { request, mailbox });
        }
        // Released, and on its way to the engine: nobody is there to be told any more (R3).
        if let Some(Some((of, mailbox))) = self.boxes.get(index)
            && *of == id
        {
            mailbox.put(job);
        }
    }

    /// Applies what the threads have said. Bounded by their rings.
    pub fn take_frames(&mut self, engine: &mut Engine) {
        let mut looked = false;
        for frames in &mut self.frames {
            for _ in 0..FRAMES {
                let Some(frame) = frames.pop() else { break };
                if !std::mem::replace(&mut looked, true) {
                    engine.look_at_clock();
                }
                if let Frame::Released(id) = frame
                    && let Some(slot) = self.boxes.get_mut(id.index as usize)
                    && slot.as_ref().is_some_and(|(of, _)| *of == id)
                {
                    *slot = None;
                }
                engine.apply(frame);
            }
        }
    }

    /// Nothing that the threads say is taken any more, and none of them waits for that.
    pub fn end(&self) {
        self.crew.ended.store(true, Ordering::Relaxed);
    }

    /// Whether an exchange is on a thread, or on its way to one.
    #[must_use]
    pub fn has(&self, id: ExchangeId) -> bool {
        let slot = self.boxes.get(id.index as usize);
        slot.is_some_and(|slot| slot.as_ref().is_some_and(|(of, _)| *of == id))
    }

    /// Whether a thread has said something.
    pub fn has_frames(&mut self) -> bool {
        self.frames.iter_mut().any(|frames| !frames.is_empty())
    }

    /// From here on the threads run the loop themselves.
    #[must_use]
    pub fn inline(mut self) -> Self {
        self.inline = true;
        self
    }

    /// Whether a thread keeps the right to start views within its `n`th: it computes, and has not for so long that others
    /// who wait should share the GIL with it.
    pub fn keeps_right(&mut self, thread: u8, n: u64, now: Instant) -> bool {
        if let Some(right) = &self.right
            && (right.thread, right.n) == (thread, n)
            && now.since(right.looked) < LOOK_EVERY
        {
            return true;
        }
        self.right = Some(Right { thread, n, looked: now });
        let thread = usize::from(thread);
        let (post, seen) = (&self.crew.posts[thread], &mut self.seen[thread]);
        seen.look(post, now);
        if !seen.computes || self.crew.lane.is_empty() {
            return seen.computes;
        }
        // With another view that computes the GIL is shared already, and who waits should have a share.
        let keeps = !seen.is_long() && !self.crew.has_computing();
        if !keeps {
            post.mark_computing(*seen);
        }
        keeps
    }

    /// Requests that wait for a thread.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.crew.lane.waiting()
    }

    /// Looks for a stalled lane. Returns whether to look again within [`super::lane::STALL`].
    pub fn look_for_stall(&mut self) -> bool {
        let CrewLoop {
            crew,
            seen,
            look,
            clock,
            ..
        } = self;
        !self.inline && crew.lane.look_for_stall(look, || find_slow(crew, seen, clock.now()))
    }
}

#[cfg(all(test, feature = "loom"))]
#[path = "crew_loom.rs"]
mod loom_tests;
