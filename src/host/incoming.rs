//! A request's body on the host's side: what has arrived, and when to ask the engine for more.
//!
//! Keeps R7: the engine may send a window, and gets as much room again as the application took.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};

use crate::handoff::{ExchangeId, Frame, Outlet, Request, WINDOW, charge};

/// The body of one request.
#[derive(Debug)]
pub struct Incoming {
    id: ExchangeId,
    arrived: VecDeque<Bytes>,
    complete: bool,
    over: bool,
    /// How much of the first piece has been taken.
    of_first: usize,
    /// Charged bytes the application took since the engine was last told.
    taken: u32,
    /// The engine has not been asked for the body yet, and the client may wait for that.
    unasked: bool,
}

impl Incoming {
    /// Of a request that has just arrived; takes what of the body came with it.
    pub fn new(request: &mut Request) -> Self {
        let body = std::mem::take(&mut request.body);
        let mut arrived = VecDeque::new();
        if !body.is_empty() {
            arrived.push_back(body);
        }
        Incoming {
            id: request.id,
            arrived,
            complete: request.body_complete,
            over: false,
            of_first: 0,
            taken: 0,
            unasked: request.head.expect_continue && !request.body_complete,
        }
    }

    /// A piece arrived.
    pub fn push(&mut self, bytes: Bytes) {
        self.arrived.push_back(bytes);
    }

    /// The body is complete.
    pub fn finish(&mut self) {
        self.complete = true;
    }

    /// Nothing more arrives, whether the body is complete or not.
    pub fn end(&mut self) {
        self.over = true;
    }

    /// What has arrived is of no use any more.
    pub fn clear(&mut self) {
        self.arrived.clear();
    }

    /// Whether all that has arrived has been taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.arrived.is_empty()
    }

    /// Whether the body is complete, counting what has not been taken.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether nothing more arrives.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// All that has arrived: an application that is slower than its client must not pay for each packet. The flag says
    /// that the engine was given room by a frame that should leave now.
    pub fn take_all(&mut self, out: &mut impl Outlet) -> Option<(VecDeque<Bytes>, bool)> {
        if self.arrived.is_empty() {
            return None;
        }
        debug_assert_eq!(self.of_first, 0, "a body is taken in one way or the other");
        let pieces = std::mem::take(&mut self.arrived);
        self.taken += pieces.iter().map(|piece| charge(piece.len())).sum::<u32>();
        Some((pieces, self.give_room(out)))
    }

    /// At most `most` bytes of the oldest piece, which is not copied. The flag as of [`Incoming::take_all`].
    pub fn take(&mut self, most: usize, out: &mut impl Outlet) -> Option<(Bytes, bool)> {
        let piece = self.arrived.front_mut()?;
        if piece.len() > most {
            self.of_first += most;
            return Some((piece.split_to(most), false)); // its charge is given back with its last part
        }
        self.taken += charge(std::mem::take(&mut self.of_first) + piece.len());
        let piece = self.arrived.pop_front()?;
        Some((piece, self.give_room(out)))
    }

    /// Where the first `byte` is in what has arrived.
    #[must_use]
    pub fn find(&self, byte: u8) -> Option<usize> {
        let mut before = 0;
        for piece in &self.arrived {
            if let Some(at) = memchr::memchr(byte, piece.chunk()) {
                return Some(before + at);
            }
            before += piece.len();
        }
        None
    }

    /// Gives the engine room for as much as the application took, when it has become worth a frame.
    fn give_room(&mut self, out: &mut impl Outlet) -> bool {
        if self.complete || self.taken < WINDOW / 2 {
            return false;
        }
        self.unasked = false;
        out.push(Frame::WantBody(self.id, std::mem::take(&mut self.taken)));
        true
    }

    /// The application waits for the body: asks the engine for it, if that has not been done. Whether it was now.
    pub fn ask(&mut self, out: &mut impl Outlet) -> bool {
        if !std::mem::replace(&mut self.unasked, false) {
            return false;
        }
        out.push(Frame::WantBody(self.id, 0));
        true
    }
}

#[cfg(all(test, not(feature = "modelled")))]
mod tests {
    use super::*;

    struct Said(Vec<u32>);

    impl Outlet for Said {
        fn push(&mut self, frame: Frame) {
            match frame {
                Frame::WantBody(_, window) => self.0.push(window),
                other => panic!("{other:?}"),
            }
        }
    }

    fn incoming() -> Incoming {
        Incoming {
            id: ExchangeId {
                index: 0,
                generation: 0,
            },
            arrived: VecDeque::new(),
            complete: false,
            over: false,
            of_first: 0,
            taken: 0,
            unasked: false,
        }
    }

    /// What was charged is given back to the byte, also for pieces that are taken in parts or are tiny (R7).
    #[test]
    fn room_is_given_back_as_it_was_charged() {
        for most in [1, 7, 64, 1000, usize::MAX] {
            let (mut incoming, mut said, mut charged) = (incoming(), Said(Vec::new()), 0);
            for round in 0..2000 {
                let piece = Bytes::from(vec![0; 1 + round % 300]);
                charged += charge(piece.len());
                incoming.push(piece);
                while incoming.take(most, &mut said).is_some() {}
            }
            assert_eq!(said.0.iter().sum::<u32>() + incoming.taken, charged, "{most} at a time");
        }
    }

    #[test]
    fn bytes_are_found_across_pieces() {
        let mut incoming = incoming();
        incoming.push(Bytes::from_static(b"abc"));
        incoming.push(Bytes::from_static(b"de\nf"));
        assert_eq!(incoming.find(b'\n'), Some(5));
        assert_eq!(incoming.find(b'x'), None);
    }
}
