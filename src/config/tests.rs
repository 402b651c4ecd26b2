//! What users type, and what they get.

use m0_platform::{Choice, Kind};

use super::*;

fn parse(line: &str, environment: &[(&str, &str)]) -> Result<Config, Exit> {
    let argv: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    Config::parse_with(&argv, &|name| {
        environment
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| (*value).to_owned())
    })
}

fn sentence(line: &str, environment: &[(&str, &str)]) -> String {
    let exit = parse(line, environment).expect_err(line);
    assert_eq!(exit.code, USAGE, "{exit:?}");
    assert!(!exit.to_stdout);
    assert!(
        !exit.message.contains('\n') && !exit.message.contains("Usage"),
        "{exit:?}"
    );
    exit.message
}

fn source(config: &Config, name: &str) -> Source {
    config.sources.iter().find(|(known, _)| *known == name).expect(name).1
}

#[test]
fn nothing_given_is_the_documented_default() {
    let config = parse("", &[]).unwrap();
    assert_eq!(config.app, None);
    assert_eq!(config.place(), Place::Tcp("127.0.0.1".to_owned(), 8000));
    assert_eq!((config.model, config.backend), (Model::Inverted, BackendChoice::Auto));
    assert_eq!(
        (config.max_body, config.max_head, config.max_connections),
        (None, 65_536, None)
    );
    assert_eq!(config.drain_timeout, Duration::from_secs(8));
    assert_eq!(config.idle_timeout, Duration::from_secs(75));
    assert!(config.proxy_headers && config.date_header && config.server_header);
    assert!(!config.access_log && !config.factory && !config.doctor);
    assert!(config.sources.iter().all(|(_, source)| *source == Source::Default));
}

#[test]
fn a_flag_beats_its_variable_which_beats_the_default() {
    let environment = [
        ("M0_PORT", "9000"),
        ("M0_MAX_BODY", "1m"),
        ("M0_LOG_LEVEL", "WARN"),
        ("M0_HOST", ""),
    ];
    let config = parse("--port 7000 x:app", &environment).unwrap();
    assert_eq!((config.port, config.max_body), (7000, Some(1 << 20)));
    assert_eq!(config.log_level, LogLevel::Warn);
    assert_eq!(source(&config, "port"), Source::Flag);
    assert_eq!(source(&config, "max_body"), Source::Variable);
    assert_eq!(source(&config, "host"), Source::Default);
    assert_eq!(source(&config, "app"), Source::Flag);
    assert_eq!(parse("", &environment).unwrap().port, 9000);
}

#[test]
fn every_option_can_come_from_its_variable() {
    let given = [
        ("app", "x:y"),
        ("mount", "/api=x:y"),
        ("host", "::"),
        ("port", "1"),
        ("interface", "asgi"),
        ("factory", "yes"),
        ("app_dir", "/d"),
        ("lifespan", "off"),
        ("root_path", "/p"),
        ("backend", "io_uring"),
        ("model", "pump"),
        ("loop", "uvloop"),
        ("proxy_headers", "no"),
        ("forwarded_allow_ips", "*"),
        ("max_body", "1k"),
        ("max_head", "1k"),
        ("max_target", "1k"),
        ("max_fields", "7"),
        ("header_timeout", "1.5"),
        ("body_timeout", "1"),
        ("idle_timeout", "1"),
        ("drain_timeout", "0"),
        ("blocking_threads", "3"),
        ("max_connections", "5"),
        ("max_keepalive_requests", "6"),
        ("access_log", "1"),
        ("log_level", "debug"),
        ("date_header", "0"),
        ("server_header", "false"),
        ("doctor", "true"),
    ];
    let plain = serde_json::to_value(parse("", &[]).unwrap()).unwrap();
    for (name, value) in given.iter().chain(&[("uds", "/s"), ("fd", "3")]) {
        let variable = format!("M0_{}", name.to_uppercase());
        let config = parse("", &[(&variable, value)]).unwrap();
        assert_eq!(source(&config, name), Source::Variable, "{name}");
        let others = config
            .sources
            .iter()
            .filter(|(_, source)| *source != Source::Default)
            .count();
        assert_eq!(others, 1, "{name}");
        assert_ne!(
            serde_json::to_value(&config).unwrap()[*name],
            plain[*name],
            "{name} says nothing"
        );
    }
    assert_eq!(
        given.len() + 2,
        parse("", &[]).unwrap().sources.len(),
        "an option is missing from this test"
    );
}

