"""The life of a process that serves views: from Python, from a factory, and its end (promises 29, 30, 35)."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from harness.client import Client, request
from harness.server import Process, Server, Target
from harness.waiting import until

pytestmark = [pytest.mark.wsgi, pytest.mark.kqueue, pytest.mark.own_process]

APP = "wsgi_strict_app:app"
Start = Callable[..., Server]


@pytest.fixture
def script(target: Target) -> Iterator[Callable[[str], Process]]:
    """Runs apps/wsgi_runs_itself.py for the target."""
    started: list[Process] = []

    def run(what: str) -> Process:
        started.append(Process([sys.executable, "wsgi_runs_itself.py", what, target.model, target.backend]))
        return started[-1]

    yield run
    for process in started:
        process.kill()


def begun(server: Server, key: str, count: int = 1) -> None:
    """Waits until so many views of `key` have begun."""
    until(lambda: server.get("/noted").json().count(f"began {key}") == count, f"{count} views")


@pytest.mark.behaviour(35)
def test_run_from_python(script: Callable[[str], Process]) -> None:
    process = script("run")
    # No loop is named: views run in none.
    port = int(process.line(r"ready on http://127\.0\.0\.1:(\d+) \(.*, interface wsgi[;)]")[1])
    with Client(("127.0.0.1", port)) as client:
        assert client.get("/about/a/1").json()["remote"] == "127.0.0.1"
    process.signal(signal.SIGTERM)
    assert process.wait() == 0, process.stderr
    assert "after run" in process.stdout


@pytest.mark.behaviour(35)
def test_two_servers_off_the_main_thread_stopped_from_code(script: Callable[[str], Process]) -> None:
    process = script("threads")
    assert process.wait(20) == 0, process.stderr
    assert process.stdout.splitlines()[-1] == "both stopped: [0, 0] []"


def test_flasks_factory(start: Start) -> None:
    server = start("wsgi_flask:create_app", "--factory", validated=False)
    assert server.get("/count").body == b"seen 1 times"
    assert server.stop() == 0


@pytest.mark.behaviour(29)
@pytest.mark.parametrize("how", ["sleeps", "computes"])
def test_what_waits_for_a_thread_at_a_signal_is_answered_too(start: Start, key: str, how: str) -> None:
    """Two threads, six views: four of them have not begun."""
    server = start(APP, "--blocking-threads", "2", validated=False)
    clients = [server.connect() for _ in range(6)]
    for client in clients:
        client.send(request(f"/busy?how={how}&s=0.15&key={key}") + request("/hello"))
    server.line("ready")
    until(lambda: server.usage().sockets >= server.baseline.sockets + 6, "all connections taken")
    server.signal(signal.SIGTERM)
    for client in clients:
        first = client.response()
        assert first.body == b"done"
        if not first.all("connection"):
            assert client.response().body == b"hello", "its head had promised to go on"
        client.close()
    assert server.wait(6) == 0
    assert "abandoned" not in server.stderr


@pytest.mark.behaviour(29)
@pytest.mark.parametrize("how", ["sleeps", "computes"])
def test_a_second_signal_ends_at_once(start: Start, key: str, how: str) -> None:
    server = start(APP, validated=False)
    with server.connect() as client:
        client.send(request(f"/busy?how={how}&s=5&key={key}"))
        begun(server, key)
        server.signal(signal.SIGTERM)
        server.line("stopping: ")
        began = time.monotonic()
        server.signal(signal.SIGTERM)
        assert server.wait(3) != 0
        assert time.monotonic() - began < 1.0
    assert "abandoned: GET /busy" in server.stderr


@pytest.mark.behaviour(30)
def test_a_close_that_does_not_end_is_named(start: Start, key: str) -> None:
    server = start(APP, "--drain-timeout", "0.5", validated=False)
    with server.connect() as client:
        assert client.get(f"/closes?how=waits&key={key}").body == b"one two"
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 4
    named, last = server.stderr.splitlines()[-2:]
    assert named.endswith("the drain time-out is over and the view GET /closes does not end")
    assert last.startswith("m0serve: stopped after "), "the end is a line, also where something was cut off"


def test_a_failed_assertion_in_a_handler_thread_ends_the_process(start: Start) -> None:
    """It may hold the loop: a server that lost it would stand still."""
    server = start("wsgi_fails:app", validated=False)
    assert server.get("/raises").status == 500
    assert server.get("/").body == b"hello"
    with server.connect() as client:
        client.send(request("/asserts"))
        assert server.wait() == 1
    assert "failed an assertion; this is a defect of m0serve" in server.stderr


@pytest.mark.parametrize("library", ["gevent", "eventlet"])
def test_greenlets_in_the_place_of_threads_hung_before_the_start_and_took_no_signal(start: Start, library: str) -> None:
    server = start("greenlets:app", env={"LIBRARY": library}, validated=False, wait_ready=False)
    assert server.wait() == 1
    assert f"{library} has made greenlets of threads" in server.stderr
    assert "Traceback" not in server.stderr


def test_a_server_whose_threads_could_not_all_be_started_hung_in_silence(start: Start) -> None:
    """It listened and served nobody: the end waited for the loop, and the loop for threads that nobody sent home."""
    server = start("few_threads:view", "--blocking-threads", "2", validated=False, wait_ready=False)
    assert server.wait() == 1
    assert "thread 2 of 2 for views could not be started" in server.stderr
    assert "Traceback" not in server.stderr
