//! `--doctor`: the resolved configuration as JSON, and the exit code that the server would have.
//!
//! Nothing is started: backends are opened and closed again (there is no other way to know), no socket is bound, so a
//! port in use is not found here. What only Python knows (the interface of the object, whether the loop's package is
//! there) is handed in as [`Facts`].
//!
//! Not part of a build for loom or shuttle, in which there are no backends.

#![cfg(not(feature = "modelled"))]

use m0_platform::thread::online_cpus;
use m0_platform::{Availability, Options, available, open};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::config::{Config, Exit, Interface, Model, Source};

/// What only the Python side knows.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The interface of each application, where it could be found out, in the order of [`Config::mounts`].
    pub interfaces: Vec<Option<String>>,
    /// The asyncio loop that would run; no application of WSGI runs in it.
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
    /// Variables that look like ours and say nothing, in a sentence each.
    strays: Vec<String>,
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

/// Looks everything up.
#[must_use]
pub fn report(config: &Config, facts: Facts) -> Report {
    let mounts = config.mounts();
    let named = (0..mounts.len()).map(|at| facts.interfaces.get(at).and_then(Option::as_deref));
    let named: Vec<Option<&str>> = named.collect();
    let interfaces: Vec<Interface> = named.iter().map(|name| interface(*name, config)).collect();
    let process = Config::interface_of(&interfaces);
    let model = config.model_for(process);
    let backend = config.backend_for(process, *model.as_ref().unwrap_or(&config.model));
    let opened = open(backend, &Options::default()).map(|(_, resolved)| resolved);
    let (backend, reason) = match &opened {
        Ok(resolved) => (Some(resolved.kind.name()), resolved.reason.clone()),
        Err(refused) => (None, Some(refused.sentence.clone())),
    };
    let platform = opened.err().map(Exit::from);
    let served = Exit {
        code: 0,
        message: "the server would start".to_owned(),
        to_stdout: false,
    };
    let applications = interfaces.iter().filter(|one| **one == Interface::Wsgi).count();
    let threads = (applications > 0).then(|| config.crew_size(online_cpus(), applications));
    let shown = named
        .iter()
        .zip(&mounts)
        .zip(&interfaces)
        .map(|((name, mount), interface)| {
            let why = why(config, *interface, process, reason.as_deref());
            json!({
                "prefix": mount.shown(),
                "app": mount.app,
                "interface": name,
                "model": model.as_ref().ok().map(|model| Config::name_of(*model)),
                "backend": backend,
                "threads": if *interface == Interface::Wsgi { config.handler_threads(online_cpus()) } else { 1 },
                "why": why,
            })
        });
    let shown: Vec<Value> = shown.collect();
    let refused = model.clone().err();
    let exit = refused.or(facts.refusal).or(platform).unwrap_or(served);
    Report {
        version: env!("CARGO_PKG_VERSION"),
        interpreter: facts.interpreter,
        platform: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        resolved: json!({
            "backend": backend,
            "reason": reason,
            "model": model.ok().map(Config::name_of),
            "threads": threads,
            "interface": interface_name(&named),
            "loop": facts.event_loop.filter(|_| process != Interface::Wsgi),
            "mounts": shown,
        }),
        backends: backends(),
        usable_cpus: m0_platform::thread::usable_cpus(),
        open_files: m0_platform::thread::raise_open_files().ok(),
        options: options(config),
        strays: config.strays.clone(),
        exit,
    }
}

/// Every backend, tried now.
fn backends() -> Vec<Value> {
    let show = |found: Availability| {
        json!({
            "name": found.kind.name(),
            "usable": found.usable,
            "emulated": found.kind.is_emulated(),
            "reason": found.reason,
        })
    };
    available().into_iter().map(show).collect()
}

fn interface(name: Option<&str>, config: &Config) -> Interface {
    match name {
        Some("wsgi") => Interface::Wsgi,
        Some(_) => Interface::Asgi,
        None => config.interface,
    }
}

/// The one interface of all applications; nothing where it is not known.
#[must_use]
pub fn interface_name(names: &[Option<&str>]) -> Option<String> {
    let first = names.first().copied().flatten()?;
    let all_alike = names.iter().all(|name| *name == Some(first));
    let name = if all_alike { first } else { "mixed" };
    names.iter().all(Option::is_some).then(|| name.to_owned())
}

