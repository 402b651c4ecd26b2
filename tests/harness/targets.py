"""Which targets there are, and which of them this machine can run."""

from __future__ import annotations

import functools
import importlib.util
import subprocess
import sys

from .server import APPS, Target, environment

BASE = [Target(model=model, backend=backend) for model in ("pump", "inverted") for backend in ("io_uring", "epoll")]

#: For tests marked `uvloop`: the driver that goes through add_reader, on every backend, and the pump's.
UVLOOP = [
    Target(model="inverted", backend="io_uring", loop="uvloop"),
    Target(model="inverted", backend="epoll", loop="uvloop"),
    Target(model="pump", backend="epoll", loop="uvloop"),
]

#: For tests marked `wsgi`: a loop that changes threads needs a backend of readiness.
WSGI = [target for target in BASE if (target.model, target.backend) != ("inverted", "io_uring")]

UVICORN = [Target(server="uvicorn")]


@functools.cache
def missing(target: Target) -> str:
    """Why this machine or interpreter cannot run a target; empty when it can."""
    if target.server != "m0serve":
        return ""
    if target.loop == "uvloop" and importlib.util.find_spec("uvloop") is None:
        return "uvloop is not installed"
    command = [*target.command(), "--doctor", "probe:app"]
    done = subprocess.run(command, check=False, cwd=APPS, env=environment(), capture_output=True, text=True, timeout=30)
    if done.returncode == 0:
        return ""
    said = (done.stderr or done.stdout).strip()
    if done.returncode == 78:
        return f"{target.label} is not possible on this machine: {said}"
    raise AssertionError(f"--doctor failed with {done.returncode} on {sys.version}: {said}")
