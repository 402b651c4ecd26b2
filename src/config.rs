//! The configuration: every option of the command line, its `M0_*` variable and its name in Python, checked once.
//!
//! Nothing here reads the process's state behind the caller's back or ends the process: a parse gives a [`Config`] or
//! an [`Exit`]. Exit codes: 0 help and version, 2 usage, 1 start-up failure, 78 (EX_CONFIG, `sysexits.h`) what this
//! machine, interpreter or version cannot run. R7: every limit and time-out has a bounded value here.

mod cli;
mod hints;
mod mount;
mod trust;
mod values;

use std::fmt;
use std::time::Duration;

use m0_platform::Choice;
use serde::{Serialize, Serializer};

pub use mount::Mount;
pub use trust::Trusted;
pub use values::{BackendChoice, Interface, Lifespan, LogLevel, LoopChoice, Model};

/// A usage error.
pub const USAGE: i32 = 2;
/// A start-up failure.
pub const FAILURE: i32 = 1;
/// A configuration that cannot be run here.
pub const CONFIG: i32 = 78;

/// Why the process should end, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Exit {
    /// The process's exit code.
    pub code: i32,
    /// One sentence that names the fix; for `--help` and `--version` the text.
    pub message: String,
    /// Whether the message goes to stdout (help and version) rather than stderr.
    #[serde(skip)]
    pub to_stdout: bool,
}

impl Exit {
    /// A usage error: exit code 2.
    #[must_use]
    pub fn usage(message: impl Into<String>) -> Exit {
        Exit {
            code: USAGE,
            message: message.into(),
            to_stdout: false,
        }
    }

    /// A start-up failure: exit code 1.
    #[must_use]
    pub fn failure(message: impl Into<String>) -> Exit {
        Exit {
            code: FAILURE,
            message: message.into(),
            to_stdout: false,
        }
    }

    /// A configuration that cannot be run here: exit code 78.
    #[must_use]
    pub fn config(message: impl Into<String>) -> Exit {
        Exit {
            code: CONFIG,
            message: message.into(),
            to_stdout: false,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Exit {}

#[cfg(not(feature = "modelled"))]
impl From<m0_platform::Refused> for Exit {
    fn from(refused: m0_platform::Refused) -> Exit {
        if refused.unsupported {
            Exit::config(refused.sentence)
        } else {
            Exit::failure(refused.sentence)
        }
    }
}

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The command line, or an option of `m0serve.run`.
    Flag,
    /// An `M0_*` variable.
    Variable,
    /// Neither.
    Default,
}

/// A value of an option as Python gives it.
#[derive(Clone, Debug, PartialEq)]
pub enum OptionValue {
    /// A string or a path.
    Str(String),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// True or False.
    Bool(bool),
    /// None: as if it were not given.
    None,
}

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A host name or address, and a port.
    Tcp(String, u16),
    /// The path of a UNIX socket.
    Unix(String),
    /// An inherited, bound socket.
    Descriptor(i32),
}

/// The configuration. Times are as given; limits of zero are already `None`.
#[derive(Clone, Debug, Serialize)]
#[allow(clippy::struct_excessive_bools)]
pub struct Config {
    /// `MODULE[:ATTR]`; `None` is the demo application, unless there are mounts.
    pub app: Option<String>,
    /// Further applications; see [`Config::mounts`] for all of them.
    pub mount: Vec<Mount>,
    /// Address or host name to listen on.
    pub host: String,
    /// Port to listen on; 0 takes any free one.
    pub port: u16,
    /// UNIX socket to listen on instead.
    pub uds: Option<String>,
    /// Inherited socket to listen on instead.
    pub fd: Option<i32>,
    /// Which interface is asked for.
    pub interface: Interface,
    /// Whether APP is a function that returns the application.
    pub factory: bool,
    /// Folder searched first for the application's module; `None` is the current one.
    pub app_dir: Option<String>,
    /// Whether the lifespan is run.
    pub lifespan: Lifespan,
    /// Path under which a proxy publishes the application: empty, or with a slash first and none last.
    pub root_path: String,
    /// Which backend is asked for.
    pub backend: BackendChoice,
    /// Which execution model.
    pub model: Model,
    /// Which asyncio event loop is asked for.
    #[serde(rename = "loop")]
    pub event_loop: LoopChoice,
    /// Whether the forwarding fields of trusted peers are believed.
    pub proxy_headers: bool,
    /// Who is trusted.
    pub forwarded_allow_ips: Trusted,
    /// Largest request body in bytes.
    #[serde(serialize_with = "zero_for_none")]
    pub max_body: Option<u64>,
    /// Largest request head in bytes, 256 to 16 MiB.
    pub max_head: usize,
    /// Longest request target in bytes, 256 to 16 MiB; a head's limit limits it too.
    pub max_target: usize,
    /// Most fields in a request's head, 1 to 10,000.
    pub max_fields: usize,
    /// Within this a request's head must be complete.
    #[serde(serialize_with = "seconds")]
    pub header_timeout: Duration,
    /// May pass between two pieces of a request's body, and without a client's taking anything of its response.
    #[serde(serialize_with = "seconds")]
    pub body_timeout: Duration,
    /// A connection may wait this long for its next request.
    #[serde(serialize_with = "seconds")]
    pub idle_timeout: Duration,
    /// What a stopping server gives to what is in flight; may be zero.
    #[serde(serialize_with = "seconds")]
    pub drain_timeout: Duration,
    /// Threads that run the views of a WSGI application; `None`: as many as the machine's CPUs suggest. With 0 they run one
    /// after another: a view that waits holds all others up.
    pub blocking_threads: Option<u64>,
    /// Connections at once.
    #[serde(serialize_with = "zero_for_none")]
    pub max_connections: Option<u64>,
    /// Requests after which a connection closes.
    #[serde(serialize_with = "zero_for_none")]
    pub max_keepalive_requests: Option<u64>,
    /// Whether each request gets a line on stdout.
    pub access_log: bool,
    /// What is worth a line on stderr.
    pub log_level: LogLevel,
    /// Whether responses get a date.
    pub date_header: bool,
    /// Whether responses get a server.
    pub server_header: bool,
    /// Whether to print the configuration and start nothing.
    pub doctor: bool,
    /// A sentence for each variable of the process that begins with `M0_` and is no option's.
    #[serde(skip)]
    pub strays: Vec<String>,
    /// Where each option's value came from, in the order of the command line.
    #[serde(skip)]
    pub sources: Vec<(&'static str, Source)>,
}

impl Config {
    /// Parses a command line (without the program's name) over this process's environment.
    ///
    /// # Errors
    /// An [`Exit`]: help and version (0), or a usage error (2).
    pub fn parse(argv: &[String]) -> Result<Config, Exit> {
        Config::parse_with(argv, &|name| std::env::var(name).ok())?.look_around()
    }

