"""Server processes: starting one, waiting until it is ready, looking into it, stopping it, judging how it lived."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .client import Client, Response
from .forks import Forked, ForkServer, imports
from .waiting import SOON, until

APPS = Path(__file__).resolve().parent.parent / "apps"

#: The word that every exception raised on purpose carries; a traceback that ends without it is a defect.
EXPECTED = "expected-by-the-test"

#: Begins the line of the validator (apps/validator.py) about a message that the server should not have sent or taken.
VIOLATION = "ASGI VIOLATION"

#: Such lines of any process, until the test that is running fails for them.
violations: list[str] = []

_READY = {
    "m0serve": re.compile(r"\bready\b.*?(?:https?://(?P<host>\[[^\]]+\]|[^:/\s]+):(?P<port>\d+)|(?P<unix>/\S+))"),
    "uvicorn": re.compile(r"running on (?:https?://(?P<host>\[[^\]]+\]|[^:/\s]+):(?P<port>\d+)|.*?(?P<unix>/\S+))"),
}


@dataclass(frozen=True)
class Target:
    """What a test runs against."""

    server: str = "m0serve"
    model: str = "inverted"
    backend: str = "io_uring"
    loop: str = "asyncio"

    @property
    def label(self) -> str:
        """The test's id."""
        if self.server != "m0serve":
            return self.server
        return f"{self.model}-{self.backend}" + ("" if self.loop == "asyncio" else f"-{self.loop}")

    def command(self) -> list[str]:
        """How the server is called, without its options."""
        if self.server == "uvicorn":
            # It takes what is no coroutine function, such as the validator, for an application of ASGI 2.
            quiet = ["--no-access-log", "--lifespan", "auto", "--http", "httptools", "--interface", "asgi3"]
            return [sys.executable, "-m", "uvicorn", "--loop", self.loop, *quiet]
        options = ["--model", self.model, "--backend", self.backend, "--loop", self.loop]
        return [sys.executable, "-m", "m0serve", *options]


