//! Hosts turn jobs into calls of an application, and what it says into frames. The engine never knows which it talks to.

#[cfg(feature = "python")]
use bytes::Bytes;
#[cfg(feature = "python")]
use pyo3::prelude::*;
#[cfg(feature = "python")]
use pyo3::types::PyBytes;

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

#[cfg(feature = "python")]
pub mod asgi;
#[cfg(feature = "python")]
pub mod calls;
#[cfg(feature = "python")]
pub mod hand_over;
#[cfg(feature = "python")]
pub mod wsgi;
