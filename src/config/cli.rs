//! The command line as clap sees it, the environment laid under it, and errors in one sentence.
//!
//! A flag beats its variable, which beats the default. The environment is not read here: a function is handed in, so
//! that tests own it. There is one way through: variables and the options of `m0serve.run` become command-line
//! arguments, and all validation is clap's and [`super::values`]'.

use std::error::Error as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory, FromArgMatches, Parser};

use super::hints::instead_of;
use super::mount::{self, Mount};
use super::trust::Trusted;
use super::values::{self, BackendChoice, Interface, Lifespan, LogLevel, LoopChoice, Model};
use super::{Exit, OptionValue, Source};

/// Looks one environment variable up.
pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Options that are on or off: each has a `--name` and a `--no-name`, and the same two as variable and in Python.
pub(super) const SWITCHES: [&str; 5] = ["factory", "proxy_headers", "access_log", "date_header", "server_header"];

/// Options that say where to listen: a variable that speaks of one kind of socket stands back when a flag speaks of
/// another.
const PLACES: [&str; 4] = ["host", "port", "uds", "fd"];

/// A fast, dependable server for Python web applications.
///
/// Every option has a variable (--max-body: M0_MAX_BODY); a flag beats its variable, which beats the default.
#[derive(Debug, Parser)]
#[command(name = "m0serve", version, max_term_width = 100)]
#[allow(clippy::struct_excessive_bools)]
pub(super) struct Cli {
    /// The application, as MODULE[:ATTR]; without it and without mounts the built-in demo application is served
    pub app: Option<String>,
    /// A further application for the paths below a prefix, such as /api=api.main:app; repeatable, the longest prefix wins
    #[arg(long, value_name = "PREFIX=APP", value_parser = mount::mount)]
    pub mount: Vec<Mount>,
    /// Address or host name to listen on
    #[arg(long, default_value = "127.0.0.1", value_parser = values::host)]
    pub host: String,
    /// Port to listen on; 0 takes any free one
    #[arg(long, default_value = "8000", value_parser = values::port)]
    pub port: u16,
    /// Listen on a UNIX socket instead
    #[arg(long, value_name = "PATH", value_parser = values::path)]
    pub uds: Option<String>,
    /// Listen on an inherited, bound socket instead
    #[arg(long, value_name = "N", value_parser = values::descriptor)]
    pub fd: Option<i32>,
    /// Which interface the application has; auto looks at the object
    #[arg(long, default_value = "auto", value_enum)]
    pub interface: Interface,
    /// APP is a function that returns the application
    #[arg(long, overrides_with = "no_factory")]
    pub factory: bool,
    #[arg(long, hide = true)]
    pub no_factory: bool,
    /// Folder that is searched first for the application's module [default: the current one]
    #[arg(long, value_name = "DIR", value_parser = values::path)]
    pub app_dir: Option<String>,
    /// Whether to run the application's lifespan; auto serves applications without one
    #[arg(long, default_value = "auto", value_enum)]
    pub lifespan: Lifespan,
    /// Path under which a proxy publishes the application
    #[arg(long, value_name = "PATH", default_value = "", hide_default_value = true, value_parser = values::root_path)]
    pub root_path: String,
    /// How to wait for sockets; auto takes the best that this machine allows
    #[arg(long, default_value = "auto", value_enum)]
    pub backend: BackendChoice,
    /// Event loop on the application's thread (inverted) or on one of its own (pump); M0_INVERTED=1 is inverted too
    #[arg(long, default_value = "inverted", value_enum)]
    pub model: Model,
    /// Which asyncio event loop runs the application; auto is asyncio
    #[arg(long = "loop", id = "loop", value_name = "LOOP", default_value = "auto", value_enum)]
    pub event_loop: LoopChoice,
    /// Believe X-Forwarded-For and X-Forwarded-Proto of trusted peers (the default)
    #[arg(long, overrides_with = "no_proxy_headers")]
    pub proxy_headers: bool,
    /// Believe nobody's X-Forwarded-* fields
    #[arg(long)]
    pub no_proxy_headers: bool,
    /// Trusted peers: addresses, networks, unix, or * for all
    #[arg(long, value_name = "LIST", default_value = "127.0.0.1,::1", value_parser = Trusted::parse)]
    pub forwarded_allow_ips: Trusted,
    /// Largest request body in bytes (k, m, g); 0 is no limit
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = values::size)]
    pub max_body: u64,
    /// Largest request head in bytes (k, m)
    #[arg(long, value_name = "SIZE", default_value = "64k", value_parser = values::head_size)]
    pub max_head: u64,
    /// Longest request target in bytes (k, m), as far as the head may be that long
    #[arg(long, value_name = "SIZE", default_value = "16k", value_parser = values::head_size)]
    pub max_target: u64,
    /// Most fields in a request's head
    #[arg(long, value_name = "N", default_value = "128", value_parser = values::fields)]
    pub max_fields: u64,
    /// Seconds within which a request's head must be complete
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = values::timeout)]
    pub header_timeout: std::time::Duration,
    /// Seconds for which a client may send nothing of a body that is read, or take nothing of its response
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = values::timeout)]
    pub body_timeout: std::time::Duration,
    /// Seconds that a connection may wait for its next request
    #[arg(long, value_name = "SECONDS", default_value = "75", value_parser = values::timeout)]
    pub idle_timeout: std::time::Duration,
    /// Seconds that a stopping server gives to what is in flight
    #[arg(long, value_name = "SECONDS", default_value = "8", value_parser = values::seconds)]
    pub drain_timeout: std::time::Duration,
    /// Threads that run the views of a WSGI application [default: four for each CPU, at most eight]; 0 is one after another
    #[arg(long, value_name = "N", value_parser = values::threads)]
    pub blocking_threads: Option<u64>,
    /// Connections at once; further ones are answered 503; 0 is no limit
    #[arg(long, value_name = "N", default_value = "0", value_parser = values::count)]
    pub max_connections: u64,
    /// Requests after which a connection closes; 0 is no limit
    #[arg(long, value_name = "N", default_value = "0", value_parser = values::count)]
    pub max_keepalive_requests: u64,
    /// Write a line to stdout for each request
    #[arg(long, overrides_with = "no_access_log")]
    pub access_log: bool,
    #[arg(long, hide = true)]
    pub no_access_log: bool,
    /// What is worth a line on stderr
    #[arg(long, value_name = "LEVEL", default_value = "info", value_enum, ignore_case = true)]
    pub log_level: LogLevel,
    #[arg(long, hide = true, overrides_with = "no_date_header")]
    pub date_header: bool,
    /// Send no date field
    #[arg(long)]
    pub no_date_header: bool,
    #[arg(long, hide = true, overrides_with = "no_server_header")]
    pub server_header: bool,
    /// Send no server field
    #[arg(long)]
    pub no_server_header: bool,
    /// Print the resolved configuration as JSON, start nothing, and exit as the server would
    #[arg(long)]
    pub doctor: bool,
}

