//! Hosts turn jobs into calls of an application, and what it says into frames. The engine never knows which it talks to.

#[cfg(feature = "python")]
use bytes::Bytes;
#[cfg(feature = "python")]
use pyo3::prelude::*;
#[cfg(feature = "python")]
use pyo3::types::PyBytes;

pub mod forwarded;
pub mod incoming;
pub mod outgoing;

/// The pieces of a body as one object, each copied once.
///
/// # Errors
/// MemoryError.
#[cfg(feature = "python")]
pub(crate) fn joined<'py>(py: Python<'py>, pieces: &[Bytes]) -> PyResult<Bound<'py, PyBytes>> {
    if let [piece] = pieces {
        return Ok(PyBytes::new(py, piece));
    }
    PyBytes::new_with(py, pieces.iter().map(Bytes::len).sum(), |mut room| {
        for piece in pieces {
            let (this, rest) = room.split_at_mut(piece.len());
            this.copy_from_slice(piece);
            room = rest;
        }
        Ok(())
    })
}

/// Percent-decodes; what is no escape stays (as `urllib.parse.unquote_to_bytes` has it).
#[must_use]
pub fn percent_decode(raw: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let [first, tail @ ..] = rest {
        if let [b'%', high, low, after @ ..] = rest
            && let (Some(high), Some(low)) = ((*high as char).to_digit(16), (*low as char).to_digit(16))
        {
            bytes.push(u8::try_from(high * 16 + low).expect("two hex digits are a byte"));
            rest = after;
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    bytes
}

#[cfg(feature = "python")]
pub mod asgi;
#[cfg(feature = "python")]
pub mod hand_over;
#[cfg(feature = "python")]
pub mod wsgi;
