//! What people type who come from another server, and what there is here instead: the command line's side of the tables
//! "Coming from uvicorn" and "Coming from gunicorn" in `docs/guide.md`, which the test holds against these.

/// Flags of other servers, one with a star for all that begin so, and a phrase that says what to do here.
const HINTS: [(&[&str], &str); 22] = [
    (
        &["--workers", "-w"],
        "one process serves: run one for each CPU, behind a proxy",
    ),
    (
        &["--worker-class", "-k"],
        "coroutines run in the event loop (--loop chooses one), views on --blocking-threads",
    ),
    (
        &["--threads"],
        "--blocking-threads says how many views of a WSGI application run at once",
    ),
    (&["--bind", "-b"], "give --host and --port, or --uds, or --fd"),
    (
        &["--reload*"],
        "reloading is not there yet: start it again after a change",
    ),
    (
        &["--timeout", "-t"],
        "a view takes as long as it takes; --header-timeout, --body-timeout and --idle-timeout are for clients",
    ),
    (
        &["--graceful-timeout", "--timeout-graceful-shutdown"],
        "it is --drain-timeout here",
    ),
    (&["--keep-alive", "--timeout-keep-alive"], "it is --idle-timeout here"),
    (
        &["--max-requests", "--limit-max-requests"],
        "nothing restarts the process; --max-keepalive-requests is for one connection",
    ),
    (&["--limit-concurrency"], "--max-connections counts connections"),
    (&["--limit-request-line"], "it is --max-target here"),
    (&["--limit-request-fields"], "it is --max-fields here"),
    (&["--limit-request-field_size"], "--max-head is for all fields together"),
    (
        &["--h11-max-incomplete-event-size"],
        "there are --max-head, --max-target and --max-fields",
    ),
    (
        &["--chdir"],
        "--app-dir names the application's folder, and does not change the current one",
    ),
    (
        &["--access-logfile", "--access-logformat"],
        "--access-log writes a line a request to stdout, in one format",
    ),
    (
        &["--log-config"],
        "the server's own lines do not go through logging; see --log-level",
    ),
    (
        &["--config", "-c"],
        "set M0_ variables, or call m0serve.run from Python",
    ),
    (
        &["--daemon", "-D", "--pid", "-p"],
        "it stays in the foreground, where systemd or a container runs it; the port is --port",
    ),
    (
        &["--ssl-*", "--certfile", "--keyfile"],
        "TLS is not there yet: have a proxy speak it",
    ),
    (&["--ws*"], "WebSockets are not there yet"),
    (
        &["--env-file", "--header", "--backlog", "--preload"],
        "m0serve has nothing like it",
    ),
];

/// What there is instead of a flag of another server; nothing where it is none that people bring along.
pub(super) fn instead_of(flag: &str) -> Option<&'static str> {
    let is_meant = |known: &&str| match known.strip_suffix('*') {
        Some(begin) => flag.starts_with(begin),
        None => flag == *known,
    };
    let found = HINTS.iter().find(|(flags, _)| flags.iter().any(is_meant));
    found.map(|(_, phrase)| *phrase)
}

#[cfg(all(test, not(feature = "modelled")))]
mod tests {
    use super::super::Config;
    use super::*;

    fn refusal(argument: &str) -> Option<String> {
        let parsed = Config::parse_with(&[argument.to_owned()], &|_| None);
        parsed.err().map(|exit| exit.message)
    }

    fn is_ours(flag: &str) -> bool {
        !refusal(flag).is_some_and(|message| message.starts_with("there is no option"))
    }

    /// Words in a text that are flags, without what punctuation follows them.
    fn flags(text: &str) -> impl Iterator<Item = &str> {
        let of_flags = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '*');
        text.split(move |c| !of_flags(c))
            .filter(|word| word.starts_with('-') && word.len() > 1)
    }

    /// The left cells of the guide's tables of differences.
    fn listed() -> String {
        let guide = include_str!("../../docs/guide.md");
        let (_, tables) = guide
            .split_once("## Coming from uvicorn")
            .expect("a section of the guide");
        let cells = tables
            .lines()
            .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
        cells.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn every_flag_that_the_guide_lists_says_what_there_is_instead() {
        let listed = listed();
        assert!(flags(&listed).count() > 30, "the tables are found");
        for flag in flags(&listed) {
            let typed = flag.replace('*', "x");
            assert!(is_ours(&typed) || instead_of(&typed).is_some(), "{flag} has no hint");
        }
    }

    #[test]
    fn every_hint_stands_in_the_guide_and_names_options_of_ours() {
        let listed = listed();
        for (known, phrase) in HINTS {
            for flag in known {
                assert!(flags(&listed).any(|one| one == *flag), "{flag} is not in the guide");
                assert!(!is_ours(&flag.replace('*', "x")), "{flag} is an option");
            }
            assert!(flags(phrase).all(is_ours), "{phrase}");
        }
    }
}
