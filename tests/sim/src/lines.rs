//! What the server says in its log, in a file that each world finds empty (R12).

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsRawFd;

thread_local! {
    static FILE: File = temporary("log").expect("a temporary file");
}

/// A file without a name.
///
/// # Errors
/// What the file system gave.
pub fn temporary(name: &str) -> std::io::Result<File> {
    let thread = std::thread::current().id();
    let path = std::env::temp_dir().join(format!("m0-sim-{}-{thread:?}-{name}", std::process::id()));
    let file = File::options().read(true).append(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Where a logger writes.
#[must_use]
pub fn descriptor() -> i32 {
    FILE.with(File::as_raw_fd)
}

/// What was written since this was last asked.
#[must_use]
pub fn take() -> String {
    FILE.with(|mut file| {
        let mut text = String::new();
        if file.metadata().is_ok_and(|data| data.len() > 0) {
            let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
            read.and_then(|_| file.set_len(0)).expect("a file of our own");
        }
        text
    })
}
