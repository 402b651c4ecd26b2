"""Several applications in one process: who is asked, under which name, on which thread; how it starts and ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.client import Client, request
from harness.server import APPS, Process, Server, Servers, environment
from harness.waiting import settled, until
from m0serve import Exit
from m0serve import Server as Embedded

Start = Callable[..., Server]

SITE, API, SECOND = "mounts_app:site", "mounts_app:api", "mounts_app:second"
#: The same without frameworks, which start at once.
PLAIN, PLAIN_API, PLAIN_SECOND = "wsgi_app:plain", "mounts_plain:api", "mounts_plain:second"
PLAIN_MIXED = ("--mount", f"/api={PLAIN_API}", "--mount", f"/api/v2={PLAIN_SECOND}", "--blocking-threads", "4")
MIXED = (
    "--mount",
    f"/api={API}",
    "--mount",
    f"/api/v2={SECOND}",
    "--mount",
    f"/other={SITE}",
    "--blocking-threads",
    "4",
)

pytestmark = pytest.mark.beyond_uvicorn("it serves one application")


@pytest.fixture
def mixed(servers: Servers) -> Server:
    """Django at / and at /other, FastAPI at /api and at /api/v2."""
    return servers.get(SITE, *MIXED, validated=False)


@contextmanager
def waiting(server: Server, *paths: str) -> Iterator[list[Client]]:
    """A client in each of these views or endpoints, which wait at the gates that their paths end with."""
    with ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in paths]
        for client, path in zip(clients, paths, strict=True):
            client.send(request(path))
        keys = {path.rpartition("/")[2] for path in paths}
        until(lambda: keys <= set(server.get("/other/begun").json()["begun"]), "all of them wait")
        yield clients


# --- who serves, and how -------------------------------------------------------------------------------------------


@pytest.mark.uvloop
def test_each_application_runs_in_its_native_mode(mixed: Server) -> None:
    for _ in range(3):
        view = mixed.get("/where").json()
        assert (view["served_by"], view["loop"]) == ("site", False)
        assert view["thread"].startswith("m0serve-worker-")
        endpoint = mixed.get("/api/where").json()
        assert (endpoint["served_by"], endpoint["loop"], endpoint["thread"]) == ("api", True, "MainThread")
        assert endpoint["state"] == "api", "of its own lifespan"
    assert mixed.get("/api/v2/where").json()["state"] == "second"
    assert "worker" in mixed.get("/api/sync").json(), "in a thread of anyio's"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/", "site"),
        ("/api/", "api"),
        ("/apix", "site"),
        ("/api.json", "site"),
        ("/API/", "site"),
        ("/x/api/", "site"),
        ("/api/v2/", "second"),
        ("/other/x", "site"),
        ("/a%20b//c/../d", "site"),
        ("/x%2Fapi", "site"),
        ("/?next=/api/", "site"),
        ("http://example.org/api/", "api"),
    ],
)
def test_the_longest_prefix_wins_by_whole_segments(mixed: Server, path: str, name: str) -> None:
    assert mixed.get(path).json()["served_by"] == name


@pytest.mark.parametrize(
    "path",
    [
        "/%61pi/",
        "/a%70i",
        "/api%2Fitems/1",
        "//api/",
        "/api//v2/",
        "/api/../admin",
        "/api/%2e%2e/admin",
        "/api/..%2fadmin",
        "/x/../api/items/1",
        "/./api/",
        "http://example.org/%61pi/",
    ],
)
def test_what_could_be_read_as_another_applications_path_is_refused(mixed: Server, path: str) -> None:
    response = mixed.get(path)
    assert (response.status, response.one("connection")) == (400, b"close")
    assert b"more than one application" in response.body


def test_names_are_made_with_the_prefix(mixed: Server) -> None:
    host, port = mixed.address
    view = mixed.get("/where", f"Host: {host}:{port}").json()
    assert (view["script_name"], view["path_info"], view["path"], view["reversed"]) == (
        "",
        "/where",
        "/where",
        "/named/",
    )
    view = mixed.get("/other/where", f"Host: {host}:{port}").json()
    assert (view["script_name"], view["path_info"]) == ("/other", "/where")
    assert (view["path"], view["reversed"]) == ("/other/where", "/other/named/")
    assert view["absolute"] == f"http://{host}:{port}/other/named/"
    endpoint = mixed.get("/api/where?q=1", f"Host: {host}:{port}").json()
    assert (endpoint["root_path"], endpoint["path"], endpoint["raw_path"]) == ("/api", "/api/where", "/api/where")
    assert endpoint["url"] == f"http://{host}:{port}/api/where?q=1"
    assert endpoint["url_for"] == f"http://{host}:{port}/api/items/7"
    assert mixed.get("/api/v2/where").json()["root_path"] == "/api/v2"
    assert mixed.get("/api/openapi.json").json()["servers"] == [{"url": "/api"}]


@pytest.mark.parametrize(
    ("path", "status", "location"),
    [
        ("/go", 302, "/named/"),
        ("/other/go", 302, "/other/named/"),
        ("/other/named", 301, "/other/named/"),
        ("/api", 307, "http://example.org/api/"),
        ("/api/go", 307, "http://example.org/api/items/1"),
        ("/api/v2/go", 307, "http://example.org/api/v2/items/1"),
    ],
)
def test_redirects_stay_under_the_prefix(mixed: Server, path: str, status: int, location: str) -> None:
    response = mixed.get(path, "Host: example.org")
    assert (response.status, response.one("location").decode()) == (status, location)


def test_a_root_path_comes_before_the_prefix_and_is_taken_off_by_the_proxy(start: Start) -> None:
    server = start(PLAIN_API, "--mount", f"/site={PLAIN}", "--root-path", "/pub", validated=False)
    view = server.get("/site/env/x").json()
    assert (view["SCRIPT_NAME"], view["PATH_INFO"]) == ("/pub/site", "/env/x")
    endpoint = server.get("/where").json()
    assert (endpoint["root_path"], endpoint["path"]) == ("/pub", "/pub/where")
    assert server.stop() == 0


def test_without_an_application_at_the_root_other_paths_are_404(start: Start) -> None:
    server = start(f"--mount=/api={PLAIN_API}", "--access-log", validated=False)
    with server.connect() as client:
        for path in ("/", "/apix", "/favicon.ico"):
            response = client.get(path)
            assert (response.status, response.body) == (404, b"Not Found\n")
        assert client.get("/x", method="POST", body=b"a body").status == 404
        assert client.get("/x", method="HEAD").body == b""
        assert client.get("/api/").json()["name"] == "api", "on the same connection"
    assert server.stop() == 0
    assert '"GET /favicon.ico HTTP/1.1" 404' in server.stdout
    assert '"GET /api/ HTTP/1.1" 200' in server.stdout


@pytest.mark.wsgi
def test_several_wsgi_applications_have_the_threads_in_turn(start: Start, key: str) -> None:
    """With the baton or without it: views of one that all wait take no thread from another."""
    server = start(PLAIN, "--mount", f"/other={PLAIN}", "--blocking-threads", "2", validated=False)
    assert server.get("/other/env").json()["SCRIPT_NAME"] == "/other"
    keys = [f"{key}{number}" for number in range(2)]
    with server.connect() as first, server.connect() as second, server.connect() as third:
        for client, name in zip((first, second), keys, strict=True):
            client.send(request(f"/waits?key={name}"))
        until(lambda: {f"began {name}" for name in keys} <= set(server.get("/other/noted").json()), "both wait")
        third.send(request("/hello"))  # has to wait: two views of its application are running
        for _ in range(20):
            assert server.get("/other/hello").body == b"hello"
        assert third.waiting() == b""
        for name in keys:
            server.get(f"/other/opens?key={name}")
        assert [client.response().body for client in (first, second, third)] == [b"waited", b"waited", b"hello"]
    assert server.stop() == 0


# --- both at work ----------------------------------------------------------------------------------------------------


@pytest.mark.uvloop
def test_views_that_all_wait_leave_the_others_answering(mixed: Server, key: str) -> None:
    with waiting(mixed, *[f"/wait/{key}{number}" for number in range(4)], f"/api/wait/{key}") as clients:
        for _ in range(30):
            assert mixed.get("/api/items/3").json() == {"number": 3}
            assert mixed.get("/other/").json()["served_by"] == "site"
        for name in [f"{key}{number}" for number in range(4)] + [key]:
            assert mixed.get(f"/other/open/{name}").body == b"open"
        assert [client.response().body for client in clients] == [b"waited"] * 4 + [b'"waited"']


@pytest.mark.uvloop
def test_a_request_behind_a_view_that_waits_gets_another_thread_though_asyncio_sleeps(mixed: Server, key: str) -> None:
    """Nobody wakes a thread while one is awake: the loop finds the lane stalled, so its wait must end for that."""
    with mixed.connect() as first, mixed.connect() as second:
        for turn in range(5):
            first.send(request(f"/wait/{key}{turn}"))
            assert second.get(f"/open/{key}{turn}").body == b"open"
            assert first.response().body == b"waited"


def test_no_wake_is_lost_between_threads_and_asyncio(mixed: Server) -> None:
    """What a thread says while asyncio's is about to park is found by its last look, or nobody would tell it (R5)."""
    with mixed.connect(timeout=3) as client:
        for _ in range(1500):
            assert client.get("/other/open/nothing").body == b"open"


