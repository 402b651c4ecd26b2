"""One server under measurement: started in a process group of its own, pinned, watched, and stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from .arms import Arm
from .client import get
from .processes import group_seconds, members, pin, stat

BENCH = Path(__file__).resolve().parent.parent
START_SECONDS = 20.0
STOP_SECONDS = 15.0


class ServerError(Exception):
    """A server did not start, or did not stop."""


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Server:
    """A running server. Figures are sums over its process group, so that helpers and workers count."""

    arm: Arm
    process: subprocess.Popen[bytes]
    port: int
    log: Path
    client: str | None
    """The CPUs of those who load it; None is wherever the kernel puts them."""

    def members(self) -> list[int]:
        """Process ids of the group."""
        return members(self.process.pid)

    def worker(self) -> int:
        """The process that serves: the group's busiest."""
        return max(self.members(), key=lambda pid: stat(pid)[0])

    def cpu_seconds(self) -> float:
        """User and system time of every thread so far."""
        return group_seconds(self.process.pid)

    def rss(self) -> int:
        """Resident bytes, from `smaps_rollup`: the count in `stat` lags by up to a few hundred KiB since Linux 6.2."""
        return sum(_resident(pid) for pid in self.members())

    def threads(self) -> int:
        """Threads of the process that serves."""
        return stat(self.worker())[1]

    def descriptors(self) -> int:
        """Open descriptors of the process that serves."""
        return len(os.listdir(f"/proc/{self.worker()}/fd"))

    def stop(self) -> None:
        """SIGTERM to its main process, then SIGKILL to the group."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                print(f"  note: {self.arm.name} did not end within {STOP_SECONDS:.0f} s of SIGTERM and was killed")
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def _resident(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Rss:"))


def _answers(port: int) -> bool:
    try:
        get(port, "/")
    except OSError:
        return False
    return True


def _wait_until_ready(server: Server) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            break
        said = not server.arm.ready_line or f":{server.port}".encode() in server.log.read_bytes()
        if said and _answers(server.port):
            return
        time.sleep(0.02)
    tail = server.log.read_text(errors="replace")[-2000:]
    server.stop()
    raise ServerError(f"{server.arm.name} did not become ready:\n{tail}")


@contextmanager
def serving(
    arm: Arm, python: str, app: str, scenario: str, cpus: str | None = "0", client: str | None = "1"
) -> Iterator[Server]:
    """Starts an arm on its CPUs and stops it at the end; `client` is where its load will run."""
    port = free_port()
    argv = [*pin(cpus), *arm.argv(python, app, port, scenario)]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                argv, cwd=BENCH, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        server = Server(arm, process, port, log, client)
        _wait_until_ready(server)
        try:
            yield server
        finally:
            server.stop()
