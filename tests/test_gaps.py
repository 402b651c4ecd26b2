"""What the other suites leave open: trusted proxies, threads and signals as the process has them, forks, the end of a
server under a running view (promises 13, 22, 29, 30, 33; R6, R9)."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from harness.client import Client, request
from harness.server import Process, Server, Servers, Target
from harness.waiting import until

Start = Callable[..., Server]

# --- 33: who a request comes from ------------------------------------------------------------------------------


def who(server: Server, *fields: str) -> tuple[Any, str]:
    """The client and the scheme in the scope of a request with these fields; None for the connection's own address."""
    with server.connect() as client:
        scope = client.get("/scope", *fields).json()["scope"]
        own = scope["client"] == {"tuple": list(client.sock.getsockname()[:2])}
    return (None if own else scope["client"]["tuple"], scope["scheme"])


DEFAULT = [
    (("X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: https"), (["192.0.2.7", 0], "https")),
    (("X-Forwarded-For: 6.6.6.6, 192.0.2.7",), (["192.0.2.7", 0], "http")),
    (("X-Forwarded-For: 6.6.6.6", "X-Forwarded-For: 192.0.2.7"), (["192.0.2.7", 0], "http")),
    (("X-Forwarded-For: 6.6.6.6, 192.0.2.7, 127.0.0.1, ::1",), (["192.0.2.7", 0], "http")),
    (("X-Forwarded-For: 2001:db8::7",), (["2001:db8::7", 0], "http")),
    (("X-Forwarded-Proto: https",), (None, "https")),
    (("X-Forwarded-Proto: gopher",), (None, "http")),
    (("X-Forwarded-For: ,",), (None, "http")),
    ((), (None, "http")),
]


@pytest.mark.parametrize(("fields", "expected"), DEFAULT)
@pytest.mark.behaviour(33)
def test_a_local_proxy_is_believed_by_default(probe: Server, fields: tuple[str, ...], expected: Any) -> None:
    assert who(probe, *fields) == expected


@pytest.mark.beyond_uvicorn("keeps the port, the brackets and the bytes")
@pytest.mark.parametrize("client", ["192.0.2.7:4711", "[2001:db8::7]:4711", "[2001:db8::7]"])
def test_the_address_of_a_forwarded_client_comes_without_its_port(probe: Server, client: str) -> None:
    host = "192.0.2.7" if client.startswith("192") else "2001:db8::7"
    assert who(probe, f"X-Forwarded-For: 6.6.6.6, {client}")[0] == [host, 0]


@pytest.mark.beyond_uvicorn("is of another opinion")
def test_bytes_that_a_client_invents_do_not_hide_what_the_proxy_added(probe: Server) -> None:
    assert who(probe, "X-Forwarded-For: \xff\xfe, 192.0.2.7")[0] == ["192.0.2.7", 0]
    assert who(probe, "X-Forwarded-Proto: \xff, HTTPS")[1] == "https"


@pytest.mark.behaviour(33)
def test_networks_of_proxies(servers: Servers) -> None:
    server = servers.get("probe:app", "--forwarded-allow-ips", "127.0.0.1,10.0.0.0/8")
    assert who(server, "X-Forwarded-For: 6.6.6.6, 192.0.2.7, 10.1.2.3")[0] == ["192.0.2.7", 0]
    assert who(server, "X-Forwarded-For: 6.6.6.6, 11.1.2.3")[0] == ["11.1.2.3", 0]


@pytest.mark.parametrize("options", [("--forwarded-allow-ips", "10.0.0.0/8"), ("--no-proxy-headers",)])
@pytest.mark.behaviour(33)
def test_a_peer_that_is_not_trusted_is_not_believed(servers: Servers, options: tuple[str, ...]) -> None:
    server = servers.get("probe:app", *options)
    assert who(server, "X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: https") == (None, "http")


def test_everybody_may_be_trusted(servers: Servers) -> None:
    server = servers.get("probe:app", "--forwarded-allow-ips", "*")
    assert who(server, "X-Forwarded-For: 192.0.2.7, 6.6.6.6", "X-Forwarded-Proto: https") == (["192.0.2.7", 0], "https")


