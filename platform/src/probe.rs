//! Chooses a backend by trying it, and keeps the reason when it did not become io_uring.
//!
//! Nothing is concluded from version numbers: distributions backport, containers forbid. What a policy forbids or a
//! kernel does not know means "fall back and say why"; running out of memory or descriptors is an error.

use std::io;

use crate::backend::{Backend, Choice, Kind};
#[cfg(target_os = "linux")]
use crate::readiness::epoll::Epoll;
#[cfg(any(not(target_os = "linux"), feature = "emulated-kqueue"))]
use crate::readiness::kqueue::Kqueue;
use crate::readiness::{Poller, Readiness};
#[cfg(target_os = "linux")]
use crate::uring::Uring;

/// Sizes. The defaults suit a server on one CPU.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Receive buffers shared by all connections of an io_uring backend; a power of two, at most 32,768.
    pub recv_buffers: u16,
    /// Bytes of one such buffer, and so of the largest chunk.
    pub recv_buffer_size: u32,
    /// Submission queue entries (a power of two); the completion queue is eight times as long.
    pub ring_entries: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            recv_buffers: 512,
            recv_buffer_size: 8 * 1024,
            ring_entries: 1024,
        }
    }
}

/// What was opened.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// Which implementation.
    pub kind: Kind,
    /// Why `auto` did not get io_uring, where it could have been expected.
    pub reason: Option<String>,
}

/// Why nothing was opened.
#[derive(Clone, Debug)]
pub struct Refused {
    /// One sentence that names the fix.
    pub sentence: String,
    /// True when this machine cannot run what was asked for (exit code 78), false when it ran out of something (1).
    pub unsupported: bool,
}

/// One line of `--doctor`.
#[derive(Clone, Debug)]
pub struct Availability {
    /// Which implementation.
    pub kind: Kind,
    /// Whether it works here, tried a moment ago.
    pub usable: bool,
    /// Why not.
    pub reason: Option<String>,
}

/// Why a probe failed.
pub(crate) enum Failure {
    /// Policy, or a kernel that does not have it: something else may work.
    Unusable(String),
    /// Out of memory or descriptors.
    Exhausted(String),
}

type Opened = (Box<dyn Backend>, Resolved);

/// Opens a backend. It may be moved to another thread before its first use.
///
/// # Errors
/// See [`Refused`].
pub fn open(choice: Choice, options: &Options) -> Result<Opened, Refused> {
    match choice {
        Choice::Only(kind) => match open_kind(kind, options) {
            Ok(backend) => Ok((backend, Resolved { kind, reason: None })),
            Err(Failure::Unusable(why)) => Err(Refused {
                sentence: format!("{} cannot be used here: {why}; use --backend auto", kind.name()),
                unsupported: true,
            }),
            Err(Failure::Exhausted(why)) => Err(exhausted(kind, &why)),
        },
        Choice::Auto => open_best(options, |_| true),
        Choice::Readiness => open_best(options, Kind::is_readiness),
    }
}

/// Tries every implementation and says how it went.
#[must_use]
pub fn available() -> Vec<Availability> {
    [Kind::IoUring, Kind::Epoll, Kind::Kqueue]
        .into_iter()
        .map(|kind| {
            let reason = match open_kind(kind, &Options::default()) {
                Ok(_) => None,
                Err(Failure::Unusable(why) | Failure::Exhausted(why)) => Some(why),
            };
            Availability {
                kind,
                usable: reason.is_none(),
                reason,
            }
        })
        .collect()
}

fn exhausted(kind: Kind, why: &str) -> Refused {
    Refused {
        sentence: format!(
            "{} could not be set up: {why}; raise the limit that is reached",
            kind.name()
        ),
        unsupported: false,
    }
}

fn open_best(options: &Options, fits: impl Fn(Kind) -> bool) -> Result<Opened, Refused> {
    let mut reason = None;
    let kinds: &[Kind] = if cfg!(target_os = "linux") {
        &[Kind::IoUring, Kind::Epoll]
    } else {
        &[Kind::Kqueue]
    };
    for kind in kinds.iter().copied().filter(|kind| fits(*kind)) {
        match open_kind(kind, options) {
            Ok(backend) => return Ok((backend, Resolved { kind, reason })),
            Err(Failure::Unusable(why)) => reason = reason.or(Some(why)),
            Err(Failure::Exhausted(why)) => return Err(exhausted(kind, &why)),
        }
    }
    let why = reason.unwrap_or_default();
    Err(Refused {
        sentence: format!("no backend works on this machine: {why}"),
        unsupported: true,
    })
}

/// Sizes matter to io_uring only.
#[cfg_attr(not(target_os = "linux"), allow(unused_variables))]
fn open_kind(kind: Kind, options: &Options) -> Result<Box<dyn Backend>, Failure> {
    match kind {
        #[cfg(target_os = "linux")]
        Kind::IoUring => Ok(Box::new(Uring::new(options)?)),
        #[cfg(target_os = "linux")]
        Kind::Epoll => readiness::<Epoll>("epoll_create1"),
        #[cfg(any(not(target_os = "linux"), feature = "emulated-kqueue"))]
        Kind::Kqueue => readiness::<Kqueue>("kqueue"),
        #[cfg(not(target_os = "linux"))]
        Kind::IoUring | Kind::Epoll => Err(Failure::Unusable(format!("{} exists on Linux only", kind.name()))),
        #[cfg(all(target_os = "linux", not(feature = "emulated-kqueue")))]
        Kind::Kqueue => Err(Failure::Unusable(
            "kqueue exists on macOS and the BSDs only, and this build does not emulate it (feature emulated-kqueue)"
                .to_owned(),
        )),
    }
}

fn readiness<P: Poller + 'static>(call: &str) -> Result<Box<dyn Backend>, Failure> {
    match Readiness::<P>::new() {
        Ok(backend) => Ok(Box::new(backend)),
        Err(error) => Err(classify(call, &error)),
    }
}

/// Whether an errno means "not here" or "not now".
pub(crate) fn classify(call: &str, error: &io::Error) -> Failure {
    let text = format!("{call}: {error}");
    match error.raw_os_error() {
        Some(libc::ENOMEM | libc::EMFILE | libc::ENFILE) => Failure::Exhausted(text),
        _ => Failure::Unusable(text),
    }
}
