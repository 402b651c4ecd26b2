"""Which targets there are, and which of them this machine can run."""

from __future__ import annotations

import functools
import importlib.util
import json
import subprocess
import sys

from .server import APPS, Target, environment

MODELS = ("pump", "inverted")
BACKENDS = ("io_uring", "epoll") if sys.platform == "linux" else ("kqueue",)

BASE = [Target(model=model, backend=backend) for model in MODELS for backend in BACKENDS]

#: For tests marked `uvloop`: the driver that goes through add_reader, on every backend, and the pump's.
UVLOOP = [Target(model="inverted", backend=backend, loop="uvloop") for backend in BACKENDS]
UVLOOP += [Target(model="pump", backend=BACKENDS[-1], loop="uvloop")]

#: On Linux kqueue is an emulation, and in wheels of the feature `emulated-kqueue` only: tests marked `kqueue` run over
#: it, and all of them where `--only` names it.
KQUEUE = [] if "kqueue" in BACKENDS else [Target(model=model, backend="kqueue") for model in MODELS]
KQUEUE_UVLOOP = [Target(model=target.model, backend="kqueue", loop="uvloop") for target in KQUEUE]

#: A loop that changes threads needs a backend of readiness.
READINESS = ("epoll", "kqueue")


def serves_wsgi(target: Target) -> bool:
    """Whether there is such a server for a WSGI application."""
    return target.model == "pump" or target.backend in READINESS


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
    if done.returncode == 78:
        return f"{target.label} is not possible here: {json.loads(done.stdout)['exit']['message']}"
    raise AssertionError(f"--doctor failed with {done.returncode} on {sys.version}: {done.stderr or done.stdout}")
