//! Several applications behind one engine: who gets a request, and what is answered where nobody does.

use m0serve::engine::{Mounts, Settings};
use m0serve::handoff::Stop;

use crate::rig::{Rig, answered, get, post, settings};

fn mounted(prefixes: &[&str]) -> Rig {
    Rig::new(Settings {
        mounts: Mounts::new(prefixes.iter().copied()),
        ..settings()
    })
}

const NOTHING: &str =
    "HTTP/1.1 404 Not Found\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 10\r\n\r\nNot Found\n";

#[test]
fn a_request_carries_the_number_of_its_mount() {
    let mut rig = mounted(&["", "/api", "/api/v2"]);
    let client = rig.connect();
    for (path, mount) in [("/", 0), ("/api?x=/api/v2", 1), ("/api/v2/x", 2), ("/apix", 0)] {
        rig.feed(client, get(path));
        let request = rig.request();
        assert_eq!(request.mount, mount, "{path}");
        rig.answer(request.id, path);
        assert_eq!(rig.out(client), answered(path));
    }
    rig.over();
}

#[test]
fn what_nobody_serves_is_404_and_the_connection_goes_on() {
    let mut rig = mounted(&["/api"]);
    let client = rig.client(get("/") + &get("/apix") + &get("/api") + &get("/x"));
    assert_eq!(rig.out(client), NOTHING.repeat(2));
    let id = rig.serve("served");
    assert_eq!(rig.out(client), answered("served") + NOTHING);
    assert_eq!(rig.told(), "nothing", "of the rest, or of exchange {id:?}");
    assert!(!rig.is_over(client));
    let stats = rig.stats();
    assert_eq!(
        (stats.requests, stats.responses, stats.refused, stats.exchanges),
        (4, 4, 0, 0)
    );
    rig.over();
}

#[test]
fn the_body_of_what_nobody_serves_is_read_and_thrown_away() {
    let mut rig = mounted(&["/api"]);
    let client = rig.client(post("/x", 10, "") + "01234");
    assert_eq!(rig.out(client), NOTHING);
    rig.feed(client, "56789".to_owned() + &get("/api"));
    rig.serve("next");
    assert_eq!(rig.out(client), answered("next"));
    // One that waits for 100 Continue is told at once, and may send its body or not: the connection closes.
    let waits = rig.client(post("/x", 10, "expect: 100-continue\r\n"));
    assert!(rig.out(waits).starts_with("HTTP/1.1 404 Not Found\r\n"));
    assert!(rig.is_over(waits));
    rig.over();
}

#[test]
fn head_of_what_nobody_serves_has_no_body() {
    let mut rig = mounted(&["/api"]);
    let client = rig.client(get("/").replace("GET", "HEAD"));
    assert_eq!(rig.out(client), NOTHING.replace("Not Found\n", ""));
    assert!(!rig.is_over(client));
    rig.over();
}

#[test]
fn a_path_that_could_be_another_applications_is_refused() {
    let mut rig = mounted(&["", "/api"]);
    for path in ["/%61pi", "//api", "/api/../x", "/x/..%2Fapi"] {
        let client = rig.client(get(path) + &get("/"));
        assert!(rig.out(client).starts_with("HTTP/1.1 400 Bad Request\r\n"), "{path}");
        assert!(rig.is_over(client));
        assert_eq!(rig.told(), "nothing");
    }
    assert_eq!(rig.stats().refused, 4);
    rig.over();
}

#[test]
fn a_drain_answers_what_nobody_serves_too() {
    let mut rig = mounted(&["/api"]);
    let client = rig.client(get("/api"));
    rig.feed(client, get("/x"));
    let id = rig.request().id;
    rig.stop(Stop::Drain);
    rig.answer(id, "last");
    assert!(rig.out(client).starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(rig.is_over(client));
    rig.over();
}
