//! What a connection has still to send: a queue of sends, one of them in flight.
//!
//! Small pieces are composed into one buffer; a large body rides behind it as a second piece and is not copied again.
//! The queue is bounded by its producers: an exchange has at most its window on the way (R7), and no further request
//! of a connection is dispatched while [`Output::is_high`].

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use bytes::Bytes;
use m0_platform::SendBuf;

use crate::handoff::ExchangeId;

/// Bodies up to this many bytes are copied behind what is composed already: one piece is cheaper to send than two.
const COPY_LIMIT: usize = 8 * 1024;
/// A composed buffer is not extended past this.
const COMPOSE_LIMIT: usize = 64 * 1024;
/// Above this many queued bytes no further request of the connection is dispatched: the high-water mark.
const HIGH_WATER: usize = 64 * 1024;

/// One send.
#[derive(Debug)]
pub enum Piece {
    /// Bytes, and whom to credit for them.
    Bytes(SendBuf, Owner),
    /// A range of a file.
    File {
        /// The open file.
        file: OwnedFd,
        /// First byte.
        offset: u64,
        /// How many.
        len: u64,
        /// Whose response it belongs to.
        owner: Owner,
    },
}

/// The exchange whose body bytes a send carries, and what it was charged for them. A send that carries the end of one
/// response and the start of the next belongs to the next: the first is complete and needs no credit any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The exchange; none when only framing is sent.
    pub id: Option<ExchangeId>,
    /// What it gets back.
    pub charge: u32,
    /// Length of the file, when it is a file.
    pub file: Option<u64>,
}

/// The output side of one connection.
#[derive(Debug, Default)]
pub struct Output {
    queue: VecDeque<Piece>,
    in_flight: Option<Owner>,
}

impl Output {
    /// Where small things are appended; taken from `pool` when a new buffer has to be opened.
    pub fn tail(&mut self, pool: &mut BufPool) -> &mut Vec<u8> {
        let open = match self.queue.back() {
            Some(Piece::Bytes(buf, _)) => buf.body.is_empty() && buf.bytes.len() < COMPOSE_LIMIT,
            _ => false,
        };
        if !open {
            let buf = SendBuf {
                bytes: pool.take(),
                body: Bytes::new(),
            };
            self.queue.push_back(Piece::Bytes(buf, Owner::default()));
        }
        match self.queue.back_mut() {
            Some(Piece::Bytes(buf, _)) => &mut buf.bytes,
            _ => unreachable!("a bytes piece was pushed above"),
        }
    }

    /// Appends body bytes of an exchange, charged so much.
    pub fn push_body(&mut self, id: ExchangeId, bytes: Bytes, charge: u32, pool: &mut BufPool) {
        let tail = self.tail(pool);
        let shared = if bytes.len() <= COPY_LIMIT {
            tail.extend_from_slice(&bytes);
            None
        } else {
            Some(bytes)
        };
        let Some(Piece::Bytes(buf, owner)) = self.queue.back_mut() else {
            unreachable!("tail() left a bytes piece at the back")
        };
        if owner.id != Some(id) {
            *owner = Owner {
                id: Some(id),
                charge: 0,
                file: None,
            };
        }
        owner.charge = owner.charge.saturating_add(charge);
        if let Some(bytes) = shared {
            buf.body = bytes;
        }
    }

    /// Appends a range of a file, the body of an exchange.
    pub fn push_file(&mut self, id: ExchangeId, file: OwnedFd, offset: u64, len: u64) {
        let owner = Owner {
            id: Some(id),
            charge: 0,
            file: Some(len),
        };
        self.queue.push_back(Piece::File {
            file,
            offset,
            len,
            owner,
        });
    }

    /// The next send, when none is in flight. The caller hands it to the backend.
    pub fn start_next(&mut self) -> Option<Piece> {
        if self.in_flight.is_some() {
            return None;
        }
        loop {
            let piece = self.queue.pop_front()?;
            let owner = match &piece {
                Piece::Bytes(buf, _) if buf.is_empty() => continue,
                Piece::Bytes(_, owner) | Piece::File { owner, .. } => *owner,
            };
            self.in_flight = Some(owner);
            return Some(piece);
        }
    }

