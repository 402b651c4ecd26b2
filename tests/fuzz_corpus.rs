//! The fuzz targets over the committed corpus, without libFuzzer: what fuzzing has found stays found.

// R10 is about what serves; the targets own files and descriptors.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

#[path = "fuzz/src/lib.rs"]
#[allow(dead_code)]
mod fuzz;

use std::fmt::Debug;
use std::path::Path;

use arbitrary::{Arbitrary, Unstructured};

/// Runs a target on every input of its corpus; the first that fails is named, with what it stands for.
fn replay<T: for<'a> Arbitrary<'a> + Debug>(target: &str, check: impl Fn(&T)) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fuzz/corpus")
        .join(target);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("a corpus") {
        let path = entry.expect("an input").path();
        let bytes = std::fs::read(&path).expect("an input");
        let input = T::arbitrary_take_rest(Unstructured::new(&bytes)).expect("any bytes are an input");
        let _named = Named(&path, &input);
        check(&input);
        count += 1;
    }
    assert!(count > 20, "{count} inputs in {}", folder.display());
}

/// Says which input it was when a check panics.
struct Named<'a, T: Debug>(&'a Path, &'a T);

impl<T: Debug> Drop for Named<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: {:?}", self.0.display(), self.1);
        }
    }
}

#[test]
fn request() {
    replay("request", fuzz::request::Input::check);
}

#[test]
fn chunked() {
    replay("chunked", fuzz::chunked::Input::check);
}

#[test]
fn connection() {
    replay("connection", fuzz::connection::Input::check);
}
