//! What option values look like as text: sizes, seconds, sockets and the small sets of names.
//!
//! Every parser's error is a phrase that names the fix; [`super::cli`] puts the option in front of it (exit code 2).
//! R7: nothing here accepts "for ever" for a wait: the longest is a year.

use std::time::Duration;

use clap::ValueEnum;
use m0_platform::{Choice, Kind};
use serde::Serialize;

/// Which protocol the application speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Interface {
    /// Found out from the object.
    Auto,
    /// Asynchronous: `app(scope, receive, send)`.
    Asgi,
    /// Synchronous: `app(environ, start_response)` (PEP 3333).
    Wsgi,
}

/// Whether the application's lifespan is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Lifespan {
    /// Run; an application without one is served all the same.
    Auto,
    /// Run; an application that fails in it is not served.
    On,
    /// Not run.
    Off,
}

/// Which backend is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendChoice {
    /// The best one that this machine allows.
    Auto,
    /// Linux 6.1+ where kernel and container allow it.
    #[value(name = "io_uring")]
    #[serde(rename = "io_uring")]
    IoUring,
    /// Every Linux.
    Epoll,
    /// macOS and the BSDs.
    Kqueue,
}

impl BackendChoice {
    /// The platform's name for it; `None` is any.
    #[must_use]
    pub fn kind(self) -> Option<Kind> {
        match self {
            BackendChoice::Auto => None,
            BackendChoice::IoUring => Some(Kind::IoUring),
            BackendChoice::Epoll => Some(Kind::Epoll),
            BackendChoice::Kqueue => Some(Kind::Kqueue),
        }
    }

    /// What the platform is asked to open.
    #[must_use]
    pub fn choice(self) -> Choice {
        self.kind().map_or(Choice::Auto, Choice::Only)
    }
}

/// Which thread the event loop runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Model {
    /// A thread of its own that never takes the GIL.
    Pump,
    /// The application's thread: asyncio waits on the backend.
    Inverted,
}

/// Which asyncio event loop runs the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LoopChoice {
    /// asyncio: only there the selector is ours.
    Auto,
    /// The standard library's.
    Asyncio,
    /// The package uvloop.
    Uvloop,
    /// The package rloop.
    Rloop,
}

/// What is worth a line on stderr; each level includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// The server cannot do what it is for.
    Error,
    /// Something was dropped or refused against expectation.
    #[value(alias = "warning")]
    Warn,
    /// What an operator wants to know once.
    Info,
    /// What somebody who looks for a fault wants to know.
    Debug,
}

/// The name of a value, as it is written on the command line.
pub(super) fn name_of<T: ValueEnum>(value: T) -> String {
    value
        .to_possible_value()
        .map_or_else(String::new, |known| known.get_name().to_owned())
}

/// A size in bytes: a whole number, with `k`, `m` or `g` for 2^10, 2^20 and 2^30.
///
/// # Errors
/// A phrase that says what is accepted.
pub fn size(text: &str) -> Result<u64, String> {
    const HOW: &str = "give bytes as a whole number, or with k, m or g behind it, such as 64k";
    let text = text.trim();
    let (digits, shift) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 10),
        Some((at, 'm' | 'M')) => (&text[..at], 20),
        Some((at, 'g' | 'G')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let number: u64 = unsigned(digits).ok_or(HOW)?;
    number.checked_mul(1 << shift).ok_or_else(|| HOW.to_owned())
}

/// The room for a request's head in bytes: 256 to 16 MiB, so that spans and buffers stay small (R7).
pub(super) fn head_size(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    if (256..=16 << 20).contains(&bytes) {
        Ok(bytes)
    } else {
        Err("give a size from 256 to 16m".to_owned())
    }
}

/// How many fields a head may have: room for them is taken with every head (R7).
pub(super) fn fields(text: &str) -> Result<u64, String> {
    let number = unsigned(text.trim()).filter(|number| (1..=10_000).contains(number));
    number.ok_or_else(|| "give a number from 1 to 10000".to_owned())
}

/// How many threads there may be: their numbers fit a byte.
pub(super) fn threads(text: &str) -> Result<u64, String> {
    let number = unsigned(text.trim()).filter(|number| *number <= 200);
    number.ok_or_else(|| "give a number up to 200".to_owned())
}

/// A time in seconds, fractions allowed, at most a year.
fn seconds_from(text: &str, how: &str) -> Result<Duration, String> {
    const YEAR: f64 = 31_536_000.0;
    let seconds: f64 = text.trim().parse().map_err(|_| how.to_owned())?;
    // What is not a number is in no range.
    if (0.0..=YEAR).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(how.to_owned())
    }
}

/// A time in seconds; zero is allowed.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    seconds_from(text, "give seconds from 0 to a year, such as 8 or 0.5")
}

