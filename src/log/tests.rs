//! Lines through real pipes.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::*;

fn pipe() -> (File, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for the two descriptors that the call stores, which nobody else owns.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        (File::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
    }
}

/// What was written to stderr and stdout by `use_it`.
fn lines(level: LogLevel, access: bool, use_it: impl FnOnce(&Logger)) -> (String, String) {
    let ((mut errors, stderr), (mut requests, stdout)) = (pipe(), pipe());
    use_it(&Logger::to(
        level,
        access,
        Clock::new(),
        stderr.as_raw_fd(),
        stdout.as_raw_fd(),
    ));
    drop((stderr, stdout));
    let (mut a, mut b) = (String::new(), String::new());
    errors.read_to_string(&mut a).unwrap();
    requests.read_to_string(&mut b).unwrap();
    (a, b)
}

#[test]
fn levels_are_heeded_and_a_message_stays_on_its_line() {
    let (errors, _) = lines(LogLevel::Warn, false, |logger| {
        logger.error("a", "first\nsecond\x1b[31m \u{fc}");
        logger.warn("b", format_args!("number {}", 2));
        logger.info("c", "not said");
        logger.debug("d", "not said");
    });
    assert_eq!(
        errors,
        "m0serve: error: first\\nsecond\\u{1b}[31m \u{fc}\nm0serve: warning: number 2\n"
    );
}

#[test]
fn the_access_log_looks_like_uvicorns_and_cannot_be_forged() {
    let (_, requests) = lines(LogLevel::Info, true, |logger| {
        logger.access(Some("127.0.0.1:1234".parse().unwrap()), b"GET", b"/a?b=c", "1.1", 200);
        logger.access(None, b"GET", b"/\"\n\xff", "1.0", 404);
    });
    assert_eq!(
        requests,
        "127.0.0.1:1234 - \"GET /a?b=c HTTP/1.1\" 200\n- - \"GET /\\x22\\x0a\\xff HTTP/1.0\" 404\n"
    );
    assert_eq!(
        lines(LogLevel::Info, false, |logger| logger
            .access(None, b"GET", b"/", "1.1", 200))
        .1,
        ""
    );
}

#[test]
fn each_kind_has_its_own_bounded_rate_and_the_rest_is_counted() {
    let (errors, _) = lines(LogLevel::Info, false, |logger| {
        for number in 0..BURST + 7 {
            logger.warn("flood", number);
        }
        logger.warn("other", "still said");
        logger.tick(true);
        logger.tick(true);
    });
    assert_eq!(errors.matches("m0serve: warning: ").count(), BURST as usize + 2);
    assert!(errors.contains("still said"));
    assert!(
        errors.ends_with("m0serve: warning: and 7 more of the kind 'flood'\n"),
        "{errors}"
    );
}

#[test]
fn a_long_line_is_cut_and_still_ends() {
    let (errors, requests) = lines(LogLevel::Info, true, |logger| {
        logger.error("long", "\u{e4}".repeat(10_000));
        logger.access(None, b"GET", &[0xff; 10_000], "1.1", 200);
    });
    assert_eq!((errors.len(), requests.len()), (errors.trim_end().len() + 1, LINE));
    assert!(errors.len() <= LINE && errors.ends_with("...\n"));
}

#[test]
fn a_reader_that_does_not_read_never_hangs_the_writer_and_hears_how_much_it_missed() {
    let (mut reader, stdout) = pipe();
    let logger = Logger::to(LogLevel::Info, true, Clock::new(), -1, stdout.as_raw_fd());
    // More than any pipe holds: this would never return if a write could block.
    for _ in 0..1_000 {
        logger.access(None, b"GET", &[b'a'; 2_000], "1.1", 200);
    }
    let mut some = vec![0; 32 * 1024];
    reader.read_exact(&mut some).unwrap();
    logger.access(None, b"GET", b"/again", "1.1", 200);
    drop((logger, stdout));
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    let end: Vec<&str> = rest.lines().rev().take(2).collect();
    assert_eq!(end[0], "- - \"GET /again HTTP/1.1\" 200");
    assert!(end[1].contains("lines were dropped"), "{}", end[1]);
}

#[test]
fn closed_descriptors_are_left_alone() {
    let (reader, stderr) = pipe();
    let logger = Logger::to(LogLevel::Info, true, Clock::new(), stderr.as_raw_fd(), -1);
    drop(reader);
    // SAFETY: the test harness expects no SIGPIPE; ignoring it is what Python does at start-up.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    logger.error("gone", "nobody reads this");
    logger.access(None, b"GET", b"/", "1.1", 200);
    assert!(Sink::new(-1).fd.is_none());
}