    /// The send in flight is over: whose it was.
    pub fn finished(&mut self) -> Owner {
        self.in_flight
            .take()
            .expect("a send completed while none was in flight")
    }

    /// Whether everything has left.
    pub fn is_empty(&self) -> bool {
        self.in_flight.is_none() && self.queue.is_empty()
    }

    /// Whether so much is queued that nothing further should be produced. Heads and framing count as bodies do, and a
    /// file counts as too much: each holds a descriptor.
    pub fn is_high(&self) -> bool {
        let mut queued = 0;
        self.queue.iter().any(|piece| match piece {
            Piece::File { .. } => true,
            Piece::Bytes(buf, _) => {
                queued += buf.len();
                queued > HIGH_WATER
            }
        })
    }

    /// Drops what has not been started, keeping buffers for others.
    pub fn clear(&mut self, pool: &mut BufPool) {
        for piece in self.queue.drain(..) {
            if let Piece::Bytes(buf, _) = piece {
                pool.give(buf.bytes);
            }
        }
    }
}

/// Spare output buffers of an engine, so that an idle connection holds none.
#[derive(Debug, Default)]
pub struct BufPool {
    spare: Vec<Vec<u8>>,
}

impl BufPool {
    const MOST: usize = 256;
    const LARGEST: usize = 16 * 1024;

    /// An empty buffer.
    pub fn take(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_else(|| Vec::with_capacity(512))
    }

    /// Keeps a buffer for the next one who needs one, unless it is large or there are enough.
    pub fn give(&mut self, mut buf: Vec<u8>) {
        if self.spare.len() < Self::MOST && buf.capacity() <= Self::LARGEST {
            buf.clear();
            self.spare.push(buf);
        }
    }
}

#[cfg(all(test, not(feature = "modelled")))]
mod tests {
    use super::*;

    const FIRST: ExchangeId = ExchangeId {
        index: 1,
        generation: 0,
    };
    const SECOND: ExchangeId = ExchangeId {
        index: 1,
        generation: 1,
    };

    fn bytes_of(piece: Piece) -> (Vec<u8>, usize, u32) {
        match piece {
            Piece::Bytes(buf, owner) => (buf.bytes, buf.body.len(), owner.charge),
            Piece::File { .. } => panic!("a file"),
        }
    }

    #[test]
    fn small_pieces_share_a_send_and_a_large_body_ends_it() {
        let (mut output, mut pool) = (Output::default(), BufPool::default());
        output.tail(&mut pool).extend_from_slice(b"head ");
        output.push_body(FIRST, Bytes::from_static(b"small"), 64, &mut pool);
        output.push_body(FIRST, Bytes::from(vec![b'x'; COPY_LIMIT + 1]), 9000, &mut pool);
        output.tail(&mut pool).extend_from_slice(b"\r\n");
        let first = output.start_next().map(bytes_of);
        assert_eq!(first, Some((b"head small".to_vec(), COPY_LIMIT + 1, 9064)));
        assert!(output.start_next().is_none(), "one send in flight");
        assert_eq!(
            output.finished(),
            Owner {
                id: Some(FIRST),
                charge: 9064,
                file: None
            }
        );
        assert_eq!(output.start_next().map(bytes_of), Some((b"\r\n".to_vec(), 0, 0)));
        assert_eq!(output.finished(), Owner::default());
        assert!(output.is_empty());
    }

    /// An acknowledgement of one response once credited the next one on the same connection.
    #[test]
    fn a_send_shared_by_two_responses_credits_only_the_second() {
        let (mut output, mut pool) = (Output::default(), BufPool::default());
        output.push_body(FIRST, Bytes::from_static(b"one"), 64, &mut pool);
        output.push_body(SECOND, Bytes::from_static(b"two!"), 64, &mut pool);
        assert_eq!(output.start_next().map(bytes_of), Some((b"onetwo!".to_vec(), 0, 64)));
        assert_eq!(output.finished().id, Some(SECOND));
    }

    #[test]
    fn empty_buffers_are_never_sent() {
        let (mut output, mut pool) = (Output::default(), BufPool::default());
        output.tail(&mut pool);
        assert!(output.start_next().is_none());
        assert!(output.is_empty());
    }

    #[test]
    #[should_panic(expected = "none was in flight")]
    fn a_completion_without_a_send_is_a_defect() {
        Output::default().finished();
    }
}