/// A time-out that may not be zero: then nothing could ever be in time.
pub(super) fn timeout(text: &str) -> Result<Duration, String> {
    const HOW: &str = "give seconds above 0 and up to a year, such as 30 or 0.5";
    seconds_from(text, HOW).and_then(|time| if time.is_zero() { Err(HOW.to_owned()) } else { Ok(time) })
}

/// A TCP port; 0 lets the system choose.
pub(super) fn port(text: &str) -> Result<u16, String> {
    let number = unsigned(text.trim()).and_then(|number| u16::try_from(number).ok());
    number.ok_or_else(|| "give a number from 0 to 65535 (0 takes any free port)".to_owned())
}

/// A descriptor that this process inherited.
pub(super) fn descriptor(text: &str) -> Result<i32, String> {
    let number = unsigned(text.trim()).and_then(|number| i32::try_from(number).ok());
    number.ok_or_else(|| "give the number of an open listening socket, such as 3".to_owned())
}

/// How many there may be; 0 is no limit.
pub(super) fn count(text: &str) -> Result<u64, String> {
    let number = unsigned(text.trim()).filter(|number| u32::try_from(*number).is_ok());
    number.ok_or_else(|| "give a whole number (0 is no limit)".to_owned())
}

/// A host name or address; the brackets of an IPv6 address are dropped. Other servers take the port with it.
pub(super) fn host(text: &str) -> Result<String, String> {
    if let Some((host, port)) = text.rsplit_once(':')
        && unsigned(port).is_some()
        && (!host.contains(':') || host.ends_with(']'))
    {
        let host = if host.is_empty() { "::" } else { host };
        return Err(format!("give the port by itself: --host {host} --port {port}"));
    }
    let inner = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text);
    if inner.is_empty() || inner.contains(|c: char| c.is_whitespace() || "/[]".contains(c)) {
        return Err("give an address or a host name, such as 127.0.0.1, :: or localhost".to_owned());
    }
    Ok(inner.to_owned())
}

/// The path that a proxy strips: empty, or from a slash on; a slash at its end is dropped.
pub(super) fn root_path(text: &str) -> Result<String, String> {
    if !text.is_empty() && !text.starts_with('/') {
        return Err(format!("start it with a slash, such as /{text}"));
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// A path in the file system that is not empty.
pub(super) fn path(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains('\0') {
        Err("give a path".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

/// A boolean as environments and option tables write it.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" => Ok(true),
        "0" | "false" | "no" => Ok(false),
        _ => Err("give 1, true or yes, or else 0, false or no".to_owned()),
    }
}

/// Decimal digits and nothing else (`str::parse` would take a sign).
pub(super) fn unsigned(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

#[cfg(all(test, not(feature = "modelled")))]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_suffixes_and_refuse_everything_else() {
        assert_eq!(size("0"), Ok(0));
        assert_eq!(size("64k"), Ok(65_536));
        assert_eq!(size("2M"), Ok(2 << 20));
        assert_eq!(size(" 1g "), Ok(1 << 30));
        for bad in [
            "",
            "k",
            "-1",
            "+1",
            "1.5k",
            "1kb",
            "k1",
            "99999999999999999999",
            "18446744073709551615k",
            "1\u{e9}",
        ] {
            assert!(size(bad).is_err(), "{bad}");
        }
        assert_eq!(head_size("256"), Ok(256));
        assert!(head_size("255").is_err());
        assert!(head_size("17m").is_err());
        assert_eq!(fields("1"), Ok(1));
        assert!(fields("0").is_err());
        assert!(fields("10001").is_err());
    }

    #[test]
    fn times_are_fractional_and_bounded() {
        assert_eq!(seconds("0"), Ok(Duration::ZERO));
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        assert_eq!(timeout("75"), Ok(Duration::from_secs(75)));
        for bad in ["-1", "nan", "inf", "1e9", "", "8s"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
        assert!(timeout("0").is_err());
    }

    #[test]
    fn names_and_numbers_say_what_they_take() {
        assert_eq!(port("0"), Ok(0));
        assert!(port("65536").is_err());
        assert!(port("+80").is_err());
        assert_eq!(host("[::1]").as_deref(), Ok("::1"));
        assert!(host("").is_err());
        assert!(host("http://x").is_err());
        assert!(host("[::1").is_err());
        for address in ["::1", "::", "fe80::1%2", "localhost"] {
            assert_eq!(host(address).as_deref(), Ok(address));
        }
        assert_eq!(root_path("/api/").as_deref(), Ok("/api"));
        assert_eq!(root_path("/").as_deref(), Ok(""));
        assert!(root_path("api").unwrap_err().contains("/api"));
        assert_eq!(boolean("Yes"), Ok(true));
        assert_eq!(boolean("0"), Ok(false));
        assert!(boolean("maybe").is_err());
        assert!(count("4294967296").is_err());
        assert_eq!(name_of(BackendChoice::IoUring), "io_uring");
    }
}
