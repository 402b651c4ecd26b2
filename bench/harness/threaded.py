"""The scenarios of WSGI views that wait, compute or hold the GIL beside fast ones; arms have pools of eight threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from . import load, paced
from .arms import ALONE_WSGI, FASTPYSGI_WSGI, OURS_MOUNTS, OURS_WSGI, THREADED_WSGI, WSGI_THREADS, Arm
from .client import Connection
from .scenarios import Record, Setting
from .server import Server, serving

FAST = 16
SLOW = 4
WAIT_SECONDS = 2.0
COMPUTE_SECONDS = 0.01
SHORT_COMPUTE_SECONDS = 0.0003
CROWD = 256
MIB = 1 << 20


@contextmanager
def clients(server: Server, path: str, count: int = SLOW) -> Iterator[list[bytes]]:
    """So many clients that ask for a slow view, again and again, while the block runs; gives what they are answered."""
    stop = threading.Event()
    answers: list[bytes] = []
    failures: list[Exception] = []

    def ask() -> None:
        connection = Connection(server.port)
        try:
            while not stop.is_set():
                status, _, body = connection.ask(path)
                assert status == 200, f"{server.arm.name} answers {path} with {status}"
                answers.append(body)
        except Exception as error:  # raised again by the caller's thread
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=ask) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


def _isolated(setting: Setting, scenario: str, arms: list[Arm], app: str, fast: str) -> list[Record]:
    """Sixteen connections on `fast`, alone and then beside four views that sleep for two seconds."""
    records = []
    for number in range(setting.rounds):
        # That servers without isolation stall is shown once: it takes long.
        for arm in [arm for arm in setting.chosen(arms) if number == 0 or arm not in ALONE_WSGI]:
            with serving(arm, setting.python, app, scenario) as server:
                load.warm(server, fast, FAST)
                alone = load.run(server, fast, FAST, setting.seconds)
                with clients(server, f"/wait?{WAIT_SECONDS}"):
                    beside = load.run(server, fast, FAST, setting.seconds)
            record = {"arm": arm.name, "round": number, "connections": FAST, **beside.record()}
            record |= {"alone_rate": alone.rate, "alone_p99": alone.p99, "kept": beside.rate / alone.rate}
            records.append(record)
            print(
                f"  round {number + 1}: {arm.name:28} alone {alone.rate:8.0f}/s p99 {alone.p99:6.0f} µs, beside "
                f"{beside.rate:8.0f}/s p99 {beside.p99:6.0f} µs max {beside.max:.0f}: {record['kept']:.0%}"
            )
    return records


def isolation(setting: Setting) -> list[Record]:
    """A fast WSGI view beside sleeping ones."""
    arms = [*OURS_WSGI, *ALONE_WSGI, *THREADED_WSGI]
    return _isolated(setting, "wsgi-isolation", arms, "wsgi_app:mixed", "/")


def mounts(setting: Setting) -> list[Record]:
    """An endpoint of FastAPI at /api beside sleeping views of Django at /, in one process."""
    return _isolated(setting, "mounts-isolation", OURS_MOUNTS, "django_app:site", "/api/items/7?limit=3")


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


def holding(setting: Setting) -> list[Record]:
    """Paced clients, known and new, beside a view that is always in one C call of a tenth of a second, with the GIL."""
    count = paced.calls_of_a_tenth()
    records = []
    for number in range(setting.rounds):
        for arm in setting.chosen([*OURS_WSGI, *THREADED_WSGI]):
            with serving(arm, setting.python, "wsgi_app:mixed", "wsgi-holding") as server:
                load.warm(server, "/", FAST)
                with clients(server, f"/hold?{count}", 1) as held:
                    record = paced.measure(server.port, FAST, setting.seconds)
            record["held"] = paced.quantile(sorted(float(taken) for taken in held), 0.5) * 1e3
            records.append({"arm": arm.name, "round": number, "connections": FAST, **record})
            print(
                f"  round {number + 1}: {arm.name:28} holds of {record['held']:.0f} ms: p50 {record['p50']:.0f} µs "
                f"p99 {record['p99']:.0f} µs, refusals p99 {record['refused_p99']:.1f} ms"
            )
    return records


def memory(setting: Setting) -> list[Record]:
    """Resident memory after one request, and after load has reached every thread."""
    records = []
    for arm in setting.chosen([*OURS_WSGI, *THREADED_WSGI, FASTPYSGI_WSGI]):
        with serving(arm, setting.python, "wsgi_app:mixed", "wsgi-memory") as server:
            idle = server.rss()
            threads = WSGI_THREADS if arm is not FASTPYSGI_WSGI else 1
            with clients(server, "/wait?0.1", threads):
                load.run(server, "/", CROWD, setting.seconds)
            loaded, count = server.rss(), server.threads()
        record = {"arm": arm.name, "round": 0, "connections": CROWD, "threads": count}
        records.append(record | {"rss_idle": idle / MIB, "rss_loaded": loaded / MIB})
        print(f"  {arm.name:28} {idle / MIB:.1f} MiB, {loaded / MIB:.1f} after load, {count} threads")
    return records


THREADED = {
    "wsgi-isolation": isolation,
    "wsgi-computing": computing,
    "wsgi-convoy": convoy,
    "wsgi-holding": holding,
    "wsgi-memory": memory,
    "mounts-isolation": mounts,
}
"""By the names that `--scenario` takes."""