def test_bodies_both_ways(mixed: Server) -> None:
    body = b"b" * 300_000
    with mixed.connect() as client:
        for path in ("/api/length", "/length", "/other/length", "/api/v2/length"):
            assert client.get(path, method="POST", body=body).json() == {"length": len(body)}
    # More frames than a thread's ring has room for, said without a pause that would let asyncio's thread have the GIL.
    for _ in range(3):
        assert mixed.get("/tiny").body == b"x" * 5000


def test_mixed_load_loses_nothing(mixed: Server) -> None:
    """Views and endpoints on shared connections: each gets its own answers in order, also beside views that compute."""
    targets = ["/api/items/5", "/named/", "/api/v2/items/5", "/busy", "/other/named/", "/api/sync"]
    expected = [b'{"number":5}', b"named", b'{"number":5}', b"computed", b"named", b"worker"]
    faults: list[str] = []

    def visit(number: int) -> None:
        with mixed.connect() as client:
            for turn in range(24):
                at = (number + turn) % len(targets)
                body = client.get(targets[at]).body
                if expected[at] not in body:
                    faults.append(f"{targets[at]}: {body!r}")

    visitors = [threading.Thread(target=visit, args=(number,)) for number in range(8)]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join()
    assert not faults


@pytest.mark.behaviour(35)
def test_an_idle_process_with_both_sleeps(start: Start) -> None:
    server = start(PLAIN, *PLAIN_MIXED, validated=False)
    with server.connect() as client:
        for path in ("/hello", "/api/x") * 10:
            client.get(path)
        settled(server.switches, quiet=0.15, seconds=3.0)
        before = server.switches()
        time.sleep(1.0)  # this is the measurement
        assert server.switches() - before <= 5


