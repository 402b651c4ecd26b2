"""500 slow clients at once: each gets its answer in time, a fast client beside them does not notice (promise 15)."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.client import Client
from harness.server import Server, Usage
from harness.waiting import settled, until

MIB = 1024 * 1024
SLOW = Path(__file__).parent / "harness" / "slow.py"
COUNT = 500
TIMEOUT = 2.0
#: The clock's tick twice, and a part of the time-out for who does not read; the rest is for a loaded machine.
LATE = 0.5 + TIMEOUT / 8 + 2.0
#: Seconds for which the fast client is measured alone.
ALONE = 0.8


def measure(client: Client, stop: Callable[[], bool]) -> list[float]:
    """How long each request takes, sorted, until `stop`."""
    took = []
    while not stop():
        began = time.monotonic()
        assert client.get("/hello").status == 200
        took.append(time.monotonic() - began)
        time.sleep(0.001)  # a client that asks now and then, not one that saturates the machine
    return sorted(took)


def p99(took: list[float]) -> float:
    return took[len(took) * 99 // 100]


def at_rest(server: Server) -> Usage:
    """What the server holds once nobody but the fast client is connected."""
    until(lambda: server.usage().fds <= server.baseline.fds + 1, "descriptors closed")
    return server.usage()


class Crowd:
    """The process with the slow clients."""

    def __init__(self, server: Server, path: str) -> None:
        assert isinstance(server.address, tuple)
        host, port = server.address
        command = [sys.executable, str(SLOW), host, str(port), path, str(COUNT)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.ended = threading.Event()
        self.clients: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read)

    def __enter__(self) -> Crowd:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "connected\n"
        self._reader.start()
        return self

    def _read(self) -> None:
        out, _ = self.process.communicate()
        self.clients = json.loads(out or "[]")  # nothing when it was ended before its time
        self.ended.set()

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self._reader.join()


@pytest.mark.beyond_uvicorn("keeps them all for ever")
@pytest.mark.behaviour(15)
def test_a_fast_client_does_not_notice_500_slow_ones(start: Callable[..., Server], key: str) -> None:
    server = start("probe:app", "--header-timeout", str(TIMEOUT), "--body-timeout", str(TIMEOUT))
    server.expected_tracebacks += ["the client left", "OSError", "ClientDisconnect"]
    with Crowd(server, f"/endless?key=warm-{key}"):
        # Memory for so many has been used once; then all of them vanish.
        settled(lambda: int(server.notes(f"warm-{key}").get("chunks", 0)), quiet=0.1)  # type: ignore[call-overload]
    before = at_rest(server)
    with server.connect() as fast:
        until_then = time.monotonic() + ALONE
        alone = measure(fast, lambda: time.monotonic() > until_then)
        with Crowd(server, f"/endless?key={key}") as crowd:
            beside = measure(fast, crowd.ended.is_set)
            clients = crowd.clients

    wrong = [
        client
        for client in clients
        if not client["ended"]
        or client["status"] != (0 if client["kind"] == "read" else 408)
        or not TIMEOUT - 0.05 <= client["after"] <= TIMEOUT + LATE
    ]
    assert not wrong, f"{len(wrong)} of {len(clients)}, such as {wrong[:5]}"
    assert len(clients) == COUNT
    # A handler that was sending has been told by now, and nothing of anyone is left.
    assert server.notes(key)["raised"] == "OSError"
    after = at_rest(server)
    if after.rss - before.rss >= 4 * MIB:
        # On a slow machine the crowd before had not filled all its windows, and memory was used for the first time now.
        with Crowd(server, f"/endless?key=again-{key}") as crowd:
            crowd.ended.wait(30)
        before, after = after, at_rest(server)
    grown = after.rss - before.rss
    assert grown < 4 * MIB, f"{grown // 1024} KiB more"
    bar = max(5 * p99(alone), 0.030)
    assert p99(beside) <= bar, f"p99 {p99(beside) * 1000:.1f} ms, alone {p99(alone) * 1000:.1f} ms"
    assert server.stop() == 0
