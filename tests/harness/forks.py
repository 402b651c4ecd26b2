"""Servers that are forked from a process which has imported what all of them import: two thirds of a start's CPU.

A suite starts a thousand servers for each interpreter. Tests of the process itself start the command instead (marker
`own_process`), and so does whatever must be set before an interpreter begins.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

#: What every server imports.
SERVING = ("asyncio", "m0serve._init", "m0serve._load", "m0serve._server")

#: What applications import that are written for a framework, and the servers that ours is compared with. A framework is
#: configured by its application, so only what asks for no settings is here.
FRAMEWORKS = (
    *("fastapi.security", "fastapi.staticfiles", "starlette.middleware.gzip", "starlette.middleware.cors"),
    *("starlette.middleware.sessions", "starlette.templating", "multipart", "httpx"),
    *("django.core.asgi", "django.core.wsgi", "django.db", "django.forms", "django.template", "django.urls"),
    *("flask", "httpbin", "uvicorn.protocols.http.httptools_impl", "gunicorn.app.wsgiapp", "gunicorn.workers.gthread"),
)
_A_FRAMEWORK = re.compile(r"^(?:from|import) (?:fastapi|starlette|django|flask|httpbin)\b", re.MULTILINE)


def imports(file: Path) -> tuple[str, ...]:
    """What a server of the application in this file can have imported before it is asked for."""
    framework = file.exists() and _A_FRAMEWORK.search(file.read_text())
    return SERVING + FRAMEWORKS if framework else SERVING


class Forked:
    """Such a server, as `subprocess.Popen` has a child's interface."""

    def __init__(self, pid: int, out: int, err: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout = os.fdopen(out, errors="replace")
        self.stderr = os.fdopen(err, errors="replace")
        self._ended = threading.Event()
        # What has ended and was reaped has no descriptor any more, and its number may be another's.
        self._fd = -1
        with contextlib.suppress(ProcessLookupError):
            self._fd = os.pidfd_open(pid)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def end(self, code: int) -> None:
        """It has ended."""
        self.returncode = code
        self._ended.set()

    def poll(self) -> int | None:
        """The exit code, once it has ended; minus the signal's number if that ended it."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends a signal, if it still runs."""
        if self._fd >= 0 and self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._fd, number)

    def kill(self) -> None:
        """Ends it whatever it does."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The process with everything imported, and its children."""

    def __init__(self, environment: dict[str, str], modules: tuple[str, ...]) -> None:
        self._environment = environment
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        script = Path(__file__).with_name("preloaded.py")
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(script), str(theirs.fileno()), *modules],
                env={key: value for key, value in environment.items() if key != "PYTHONPATH"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )
        self._asking = threading.Lock()
        self._pids: queue.Queue[int] = queue.Queue()
        self._lock = threading.Lock()
        self._children: dict[int, Forked] = {}
        #: How children ended that are not among those yet.
        self._early: dict[int, int] = {}
        threading.Thread(target=self._read, daemon=True).start()

    def close(self) -> None:
        """Ends it. Its children go on, if there are any."""
        self._control.shutdown(socket.SHUT_WR)
        self._process.wait()

    def _read(self) -> None:
        while message := self._control.recv(1 << 12):
            said = json.loads(message)
            if "code" not in said:
                self._pids.put(said["pid"])
                continue
            with self._lock:
                if child := self._children.pop(said["pid"], None):
                    child.end(said["code"])
                else:
                    self._early[said["pid"]] = said["code"]

    def can_start(self, command: list[str], env: dict[str, str], pass_fds: tuple[int, ...]) -> bool:
        """Whether a process of this command does not know the difference. What an interpreter reads when it begins must
        be as it was here."""
        early = {key for key in env if key.startswith("PYTHON")} - {"PYTHONPATH"}
        as_here = all(self._environment.get(key) == env[key] for key in early)
        return sys.platform == "linux" and command[:2] == [sys.executable, "-m"] and as_here and not pass_fds

    def start(self, command: list[str], cwd: Path, env: dict[str, str]) -> Forked:
        """A process of `python -m MODULE ARGUMENT...`."""
        request = json.dumps({"command": command[2:], "cwd": str(cwd), "env": env}).encode()
        (out, to_out), (err, to_err) = os.pipe(), os.pipe()
        with self._asking:
            socket.send_fds(self._control, [request], [to_out, to_err])
            pid = self._pids.get(timeout=20)
        os.close(to_out)
        os.close(to_err)
        child = Forked(pid, out, err)
        with self._lock:
            if pid in self._early:
                child.end(self._early.pop(pid))
            else:
                self._children[pid] = child
        return child