# --- start and end ---------------------------------------------------------------------------------------------------


def test_lifespans_start_in_order_and_stop_in_reverse_after_a_drain_of_all(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = start(PLAIN, *PLAIN_MIXED, env={"MOUNTS_LOG": str(log)}, validated=False)
    assert log.read_text().splitlines() == ["api startup", "second startup"], "none for WSGI"
    assert "interfaces wsgi at / and asgi at /api and asgi at /api/v2" in server.stderr
    with ExitStack() as stack:
        paths = ("/take?how=read", "/api/x", "/api/v2/x")
        clients = [stack.enter_context(server.connect()) for _ in paths]
        for client, path in zip(clients, paths, strict=True):
            client.send(request(path, "Content-Length: 10", method="POST"), b"12345")
        server.get("/hello")  # begun later, so all of that has been read
        server.signal(signal.SIGTERM)
        server.line("stopping: ")
        for client, expected in zip(clients, (["1234567890"], "api", "second"), strict=True):
            client.send(b"67890")
            told = client.response().json()
            assert (told["name"], told["length"]) == (expected, 10) if isinstance(told, dict) else told == expected
    assert server.wait(3) == 0
    assert log.read_text().splitlines()[2:] == ["second shutdown", "api shutdown"]


def test_a_start_up_that_fails_ends_the_server_and_stops_what_had_started(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "log"
    mounts = [f"--mount=/{name}=mounts_plain:{name}" for name in ("api", "fails", "second")]
    server = start(PLAIN, *mounts, env={"MOUNTS_LOG": str(log)}, validated=False, wait_ready=False)
    assert server.wait() == 1
    assert "the application at /fails's start-up failed: the cache is not there" in server.stderr
    assert log.read_text().splitlines() == ["api startup", "fails startup", "api shutdown"]


def test_what_does_not_end_is_named_whichever_kind_it_is(start: Start, key: str) -> None:
    server = start(PLAIN, *PLAIN_MIXED, "--drain-timeout", "0.3", validated=False)
    with server.connect() as view, server.connect() as endpoint:
        view.send(request(f"/waits?key={key}"))
        endpoint.send(request("/api/hangs"))
        until(lambda: f"began {key}" in server.get("/noted").json(), "the view waits")
        until(lambda: server.get("/api/v2/").json()["begun"] == ["api"], "the endpoint waits")
        assert server.stop() == 0
    assert "abandoned: GET /waits, GET /api/hangs" in server.stderr


# --- the command line: none of it depends on the model or the backend, so it runs once ------------------------------


def m0serve(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "m0serve", "--port", "0", *arguments]
    return subprocess.run(
        command, check=False, cwd=APPS, env=environment(**env), capture_output=True, text=True, timeout=20
    )


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--mount", "api=probe:app"], 2, "--mount: 'api=probe:app' does not fit; start the prefix with a slash"),
        (["--mount", "/api"], 2, "give PREFIX=MODULE[:ATTR], such as /api=api.main:app"),
        (["--mount", "/api="], 2, "name the application behind the prefix"),
        (["--mount", "/a%20b=probe:app"], 2, "no escapes"),
        (["--mount", "/a/../b=probe:app"], 2, "no dots alone"),
        (["--mount", "/a=probe:app", "--mount", "/a/=probe:app"], 2, "two applications at /a; give each a prefix"),
        (["probe:app", "--mount", "/=probe:app"], 2, "APP and a mount at / are both the application at /"),
        (["probe:app", "--mount", "/a=probe:"], 2, "--mount /a: 'probe:' is no application; give MODULE:ATTR"),
        (["probe:app", "--mount", "/a=not_there"], 1, "--mount /a: there is no module 'not_there'"),
        (["probe:app", "--mount", "/a=probe:missing"], 1, "--mount /a: 'probe:missing' does not exist"),
        (["--mount", "/a=broken.raises:app", "probe:app"], 1, "--mount /a: "),
    ],
)
def test_mounts_that_do_not_fit_end_the_server_with_one_sentence(
    arguments: list[str], code: int, sentence: str
) -> None:
    done = m0serve(*arguments)
    assert done.returncode == code, done.stderr
    assert sentence in done.stderr.splitlines()[0]
    assert "ready" not in done.stderr


