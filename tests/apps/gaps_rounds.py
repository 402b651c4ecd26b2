"""Serves several times in one process, one server after another, and says what each left behind."""

from __future__ import annotations

import gc
import os
import sys
import threading
import urllib.request

import probe

import m0serve


def serve_once(model: str, backend: str, loop: str) -> int:
    """A server on a thread, three requests, a stop; the exit code."""
    server = m0serve.Server(probe.app, port=0, model=model, backend=backend, loop=loop)
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(server.run()))
    thread.start()
    assert server.started.wait(10)
    for _ in range(3):
        with urllib.request.urlopen(f"{server.address}/to-thread", timeout=5) as response:
            assert response.status == 200
    server.stop()
    thread.join(10)
    assert not thread.is_alive()
    return codes[0]


def held() -> tuple[int, int]:
    """Descriptors and threads, as the kernel counts them."""
    threads = sum(1 for _ in os.scandir("/proc/self/task"))
    return len(os.listdir("/proc/self/fd")), threads


def alive() -> list[str]:
    """Objects of servers that have ended."""
    gc.collect()
    return [kind for kind in (type(thing).__name__ for thing in gc.get_objects()) if kind in KINDS]


KINDS = ("Service", "Host", "Driver", "Loop", "Server")
assert serve_once(*sys.argv[1:]) == 0  # what the first one keeps (the probe's own pool of threads) is no leak
before = held()
for _ in range(8):
    assert serve_once(*sys.argv[1:]) == 0
print(f"before {before}, after {held()}; alive: {alive()}", flush=True)
sys.exit(0 if held()[0] == before[0] and held()[1] <= before[1] + 7 and not alive() else 1)