#[test]
fn switches_have_two_directions_everywhere() {
    assert!(!parse("--no-proxy-headers", &[]).unwrap().proxy_headers);
    assert!(
        parse("--proxy-headers", &[("M0_PROXY_HEADERS", "0")])
            .unwrap()
            .proxy_headers
    );
    assert!(parse("--no-date-header --date-header", &[]).unwrap().date_header);
    assert!(!parse("", &[("M0_NO_SERVER_HEADER", "1")]).unwrap().server_header);
    assert!(parse("", &[("M0_NO_SERVER_HEADER", "0")]).unwrap().server_header);
    assert!(!parse("--no-access-log", &[("M0_ACCESS_LOG", "1")]).unwrap().access_log);
    assert!(!parse("", &[("M0_DOCTOR", "no")]).unwrap().doctor);
}

#[test]
fn the_old_name_of_the_inverted_model_still_works() {
    assert_eq!(parse("", &[("M0_INVERTED", "1")]).unwrap().model, Model::Inverted);
    assert_eq!(parse("", &[("M0_INVERTED", "0")]).unwrap().model, Model::Pump);
    assert_eq!(
        parse("--model pump", &[("M0_INVERTED", "1")]).unwrap().model,
        Model::Pump
    );
    assert!(sentence("", &[("M0_INVERTED", "1"), ("M0_MODEL", "pump")]).contains("unset one"));
    assert!(sentence("", &[("M0_INVERTED", "maybe")]).starts_with("M0_INVERTED: "));
}

#[test]
fn a_variable_that_nobody_reads_is_named_with_its_likely_meaning() {
    let names = [
        "PATH",
        "M0_PORT",
        "M0_INVERTED",
        "M0_NO_DATE_HEADER",
        "m0_x",
        "M0_",
        "M0_ZZZ",
        "M0_MAXBODY",
        "M0_MODLE",
        "M0_NO_DATEHEADER",
        "M0_HELP",
        "M0_Ä",
    ];
    let unknown = "is no variable of m0serve and says nothing";
    assert_eq!(
        cli::strays(names.into_iter().map(str::to_owned)),
        [
            format!("M0_ {unknown}; unset it"),
            format!("M0_HELP {unknown}; unset it"),
            format!("M0_MAXBODY {unknown}; did you mean M0_MAX_BODY?"),
            format!("M0_MODLE {unknown}; did you mean M0_MODEL?"),
            format!("M0_NO_DATEHEADER {unknown}; did you mean M0_NO_DATE_HEADER?"),
            format!("M0_ZZZ {unknown}; unset it"),
            format!("M0_Ä {unknown}; unset it"),
        ]
    );
}

#[test]
fn one_place_to_listen_on() {
    assert_eq!(
        parse("--uds /tmp/s", &[]).unwrap().place(),
        Place::Unix("/tmp/s".to_owned())
    );
    assert_eq!(parse("--fd 3", &[]).unwrap().place(), Place::Descriptor(3));
    for line in [
        "--uds /tmp/s --port 1",
        "--uds /tmp/s --host ::",
        "--fd 3 --host ::",
        "--fd 3 --uds /tmp/s",
    ] {
        assert!(sentence(line, &[]).contains("only one"), "{line}");
    }
    let both = [("M0_UDS", "/tmp/s"), ("M0_PORT", "80")];
    assert!(sentence("", &both).starts_with("M0_UDS and M0_PORT"));
    assert_eq!(parse("--fd 3", &both).unwrap().place(), Place::Descriptor(3));
    assert_eq!(
        parse("--port 1", &both).unwrap().place(),
        Place::Tcp("127.0.0.1".to_owned(), 1)
    );
    assert_eq!(
        parse("--uds /tmp/o", &both).unwrap().place(),
        Place::Unix("/tmp/o".to_owned())
    );
}

