//! A response on the host's side: its head until the first body bytes are there, its length, and the window.
//!
//! Keeps R7: [`WINDOW`] charged bytes may be on their way; a larger body is copied piece by piece.

use bytes::Bytes;

use crate::handoff::{ExchangeId, Frame, Outlet, ResponseHead, WINDOW, charge};

/// Pieces that a large body is copied in: each costs a send, so they are as large as common streams' chunks.
pub const PIECE: usize = 64 * 1024;

/// What is wrong with the body of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misuse {
    /// More than its Content-Length.
    TooLong,
    /// Less.
    TooShort,
}

impl Misuse {
    /// What the application's error says.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self {
            Misuse::TooLong => "Response content longer than Content-Length",
            Misuse::TooShort => "Response content shorter than Content-Length",
        }
    }
}

/// The response of one exchange.
#[derive(Debug)]
pub struct Outgoing {
    id: ExchangeId,
    is_head: bool,
    head: Option<Box<ResponseHead>>,
    head_sent: bool,
    /// Its body is not written.
    bodiless: bool,
    remaining: Option<u64>,
    outstanding: u32,
}

impl Outgoing {
    /// Of a request, whose method may be HEAD.
    #[must_use]
    pub fn new(id: ExchangeId, is_head: bool) -> Self {
        Outgoing {
            id,
            is_head,
            head: None,
            head_sent: false,
            bodiless: false,
            remaining: None,
            outstanding: 0,
        }
    }

    /// Its head, which leaves with the first body bytes: until then it may be replaced.
    pub fn start(&mut self, head: ResponseHead) {
        self.bodiless = self.is_head || matches!(head.status, 204 | 304);
        self.remaining = if self.bodiless { None } else { head.content_length };
        self.head = Some(Box::new(head));
    }

    /// Whether the head has been handed over.
    #[must_use]
    pub fn is_head_sent(&self) -> bool {
        self.head_sent
    }

    /// Whether the response's body is not written.
    #[must_use]
    pub fn is_bodiless(&self) -> bool {
        self.bodiless
    }

    /// All of the body is `len` bytes: says so in the head, if the head has not left, says nothing of it and has room. Of
    /// HEAD an application often gives no body at all, which says nothing about GET's.
    pub fn announce(&mut self, len: u64) {
        let Some(head) = &mut self.head else { return };
        if self.is_head && len == 0 {
            return;
        }
        if head.content_length.is_none() && !matches!(head.status, 204 | 304) {
            let digits = len.to_string();
            // What is wrong with it can only be that the head is as large as it may be; then something else ends the body.
            if head.push(b"content-length", digits.as_bytes()).is_ok() {
                self.remaining = (!self.bodiless).then_some(len);
            }
        }
    }

    /// How many bytes its Content-Length leaves.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        self.remaining
    }

    /// Counts body bytes against the announced length.
    ///
    /// # Errors
    /// When they do not fit; the connection must not go on.
    pub fn account(&mut self, len: u64, last: bool) -> Result<(), Misuse> {
        let Some(remaining) = &mut self.remaining else {
            return Ok(());
        };
        *remaining = remaining.checked_sub(len).ok_or(Misuse::TooLong)?;
        if last && *remaining > 0 {
            return Err(Misuse::TooShort);
        }
        Ok(())
    }

    /// Hands the head over if it has not been.
    pub fn push_head(&mut self, out: &mut impl Outlet) {
        if let Some(head) = self.head.take() {
            self.head_sent = true;
            out.push(Frame::Head(self.id, head));
        }
    }

    /// Copies and hands over one piece of at most [`PIECE`] bytes.
    pub fn push_piece(&mut self, bytes: &[u8], out: &mut impl Outlet) {
        debug_assert!(bytes.len() <= PIECE && self.has_window());
        if !bytes.is_empty() {
            self.outstanding += charge(bytes.len());
            out.push(Frame::Chunk(self.id, Bytes::copy_from_slice(bytes)));
        }
    }

    /// Whether the window has room.
    #[must_use]
    pub fn has_window(&self) -> bool {
        self.outstanding < WINDOW
    }

    /// Bytes have left.
    pub fn credit(&mut self, charged: u32) {
        debug_assert!(
            self.outstanding >= charged || self.outstanding == 0,
            "credit gives back what was charged (R7)"
        );
        self.outstanding = self.outstanding.saturating_sub(charged);
    }

    /// Nothing is on its way any more: the connection is gone, or the exchange over.
    pub fn reset(&mut self) {
        self.outstanding = 0;
    }
}

#[cfg(all(test, not(feature = "modelled")))]
mod tests {
    use super::*;
    use crate::handoff::head::MAX_RESPONSE_FIELDS;

    /// A failed assertion ended the process: the application had filled its head to the last bytes.
    #[test]
    fn a_full_head_has_no_room_for_the_length() {
        let id = ExchangeId {
            index: 0,
            generation: 0,
        };
        for (spare, announced) in [(0, None), ("content-length: 7\r\n".len(), Some(7))] {
            let mut head = ResponseHead::new(200).expect("a status");
            let value = vec![b'v'; MAX_RESPONSE_FIELDS - "x: \r\n".len() - spare];
            head.push(b"x", &value).expect("it fits");
            let mut outgoing = Outgoing::new(id, false);
            outgoing.start(head);
            outgoing.announce(7);
            assert_eq!(outgoing.remaining(), announced);
        }
    }
}