/// What a parse gives: the values, and for each option where its value came from.
pub(super) struct Parsed {
    pub cli: Cli,
    pub sources: Vec<(&'static str, Source)>,
}

/// Parses arguments (without the program's name) over an environment.
pub(super) fn parse(argv: &[String], lookup: Lookup<'_>) -> Result<Parsed, Exit> {
    let flags = matches(argv).map_err(|error| exit_of(&error))?;
    check_places(&flags)?;
    let mut merged = Vec::new();
    let mut from_variable = Vec::new();
    for name in option_names() {
        if given(&flags, name) || (PLACES.contains(&name) && place_is_taken(&flags, name)) {
            continue;
        }
        let arguments = variable(name, lookup)?;
        if !arguments.is_empty() {
            from_variable.push(name);
            merged.extend(arguments);
        }
    }
    check_variables(&from_variable)?;
    // Variables first. None of them names an option that the arguments name, so nothing is overridden silently.
    merged.extend_from_slice(argv);
    let all = matches(&merged).map_err(|error| exit_of(&error))?;
    let cli = Cli::from_arg_matches(&all).map_err(|error| exit_of(&error))?;
    let source = |name| {
        if from_variable.contains(&name) {
            Source::Variable
        } else if given(&flags, name) {
            Source::Flag
        } else {
            Source::Default
        }
    };
    Ok(Parsed {
        cli,
        sources: option_names().map(|name| (name, source(name))).collect(),
    })
}

/// Turns one option of Python's `run` into a command-line argument; `None` when it says nothing.
pub(super) fn argument(name: &str, value: &OptionValue) -> Result<Option<String>, Exit> {
    let (name, positive) = match name.strip_prefix("no_") {
        Some(switch) if SWITCHES.contains(&switch) => (switch, false),
        _ => (name, true),
    };
    if name == "doctor" || !option_names().any(|known| known == name) {
        let hint = instead_of(&format!("--{}", name.replace('_', "-")));
        let hint = hint.unwrap_or("the options are those of m0serve --help, with underscores");
        return Err(Exit::usage(format!("there is no option '{name}'; {hint}")));
    }
    let dashed = name.replace('_', "-");
    let text = match value {
        OptionValue::None => return Ok(None),
        OptionValue::Bool(on) if SWITCHES.contains(&name) => return Ok(Some(switch_argument(name, *on == positive))),
        OptionValue::Bool(_) => {
            return Err(Exit::usage(format!(
                "{name} takes a value, not True or False; see m0serve --help"
            )));
        }
        OptionValue::Str(text) => text.clone(),
        OptionValue::Int(number) => number.to_string(),
        OptionValue::Float(number) => number.to_string(),
    };
    if SWITCHES.contains(&name) {
        let on = values::boolean(&text).map_err(|how| Exit::usage(format!("{name}: {how}")))?;
        return Ok(Some(switch_argument(name, on == positive)));
    }
    Ok(Some(if name == "app" {
        text
    } else {
        format!("--{dashed}={text}")
    }))
}

fn switch_argument(name: &str, on: bool) -> String {
    format!("--{}{}", if on { "" } else { "no-" }, name.replace('_', "-"))
}

/// The names of all options, a switch by its positive name only.
fn option_names() -> impl Iterator<Item = &'static str> {
    const NAMES: [&str; 32] = [
        "app",
        "mount",
        "host",
        "port",
        "uds",
        "fd",
        "interface",
        "factory",
        "app_dir",
        "lifespan",
        "root_path",
        "backend",
        "model",
        "loop",
        "proxy_headers",
        "forwarded_allow_ips",
        "max_body",
        "max_head",
        "max_target",
        "max_fields",
        "header_timeout",
        "body_timeout",
        "idle_timeout",
        "drain_timeout",
        "blocking_threads",
        "max_connections",
        "max_keepalive_requests",
        "access_log",
        "log_level",
        "date_header",
        "server_header",
        "doctor",
    ];
    NAMES.into_iter()
}

