//! `wsgi.input`: a file-like object over what arrives of a request's body.

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::view::{Shared, receive};
use crate::host::joined;

/// `wsgi.input`. Its end is the end of the body, also of a chunked one (`wsgi.input_terminated`).
#[pyclass(frozen, module = "m0serve._native")]
pub struct Input {
    pub(super) view: Shared,
}

#[pymethods]
impl Input {
    /// Bytes until `size` are there or the body ends; all of it when negative or None.
    #[pyo3(signature = (size=None, /))]
    fn read<'py>(&self, py: Python<'py>, size: Option<isize>) -> PyResult<Bound<'py, PyBytes>> {
        self.collect(py, limit(size), None)
    }

    /// A line with its end, or what comes before `size` bytes or the body's end.
    #[pyo3(signature = (size=None, /))]
    fn readline<'py>(&self, py: Python<'py>, size: Option<isize>) -> PyResult<Bound<'py, PyBytes>> {
        self.collect(py, limit(size), Some(b'\n'))
    }

    /// Lines, until they have `hint` bytes together or the body ends.
    #[pyo3(signature = (hint=None, /))]
    fn readlines<'py>(&self, py: Python<'py>, hint: Option<isize>) -> PyResult<Bound<'py, PyList>> {
        let most = hint.filter(|hint| *hint > 0).map_or(usize::MAX, isize::unsigned_abs);
        let lines = PyList::empty(py);
        let mut total = 0;
        while total < most {
            let line = self.readline(py, None)?;
            if line.as_bytes().is_empty() {
                break;
            }
            total += line.as_bytes().len();
            lines.append(line)?;
        }
        Ok(lines)
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let line = self.readline(py, None)?;
        Ok((!line.as_bytes().is_empty()).then_some(line))
    }

    /// Does nothing: the body belongs to the server.
    fn close(&self) {}
}

impl Input {
    /// Bytes up to `most`, and up to and with `stop`. Copied once, from where they arrived into the object.
    fn collect<'py>(&self, py: Python<'py>, most: usize, stop: Option<u8>) -> PyResult<Bound<'py, PyBytes>> {
        let (mut pieces, mut total) = (Vec::<Bytes>::new(), 0);
        while total < most {
            let Some(piece) = receive(py, &self.view, most - total, stop)? else {
                break;
            };
            total += piece.len();
            let ended = stop.is_some_and(|stop| piece.last() == Some(&stop));
            pieces.push(piece);
            if ended {
                break;
            }
        }
        joined(py, &pieces)
    }
}

fn limit(size: Option<isize>) -> usize {
    size.and_then(|size| usize::try_from(size).ok()).unwrap_or(usize::MAX)
}