def test_doctor_says_how_each_mount_is_served_and_why() -> None:
    done = m0serve("--doctor", "--backend", "epoll", PLAIN, "--mount", "/api=probe:app", "--blocking-threads", "3")
    assert done.returncode == 0, done.stderr
    resolved = json.loads(done.stdout)["resolved"]
    assert (resolved["interface"], resolved["model"], resolved["backend"]) == ("mixed", "inverted", "epoll")
    site, api = resolved["mounts"]
    assert (site["prefix"], site["app"], site["interface"], site["threads"]) == ("/", PLAIN, "wsgi", 3)
    assert (api["prefix"], api["app"], api["interface"], api["threads"]) == ("/api", "probe:app", "asgi", 1)
    assert "asyncio cannot change threads" in site["why"]["model"]
    assert (site["why"]["backend"], site["why"]["threads"]) == ("--backend", "--blocking-threads")
    assert api["why"]["interface"] == "found out from the object"
    done = m0serve("--doctor", "--backend", "epoll", "--model", "pump", M0_MOUNT=f"/a={PLAIN},/b={PLAIN}")
    resolved = json.loads(done.stdout)["resolved"]
    assert (resolved["interface"], resolved["model"]) == ("wsgi", "pump")
    assert [mount["prefix"] for mount in resolved["mounts"]] == ["/a", "/b"]
    done = m0serve("--doctor", PLAIN, "--mount", "/a=not_there")
    assert done.returncode == 1
    assert json.loads(done.stdout)["exit"]["message"].startswith("--mount /a: there is no module")


def test_run_takes_a_dict_of_mounts() -> None:
    code = "import mounts_plain; mounts_plain.run(backend='epoll', blocking_threads=2)"
    process = Process([sys.executable, "-c", code])
    try:
        ready = process.line(r"ready on http://127\.0\.0\.1:(\d+) .*wsgi at / and asgi at /api and asgi at /more")
        with Client(("127.0.0.1", int(ready[1]))) as client:
            assert client.get("/hello").body == b"hello"
            for path, name in (("/api/", "api"), ("/more/", "second")):
                assert client.get(path).json()["name"] == name
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
    finally:
        process.kill()


def test_mounts_of_run_that_do_not_fit() -> None:
    code = "import m0serve; m0serve.run('probe:app', mounts={'api': 'probe:app'})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        cwd=APPS,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "mounts: 'api' does not fit; start the prefix with a slash" in done.stderr


@pytest.mark.parametrize("options", [{"mount": "/api=probe:app"}, {"mounts": ["/api=probe:app"]}])
def test_a_mount_that_was_written_as_on_the_command_line_was_not_served(options: dict[str, Any]) -> None:
    with pytest.raises(Exit, match="mounts takes a dict"):
        Embedded("probe:app", **options)