    /// Looks for variables that begin as ours do and say nothing: those of no option, and values that are no text (R12).
    fn look_around(mut self) -> Result<Config, Exit> {
        let set = std::env::vars_os().filter(|(_, value)| !value.is_empty());
        let set = set.filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        let set: Vec<_> = set.filter(|(name, _)| name.starts_with("M0_")).collect();
        if let Some((name, _)) = set.iter().find(|(_, value)| value.to_str().is_none()) {
            return Err(Exit::usage(format!(
                "{name}: the value is no UTF-8 text; give one that is"
            )));
        }
        self.strays = cli::strays(set.into_iter().map(|(name, _)| name));
        Ok(self)
    }

    /// [`Config::parse`] over an environment of the caller's.
    ///
    /// # Errors
    /// As [`Config::parse`].
    pub fn parse_with(argv: &[String], lookup: &dyn Fn(&str) -> Option<String>) -> Result<Config, Exit> {
        Config::from(cli::parse(argv, lookup)?).check_mounts()
    }

    /// The options of Python's `m0serve.run`: names with underscores, otherwise as on the command line. `mounts` are
    /// prefixes, each with an import string, or none for an object that Python holds.
    ///
    /// # Errors
    /// A usage error (2).
    pub fn from_options(
        options: &[(String, OptionValue)],
        mounts: &[(String, Option<String>)],
    ) -> Result<Config, Exit> {
        Config::from_options_with(options, mounts, &|name| std::env::var(name).ok())?.look_around()
    }