def test_what_is_forwarded_holds_for_its_request_only(probe: Server) -> None:
    with probe.connect() as client:
        client.send(request("/scope", "X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: https") + request("/scope"))
        first, second = client.response().json()["scope"], client.response().json()["scope"]
        assert (first["client"]["tuple"], first["scheme"]) == (["192.0.2.7", 0], "https")
        assert (second["client"]["tuple"], second["scheme"]) == (list(client.sock.getsockname()[:2]), "http")


# --- 13: a reset while we do not read --------------------------------------------------------------------------


@pytest.mark.uvloop
@pytest.mark.beyond_uvicorn("does not read on")
@pytest.mark.behaviour(13)
def test_a_reset_behind_more_than_we_read_is_noticed_within_a_second(probe: Server, key: str) -> None:
    client = probe.connect(timeout=30)
    client.send(request(f"/wait-disconnect?key={key}", method="POST", body=b"x"))
    probe.note(key, "reading")
    more = request("/hello", "X-Padding: " + "p" * 4000)
    limit = 64 * 1024 * 1024
    assert client.send_until_blocked(more, limit, quiet=0.2) < limit
    assert "message" not in probe.notes(key)
    left = time.monotonic()
    client.reset()
    assert probe.note(key, "message") == "http.disconnect"
    assert probe.note(key, "at") - left < 1.0  # type: ignore[operator]


# --- R6 and signals: the threads of the process ----------------------------------------------------------------

GAPS = ("gaps_app:app", "--lifespan", "off")


@pytest.fixture
def gaps(servers: Servers) -> Server:
    """A server with the application that looks at its process."""
    return servers.get(*GAPS)


@pytest.mark.uvloop
@pytest.mark.beyond_uvicorn("has no thread of its own")
def test_the_loop_thread_of_the_pump_never_attaches_to_the_interpreter(start: Start) -> None:
    """R6. Thread states are numbered: one that is made and thrown away between two looks would be missing here."""
    server = start(*GAPS)
    ours = 1 if server.target.model == "pump" else 0
    with server.connect() as client:
        before = client.get("/threads").json()
        for _ in range(5):
            client.send(request("/plain") * 40)
            for _ in range(40):
                assert client.response().status == 200
            with server.connect() as other:
                assert other.get("/plain", "Connection: close").status == 200
                other.expect_end()
        after = client.get("/threads").json()
    loops = [name for name in after["tasks"] if name.startswith("m0serve-loop")]
    assert len(loops) == ours, after
    for shown in (before, after):
        assert shown["states"] == shown["known"] == len(shown["tasks"]) - ours, shown
    assert after["next"] == before["next"] + 1, "threads were attached in between"
    assert server.stop() == 0


@pytest.mark.beyond_uvicorn("has no thread of its own")
def test_signals_reach_no_thread_of_ours(gaps: Server) -> None:
    wanted = 1 << (signal.SIGTERM - 1) | 1 << (signal.SIGINT - 1) | 1 << (signal.SIGALRM - 1)
    for name, mask in gaps.get("/threads").json()["tasks"].items():
        if name.startswith("m0serve-loop"):
            assert int(mask, 16) & wanted == wanted, (name, mask)
        elif name.endswith(f" {gaps.pid}"):
            assert int(mask, 16) & wanted == 0, (name, mask)


@pytest.mark.uvloop
@pytest.mark.parametrize(("how", "number"), [("loop", signal.SIGUSR1), ("python", signal.SIGUSR2)])
def test_signal_handlers_of_the_application_run_while_the_server_is_idle(start: Start, how: str, number: int) -> None:
    server = start(*GAPS)
    assert server.get(f"/on-signal?how={how}").json() == "set"
    for count in (1, 2, 3):
        server.signal(number)
        until(lambda count=count: server.stderr.count(f"{signal.Signals(number).name} in the") == count, "it ran", 2.0)
    assert server.get("/plain").status == 200
    assert server.stop() in (0, -15)


@pytest.mark.uvloop
def test_waits_that_signals_interrupt_lose_nothing(start: Start) -> None:
    """EINTR ends a wait with nothing to do; requests beside it are served and nothing is reported."""
    server = start(*GAPS)
    with server.connect() as client, server.connect() as other:
        client.send(request("/on-signal?how=timer"))
        while not client.waiting():
            assert other.get("/plain").status == 200
        assert client.response().json() == 100
    assert server.stop() in (0, -15)


# --- forks -----------------------------------------------------------------------------------------------------