#[test]
fn usage_errors_are_one_sentence_that_names_the_fix() {
    let cases = [
        (
            "--port abc",
            "--port: 'abc' does not fit; give a number from 0 to 65535 (0 takes any free port)",
        ),
        ("--prot 1", "there is no option --prot; did you mean --port?"),
        ("--zzzz", "there is no option --zzzz; m0serve --help lists all"),
        (
            "--workers 4 a:b",
            "there is no option --workers; one process serves: run one for each CPU, behind a proxy",
        ),
        (
            "a:b -b127.0.0.1:80",
            "there is no option -b; give --host and --port, or --uds, or --fd",
        ),
        (
            "--host 0.0.0.0:80",
            "--host: '0.0.0.0:80' does not fit; give the port by itself: --host 0.0.0.0 --port 80",
        ),
        (
            "--host [::1]:80",
            "--host: '[::1]:80' does not fit; give the port by itself: --host [::1] --port 80",
        ),
        (
            "a:b c:d",
            "'c:d' is one argument too many; give one APP, as MODULE:ATTR",
        ),
        ("--port", "--port: a value is missing; see m0serve --help"),
        (
            "--backend iocp",
            "--backend: 'iocp' is not known; give one of auto, io_uring, epoll, kqueue",
        ),
        ("--port 1 --port 2", "--port: given twice; give it once"),
        (
            "--factory=1",
            "--factory: '1' is not expected, since it takes no value; leave it out",
        ),
        (
            "--max-body 1x",
            "--max-body: '1x' does not fit; give bytes as a whole number, or with k, m or g behind it, such as 64k",
        ),
    ];
    for (line, expected) in cases {
        assert_eq!(sentence(line, &[]), expected);
    }
    assert_eq!(
        sentence("", &[("M0_PORT", "abc")]),
        "M0_PORT: 'abc' does not fit; give a number from 0 to 65535 (0 takes any free port)"
    );
    assert!(sentence("", &[("M0_ACCESS_LOG", "2")]).starts_with("M0_ACCESS_LOG: give 1"));
    assert!(sentence("", &[("M0_APP", "--port")]).starts_with("M0_APP: "));
}