    /// [`Config::from_options`] over an environment of the caller's.
    ///
    /// # Errors
    /// As [`Config::from_options`].
    pub fn from_options_with(
        options: &[(String, OptionValue)],
        mounts: &[(String, Option<String>)],
        lookup: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Config, Exit> {
        let mut argv = Vec::new();
        for (name, value) in options {
            argv.extend(cli::argument(name, value)?);
        }
        if mounts.is_empty() {
            return Config::parse_with(&argv, lookup);
        }
        let given = mounts.iter().map(|(prefix, app)| {
            let mount = Mount::new(prefix, app.as_deref());
            mount.map_err(|how| Exit::usage(format!("mounts: '{prefix}' does not fit; {how}")))
        });
        let given = given.collect::<Result<Vec<Mount>, Exit>>()?;
        let has_root = given.iter().any(|mount| mount.prefix.is_empty());
        // Keywords beat variables.
        let lookup = |name: &str| match name {
            "M0_MOUNT" => None,
            "M0_APP" if has_root => None,
            name => lookup(name),
        };
        Config::parse_with(&argv, &lookup)?.with_mounts(given)
    }

    /// Where to listen.
    #[must_use]
    pub fn place(&self) -> Place {
        match (&self.uds, self.fd) {
            (Some(path), _) => Place::Unix(path.clone()),
            (None, Some(fd)) => Place::Descriptor(fd),
            (None, None) => Place::Tcp(self.host.clone(), self.port),
        }
    }

    /// The model for an application of this interface: what was asked for, or else the inverted one (why, also for WSGI:
    /// docs/notes/which-model-for-wsgi.md), but where only the pump can run on the backend that was asked for.
    ///
    /// # Errors
    /// Exit code 78 where it is not built.
    pub fn model_for(&self, interface: Interface) -> Result<Model, Exit> {
        let asked = self
            .sources
            .iter()
            .any(|(name, source)| *name == "model" && *source != Source::Default);
        match (interface, self.model) {
            (Interface::Wsgi, Model::Inverted) => match self.backend.kind().filter(|kind| !kind.is_readiness()) {
                Some(_) if !asked => Ok(Model::Pump),
                Some(kind) => Err(Exit::config(format!(
                    "an inverted WSGI server changes the thread of its loop, which {} does not allow; \
                     leave --backend out, or use --model pump",
                    kind.name()
                ))),
                None => Ok(Model::Inverted),
            },
            (_, model) => Ok(model),
        }
    }

    /// The backend for a model and an interface: a loop that changes threads needs one of readiness.
    #[must_use]
    pub fn backend_for(&self, interface: Interface, model: Model) -> Choice {
        match (interface, model, self.backend) {
            (Interface::Wsgi, Model::Inverted, BackendChoice::Auto) => Choice::Readiness,
            (_, _, backend) => backend.choice(),
        }
    }

    /// How many threads run the views of a WSGI application: by default from the number of CPUs, since threads that wait
    /// cost memory only.
    #[must_use]
    pub fn handler_threads(&self, online_cpus: usize) -> usize {
        match self.blocking_threads {
            Some(threads) => usize::try_from(threads).expect("bounded by its parser").max(1),
            None => (4 * online_cpus).clamp(1, 8),
        }
    }

    /// The name of a choice as it is written on the command line: for `model`, `backend` and the like.
    #[must_use]
    pub fn name_of<T: clap::ValueEnum>(choice: T) -> String {
        values::name_of(choice)
    }
}

impl From<cli::Parsed> for Config {
    fn from(parsed: cli::Parsed) -> Config {
        let cli = parsed.cli;
        let limit = |number: u64| (number > 0).then_some(number);
        Config {
            app: cli.app,
            mount: cli.mount,
            host: cli.host,
            port: cli.port,
            uds: cli.uds,
            fd: cli.fd,
            interface: cli.interface,
            factory: cli.factory,
            app_dir: cli.app_dir,
            lifespan: cli.lifespan,
            root_path: cli.root_path,
            backend: cli.backend,
            model: cli.model,
            event_loop: cli.event_loop,
            proxy_headers: !cli.no_proxy_headers,
            forwarded_allow_ips: cli.forwarded_allow_ips,
            max_body: limit(cli.max_body),
            max_head: usize::try_from(cli.max_head).expect("bounded by its parser"),
            max_target: usize::try_from(cli.max_target).expect("bounded by its parser"),
            max_fields: usize::try_from(cli.max_fields).expect("bounded by its parser"),
            header_timeout: cli.header_timeout,
            body_timeout: cli.body_timeout,
            idle_timeout: cli.idle_timeout,
            drain_timeout: cli.drain_timeout,
            blocking_threads: cli.blocking_threads,
            max_connections: limit(cli.max_connections),
            max_keepalive_requests: limit(cli.max_keepalive_requests),
            access_log: cli.access_log,
            log_level: cli.log_level,
            date_header: !cli.no_date_header,
            server_header: !cli.no_server_header,
            doctor: cli.doctor,
            strays: Vec::new(),
            sources: parsed.sources,
        }
    }
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

#[allow(clippy::trivially_copy_pass_by_ref, clippy::ref_option)]
fn zero_for_none<S: Serializer>(limit: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(limit.unwrap_or(0))
}

#[cfg(all(test, not(feature = "modelled")))]
mod tests;