/// Why an application is served as it is.
fn why(config: &Config, interface: Interface, process: Interface, backend: Option<&str>) -> Value {
    let given = |name: &str| {
        let source = config.sources.iter().find(|(known, _)| *known == name);
        match source.map(|(_, source)| *source) {
            Some(Source::Flag) => Some(format!("--{}", name.replace('_', "-"))),
            Some(Source::Variable) => Some(format!("M0_{}", name.to_uppercase())),
            Some(Source::Default) | None => None,
        }
    };
    let is_wsgi = interface == Interface::Wsgi;
    let chosen = given("model").unwrap_or_else(|| "the default".to_owned());
    let model = match (is_wsgi, process) {
        (false, _) => chosen,
        (true, Interface::Wsgi) if given("model").is_none() && config.model_for(process) == Ok(Model::Pump) => {
            "the inverted model changes the thread of its loop, which the given backend does not allow".to_owned()
        }
        (true, Interface::Wsgi) => format!("{chosen} where every application is WSGI"),
        (true, _) if config.model == Model::Inverted => {
            format!(
                "{chosen}; beside ASGI applications its threads do not run the loop, since asyncio cannot change threads"
            )
        }
        (true, _) => chosen,
    };
    let readiness = process == Interface::Wsgi && config.model_for(process) == Ok(Model::Inverted);
    let backend = match (backend, given("backend")) {
        (Some(reason), _) => reason.to_owned(),
        (None, Some(flag)) => flag,
        (None, None) if readiness => "a loop that changes threads needs a backend of readiness".to_owned(),
        (None, None) => "the best that this machine allows".to_owned(),
    };
    let threads = match (is_wsgi, given("blocking_threads")) {
        (false, _) => "coroutines run on the thread of the event loop".to_owned(),
        (true, Some(flag)) => flag,
        (true, None) => format!("four for each of {} CPUs, at most eight", online_cpus()),
    };
    json!({
        "interface": given("interface").unwrap_or_else(|| "found out from the object".to_owned()),
        "model": model,
        "backend": backend,
        "threads": threads,
    })
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

#[cfg(all(test, not(feature = "modelled")))]
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
            interfaces: vec![Some("asgi".to_owned())],
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
    fn says_of_each_mount_how_it_is_served_and_why() {
        let mixed = || Facts {
            interfaces: vec![Some("wsgi".to_owned()), Some("asgi".to_owned())],
            ..Facts::default()
        };
        let (report, code) = json("d:a --mount /api=f:a --blocking-threads 3", mixed());
        let resolved = &report["resolved"];
        assert_eq!(
            (code, &resolved["interface"], &resolved["threads"]),
            (0, &json!("mixed"), &json!(3))
        );
        let [site, api] = &resolved["mounts"].as_array().unwrap()[..] else {
            panic!("{resolved}");
        };
        assert_eq!((&site["prefix"], &site["app"]), (&json!("/"), &json!("d:a")));
        assert_eq!(
            (&site["interface"], &site["model"]),
            (&json!("wsgi"), &json!("inverted"))
        );
        assert_eq!(
            (&site["threads"], &site["why"]["threads"]),
            (&json!(3), &json!("--blocking-threads"))
        );
        assert!(site["why"]["model"].as_str().unwrap().contains("asyncio"));
        assert_eq!((&api["prefix"], &api["threads"]), (&json!("/api"), &json!(1)));
        assert_eq!(api["why"]["model"], json!("the default"));
        assert_eq!(api["backend"], resolved["backend"]);
        assert_eq!(
            report["options"]["mount"]["value"],
            json!([{ "prefix": "/api", "app": "f:a" }])
        );
        let (report, _) = json("d:a --mount /api=f:a --model inverted --backend io_uring", mixed());
        assert_eq!(
            report["resolved"]["model"],
            json!("inverted"),
            "without the baton any backend does"
        );
    }

    #[test]
    fn exits_as_the_server_would() {
        let (report, code) = json("--interface wsgi --model inverted --backend io_uring", Facts::default());
        assert_eq!((code, &report["exit"]["code"]), (78, &json!(78)));
        let on_asyncio = || Facts {
            event_loop: Some("asyncio".to_owned()),
            ..Facts::default()
        };
        assert_eq!(
            json("--interface asgi", on_asyncio()).0["resolved"]["loop"],
            json!("asyncio")
        );
        let (report, code) = json("--interface wsgi --blocking-threads 3", on_asyncio());
        assert_eq!(report["resolved"]["loop"], Value::Null, "views run in no event loop");
        assert_eq!((code, &report["resolved"]["model"]), (0, &json!("inverted")));
        assert_eq!(report["resolved"]["threads"], json!(3));
        let (report, _) = json("--interface wsgi --backend io_uring", Facts::default());
        assert_eq!(report["resolved"]["model"], json!("pump"));
        let why = report["resolved"]["mounts"][0]["why"]["model"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(why.contains("the given backend"), "{why}");
        let facts = Facts {
            refusal: Some(Exit::failure("no such module")),
            ..Facts::default()
        };
        let (report, code) = json("", facts);
        assert_eq!((code, &report["exit"]["message"]), (1, &json!("no such module")));
        for found in available() {
            let name = found.kind.name();
            let (report, code) = json(&format!("--backend {name}"), Facts::default());
            if found.usable {
                assert_eq!((code, &report["resolved"]["backend"]), (0, &json!(name)));
            } else {
                assert_eq!((code, &report["resolved"]["backend"]), (78, &Value::Null));
                assert_eq!(report["exit"]["message"], report["resolved"]["reason"]);
            }
        }
    }
}
