"""Load: one run of `wrk` on a CPU of its own, with what the server spent meanwhile."""

from __future__ import annotations

import re
import resource
import subprocess
import time
from dataclasses import asdict, dataclass

from .client import BROWSER
from .processes import everybody, pin
from .server import Server

UNITS = {"us": 1.0, "ms": 1e3, "s": 1e6, "m": 60e6}


@dataclass
class Run:
    """What one run of wrk showed."""

    rate: float
    """Requests a second."""
    cores: float
    """CPU seconds of the server a second."""
    per_core: float
    """Requests a CPU second."""
    p50: float
    """Microseconds."""
    p99: float
    """Microseconds."""
    max: float
    """Microseconds."""
    errors: int
    """Socket errors and responses that were not 2xx or 3xx."""
    foreign: float | None
    """CPU seconds a second that were not idle, not the server's, and not the runner's and its children's; if known."""

    def record(self) -> dict[str, float]:
        """For JSON."""
        return {key: round(value, 3) for key, value in asdict(self).items() if value is not None}


def _time(text: str) -> float:
    match = re.fullmatch(r"([\d.]+)(us|ms|s|m)", text)
    if match is None:
        raise ValueError(f"not a duration of wrk: {text!r}")
    return float(match[1]) * UNITS[match[2]]


def parse(text: str) -> tuple[int, float, float, float, float, int]:
    """Requests, seconds, p50, p99, max (µs) and errors from what `wrk --latency` prints.

    Raises:
        ValueError: the text is no complete report.
    """
    total = re.search(r"(\d+) requests in ([\d.]+)(ms|s|m)", text)
    p50 = re.search(r"^\s*50%\s+(\S+)", text, re.M)
    p99 = re.search(r"^\s*99%\s+(\S+)", text, re.M)
    spread = re.search(r"^\s*Latency\s+\S+\s+\S+\s+(\S+)", text, re.M)
    if total is None or p50 is None or p99 is None or spread is None:
        raise ValueError(f"wrk printed no report:\n{text}")
    errors = 0
    if sockets := re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text):
        errors += sum(map(int, sockets.groups()))
    if refused := re.search(r"Non-2xx or 3xx responses: (\d+)", text):
        errors += int(refused[1])
    seconds = float(total[2]) * UNITS[total[3]] / 1e6
    return int(total[1]), seconds, _time(p50[1]), _time(p99[1]), _time(spread[1]), errors


def command(server: Server, path: str, connections: int, seconds: float) -> list[str]:
    """The wrk command line: one thread, on the client's CPU, browser-like fields."""
    fields = [part for name, value in BROWSER.items() for part in ("-H", f"{name}: {value}")]
    # wrk takes whole seconds only.
    duration = ["-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--latency"]
    return [*pin(server.client), "wrk", *duration, *fields, f"http://127.0.0.1:{server.port}{path}"]


def _runner() -> float:
    """CPU seconds of the runner and its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _others() -> float | None:
    """CPU seconds of everybody but the runner."""
    seconds = everybody()
    return None if seconds is None else seconds - _runner()


def run(server: Server, path: str, connections: int, seconds: float) -> Run:
    """Loads a server and measures both sides."""
    before, others, start = server.cpu_seconds(), _others(), time.perf_counter()
    done = subprocess.run(command(server, path, connections, seconds), check=True, capture_output=True, text=True)
    spent, now, wall = server.cpu_seconds() - before, _others(), time.perf_counter() - start
    foreign = None if others is None or now is None else max(0.0, now - others - spent) / wall
    requests, lasted, p50, p99, most, errors = parse(done.stdout)
    cores = spent / wall
    return Run(requests / lasted, cores, requests / spent if spent else 0.0, p50, p99, most, errors, foreign)


def warm(server: Server, path: str, connections: int) -> None:
    """A second of load that is not looked at."""
    subprocess.run(command(server, path, connections, 1), check=True, capture_output=True)