fn matches(argv: &[String]) -> Result<ArgMatches, clap::Error> {
    let program = std::iter::once("m0serve");
    command().try_get_matches_from(program.chain(argv.iter().map(String::as_str)))
}

fn command() -> Command {
    Cli::command()
}

/// Whether the arguments named an option, or the negative of a switch.
fn given(flags: &ArgMatches, name: &str) -> bool {
    let told = |id: &str| flags.value_source(id) == Some(ValueSource::CommandLine);
    told(name) || (SWITCHES.contains(&name) && told(&format!("no_{name}")))
}

/// One address to listen on: a TCP one, or a UNIX socket, or a descriptor.
fn check_places(flags: &ArgMatches) -> Result<(), Exit> {
    let named: Vec<&str> = PLACES.into_iter().filter(|name| given(flags, name)).collect();
    conflict(&named, |name| format!("--{name}"))
}

fn check_variables(from_variable: &[&'static str]) -> Result<(), Exit> {
    let named: Vec<&str> = PLACES.into_iter().filter(|name| from_variable.contains(name)).collect();
    conflict(&named, variable_name)
}

fn conflict(named: &[&str], show: impl Fn(&str) -> String) -> Result<(), Exit> {
    let Some(special) = named.iter().find(|name| matches!(**name, "uds" | "fd")) else {
        return Ok(());
    };
    let Some(other) = named.iter().find(|name| *name != special) else {
        return Ok(());
    };
    Err(Exit::usage(format!(
        "{} and {} name two places to listen on; give only one of them",
        show(special),
        show(other)
    )))
}

/// Whether a flag speaks of another kind of socket than this option.
fn place_is_taken(flags: &ArgMatches, name: &str) -> bool {
    let tcp = given(flags, "host") || given(flags, "port");
    let (uds, fd) = (given(flags, "uds"), given(flags, "fd"));
    match name {
        "uds" => tcp || fd,
        "fd" => tcp || uds,
        _ => uds || fd,
    }
}

fn variable_name(option: &str) -> String {
    format!("M0_{}", option.to_ascii_uppercase())
}

/// A sentence for each name that looks like a variable of ours and is none: who mistypes one is not heard otherwise (R12).
pub(super) fn strays(names: impl Iterator<Item = String>) -> Vec<String> {
    let switches = SWITCHES
        .iter()
        .map(|name| format!("M0_NO_{}", name.to_ascii_uppercase()));
    let known: Vec<String> = option_names().map(variable_name).chain(switches).collect();
    let is_known = |name: &String| known.contains(name) || name == "M0_INVERTED";
    let mut names: Vec<String> = names
        .filter(|name| name.starts_with("M0_") && !is_known(name))
        .collect();
    names.sort();
    let sentence = |name: String| {
        let flag = format!("--{}", name[3..].to_ascii_lowercase().replace('_', "-"));
        let similar = matches(&[flag]).err();
        let similar = similar.and_then(|error| context(&error, ContextKind::SuggestedArg));
        let similar = similar.map(|flag| variable_name(&flag[2..].replace('-', "_")));
        match similar.filter(is_known) {
            Some(similar) => format!("{name} is no variable of m0serve and says nothing; did you mean {similar}?"),
            None => format!("{name} is no variable of m0serve and says nothing; unset it"),
        }
    };
    names.into_iter().map(sentence).collect()
}

/// The arguments that a variable stands for. An empty variable counts as unset, as compose files leave them.
fn variable(name: &'static str, lookup: Lookup<'_>) -> Result<Vec<String>, Exit> {
    let read = |variable: &str| lookup(variable).filter(|value| !value.trim().is_empty());
    let of = |variable: &str, how: String| Exit::usage(format!("{variable}: {how}"));
    let variable = variable_name(name);
    if name == "doctor" {
        let on = read(&variable)
            .map(|text| values::boolean(&text))
            .transpose()
            .map_err(|how| of(&variable, how))?;
        return Ok((on == Some(true)).then(|| "--doctor".to_owned()).into_iter().collect());
    }
    if SWITCHES.contains(&name) {
        let negative = format!("M0_NO_{}", name.to_ascii_uppercase());
        for (variable, positive) in [(&variable, true), (&negative, false)] {
            if let Some(text) = read(variable) {
                let on = values::boolean(&text).map_err(|how| of(variable, how))?;
                return Ok(vec![switch_argument(name, on == positive)]);
            }
        }
        return Ok(Vec::new());
    }
    let value = if name == "model" {
        model_variable(&read)?
    } else {
        read(&variable)
    };
    let Some(value) = value else { return Ok(Vec::new()) };
    let arguments: Vec<String> = match name {
        "app" => vec![value],
        // Several in one variable have commas between them, which are no part of a prefix.
        "mount" => value.split(',').map(|one| format!("--mount={}", one.trim())).collect(),
        name => vec![format!("--{}={value}", name.replace('_', "-"))],
    };
    match matches(&arguments) {
        Ok(_) => Ok(arguments),
        Err(error) => Err(of(&variable, reason(&error))),
    }
}

/// `M0_MODEL`, or `M0_INVERTED` with 1 or 0, as a switch would have it; they may not contradict each other.
fn model_variable(read: &dyn Fn(&str) -> Option<String>) -> Result<Option<String>, Exit> {
    let Some(text) = read("M0_INVERTED") else {
        return Ok(read("M0_MODEL"));
    };
    let inverted = values::boolean(&text).map_err(|how| Exit::usage(format!("M0_INVERTED: {how}")))?;
    let meant = if inverted { "inverted" } else { "pump" };
    match read("M0_MODEL") {
        Some(model) if model != meant => Err(Exit::usage(format!(
            "M0_MODEL={model} and M0_INVERTED={text} contradict each other; unset one of them"
        ))),
        _ => Ok(Some(meant.to_owned())),
    }
}

/// What clap stopped at, as an exit: help and version go to stdout with 0, everything else is one sentence and 2.
fn exit_of(error: &clap::Error) -> Exit {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return Exit {
            code: 0,
            message: error.to_string().trim_end().to_owned(),
            to_stdout: true,
        };
    }
    let option = context(error, ContextKind::InvalidArg).filter(|_| error.kind() != ErrorKind::UnknownArgument);
    let option = option.map(|arg| arg.split([' ', '=']).next().unwrap_or_default().to_owned());
    Exit::usage(match option {
        Some(option) => format!("{option}: {}", reason(error)),
        None => reason(error),
    })
}