#[test]
fn help_and_version_go_to_stdout_with_zero() {
    for line in ["--help", "-h", "--version", "x:app --help"] {
        let exit = parse(line, &[]).unwrap_err();
        assert_eq!((exit.code, exit.to_stdout), (0, true), "{line}");
    }
    let help = parse("--help", &[]).unwrap_err().message;
    let config = parse("", &[]).unwrap();
    for (name, _) in &config.sources {
        assert!(
            help.contains(&name.replace('_', "-")) || *name == "app",
            "{name} is not in --help"
        );
    }
    let (_, body) = help.split_once("--body-timeout <SECONDS>").unwrap();
    let (body, _) = body.split_once("[default").unwrap();
    assert!(
        body.contains("body") && body.contains("response"),
        "it is for both ways: {body}"
    );
    let shown = help.split('<').skip(1).filter_map(|rest| rest.split_once('>'));
    let small: Vec<&str> = shown
        .map(|(name, _)| name)
        .filter(|name| *name != name.to_uppercase())
        .collect();
    assert!(small.is_empty(), "names of values are written large, but {small:?}");
    assert_eq!(
        parse("--version", &[]).unwrap_err().message,
        format!("m0serve {}", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn options_from_python_go_the_same_way() {
    let from = |options: &[(&str, OptionValue)], environment: &[(&str, &str)]| {
        let options: Vec<_> = options
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        Config::from_options_with(&options, &[], &|name| {
            environment
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned())
        })
    };
    let config = from(
        &[
            ("port", OptionValue::Int(0)),
            ("drain_timeout", OptionValue::Float(0.5)),
            ("access_log", OptionValue::Bool(true)),
            ("no_date_header", OptionValue::Bool(true)),
            ("proxy_headers", OptionValue::Bool(false)),
            ("max_head", OptionValue::Str("1k".to_owned())),
            ("host", OptionValue::None),
        ],
        &[("M0_PORT", "9"), ("M0_HOST", "::1")],
    )
    .unwrap();
    assert_eq!((config.port, config.host.as_str(), config.max_head), (0, "::1", 1024));
    assert_eq!(config.drain_timeout, Duration::from_millis(500));
    assert!(config.access_log && !config.date_header && !config.proxy_headers);
    let refused = |name: &str, value: OptionValue| from(&[(name, value)], &[]).unwrap_err();
    assert!(refused("prot", OptionValue::Int(1)).message.contains("'prot'"));
    assert_eq!(
        refused("timeout_keep_alive", OptionValue::Int(5)).message,
        "there is no option 'timeout_keep_alive'; it is --idle-timeout here"
    );
    assert!(refused("port", OptionValue::Int(-1)).message.starts_with("--port: "));
    assert!(refused("port", OptionValue::Bool(true)).message.contains("True"));
    assert!(
        refused("access_log", OptionValue::Str("perhaps".to_owned()))
            .message
            .starts_with("access_log: ")
    );
    assert!(
        refused("idle_timeout", OptionValue::Float(f64::NAN))
            .message
            .contains("seconds")
    );
    assert_eq!(refused("doctor", OptionValue::Bool(true)).code, USAGE);
}

#[test]
fn an_inverted_wsgi_server_takes_a_backend_of_readiness() {
    let model = |line: &str, interface| parse(line, &[]).unwrap().model_for(interface);
    assert_eq!(model("", Interface::Wsgi), Ok(Model::Inverted));
    assert_eq!(model("--backend epoll", Interface::Wsgi), Ok(Model::Inverted));
    assert_eq!(model("--backend io_uring", Interface::Wsgi), Ok(Model::Pump));
    assert_eq!(model("--model pump", Interface::Wsgi), Ok(Model::Pump));
    assert_eq!(model("", Interface::Asgi), Ok(Model::Inverted));
    assert_eq!(model("--model pump", Interface::Asgi), Ok(Model::Pump));
    assert_eq!(model("--model inverted", Interface::Wsgi), Ok(Model::Inverted));
    let asked = "--model inverted --backend io_uring";
    assert_eq!(model(asked, Interface::Wsgi).unwrap_err().code, CONFIG);
    let backend = |line: &str| parse(line, &[]).unwrap().backend_for(Interface::Wsgi, Model::Inverted);
    assert_eq!(backend(""), Choice::Readiness);
    assert_eq!(backend("--backend epoll"), Choice::Only(Kind::Epoll));
    assert_eq!(
        model("--model inverted --backend kqueue", Interface::Wsgi),
        Ok(Model::Inverted)
    );
    let config = parse("", &[]).unwrap();
    assert_eq!(config.backend_for(Interface::Wsgi, Model::Pump), Choice::Auto);
    assert_eq!(config.backend_for(Interface::Asgi, Model::Inverted), Choice::Auto);
}

#[test]
fn handler_threads_follow_the_cpus_unless_they_are_given() {
    let threads = |line: &str, cpus| parse(line, &[]).unwrap().handler_threads(cpus);
    assert_eq!([1, 2, 64].map(|cpus| threads("", cpus)), [4, 8, 8]);
    assert_eq!(threads("--blocking-threads 20", 1), 20);
    assert_eq!(threads("--blocking-threads 0", 4), 1);
}

fn mounted(config: &Config) -> Vec<(String, Option<String>)> {
    let all = config.mounts().into_iter();
    all.map(|mount| (mount.shown().to_owned(), mount.app)).collect()
}

fn pairs<'a>(mounts: &[(&'a str, Option<&'a str>)]) -> Vec<(String, Option<String>)> {
    let owned = mounts
        .iter()
        .map(|(prefix, app)| ((*prefix).to_owned(), app.map(str::to_owned)));
    owned.collect()
}

#[test]
fn mounts_come_after_the_application_in_their_order() {
    let all = |line: &str, environment: &[(&str, &str)]| mounted(&parse(line, environment).unwrap());
    assert_eq!(all("", &[]), pairs(&[("/", None)]));
    assert_eq!(all("m:a", &[]), pairs(&[("/", Some("m:a"))]));
    let line = "--mount /z=z:app m:a --mount /a/=a";
    assert_eq!(
        all(line, &[]),
        pairs(&[("/", Some("m:a")), ("/z", Some("z:app")), ("/a", Some("a"))])
    );
    assert_eq!(all("--mount /z=z", &[]), pairs(&[("/z", Some("z"))]), "no demo beside");
    let variable = [("M0_MOUNT", "/z=z:app, /a=a")];
    assert_eq!(all("", &variable), pairs(&[("/z", Some("z:app")), ("/a", Some("a"))]));
    assert_eq!(
        all("--mount /b=b", &variable),
        pairs(&[("/b", Some("b"))]),
        "a flag beats it"
    );
    assert_eq!(all("--mount /=z", &[]), pairs(&[("/", Some("z"))]));
}

#[test]
fn mounts_that_do_not_fit_are_refused_in_one_sentence() {
    assert!(sentence("--mount api=x m:a", &[]).starts_with("--mount: 'api=x' does not fit; start the prefix"));
    assert!(sentence("--mount /api m:a", &[]).contains("PREFIX=MODULE"));
    assert!(sentence("--mount /api= m:a", &[]).contains("name the application"));
    assert!(sentence("--mount", &[]).starts_with("--mount: a value is missing"));
    assert!(sentence("--mount /a=x --mount /a/=y", &[]).contains("two applications at /a;"));
    assert!(sentence("m:a --mount /=y", &[]).contains("APP and a mount at /"));
    assert!(sentence("", &[("M0_MOUNT", "/a=x,b=y")]).starts_with("M0_MOUNT: 'b=y' does not fit"));
    assert!(sentence("", &[("M0_MOUNT", "/a=x,/a=y")]).contains("two applications"));
}

#[test]
fn python_mounts_objects_and_import_strings() {
    let from = |mounts: &[(&str, Option<&str>)]| {
        let environment = |name: &str| match name {
            "M0_APP" => Some("from:variable".to_owned()),
            "M0_MOUNT" => Some("/other=from:variable".to_owned()),
            _ => None,
        };
        Config::from_options_with(&[], &pairs(mounts), &environment)
    };
    let config = from(&[("/api", None), ("/x/", Some("x:y"))]).unwrap();
    assert_eq!(
        mounted(&config),
        pairs(&[("/", Some("from:variable")), ("/api", None), ("/x", Some("x:y"))])
    );
    assert_eq!(source(&config, "mount"), Source::Flag);
    assert_eq!(
        mounted(&from(&[("/", None), ("/a", None)]).unwrap()),
        pairs(&[("/", None), ("/a", None)])
    );
    assert!(
        from(&[("api", None)])
            .unwrap_err()
            .message
            .starts_with("mounts: 'api' does not fit")
    );
    assert!(
        from(&[("/a", None), ("/a/", None)])
            .unwrap_err()
            .message
            .contains("two applications")
    );
}

#[test]
fn a_process_is_inverted_wsgi_only_without_any_asgi() {
    use Interface::{Asgi, Wsgi};
    assert_eq!(Config::interface_of(&[Wsgi, Wsgi]), Wsgi);
    assert_eq!(Config::interface_of(&[Wsgi, Asgi]), Asgi);
    assert_eq!(Config::interface_of(&[]), Asgi);
    let config = parse("--blocking-threads 100", &[]).unwrap();
    assert_eq!(
        [1, 2, 3].map(|applications| config.crew_size(1, applications)),
        [100, 200, 255]
    );
}