@pytest.mark.uvloop
@pytest.mark.parametrize("target_path", ["/fork?how=exit", "/fork?how=collect", "/fork?how=close", "/process"])
def test_a_forked_child_takes_nothing_from_its_parent(gaps: Server, target_path: str) -> None:
    with gaps.connect() as idle, gaps.connect() as client:
        assert idle.get("/plain").status == 200
        for _ in range(3):
            assert client.get(target_path).json() == (0 if target_path == "/process" else 7), gaps.stderr
            assert idle.get("/plain").status == 200
            assert gaps.get("/plain").status == 200


# --- tasks -----------------------------------------------------------------------------------------------------


@pytest.mark.uvloop
def test_a_request_that_nothing_else_holds_is_not_collected(gaps: Server) -> None:
    """The exchange owns its task: what waits for something that only it knows of must not be thrown away."""
    with gaps.connect() as client, gaps.connect() as other:
        client.send(request("/pending"))
        until(lambda: other.get("/collect").json() == 1, "the request waits, and is still there")
        assert client.response().json() == "kept"
    assert "was destroyed" not in gaps.stderr


@pytest.mark.beyond_uvicorn("starts a task for each request")
def test_the_first_step_of_a_request_is_taken_within_the_turn(gaps: Server) -> None:
    with gaps.connect() as client:
        for _ in range(3):
            shown = client.get("/eager").json()
            if sys.version_info >= (3, 12, 5):
                assert "turn" in shown, shown
            elif sys.version_info < (3, 12):
                assert "Task" in shown or "task" in shown, shown


# --- 29, 30: the end under a running view ----------------------------------------------------------------------


@pytest.mark.uvloop
@pytest.mark.beyond_uvicorn("waits for the thread")
@pytest.mark.behaviour(30)
def test_the_interpreter_is_not_finalized_under_a_running_view(start: Start) -> None:
    server = start(*GAPS, "--drain-timeout", "0.3")
    with server.connect() as client:
        client.send(request("/view"))
        server.line("the view runs")
        began = time.monotonic()
        server.signal(signal.SIGTERM)
        client.to_end()
        assert server.wait(5) == 0
    assert time.monotonic() - began < 4.0
    assert "abandoned" in server.stderr
    assert "/view" in server.stderr
    assert "atexit ran" not in server.stderr
    assert "Fatal Python error" not in server.stderr


# --- R9, and no state of the process ---------------------------------------------------------------------------


@pytest.mark.uvloop
@pytest.mark.beyond_uvicorn("has no such interface")
def test_servers_one_after_another_leave_nothing_behind(target: Target) -> None:
    """What eight servers held is given back (up to seven threads more are the application's pool)."""
    process = Process([sys.executable, "gaps_rounds.py", target.model, target.backend, target.loop])
    try:
        assert process.wait(40) == 0, process.stdout + process.stderr
    finally:
        process.kill()


# --- the options nobody else asks about ------------------------------------------------------------------------


@pytest.mark.beyond_uvicorn("its own form")
def test_the_access_log_has_one_line_for_each_request(start: Start) -> None:
    server = start("probe:app", "--access-log")
    with server.connect() as client:
        client.send(request("/hello?x=1") + request("/nowhere", method="POST", body=b"x"))
        assert [client.response().status, client.response().status] == [200, 404]
    assert server.stop() == 0
    lines = [line for line in (server.stderr + server.stdout).splitlines() if '"GET ' in line or '"POST ' in line]
    assert len(lines) == 2, lines
    assert '"GET /hello?x=1 HTTP/1.1" 200' in lines[0]
    assert '"POST /nowhere HTTP/1.1" 404' in lines[1]


@pytest.mark.beyond_uvicorn("has no demo")
def test_the_demo_shows_what_was_resolved_and_counts(target: Target) -> None:
    process = Process([*target.command(), "--port", "0"])
    try:
        port = int(process.line(r"ready on http://127\.0\.0\.1:(\d+)")[1])
        with Client(("127.0.0.1", port)) as client:
            first, second = client.get("/json").json(), client.get("/json").json()
            assert (first["backend"], first["model"], first["loop"]) == (target.backend, target.model, target.loop)
            assert second["requests"] == first["requests"] + 1
            page = client.get("/").body.decode()
            for shown in (target.backend, target.model, first["interpreter"], str(first["requests"] + 2)):
                assert shown in page, shown
            assert "{{" not in page
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
    finally:
        process.kill()
