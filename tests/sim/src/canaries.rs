//! Defects that can be planted in the product (see `m0_platform::canary`), each of which some world must show.
//!
//! What the simulator has found is here too: put back, it must be found again, whatever worlds the seeds draw by then.

/// Names of planted defects, and what each does.
pub const CANARIES: &[(&str, &str)] = &[
    ("r1-zero-wait-blocks", "a wait of no time waits for the next deadline"),
    (
        "r2-put-back-last",
        "a job that found the ring full goes behind those that came later",
    ),
    ("r2-frames-overtake", "a frame goes past those that found the ring full"),
    (
        "r3-any-exchange",
        "a frame of an older exchange works on the one that has its slot",
    ),
    (
        "r3-any-token",
        "a completion of an older connection works on the one that has its slot",
    ),
    ("r4-early-reuse", "an exchange is used again before its host has let go"),
    (
        "r5-no-second-look",
        "the loop does not look again after it has announced that it parks",
    ),
    ("r5-no-wake", "the host does not wake the loop"),
    (
        "r5-unmarked",
        "found by simulation: the loop parks with a job that found the ring full, and has not said so",
    ),
    ("r7-no-window", "a body is read however little its application takes"),
    ("r7-pending-without-end", "further requests are read however many wait"),
    ("r7-credit-is-short", "less credit comes back than was charged"),
    ("r8-two-heads", "a second head goes out"),
    ("r8-too-long", "bytes beyond the response's length go out"),
    (
        "r8-fin-loses-requests",
        "found by simulation: requests that waited for the output are lost to a FIN",
    ),
    (
        "r8-closes-at-once",
        "a connection is closed with its last response, although the client's next request is on its way",
    ),
    (
        "r8-reset-overtakes",
        "what was said of a response that breaks off is lost to the reset that shows it",
    ),
    ("r9-chunk-kept", "a receive buffer is not given back"),
    (
        "r9-exchange-is-kept",
        "the slot of an exchange whose client has gone is never free again",
    ),
    (
        "r11-drain-waits",
        "a drain waits where the application could need the thread",
    ),
    ("r12-refused-silently", "a refusal is not said in the log"),
];
