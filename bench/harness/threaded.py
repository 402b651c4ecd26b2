"""The scenarios of WSGI views that wait or compute beside fast ones, each arm with a pool of eight threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from . import load
from .arms import ALONE_WSGI, OURS_WSGI, THREADED_WSGI
from .client import Connection
from .scenarios import Record, Setting
from .server import Server, serving

FAST = 16
SLOW = 4
WAIT_SECONDS = 2.0
COMPUTE_SECONDS = 0.01
SHORT_COMPUTE_SECONDS = 0.0003


@contextmanager
def clients(server: Server, path: str) -> Iterator[None]:
    """Four clients that ask for a slow view, again and again, while the block runs."""
    stop = threading.Event()

    def ask() -> None:
        connection = Connection(server.port)
        while not stop.is_set():
            assert connection.ask(path)[0] == 200
        connection.close()

    threads = [threading.Thread(target=ask) for _ in range(SLOW)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def isolation(setting: Setting) -> list[Record]:
    """Sixteen connections on a fast view, alone and then beside four views that sleep for two seconds."""
    records = []
    for number in range(setting.rounds):
        for arm in setting.chosen([*OURS_WSGI, *ALONE_WSGI, *THREADED_WSGI]):
            with serving(arm, setting.python, "wsgi_app:mixed", "wsgi-isolation") as server:
                load.warm(server, "/", FAST)
                alone = load.run(server, "/", FAST, setting.seconds)
                with clients(server, f"/wait?{WAIT_SECONDS}"):
                    beside = load.run(server, "/", FAST, setting.seconds)
            record = {"arm": arm.name, "round": number, "connections": FAST, **beside.record()}
            record |= {"alone_rate": alone.rate, "alone_p99": alone.p99, "kept": beside.rate / alone.rate}
            records.append(record)
            print(
                f"  round {number + 1}: {arm.name:28} alone {alone.rate:8.0f}/s p99 {alone.p99:6.0f} µs, beside "
                f"{beside.rate:8.0f}/s p99 {beside.p99:6.0f} µs max {beside.max:.0f}: {record['kept']:.0%}"
            )
    return records


def computing(setting: Setting) -> list[Record]:
    """Sixteen connections on a fast view beside four clients of views that compute for ten milliseconds."""
    records = []
    for number in range(setting.rounds):
        for arm in setting.chosen([*OURS_WSGI, *THREADED_WSGI]):
            with serving(arm, setting.python, "wsgi_app:mixed", "wsgi-computing") as server:
                load.warm(server, "/", FAST)
                with clients(server, f"/compute?{COMPUTE_SECONDS}"):
                    run = load.run(server, "/", FAST, setting.seconds)
            records.append({"arm": arm.name, "round": number, "connections": FAST, **run.record()})
            print(f"  round {number + 1}: {arm.name:28} {run.rate:8.0f}/s p50 {run.p50:.0f} µs p99 {run.p99:.0f} µs")
    return records


def convoy(setting: Setting) -> list[Record]:
    """Sixteen connections on a view that computes for 0.3 ms: threads must not queue behind each other for the GIL."""
    records = []
    for number in range(setting.rounds):
        for arm in setting.chosen([*OURS_WSGI, *THREADED_WSGI]):
            with serving(arm, setting.python, "wsgi_app:mixed", "wsgi-convoy") as server:
                path = f"/compute?{SHORT_COMPUTE_SECONDS}"
                load.warm(server, path, FAST)
                run = load.run(server, path, FAST, setting.seconds)
            records.append({"arm": arm.name, "round": number, "connections": FAST, **run.record()})
            print(f"  round {number + 1}: {arm.name:28} {run.rate:8.0f}/s p50 {run.p50:.0f} µs p99 {run.p99:.0f} µs")
    return records


THREADED = {"wsgi-isolation": isolation, "wsgi-computing": computing, "wsgi-convoy": convoy}
"""By the names that `--scenario` takes."""
