"""The scenarios of plain load: requests a second and a core, compared arm by arm in alternated rounds."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from . import load
from .arms import CEILING, OTHERS, OTHERS_WSGI, OURS, OURS_WSGI, THREADED_WSGI, Arm
from .client import BROWSER, get
from .server import Server, serving

Record = dict[str, Any]
PAUSE_SECONDS = 0.02


@dataclass
class Setting:
    """What the command line chose."""

    python: str
    rounds: int
    seconds: float
    arms: list[str]
    """Parts of names to keep; empty keeps all."""
    ceiling: bool = False
    """Whether the ceiling server is measured beside the others."""

    def chosen(self, arms: list[Arm]) -> list[Arm]:
        """Those of `arms` that were asked for."""
        return [arm for arm in arms if not self.arms or any(name in arm.name for name in self.arms)]


@dataclass
class Load:
    """One application under plain load."""

    app: str
    path: str
    connections: list[int]
    watch_threads: bool = False
    cpus: str | None = "0"
    """The server's CPUs; the second is the load generator's too. None is wherever the kernel puts it."""
    arms: list[Arm] = field(default_factory=lambda: [*OURS, *OTHERS])


LOADS = {
    "hello": Load("apps:hello", "/", [16, 256]),
    "fastapi-json": Load("fastapi_app:app", "/items/7?limit=3", [16]),
    "fastapi-def": Load("fastapi_app:app", "/def/7", [64], watch_threads=True),
    "wsgi-hello": Load("wsgi_app:hello", "/", [16, 256], arms=[*OURS_WSGI, *OTHERS_WSGI]),
    "wsgi-waiting": Load("wsgi_app:mixed", "/wait?0.002", [16], arms=[*OURS_WSGI, *THREADED_WSGI]),
    "wsgi-two-cpus": Load("wsgi_app:hello", "/", [16, 256], cpus="0,1", arms=[*OURS_WSGI, *OTHERS_WSGI]),
}


def same_bodies(setting: Setting, arms: list[Arm], name: str, plan: Load) -> None:
    """Every arm must answer alike before anything is measured.

    Raises:
        AssertionError: an arm's status, content type or body differs from the first arm's.
    """
    expected: tuple[int, str | None, bytes] | None = None
    for arm in arms:
        with serving(arm, setting.python, plan.app, name, plan.cpus) as server:
            status, fields, body = get(server.port, plan.path)
            answer = (status, fields.get("content-type"), body)
            assert status == 200 and body, f"{arm.name} answers {status} {body[:200]!r}"
            assert expected is None or answer == expected, f"{arm.name} answers {answer}, the first arm {expected}"
            expected = answer
    print(f"  {len(arms)} arms answer alike ({len(expected[2]) if expected else 0} bytes, {len(BROWSER) + 1} fields)")


@contextmanager
def thread_peak(server: Server) -> Iterator[Callable[[], int]]:
    """Watches the number of threads of a server while the block runs."""
    stop, peak = threading.Event(), [server.threads()]

    def look() -> None:
        while not stop.wait(PAUSE_SECONDS):
            peak[0] = max(peak[0], server.threads())

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield lambda: peak[0]
    finally:
        stop.set()
        watcher.join()


def measure(server: Server, plan: Load, connections: int, seconds: float) -> Record:
    """One run of one arm."""
    if not plan.watch_threads:
        return load.run(server, plan.path, connections, seconds).record()
    with thread_peak(server) as peak:
        record = load.run(server, plan.path, connections, seconds).record()
        record["threads"] = peak()
        return record


def plain(setting: Setting, name: str) -> list[Record]:
    """All rounds of one of `LOADS`; the order of arms turns with each round."""
    plan = LOADS[name]
    ceiling = CEILING if setting.ceiling and name == "hello" else []
    arms = setting.chosen([*plan.arms, *ceiling])
    same_bodies(setting, arms, name, plan)
    records: list[Record] = []
    for number in range(setting.rounds):
        for arm in arms if number % 2 == 0 else reversed(arms):
            with serving(arm, setting.python, plan.app, name, plan.cpus) as server:
                for connections in plan.connections:
                    load.warm(server, plan.path, connections)
                    record = measure(server, plan, connections, setting.seconds)
                    if plan.cpus and plan.cpus != "0":
                        record["cpus"] = len(plan.cpus.split(","))
                    records.append({"arm": arm.name, "round": number, "connections": connections, **record})
                    print(
                        f"  round {number + 1}: {arm.name:28} {connections:4} connections "
                        f"{record['rate']:9.0f}/s {record['per_core']:9.0f}/core p99 {record['p99']:.0f} µs"
                    )
    return records


def medians(records: list[Record], baseline: str = "uvicorn") -> list[Record]:
    """One record an arm, connection count and number of CPUs: medians over rounds, of ratios to the baseline too.

    A ratio is taken within a round. Fewer CPUs come first.
    """
    groups: dict[tuple[str, int, int], list[Record]] = {}
    reference = {}
    for record in records:
        where = (record.get("connections", 0), record.get("cpus", 0))
        groups.setdefault((record["arm"], *where), []).append(record)
        if record["arm"] == baseline:
            reference[record["round"], *where] = record.get("per_core")
    summary = []
    for (arm, connections, cpus), rounds in groups.items():
        line: Record = {"arm": arm, "connections": connections, "rounds": len(rounds)}
        for key, value in rounds[0].items():
            if key not in ("arm", "round", "connections") and isinstance(value, (int, float)):
                line[key] = round(statistics.median(record[key] for record in rounds), 3)
        ratios = [
            record["per_core"] / base
            for record in rounds
            if (base := reference.get((record["round"], connections, cpus))) and "per_core" in record
        ]
        if ratios:
            line["ratio"] = round(statistics.median(ratios), 3)
        summary.append(line)
    return sorted(summary, key=lambda line: line.get("cpus", 0))
