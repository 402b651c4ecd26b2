"""The process that harness/forks.py starts: it imports what its servers import, and forks one for each request.

preloaded.py DESCRIPTOR MODULE...

The child that is to be a server leaves the loop below and goes on as `python -m` would, to the end of the interpreter.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
from typing import Any


def next_server(control: socket.socket) -> dict[str, Any] | None:
    """Returns a request, in the child that was forked for it; None in the parent when nobody asks any more."""
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes)
    while True:
        ready, _, _ = select.select([control, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            report_ends(control)
        if control not in ready:
            continue
        message, fds, _, _ = socket.recv_fds(control, 1 << 18, 2)
        if not message:
            return None
        if pid := os.fork():
            for fd in fds:
                os.close(fd)
            control.send(json.dumps({"pid": pid}).encode())
            continue
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, fd in enumerate(fds, start=1):
            os.dup2(fd, number)
        for fd in (*fds, woken, wakes, control.detach()):
            os.close(fd)
        request: dict[str, Any] = json.loads(message)
        return request


def report_ends(control: socket.socket) -> None:
    """Says of each child that has ended how it did."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            control.send(json.dumps({"pid": pid, "code": os.waitstatus_to_exitcode(status)}).encode())


def become(request: dict[str, Any], path: list[str]) -> None:
    """The life of a server, as `python -m MODULE ARGUMENT...` would begin it."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    found = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = [request["cwd"], *found, *path]
    module, *sys.argv[1:] = request["command"]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    descriptor, *modules = sys.argv[1:]
    for name in modules:
        importlib.import_module(name)
    assert threading.active_count() == 1, "a thread is not forked with the rest"
    gc.collect()
    gc.freeze()  # no collection in a child copies what it shares with this process
    if asked := next_server(socket.socket(fileno=int(descriptor))):
        become(asked, sys.path[1:])
