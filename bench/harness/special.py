"""The scenarios that are not plain load: executor threads, system calls, idle connections and growth."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import load
from .arms import OURS, STOCK, UVICORN
from .client import Connection, get
from .scenarios import Record, Setting
from .server import Server, serving

IDLE_CONNECTIONS = 10_000
GROWTH_REQUESTS = 20_000
GROWTH_CONNECTIONS = 16
SATURATING = 16


def executor(setting: Setting) -> list[Record]:
    """Eight `run_in_executor` callers beside an endpoint that wrk saturates; the server has one CPU, then both.

    There are two CPUs: with both given to the server, wrk shares the second one with it.
    """
    records = []
    for number in range(setting.rounds):
        for arm in setting.chosen([*OURS, STOCK, UVICORN]):
            for cpus in ("0", "0,1"):
                with serving(arm, setting.python, "apps:executor", "executor", cpus) as server:
                    load.warm(server, "/", SATURATING)
                    record = _executor_run(server, setting.seconds)
                record |= {"arm": arm.name, "round": number, "connections": SATURATING, "cpus": len(cpus.split(","))}
                records.append(record)
                print(
                    f"  round {number + 1}: {arm.name:28} {record['cpus']} CPU: {record['calls']:8.0f} calls/s "
                    f"p50 {record['call_p50']:.2f} ms p99 {record['call_p99']:.2f} ms beside {record['rate']:.0f} req/s"
                )
    return records


def _executor_run(server: Server, seconds: float) -> Record:
    """The callers run inside the application for a little less time than wrk does, so that they never run alone."""
    with ThreadPoolExecutor(1) as pool:
        wrk = pool.submit(load.run, server, "/", SATURATING, seconds + 1)
        time.sleep(0.5)
        status, _, body = get(server.port, f"/run?{seconds}")
        assert status == 200, body
        rate, p50, p99 = map(float, body.split())
        record: Record = wrk.result().record()
    return record | {"calls": rate, "call_p50": p50, "call_p99": p99}


def syscalls(setting: Setting) -> list[Record]:
    """System calls a request at saturation, counted by perf (or strace, where perf may not)."""
    records = []
    for arm in setting.chosen([*OURS, UVICORN]):
        with serving(arm, setting.python, "apps:hello", "syscalls") as server:
            load.warm(server, "/", SATURATING)
            for number in range(setting.rounds):
                record = _count_with_perf(server, setting.seconds) or _count_with_strace(server, setting.seconds)
                record |= {"arm": arm.name, "round": number, "connections": SATURATING}
                records.append(record)
                print(f"  round {number + 1}: {arm.name:28} {record['syscalls']:.3f} calls a request ({record['by']})")
    return records


def _count_with_perf(server: Server, seconds: float) -> Record | None:
    """The rate of calls in a window inside a longer run of wrk, over the rate of requests of that run."""
    if shutil.which("perf") is None:
        return None
    perf = [
        "perf",
        "stat",
        "-x,",
        "-e",
        "raw_syscalls:sys_enter",
        "-p",
        str(server.worker()),
        "--",
        "sleep",
        str(seconds),
    ]
    with ThreadPoolExecutor(1) as pool:
        wrk = pool.submit(load.run, server, "/", SATURATING, seconds + 1)
        time.sleep(0.4)
        done = subprocess.run(perf, capture_output=True, text=True)
        run = wrk.result()
    count = re.search(r"^(\d+),,raw_syscalls", done.stderr, re.M)
    if done.returncode != 0 or count is None:
        print(f"  note: perf refused ({done.stderr.strip()[:120]}); strace counts instead")
        return None
    return run.record() | {"syscalls": int(count[1]) / seconds / run.rate, "by": "perf"}


TRACED = re.compile(r"^100\.00\s+\S+\s+\S*\s*(\d+)(?:\s+\d+)?\s+total", re.M)
"""The count in the last line of what strace prints with -c."""


def _count_with_strace(server: Server, seconds: float) -> Record:
    """All calls of a traced run over all its requests (tracing slows the server, the ratio stays)."""
    strace = subprocess.Popen(
        ["strace", "-c", "-f", "-q", "-p", str(server.worker())],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    time.sleep(0.5)
    before = time.perf_counter()
    run = load.run(server, "/", SATURATING, seconds)
    requests = run.rate * (time.perf_counter() - before)
    strace.send_signal(signal.SIGINT)
    _, text = strace.communicate(timeout=20)
    total = TRACED.search(text)
    assert total is not None, f"strace printed no total:\n{text}"
    return run.record() | {"syscalls": int(total[1]) / requests, "by": "strace"}


def idle(setting: Setting) -> list[Record]:
    """Resident memory of 10,000 idle keep-alive connections, each of which has had one response."""
    records = []
    for arm in setting.chosen([*OURS, UVICORN]):
        with serving(arm, setting.python, "apps:hello", "idle") as server:
            load.warm(server, "/", 256)
            before = server.rss()
            client = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("idle.py")), str(server.port), str(IDLE_CONNECTIONS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert client.stdin and client.stdout
            answer = client.stdout.readline().split()
            assert answer and int(answer[0]) == IDLE_CONNECTIONS, f"only {answer} of {IDLE_CONNECTIONS} were answered"
            each = (server.rss() - before) / IDLE_CONNECTIONS
            client.stdin.close()
            client.wait(30)
        records.append({"arm": arm.name, "round": 0, "connections": IDLE_CONNECTIONS, "bytes_each": each})
        print(f"  {arm.name:28} {each / 1024:.2f} KiB resident a connection")
    return records


def growth(setting: Setting) -> list[Record]:
    """20,000 requests of several kinds, then 20,000 more: what the second lot left behind."""
    records = []
    for arm in setting.chosen([*OURS, UVICORN]):
        with serving(arm, setting.python, "apps:mixed", "growth") as server:
            counts = [_after(server, GROWTH_REQUESTS) for _ in range(2)]
        grown = {f"grown_{key}": counts[1][key] - counts[0][key] for key in counts[0]}
        records.append({"arm": arm.name, "round": 0, "connections": GROWTH_CONNECTIONS, **counts[1], **grown})
        print(
            f"  {arm.name:28} grew by {grown['grown_rss'] / 1024:.0f} KiB, {grown['grown_descriptors']} descriptors, "
            f"{grown['grown_threads']} threads, {grown['grown_objects']} objects"
        )
    return records


def _lot(port: int, count: int) -> None:
    connection = Connection(port)
    for number in range(count):
        # Now and then a new connection, an upload, a stream: what recycles slots, buffers and bodies.
        if number % 50 == 49:
            connection.close()
            connection = Connection(port)
        if number % 10 == 3:
            body = b"y" * (number % 5000 + 1)
            status, _, answer = connection.ask("/echo", body)
            assert (status, answer) == (200, body)
        elif number % 10 == 7:
            status, _, answer = connection.ask("/stream")
            assert (status, len(answer)) == (200, 400)
        else:
            status, _, answer = connection.ask("/")
            assert (status, answer) == (200, b"Hello, world!")
    connection.close()


def _after(server: Server, requests: int) -> dict[str, int]:
    with ThreadPoolExecutor(GROWTH_CONNECTIONS) as pool:
        list(pool.map(lambda _: _lot(server.port, requests // GROWTH_CONNECTIONS), range(GROWTH_CONNECTIONS)))
    objects = int(get(server.port, "/objects")[2])
    # The connections' closes are still on their way to the server: wait until its descriptors settle.
    descriptors = server.descriptors()
    for _ in range(50):
        time.sleep(0.05)
        now = server.descriptors()
        if now == descriptors:
            break
        descriptors = now
    return {"rss": server.rss(), "descriptors": descriptors, "threads": server.threads(), "objects": objects}


SPECIAL = {"executor": executor, "syscalls": syscalls, "idle": idle, "growth": growth}
"""By the names that `--scenario` takes."""
