//! What an application may give in its messages, and what is made of it.

use pyo3::exceptions::{PyOSError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMapping};

use crate::host::calls;

/// A file to be sent, and its length. What is no regular file has none (and opening a pipe would wait for a writer).
///
/// # Errors
/// OSError.
pub fn open_file(path: &std::path::Path) -> PyResult<(std::fs::File, u64)> {
    use std::os::unix::fs::OpenOptionsExt;
    let named = |error: &std::io::Error| match error.raw_os_error() {
        // OSError picks its subclass, and its text is as `open` would give it.
        Some(errno) => {
            let text = error.to_string();
            let text = text.split(" (os error").next().unwrap_or_default().to_owned();
            // As text, as `open` has it: a path would become a pathlib.Path, and an import that fails for want of
            // descriptors, as the file may have, would be a panic.
            PyOSError::new_err((errno, text, path.as_os_str().to_owned()))
        }
        None => PyOSError::new_err(error.to_string()),
    };
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = file.map_err(|error| named(&error))?;
    let metadata = file.metadata().map_err(|error| named(&error))?;
    if !metadata.is_file() {
        let text = format!(
            "'http.response.pathsend' of what is not a regular file: {}",
            path.display()
        );
        return Err(PyOSError::new_err(text));
    }
    Ok((file, metadata.len()))
}

/// A message that is another mapping, as a dict.
///
/// # Errors
/// TypeError where it is none, and what it raises.
pub fn copied_dict<'py>(message: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    if message.cast::<PyMapping>().is_err() {
        let text = format!(
            "an ASGI message must be a mapping such as a dict, not {}",
            message.get_type()
        );
        return Err(PyTypeError::new_err(text));
    }
    let dict = calls::call(&message.py().get_type::<PyDict>(), [message])?;
    Ok(dict.cast_into::<PyDict>()?)
}

/// A name or a value of a header.
///
/// # Errors
/// TypeError.
pub fn header_bytes<'a>(item: &'a Bound<'_, PyAny>) -> PyResult<&'a [u8]> {
    match item.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.as_bytes()),
        Err(_) => Err(PyTypeError::new_err("response header names and values must be bytes")),
    }
}

/// A body that is a bytearray or memoryview, as some frameworks send it.
///
/// # Errors
/// TypeError, MemoryError.
pub fn to_bytes(body: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyBytes>> {
    let py = body.py();
    let is_buffer =
        body.is_instance_of::<pyo3::types::PyByteArray>() || body.is_instance_of::<pyo3::types::PyMemoryView>();
    if !is_buffer {
        return Err(PyTypeError::new_err("an ASGI body must be bytes"));
    }
    Ok(py.get_type::<PyBytes>().call1((body,))?.cast_into::<PyBytes>()?)
}
