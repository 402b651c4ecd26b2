//! `--doctor`: the resolved configuration as JSON, and the exit code that the server would have.
//!
//! Nothing is started: backends are opened and closed again (there is no other way to know), no socket is bound, so a
//! port in use is not found here. What only Python knows (the interface of the object, whether the loop's package is
//! there) is handed in as [`Facts`].
//!
//! Not part of a loom build, in which there are no backends.

#![cfg(not(loom))]

use m0_platform::thread::online_cpus;
use m0_platform::{Choice, Kind, Options, available, open};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::config::{BackendChoice, Config, Exit, Interface, Source};

/// What only the Python side knows.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The interface of the application, where it could be found out.
    pub interface: Option<String>,
    /// The asyncio loop that would run.
    pub event_loop: Option<String>,
    /// Such as `CPython 3.13.0`.
    pub interpreter: String,
    /// Why the Python side would refuse.
    pub refusal: Option<Exit>,
}

/// What `--doctor` prints.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Of this server.
    version: &'static str,
    /// Of the interpreter.
    interpreter: String,
    /// The operating system and processor.
    platform: String,
    /// What would run; null where it would not.
    resolved: Value,
    /// Every backend, tried a moment ago.
    backends: Vec<Value>,
    /// CPUs that this process can use at once (affinity and quota).
    usable_cpus: usize,
    /// Open files: what the server raises its limit to.
    open_files: Option<u64>,
    /// Every option with its value and where it came from.
    options: Map<String, Value>,
    /// What the server would end with at once: code 0 is that it would serve.
    exit: Exit,
}

impl Report {
    /// The exit code of `--doctor`.
    #[must_use]
    pub fn code(&self) -> i32 {
        self.exit.code
    }

    /// The report as indented JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("names and plain values always make JSON")
    }
}

/// The platform's name for what the configuration asks for.
#[must_use]
pub fn choice(backend: BackendChoice) -> Choice {
    match backend {
        BackendChoice::Auto => Choice::Auto,
        BackendChoice::IoUring => Choice::Only(Kind::IoUring),
        BackendChoice::Epoll => Choice::Only(Kind::Epoll),
        BackendChoice::Kqueue => Choice::Only(Kind::Kqueue),
    }
}

/// Looks everything up.
#[must_use]
pub fn report(config: &Config, facts: Facts) -> Report {
    let interface = match facts.interface.as_deref() {
        Some("wsgi") => Interface::Wsgi,
        Some(_) => Interface::Asgi,
        None => config.interface,
    };
    let model = config.model_for(interface);
    let backend = config.backend_for(interface, *model.as_ref().unwrap_or(&config.model));
    let opened = open(choice(backend), &Options::default()).map(|(_, resolved)| resolved);
    let (backend, reason) = match &opened {
        Ok(resolved) => (Some(resolved.kind.name()), resolved.reason.clone()),
        Err(refused) => (None, Some(refused.sentence.clone())),
    };
    let platform = opened.err().map(|refused| {
        if refused.unsupported {
            Exit::config(refused.sentence)
        } else {
            Exit::failure(refused.sentence)
        }
    });
    let served = Exit {
        code: 0,
        message: "the server would start".to_owned(),
        to_stdout: false,
    };
    let threads = (interface == Interface::Wsgi).then(|| config.handler_threads(online_cpus()));
    let refused = model.clone().err();
    let exit = refused.or(facts.refusal).or(platform).unwrap_or(served);
    let backends = available()
        .into_iter()
        .map(|found| json!({ "name": found.kind.name(), "usable": found.usable, "reason": found.reason }));
    Report {
        version: env!("CARGO_PKG_VERSION"),
        interpreter: facts.interpreter,
        platform: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        resolved: json!({
            "backend": backend,
            "reason": reason,
            "model": model.ok().map(Config::name_of),
            "threads": threads,
            "interface": facts.interface,
            "loop": facts.event_loop,
        }),
        backends: backends.collect(),
        usable_cpus: m0_platform::thread::usable_cpus(),
        open_files: m0_platform::thread::raise_open_files().ok(),
        options: options(config),
        exit,
    }
}

/// `{"port": {"value": 8000, "source": "default"}, ...}`.
fn options(config: &Config) -> Map<String, Value> {
    let Ok(Value::Object(mut values)) = serde_json::to_value(config) else {
        unreachable!("a configuration is an object of plain values");
    };
    let mut options = Map::new();
    for (name, source) in &config.sources {
        let value = values
            .remove(*name)
            .expect("each option is a field of the configuration");
        let variable = matches!(source, Source::Variable).then(|| format!("M0_{}", name.to_uppercase()));
        options.insert(
            (*name).to_owned(),
            json!({ "value": value, "source": source, "variable": variable }),
        );
    }
    assert!(values.is_empty(), "each field of the configuration is an option");
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Config {
        let argv: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Config::parse_with(&argv, &|name| (name == "M0_MAX_BODY").then(|| "1k".to_owned())).unwrap()
    }

    fn json(line: &str, facts: Facts) -> (Value, i32) {
        let report = report(&parse(line), facts);
        (serde_json::from_str(&report.to_json()).unwrap(), report.code())
    }

    #[test]
    fn says_what_would_run_and_where_each_value_came_from() {
        let facts = Facts {
            interface: Some("asgi".to_owned()),
            ..Facts::default()
        };
        let (report, code) = json("--doctor --port 7000", facts);
        assert_eq!((code, &report["exit"]["code"]), (0, &json!(0)));
        assert_eq!(
            report["options"]["port"],
            json!({ "value": 7000, "source": "flag", "variable": null })
        );
        assert_eq!(
            report["options"]["max_body"],
            json!({ "value": 1024, "source": "variable", "variable": "M0_MAX_BODY" })
        );
        assert_eq!(report["options"]["idle_timeout"]["value"], json!(75.0));
        assert_eq!(report["options"]["loop"]["source"], json!("default"));
        assert_eq!(report["resolved"]["interface"], json!("asgi"));
        assert!(report["usable_cpus"].as_u64().unwrap() >= 1);
        let backends = report["backends"].as_array().unwrap();
        let usable = backends
            .iter()
            .find(|backend| backend["name"] == report["resolved"]["backend"])
            .unwrap();
        assert_eq!(usable["usable"], json!(true));
        assert!(
            backends
                .iter()
                .all(|backend| backend["usable"] != backend["reason"].is_string())
        );
    }

    #[test]
    fn exits_as_the_server_would() {
        let (report, code) = json("--interface wsgi --model inverted --backend io_uring", Facts::default());
        assert_eq!((code, &report["exit"]["code"]), (78, &json!(78)));
        let (report, code) = json("--interface wsgi --blocking-threads 3", Facts::default());
        assert_eq!((code, &report["resolved"]["model"]), (0, &json!("pump")));
        assert_eq!(report["resolved"]["threads"], json!(3));
        let facts = Facts {
            refusal: Some(Exit::failure("no such module")),
            ..Facts::default()
        };
        let (report, code) = json("", facts);
        assert_eq!((code, &report["exit"]["message"]), (1, &json!("no such module")));
        let elsewhere = if cfg!(target_os = "linux") { "kqueue" } else { "epoll" };
        let (report, code) = json(&format!("--backend {elsewhere}"), Facts::default());
        assert_eq!((code, &report["resolved"]["backend"]), (78, &Value::Null));
        assert_eq!(report["exit"]["message"], report["resolved"]["reason"]);
    }
}