def environment(**extra: str) -> dict[str, str]:
    """The environment of a server: ours, without what would configure it behind the test's back."""
    # A suite starts a thousand servers: their modules are compiled once.
    kept = {key: value for key, value in os.environ.items() if not key.startswith("M0_")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return kept | {"PYTHONUNBUFFERED": "1"} | extra


#: What this process forks servers from, by what they import.
_fork_servers: dict[tuple[str, ...], ForkServer] = {}


def fork_server(app: str) -> ForkServer:
    """What servers of an application are forked from. Their sets have the same order, as comparisons need it."""
    modules = _imports(app.partition(":")[0])
    if modules not in _fork_servers:
        _fork_servers[modules] = ForkServer(environment(PYTHONHASHSEED="0"), modules)
    return _fork_servers[modules]


@functools.cache
def _imports(module: str) -> tuple[str, ...]:
    return imports(APPS / f"{module}.py")


def close_fork_servers() -> None:
    """Ends those that there are."""
    for server in _fork_servers.values():
        server.close()
    _fork_servers.clear()


def under_validation(app: str, *options: str, env: dict[str, str] | None = None) -> tuple[str, dict[str, str]]:
    """The import string of the validator around an application, and the environment that it needs."""
    name = "validated:make" if "--factory" in options else "validated:app"
    return name, {"PYTHONPATH": str(APPS), **(env or {}), "VALIDATED_APP": app}


class Process:
    """A child whose standard error is read as it comes."""

    #: Whether what the validator says of it fails the test that is running.
    judged = True

    def __init__(
        self,
        command: list[str],
        cwd: Path = APPS,
        env: dict[str, str] | None = None,
        pass_fds: tuple[int, ...] = (),
        forked: ForkServer | None = None,
    ) -> None:
        """`forked` is what it is forked from instead of being started, where that makes no difference."""
        self.command = command
        self.process: subprocess.Popen[str] | Forked
        if forked and forked.can_start(command, env or {}, pass_fds):
            self.process = forked.start(command, cwd, environment(**(env or {})))
        else:
            self.process = subprocess.Popen(
                command,
                cwd=cwd,
                env=environment(**(env or {})),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                pass_fds=pass_fds,
            )
        self.pid = self.process.pid
        self._lines: list[str] = []
        self._out: list[str] = []
        self._changed = threading.Condition()
        self._readers = [
            threading.Thread(target=self._read, args=(self.process.stderr, self._lines), daemon=True),
            threading.Thread(target=self._read, args=(self.process.stdout, self._out), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: Iterator[str], lines: list[str]) -> None:
        for line in stream:
            if self.judged and line.startswith(VIOLATION):
                violations.append(line)
            with self._changed:
                lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    @property
    def stderr(self) -> str:
        """Standard error so far."""
        return "".join(self._lines)

    @property
    def stdout(self) -> str:
        """Standard output so far."""
        return "".join(self._out)

    def line(self, pattern: re.Pattern[str] | str, seconds: float = SOON) -> re.Match[str]:
        """Wait for a line on standard error; fail at once when the process ends without it."""
        deadline = time.monotonic() + seconds
        looked = 0
        with self._changed:
            while True:
                for text in self._lines[looked:]:
                    if match := re.search(pattern, text):
                        return match
                looked = len(self._lines)
                ended = not self._readers[0].is_alive() or self.process.poll() is not None
                left = deadline - time.monotonic()
                if left <= 0 or (ended and not self._readers[0].is_alive() and looked == len(self._lines)):
                    state = f"exit code {self.process.poll()}" if ended else f"not within {seconds} s"
                    raise AssertionError(f"no line matches {pattern!r} ({state}); stderr:\n{self.stderr}")
                self._changed.wait(min(left, 0.05))

    def wait(self, seconds: float = SOON) -> int:
        """Wait for the end, and for everything it wrote."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {seconds} s; stderr:\n{self.stderr}") from None
        for reader in self._readers:
            reader.join(SOON)
        return code

    def kill(self) -> None:
        """End it whatever it does."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()

    def signal(self, number: int) -> None:
        """Send a signal."""
        self.process.send_signal(number)


@dataclass
class Usage:
    """What a process holds."""

    rss: int
    threads: int
    fds: int
    sockets: int


class Server(Process):
    """One running server."""

    def __init__(
        self,
        target: Target,
        app: str,
        *options: str,
        env: dict[str, str] | None = None,
        address: str | None = None,
        cwd: Path = APPS,
        wait_ready: bool = True,
        validated: bool = True,
        pass_fds: tuple[int, ...] = (),
        own_process: bool = False,
    ) -> None:
        """`validated=False` leaves the validator out, for tests about loading an application or what one costs;
        `own_process` starts the command, and not a copy of a process that has imported what it imports."""
        self.target = target
        self.judged = target.server == "m0serve"
        self.expected_tracebacks: list[str] = [EXPECTED]
        forked = None if own_process else fork_server(app)
        if validated and ":" in app:
            app, env = under_validation(app, *options, env=env)
        bind = () if {"--port", "--uds", "--fd"} & set(options) else ("--port", "0")
        command = [*target.command(), *bind, *options, app]
        super().__init__(command, cwd=cwd, env=env, pass_fds=pass_fds, forked=forked)
        self.address: tuple[str, int] | str = address or ("127.0.0.1", 0)
        if wait_ready:
            try:
                self.ready()
            except BaseException:
                self.kill()
                raise

    def ready(self) -> None:
        """Wait for the ready line and take the address from it."""
        match = self.line(_READY[self.target.server])
        if match["port"] and not isinstance(self.address, str):
            self.address = (match["host"].strip("[]"), int(match["port"]))
        self.baseline = self.usage()

    # --- talking to it ---------------------------------------------------------------------------------------

    def connect(self, timeout: float = SOON, rcvbuf: int = 0) -> Client:
        """A new connection."""
        return Client(self.address, timeout, rcvbuf)

    def get(self, target: str, *headers: str, method: str = "GET", body: bytes | None = None) -> Response:
        """One request over a connection of its own."""
        with self.connect() as client:
            return client.get(target, *headers, method=method, body=body)

    def notes(self, key: str) -> dict[str, object]:
        """What the application noted under `key` (see apps/probe): name to value."""
        return dict(self.get(f"/notes?key={key}").json())

    def note(self, key: str, name: str, seconds: float = SOON) -> object:
        """Wait until the application has noted `name` under `key`; return its value."""
        return until(lambda: self.notes(key).get(name), f"note {name!r} of {key}", seconds)

    def open_gate(self, key: str) -> None:
        """Let the handlers that wait at the gate `key` go on (see apps/probe)."""
        assert self.get(f"/open?key={key}").status == 200

    # --- looking into it -------------------------------------------------------------------------------------

    def usage(self) -> Usage:
        """Memory in bytes, threads, descriptors; from /proc."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        rss = int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024  # type: ignore[index]
        threads = int(re.search(r"Threads:\s+(\d+)", status)[1])  # type: ignore[index]
        links = []
        for entry in os.scandir(f"/proc/{self.pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                links.append(os.readlink(entry.path))
        return Usage(rss, threads, len(links), sum(link.startswith("socket:") for link in links))

    def switches(self) -> int:
        """Voluntary context switches of all threads together: how often something in it woke up."""
        total = 0
        for entry in os.scandir(f"/proc/{self.pid}/task"):
            text = Path(entry.path, "status").read_text()
            total += int(re.search(r"\nvoluntary_ctxt_switches:\s+(\d+)", text)[1])  # type: ignore[index]
        return total

    def cpu(self) -> float:
        """Seconds of CPU that it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    # --- its end ---------------------------------------------------------------------------------------------

    def stop(self, number: int = signal.SIGTERM, seconds: float = 15.0) -> int:
        """Ask it to end; return its exit code."""
        if self.process.poll() is None:
            self.signal(number)
        return self.wait(seconds)

    def faults(self) -> list[str]:
        """Stop it and say everything that was wrong with its life; an empty list is a good life."""
        found = []
        if self.process.poll() is not None:
            found.append(f"ended by itself with exit code {self.wait()}")
        else:
            found += self._leaks()
            began = time.monotonic()
            code = self.stop()
            if self.target.server == "m0serve" and time.monotonic() - began > 3.0:
                found.append(f"took {time.monotonic() - began:.1f} s to stop although nothing was in flight")
            if code not in ((0,) if self.target.server == "m0serve" else (0, -signal.SIGTERM)):
                found.append(f"exit code {code} after SIGTERM")
        return found + self.bad_output()

    def _leaks(self) -> list[str]:
        """Sockets that are still open although every client has gone."""
        with contextlib.suppress(AssertionError):
            until(lambda: self.usage().sockets <= self.baseline.sockets, "sockets closed", 3.0)
            return []
        return [f"{self.usage().sockets} sockets open after the last client left; {self.baseline.sockets} at start"]

    def bad_output(self) -> list[str]:
        """Panics, tracebacks nobody expected, and frames of ours in tracebacks of the application."""
        if self.target.server != "m0serve":
            return []
        text = self.stderr
        bad = ("panicked", "never awaited", VIOLATION)
        found = [f"in its log: {line!r}" for line in text.splitlines() if any(word in line for word in bad)]
        for block, last in tracebacks(text):
            if not any(pattern in last for pattern in self.expected_tracebacks):
                found.append(f"unexpected traceback:\n{block}")
            if re.search(r'File "[^"]*/m0serve/[^"]*"', block):
                found.append(f"a frame of ours in the application's traceback:\n{block}")
        if found:
            found.append(f"whole log of {' '.join(self.command)}:\n{text[-6000:]}")
        return found


def tracebacks(text: str) -> list[tuple[str, str]]:
    """Every traceback in a log, with the line that names its exception; of a group, those of its members."""
    found = []
    lines = text.splitlines()
    for start, line in enumerate(lines):
        if not line.endswith("Traceback (most recent call last):") or "Exception Group" in line:
            continue
        indent = re.match(r"[\s|+]*", line)[0]  # type: ignore[index]
        end = start + 1
        while end < len(lines) and (lines[end].startswith(indent + " ") or not lines[end].strip("| ")):
            end += 1
        last = lines[end] if end < len(lines) else ""
        found.append(("\n".join(lines[start : end + 1]), last))
    return found


@dataclass
class Servers:
    """Servers that several tests share: one per application, options and environment."""

    target: Target
    running: dict[tuple[object, ...], Server] = field(default_factory=dict)

    def get(self, app: str, *options: str, env: dict[str, str] | None = None, validated: bool = True) -> Server:
        """The server for this, started now if it is not there yet or has died (which the end reports)."""
        key = (app, options, tuple(sorted((env or {}).items())), validated)
        server = self.running.get(key)
        if server is None or server.process.poll() is not None:
            if server is not None:
                raise AssertionError(f"the shared server has died: exit code {server.wait()}\n{server.stderr}")
            server = self.running[key] = Server(self.target, app, *options, env=env, validated=validated)
        return server

    def close(self) -> list[str]:
        """Stop them all; return what was wrong with any."""
        found = []
        for (app, options, *_), server in self.running.items():
            try:
                found += [f"{app} {' '.join(options)} ({self.target.label}): {fault}" for fault in server.faults()]
            finally:
                server.kill()
        self.running.clear()
        return found
