//! Runs tests over every real backend, as the contract suite does.

use m0_platform::{Backend, Choice, Kind, Options};

/// For a test that any backend would do for: one that is always there.
#[allow(dead_code)]
pub const ANY: Kind = if cfg!(target_os = "linux") {
    Kind::Epoll
} else {
    Kind::Kqueue
};

/// Opens one, or says loudly that this machine or this build has none: past the harness, which swallows what passing tests
/// print.
pub fn open(kind: Kind) -> Option<Box<dyn Backend>> {
    match m0_platform::open(Choice::Only(kind), &Options::default()) {
        Ok((backend, _)) => Some(backend),
        Err(refused) => {
            let line = format!("SKIPPED: a test on {}: {}\n", kind.name(), refused.sentence);
            std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).expect("stderr");
            None
        }
    }
}

/// Makes each function of a backend's kind a test for each kind: `name::epoll`, `name::io_uring`, `name::kqueue`.
#[macro_export]
macro_rules! on_every_backend {
    ($($name:ident)*) => { $(
        mod $name {
            #[test]
            fn epoll() { run(m0_platform::Kind::Epoll); }
            #[test]
            fn io_uring() { run(m0_platform::Kind::IoUring); }
            #[test]
            fn kqueue() { run(m0_platform::Kind::Kqueue); }
            fn run(kind: m0_platform::Kind) {
                if $crate::backends::open(kind).is_some() {
                    super::$name(kind);
                }
            }
        }
    )* };
}