/// What is wrong, in a phrase that names the fix.
fn reason(error: &clap::Error) -> String {
    let value = context(error, ContextKind::InvalidValue).unwrap_or_default();
    match error.kind() {
        ErrorKind::UnknownArgument => unknown(error),
        _ if value.is_empty() && matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation) => {
            "a value is missing; see m0serve --help".to_owned()
        }
        ErrorKind::InvalidValue => match context(error, ContextKind::ValidValue) {
            Some(valid) => format!("'{value}' is not known; give one of {valid}"),
            None => format!("'{value}' does not fit; see m0serve --help"),
        },
        ErrorKind::ValueValidation => match error.source() {
            Some(source) => format!("'{value}' does not fit; {source}"),
            None => format!("'{value}' does not fit; see m0serve --help"),
        },
        ErrorKind::ArgumentConflict => "given twice; give it once".to_owned(),
        ErrorKind::TooManyValues => format!("'{value}' is not expected, since it takes no value; leave it out"),
        _ => {
            let text = error.to_string();
            let line = text
                .lines()
                .next()
                .unwrap_or_default()
                .trim_start_matches("error: ")
                .to_owned();
            format!("{line}; see m0serve --help")
        }
    }
}

fn unknown(error: &clap::Error) -> String {
    let arg = context(error, ContextKind::InvalidArg).unwrap_or_default();
    if !arg.starts_with('-') {
        return format!("'{arg}' is one argument too many; give one APP, as MODULE:ATTR");
    }
    // What another server calls so is meant rather than what only looks alike.
    match (instead_of(&arg), context(error, ContextKind::SuggestedArg)) {
        (Some(hint), _) => format!("there is no option {arg}; {hint}"),
        (None, Some(similar)) => format!("there is no option {arg}; did you mean {similar}?"),
        (None, None) => format!("there is no option {arg}; m0serve --help lists all"),
    }
}

fn context(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => Some(texts.join(", ")),
        _ => None,
    }
}
