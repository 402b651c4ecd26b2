//! `start_response` and `write` as an application is given them, and `wsgi.file_wrapper`.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use pyo3::exceptions::{PyAssertionError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use super::view::{Shared, lock, over, send};
use crate::handoff::{BadHead, ResponseHead};
use crate::host::calls;
use crate::http1::is_registered;

/// `start_response`, and the `write` that it returns.
#[pyclass(frozen, module = "m0serve._native")]
pub struct StartResponse {
    pub(super) view: Shared,
}

#[pymethods]
impl StartResponse {
    /// PEP 3333: a second call needs `exc_info`, and raises it when the first head has left.
    #[pyo3(signature = (status, headers, exc_info=None, /))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        status: &Bound<'py, PyAny>,
        headers: &Bound<'py, PyAny>,
        exc_info: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let view = &slf.get().view;
        let (started, left, ended) = {
            let state = lock(view);
            (state.is_started(), state.is_head_sent(), state.is_ended())
        };
        if ended {
            return Err(over());
        }
        match exc_info.filter(|info| !info.is_none()) {
            Some(info) if left => return Err(raised(info)?),
            None if started => {
                let text = "start_response was called a second time without exc_info";
                return Err(PyAssertionError::new_err(text));
            }
            _ => {}
        }
        let head = head_of(status, headers)?;
        lock(view).start(head);
        slf.getattr(intern!(py, "write"))
    }

    /// Sends a block of the body at once.
    fn write(&self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let block = block_of(data)?;
        send(data.py(), &self.view, block.as_bytes()).map(drop)
    }
}

/// The exception of an `exc_info`, with its traceback.
fn raised(info: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    let error = info.get_item(1)?;
    let error = calls::method(intern!(info.py(), "with_traceback"), [&error, &info.get_item(2)?])?;
    Ok(PyErr::from_value(error))
}

fn head_of(status: &Bound<'_, PyAny>, headers: &Bound<'_, PyAny>) -> PyResult<ResponseHead> {
    let status = status
        .cast::<PyString>()
        .map_err(|_| PyTypeError::new_err("the status must be a string such as \"200 OK\""))?;
    let text = status.to_str()?;
    let code = match text.as_bytes() {
        [_, _, _] | [_, _, _, b' ', ..] => text.get(..3),
        _ => None,
    };
    let code = code.filter(|code| code.bytes().all(|byte| byte.is_ascii_digit()));
    let code =
        code.ok_or_else(|| PyValueError::new_err(format!("the status must begin with three digits: {text:?}")))?;
    let code = code.bytes().fold(0, |code, digit| 10 * code + u16::from(digit - b'0'));
    let bad = |bad: BadHead| PyValueError::new_err(bad.message());
    let mut head = ResponseHead::new(code).map_err(bad)?;
    if text.len() > 4 && !is_registered(code, text.as_bytes()) {
        head.set_reason(&bytes_of(&text[4..])?).map_err(bad)?;
    }
    let mut push = |pair: &Bound<'_, PyAny>| -> PyResult<()> {
        let (name, value) = pair_of(pair)?;
        head.push(&latin1(&name)?, &latin1(&value)?).map_err(bad)
    };
    match headers.cast_exact::<PyList>() {
        Ok(list) => list.iter().try_for_each(|pair| push(&pair))?,
        Err(_) => {
            let pairs = calls::iter(headers)?;
            while let Some(pair) = calls::next(&pairs)? {
                push(&pair)?;
            }
        }
    }
    Ok(head)
}

/// A header: a tuple, or what else has two members.
fn pair_of<'py>(pair: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let wrong = || PyValueError::new_err("each of the response's headers must be a pair of name and value");
    if let Ok(tuple) = pair.cast::<PyTuple>() {
        return tuple.extract().map_err(|_| wrong());
    }
    // Refused for a string, which is what a dict would give.
    let members: Vec<Bound<'py, PyAny>> = pair.extract().map_err(|_| wrong())?;
    let members: [Bound<'py, PyAny>; 2] = members.try_into().map_err(|_| wrong())?;
    Ok(members.into())
}

fn latin1<'a>(text: &'a Bound<'_, PyAny>) -> PyResult<std::borrow::Cow<'a, [u8]>> {
    let text = text
        .cast::<PyString>()
        .map_err(|_| PyTypeError::new_err("response header names and values must be strings"))?;
    bytes_of(text.to_str()?)
}

