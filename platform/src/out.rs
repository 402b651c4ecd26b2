//! What a connection is sending, the same for every backend: how far it is, and the completion it ends with.

use std::io;
use std::os::fd::OwnedFd;

use bytes::Bytes;

use crate::backend::{Completion, SendBuf, Token};

/// Bytes of a file that are sent in one turn: the socket would take more, and others wait (R1).
pub(crate) const MAX_FILE_STEP: u64 = 1024 * 1024;

/// A send or file send in flight.
#[derive(Debug)]
pub(crate) enum Out {
    Buf {
        buf: SendBuf,
        sent: usize,
    },
    File {
        file: OwnedFd,
        offset: u64,
        left: u64,
        sent: u64,
    },
}

impl Out {
    /// The start of a send.
    pub(crate) fn buf(buf: SendBuf) -> Out {
        assert!(!buf.is_empty(), "an empty send");
        Out::Buf { buf, sent: 0 }
    }

    /// The start of a file send.
    pub(crate) fn file(file: OwnedFd, offset: u64, len: u64) -> Out {
        Out::File {
            file,
            offset,
            left: len,
            sent: 0,
        }
    }

    /// Its end. The buffer goes back to the owner, the body to whoever shares it; the file is closed.
    pub(crate) fn over(self, token: Token, result: io::Result<()>) -> Completion {
        match self {
            Out::Buf { mut buf, .. } => {
                buf.body = Bytes::new();
                Completion::Sent { token, result, buf }
            }
            Out::File { sent, .. } => Completion::FileSent {
                token,
                result: result.map(|()| sent),
            },
        }
    }
}

/// What a send that is in flight when its connection is closed fails with.
pub(crate) fn closed_while_sending() -> io::Error {
    io::Error::new(
        io::ErrorKind::ConnectionAborted,
        "the connection was closed while sending",
    )
}
