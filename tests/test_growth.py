"""Work comes and goes and leaves nothing behind (promises 37; R9): ten thousand requests, then ten thousand more, or
what is as much work, and nothing has grown."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest

from harness.client import chunked, request
from harness.server import Server, Usage
from harness.waiting import SOON, until

ROUND = 10_000
DEPTH = 20
#: In each round of those, of which two come before.
CONNECTIONS = 250
TASK_GROUPS = 40

GET = request("/hello")
POST = request("/echo", "Content-Type: text/plain", method="POST", body=b"b" * 500)
CHUNKED = request("/echo", "Transfer-Encoding: chunked", method="POST") + chunked(b"one", b"two")
STREAM = request("/stream?count=3&size=2000")
TASKS = request("/task?check=task-group")
ERROR = request("/bad-header?which=value-crlf")


def pipelines(server: Server) -> None:
    """Pipelines of every kind of request over connections that stay."""
    play(server, (GET + POST + CHUNKED + STREAM) * (DEPTH // 4))


def play(server: Server, batch: bytes) -> None:
    """A round of this batch over two connections. Its answers are as long each time: later ones are counted only."""
    with server.connect(timeout=30) as one, server.connect(timeout=30) as two:
        one.send(batch)
        assert [one.response().status for _ in range(DEPTH)] == [200] * DEPTH
        length = one.came
        for _ in range(ROUND // DEPTH // 2):
            for client in (one, two):
                client.send(batch)
            for client in (one, two):
                assert client.some(length).count(b"HTTP/1.1 200 OK\r\n") == DEPTH


def connections(server: Server) -> None:
    """A connection for each request; some leave before their answer, some within their body or a stream."""
    for number in range(CONNECTIONS):
        with server.connect() as client:
            if number % 8 == 0:
                client.send(request("/endless?size=1000&pause=0"))
                client.some(100)
                client.reset()
            elif number % 8 == 1:
                client.send(request("/upload", "Content-Length: 1000", method="POST"), b"part")
                client.reset()
            elif number % 8 == 2:
                client.send(b"garbage\r\n\r\n")
                client.to_end()
            elif number % 8 == 3:
                client.send(request("/slow?s=0.001"))
                client.close()
            else:
                assert client.get("/hello", "Connection: close").status == 200


def tasks(server: Server) -> None:
    """Requests that start tasks, cancel them and time out, and some that fail."""
    with server.connect(timeout=30) as client:
        for _ in range(TASK_GROUPS):
            client.send(TASKS + request("/task?check=wait-for"))
            assert client.response().status == client.response().status == 200
    for _ in range(20):
        with server.connect() as client:
            client.send(ERROR)
            client.to_end()


def wsgi_pipelines(server: Server) -> None:
    """Lists, bodies of requests, generators with `write` among their blocks, and files, over connections that stay."""
    reads = request("/reads", method="POST", body=b"b" * 500)
    in_chunks = request("/reads", "Transfer-Encoding: chunked", method="POST") + chunked(b"one", b"two")
    shapes = request("/shape?which=writing") + request("/file?which=named")
    play(server, (GET + reads + in_chunks + shapes) * (DEPTH // 5))


def wsgi_connections(server: Server) -> None:
    """A connection for each request; some leave within their body or a stream, some fail, some fail late."""
    for number in range(CONNECTIONS):
        with server.connect() as client:
            if number % 8 == 0:
                client.send(request("/endless?key=x"))
                client.some(100)
                client.reset()
            elif number % 8 == 1:
                client.send(request("/reads", "Content-Length: 1000", method="POST"), b"part")
                client.reset()
            elif number % 8 == 2:
                assert client.get("/raises?kind=Own&where=iteration").status == 500
            elif number % 8 == 3:
                assert client.get("/closes?how=raises").status == 200
            elif number % 8 == 4:
                client.send(request("/reads", "Content-Length: 1000", method="POST"), b"part")
                client.close()
            else:
                assert client.get("/hello", "Connection: close").status == 200


def holdings(server: Server) -> dict[str, Any]:
    """What the process holds once everything has come to rest."""
    for _ in range(3):
        shown = dict(server.get("/holdings").json())
    return shown


@pytest.mark.uvloop
@pytest.mark.beyond_uvicorn("an endless sender never hears that its client has gone")
@pytest.mark.parametrize(("work", "before"), [(pipelines, 1), (connections, 2), (tasks, 2)])
@pytest.mark.behaviour(37)
def test_nothing_grows(start: Callable[..., Server], work: Callable[[Server], None], before: int) -> None:
    server = start("probe:app", validated=False)
    server.expected_tracebacks += ["BrokenPipeError", "ConnectionResetError", "OSError"]
    assert_nothing_grows(server, work, before)


@pytest.mark.wsgi
@pytest.mark.parametrize(("work", "before"), [(wsgi_pipelines, 1), (wsgi_connections, 2)])
@pytest.mark.behaviour(37)
def test_nothing_grows_with_views(start: Callable[..., Server], work: Callable[[Server], None], before: int) -> None:
    assert_nothing_grows(start("wsgi_strict_app:app", "--blocking-threads", "2", validated=False), work, before)


def assert_nothing_grows(server: Server, work: Callable[[Server], None], rounds_before: int) -> None:
    for _ in range(rounds_before):
        work(server)  # pools and caches fill
    before, usage_before = holdings(server), at_rest(server)
    work(server)
    after, usage_after = holdings(server), at_rest(server)
    counted = {"threads", "tasks", "fds"} & set(before)
    deadline = time.monotonic() + SOON
    while time.monotonic() < deadline and (
        after["objects"] - before["objects"] > 50 or any(after[what] > before[what] for what in counted)
    ):
        # What is still on its way out (a task of the last connection) is no growth; what stays is.
        after, usage_after = holdings(server), at_rest(server)
    grown = {
        name: (before["top"].get(name, 0), count)
        for name, count in after["top"].items()
        if count > before["top"].get(name, 0) + 5
    }
    assert after["objects"] - before["objects"] <= 50, grown
    assert after["blocks"] - before["blocks"] <= 500, (before["blocks"], after["blocks"])
    for what in counted:
        assert after[what] <= before[what], what
    assert_level(usage_before, usage_after)
    assert server.stop() == 0


def at_rest(server: Server) -> Usage:
    """What the process holds once the last connection has been closed on its side too."""
    with contextlib.suppress(AssertionError):
        until(lambda: server.usage().sockets == server.baseline.sockets, "the last connection closed", 3.0)
    return server.usage()


def assert_level(before: Usage, after: Usage) -> None:
    assert after.fds == before.fds
    assert after.threads == before.threads
    # A leak of only 1 KiB a request would show as 2 MB.
    assert after.rss - before.rss < 1024 * 1024, f"{(after.rss - before.rss) // 1024} KiB more"


def test_idle_connections_are_cheap(start: Callable[..., Server]) -> None:
    """At most 4 KiB of resident memory each; here 1,000 of them (the bar's 10,000 are measured by the benchmarks)."""
    server = start("probe:app", validated=False)
    clients = []
    try:
        for _ in range(100):
            clients.append(server.connect())
            clients[-1].get("/hello")
        before = server.usage().rss
        for _ in range(1000):
            clients.append(server.connect())
            clients[-1].get("/hello")
        each = (server.usage().rss - before) / 1000
    finally:
        for client in clients:
            client.close()
    if server.target.server == "m0serve":
        assert each <= 4096, f"{each:.0f} bytes for each idle connection"
