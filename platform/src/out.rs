//! What a connection is sending, the same for every backend: how far it is, and the completion it ends with.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bytes::Bytes;

use crate::backend::{Completion, SendBuf, Token};
use crate::sys;

/// Bytes of a file that are sent in one turn: the socket would take more, and others wait (R1).
const MAX_FILE_STEP: u64 = 1024 * 1024;

/// A send or file send in flight.
#[derive(Debug)]
pub(crate) enum Out {
    Buf { buf: SendBuf, sent: usize },
    File(FileOut),
}

/// A file on its way.
#[derive(Debug)]
pub(crate) struct FileOut {
    file: OwnedFd,
    offset: u64,
    left: u64,
    /// Bytes that have left.
    pub(crate) sent: u64,
}

/// How far a step of a send got.
pub(crate) enum Advance {
    Done,
    /// The socket is full.
    Full,
    /// It is the others' turn.
    Turn,
}

impl Out {
    /// The start of a send.
    pub(crate) fn buf(buf: SendBuf) -> Out {
        assert!(!buf.is_empty(), "an empty send");
        Out::Buf { buf, sent: 0 }
    }

    /// The start of a file send.
    pub(crate) fn file(file: OwnedFd, offset: u64, len: u64) -> Out {
        Out::File(FileOut {
            file,
            offset,
            left: len,
            sent: 0,
        })
    }

    /// Its end. The buffer goes back to the owner, the body to whoever shares it; the file is closed.
    pub(crate) fn over(self, token: Token, result: io::Result<()>) -> Completion {
        match self {
            Out::Buf { mut buf, .. } => {
                buf.body = Bytes::new();
                Completion::Sent { token, result, buf }
            }
            Out::File(file) => Completion::FileSent {
                token,
                result: result.map(|()| file.sent),
            },
        }
    }
}

impl FileOut {
    /// Sends some of it over a socket that does not block.
    pub(crate) fn advance(&mut self, socket: BorrowedFd<'_>) -> io::Result<Advance> {
        let mut turn = MAX_FILE_STEP;
        while self.left > 0 {
            if turn == 0 {
                return Ok(Advance::Turn);
            }
            let step = usize::try_from(turn.min(self.left)).unwrap_or(usize::MAX);
            match sys::sendfile(socket, self.file.as_fd(), self.offset, step) {
                Ok(0) => return Ok(Advance::Done), // the file is shorter than was asked for
                Ok(went) => {
                    let went = went as u64;
                    self.offset += went;
                    self.left -= went;
                    self.sent += went;
                    turn = turn.saturating_sub(went);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Advance::Full),
                Err(error) => return Err(error),
            }
        }
        Ok(Advance::Done)
    }
}

/// What a send that is in flight when its connection is closed fails with.
pub(crate) fn closed_while_sending() -> io::Error {
    io::Error::new(
        io::ErrorKind::ConnectionAborted,
        "the connection was closed while sending",
    )
}
