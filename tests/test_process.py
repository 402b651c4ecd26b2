"""The end of a server's life, in both models: signals, drain, abandoned work (promises 29, 30, 35; R11)."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.client import WireError, request
from harness.server import Server
from harness.waiting import settled, until
from m0serve import _report

pytestmark = pytest.mark.own_process

Start = Callable[..., Server]


@pytest.mark.uvloop
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.behaviour(29)
def test_a_signal_stops_an_idle_server_at_once(start: Start, number: int) -> None:
    server = start("probe:app")
    with server.connect() as client:
        assert client.get("/hello").status == 200
        began = time.monotonic()
        code = server.stop(number)
        assert code == 0 or server.target.server == "uvicorn"
        assert time.monotonic() - began < 2.0
        client.expect_end()
    assert "abandoned" not in server.stderr


@pytest.mark.uvloop
@pytest.mark.behaviour(29)
def test_a_request_in_flight_is_answered_in_its_own_time(start: Start, key: str) -> None:
    server = start("probe:app")
    idle = server.connect()
    assert idle.get("/hello").status == 200
    with server.connect() as client:
        began = time.monotonic()
        client.send(request(f"/slow?s=1.5&key={key}"))
        server.note(key, "started")
        server.signal(signal.SIGTERM)
        # Idle connections close while the request goes on, and nobody is accepted any more.
        idle.expect_end()
        assert time.monotonic() - began < 1.4

        until(lambda: not accepts(server), "new connections are refused", 1.0)
        response = client.response()
        took = time.monotonic() - began
        assert response.body == b"slept"
        assert 1.4 < took < 2.2, took
        assert response.one("connection").lower() == b"close"
        client.expect_end()
    assert server.wait(3) in (0, -15)
    assert time.monotonic() - began < 3.0
    assert "abandoned" not in server.stderr


@pytest.mark.uvloop
@pytest.mark.behaviour(29)
def test_an_upload_that_is_still_arriving_is_read(start: Start, key: str) -> None:
    server = start("probe:app")
    with server.connect() as client:
        client.send(request(f"/upload?key={key}", "Content-Length: 300000", method="POST"), b"u" * 1000)
        server.note(key, "started")
        server.signal(signal.SIGTERM)
        server.process.poll()
        for _ in range(299):
            client.send(b"u" * 1000)
            time.sleep(0.001)
        assert client.response().body == b"300000"
        client.expect_end()
    assert server.wait(3) in (0, -15)


@pytest.mark.behaviour(29)
def test_a_stream_in_flight_comes_to_its_end(start: Start, key: str) -> None:
    server = start("probe:app")
    with server.connect() as client:
        client.send(request(f"/stream-slowly?key={key}&count=20&pause=0.03"))
        client.head()
        assert client.chunk() == b"0"
        server.signal(signal.SIGTERM)
        rest = []
        while (chunk := client.chunk()) is not None:
            rest.append(chunk)
        assert b"".join(rest) == b"".join(b"%d" % n for n in range(1, 20))
        client.expect_end()
    assert server.wait(3) in (0, -15)


@pytest.mark.beyond_uvicorn("drops them")
def test_pipelined_requests_that_have_come_are_not_lost_in_silence(start: Start, key: str) -> None:
    server = start("probe:app")
    with server.connect() as client:
        client.send(request(f"/slow?s=0.3&key={key}") + request("/hello"))
        server.note(key, "started")
        server.signal(signal.SIGTERM)
        response = client.response()
        assert response.body == b"slept"
        # Either it is answered too, or this response said that it is the last.
        if response.all("connection") != [b"close"]:
            assert client.response().body == b"Hello, World!"
        client.expect_end()
    assert server.wait(3) == 0


@pytest.mark.behaviour(30)
def test_a_background_task_is_given_its_time(start: Start, key: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = start("probe:app", env={"LIFESPAN_LOG": str(log)})
    assert server.get(f"/background-slow?key={key}&s=0.6&log={log}").body == b"done"
    began = time.monotonic()
    server.signal(signal.SIGTERM)
    assert server.wait(4) in (0, -15)
    assert time.monotonic() - began > 0.4
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert events == ["lifespan.startup", "background is over", "lifespan.shutdown", "complete"]
    assert "abandoned" not in server.stderr


@pytest.mark.uvloop
@pytest.mark.beyond_uvicorn("has no drain time-out by default, and names nothing")
@pytest.mark.behaviour(29, 30)
def test_what_the_drain_time_out_cuts_off_is_named(start: Start, key: str) -> None:
    server = start("probe:app", "--drain-timeout", "0.4")
    began = time.monotonic()
    with server.connect() as client, server.connect() as other:
        client.send(request(f"/gated/never?key={key}", method="POST", body=b"x"))
        server.note(key, "started")
        assert other.get(f"/background?key={key}-b").body == b"done"
        server.note(key + "-b", "running")
        server.signal(signal.SIGTERM)
        client.to_end()
    assert server.wait(5) == 0
    assert time.monotonic() - began < 3.0
    line = next(line for line in server.stderr.splitlines() if "abandoned" in line)
    assert "/gated/never" in line
    assert "/background" in line


@pytest.mark.beyond_uvicorn("waits for the task")
def test_a_task_that_ignores_its_cancellation_does_not_keep_the_server(start: Start, key: str) -> None:
    server = start("probe:app", "--drain-timeout", "0.3")
    with server.connect() as client:
        client.send(request(f"/stubborn?key={key}"))
        server.note(key, "started")
        server.signal(signal.SIGTERM)
        server.wait(6)
    assert "/stubborn" in server.stderr


@pytest.mark.uvloop
@pytest.mark.beyond_uvicorn("waits on")
@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.behaviour(29)
def test_a_second_signal_ends_at_once(start: Start, key: str, busy: bool) -> None:
    server = start("probe:app")
    with server.connect() as client, server.connect() as idle:
        assert idle.get("/hello").status == 200
        client.send(request(f"/compute?s=5&key={key}" if busy else f"/gated?key={key}"))
        if busy:
            server.line("computing now")
        else:
            server.note(key, "started")
        server.signal(signal.SIGTERM)
        if busy:
            time.sleep(0.3)  # two signals of one kind that are both pending are one signal
        else:
            idle.expect_end()
        began = time.monotonic()
        server.signal(signal.SIGTERM)
        assert server.wait(3) != 0
        assert time.monotonic() - began < 1.0


def accepts(server: Server) -> bool:
    """Whether a new connection is taken, or left waiting."""
    try:
        with server.connect(timeout=0.3) as client:
            client.send(request("/hello"))
            return client.to_end() != b""
    except OSError:
        return False
    except WireError:
        return True


@pytest.mark.beyond_uvicorn("its exit code is another")
@pytest.mark.parametrize("what", ["system", "keyboard"])
def test_system_exit_and_keyboard_interrupt_stop_the_server(start: Start, what: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = start("probe:app", env={"LIFESPAN_LOG": str(log)})
    with server.connect() as client:
        client.send(request(f"/exit?what={what}"))
        client.to_end()
    assert server.wait(4) == (3 if what == "system" else 130)
    assert "lifespan.shutdown" in log.read_text()


def test_atexit_runs(start: Start) -> None:
    server = start("atexit_app:app")
    assert server.get("/").status == 200
    assert server.stop() in (0, -15)
    if server.target.server == "m0serve":
        assert "atexit ran" in server.stderr


@pytest.mark.uvloop
@pytest.mark.behaviour(35)
def test_an_idle_server_hardly_wakes(start: Start) -> None:
    server = start("probe:app")
    clients = [server.connect() for _ in range(5)]
    for client in clients:
        client.get("/hello")
    settled(server.switches, quiet=0.15, seconds=3.0) if server.target.server == "m0serve" else None
    before, used = server.switches(), server.cpu()
    time.sleep(2.0)  # this is the measurement
    woke = server.switches() - before
    limit = 10 if server.target.server == "m0serve" else 60
    assert woke <= limit, f"{woke} wake-ups in two seconds of nothing"
    assert server.cpu() - used < 0.2, "it spins"  # who never waits never wakes
    for client in clients:
        client.close()


@pytest.mark.beyond_uvicorn("answers it")
@pytest.mark.parametrize(
    "fields", [("Upgrade: websocket", "Connection: Upgrade"), ("upgrade: WebSocket", "connection: keep-alive, upgrade")]
)
@pytest.mark.behaviour(36)
def test_a_websocket_handshake_is_501(probe: Server, fields: tuple[str, ...]) -> None:
    more = ("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13")
    with probe.connect() as client:
        client.send(request("/hello", *fields, *more))
        response = client.response()
        assert response.status == 501
        assert re.fullmatch(rb"[A-Z][^.\n]*\.\s*", response.body), response.body
        client.expect_end()


@pytest.mark.uvloop
def test_the_ready_line_says_what_was_resolved(start: Start) -> None:
    server = start("probe:app")
    if server.target.server == "uvicorn":
        pytest.skip("its own line")
    lines = [line for line in server.stderr.splitlines() if "ready" in line]
    assert len(lines) == 1
    for part in (
        f"http://127.0.0.1:{server.address[1]}",
        f"backend {server.target.backend}",
        f"model {server.target.model}",
        "interface asgi",
        f"loop {server.target.loop}",
    ):
        assert part in lines[0]


@pytest.mark.behaviour(34)
def test_as_many_connections_as_the_limit_allows(start: Start) -> None:
    """The soft limit of open files is raised to the hard one."""
    ours = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Where the two are equal already, nothing would show.
    resource.setrlimit(resource.RLIMIT_NOFILE, (ours[1] // 2, ours[1]))
    try:
        server = start("probe:app")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, ours)
    limits = Path(f"/proc/{server.pid}/limits").read_text()
    soft, hard = re.search(r"Max open files\s+(\d+)\s+(\d+)", limits).groups()  # type: ignore[union-attr]
    assert int(hard) == ours[1]
    if server.target.server == "m0serve":
        assert soft == hard


@pytest.mark.beyond_uvicorn("spins")
@pytest.mark.behaviour(34)
def test_running_out_of_descriptors_pauses_accepting_and_logs_once(start: Start) -> None:
    server = start("limited_app:app")
    clients = []
    try:
        for _ in range(80):
            clients.append(server.connect())
        server.line(r"(?i)open files|EMFILE")
        busy = server.usage()
        assert busy.fds <= 64
        clients[0].send(request("/"))
        assert clients[0].response().body == b"limited"
        before, used = server.switches(), server.cpu()
        time.sleep(1.0)  # this is the measurement
        assert server.switches() - before < 100
        assert server.cpu() - used < 0.3, "it spins"  # who never waits has no switches
        assert len([line for line in server.stderr.splitlines() if re.search(r"(?i)open files|EMFILE", line)]) == 1
    finally:
        for client in clients:
            client.close()
    until(lambda: server.get("/").body == b"limited", "it accepts again")
    assert server.stop() == 0


@pytest.mark.beyond_uvicorn("it has no pathsend")
@pytest.mark.behaviour(34)
def test_a_file_that_could_not_be_opened_at_the_limit_of_descriptors_ended_the_process(start: Start) -> None:
    server = start("limited_app:app")
    server.expected_tracebacks.append("Too many open files")
    with contextlib.ExitStack() as open_clients:
        first, *_ = [open_clients.enter_context(server.connect()) for _ in range(80)]
        server.line("accepting is paused")
        first.send(request("/file"))
        assert first.response().status == 500
    until(lambda: server.get("/file").status == 200, "it accepts again, and opens files")
    assert server.stop() == 0


def test_a_long_sentence_hung_at_a_reader_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drain names what it abandons, by paths that clients choose: where nobody read stderr, it went no further."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        monkeypatch.setattr("sys.stderr", stream)
        thread = threading.Thread(target=_report.say, args=("x" * 1_000_000,))
        thread.start()
        thread.join(5.0)
        hangs = thread.is_alive()
        began = os.read(reader, 100)
        os.close(reader)  # whoever hangs is told so
        thread.join(5.0)
        assert not hangs
        assert began.startswith(b"m0serve: xxx")