/// A string's characters as bytes, which PEP 3333 says they stand for.
fn bytes_of(text: &str) -> PyResult<std::borrow::Cow<'_, [u8]>> {
    if text.is_ascii() {
        return Ok(text.as_bytes().into());
    }
    let bytes: Result<Vec<u8>, _> = text.chars().map(|char| u8::try_from(u32::from(char))).collect();
    bytes
        .map(Into::into)
        .map_err(|_| PyValueError::new_err("a response's status or header has a character outside latin-1"))
}

/// A block of a body, which must be bytes.
pub fn block_of<'a, 'py>(block: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, PyBytes>> {
    block
        .cast::<PyBytes>()
        .map_err(|_| PyTypeError::new_err(format!("a WSGI body consists of bytes, not {}", block.get_type())))
}

/// `wsgi.file_wrapper`: iterates over a file; returned by an application as its body, a real file is sent by the kernel.
#[pyclass(frozen, module = "m0serve._native")]
pub struct FileWrapper {
    file: Py<PyAny>,
    block: usize,
}

#[pymethods]
impl FileWrapper {
    #[new]
    #[pyo3(signature = (filelike, blksize=8192, /))]
    fn new(filelike: Py<PyAny>, blksize: usize) -> FileWrapper {
        FileWrapper {
            file: filelike,
            block: blksize.max(1),
        }
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let most = self.block.into_pyobject(py)?;
        let block = calls::method(intern!(py, "read"), [self.file.bind(py), most.as_any()])?;
        Ok(block.is_truthy()?.then_some(block))
    }

    /// Closes the file, if it can be closed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match self.file.bind(py).getattr_opt(intern!(py, "close"))? {
            Some(close) => calls::call(&close, []).map(drop),
            None => Ok(()),
        }
    }
}

impl FileWrapper {
    /// The rest of the file, when it is a regular one: a descriptor of our own, where it stands, and how many bytes
    /// follow. The file object must stand where its descriptor does: a buffered one tells.
    ///
    /// Only where its size says how much there is to read. `/proc` and `/sys` make their files up as they are read: they say
    /// 0 or a page, and that nothing is stored.
    ///
    /// Only of those whose `read` gives what is in the file: `gzip`'s has a descriptor as well, and so does one that decodes
    /// to text, which is no body.
    pub fn regular(&self, py: Python<'_>) -> Option<(OwnedFd, u64, u64)> {
        let file = self.file.bind(py);
        if !is_plain(file).unwrap_or(false) {
            return None;
        }
        let number: i32 = calls::method(intern!(py, "fileno"), [file]).ok()?.extract().ok()?;
        let offset: u64 = calls::method(intern!(py, "tell"), [file]).ok()?.extract().ok()?;
        if number < 0 {
            return None;
        }
        // SAFETY: the file object is alive and says that this is its descriptor; the borrow ends with the duplicate.
        let own = unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned().ok()?;
        let opened = std::fs::File::from(own);
        let metadata = opened.metadata().ok()?;
        if !metadata.is_file() || metadata.len() == 0 || metadata.blocks() == 0 {
            return None;
        }
        let len = metadata.len().checked_sub(offset)?;
        Some((opened.into(), offset, len))
    }
}

/// Whether a file object reads from a file of `io` as that does: it is one, or its `read` is one's own, which is how the
/// wrappers of `tempfile` and of Django pass it on.
fn is_plain(file: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = file.py();
    let io = py.import(intern!(py, "io"))?;
    let of_io = |object: &Bound<'_, PyAny>| -> PyResult<bool> {
        let class = object.get_type();
        Ok(class.is(&io.getattr(intern!(py, "BufferedReader"))?)
            || class.is(&io.getattr(intern!(py, "FileIO"))?)
            || class.is(&io.getattr(intern!(py, "BufferedRandom"))?))
    };
    if of_io(file)? {
        return Ok(true);
    }
    let read = file.getattr(intern!(py, "read"))?;
    let read = read.getattr_opt(intern!(py, "__wrapped__"))?.unwrap_or(read);
    match read.getattr_opt(intern!(py, "__self__"))? {
        Some(owner) => of_io(&owner),
        None => Ok(false),
    }
}
