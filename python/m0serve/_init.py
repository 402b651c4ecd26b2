"""Being PID 1 of a container: a small parent that passes signals on and reaps, and the server as its child.

A server that is PID 1 itself could only reap by guessing which children the application wants to wait for.
"""

from __future__ import annotations

import os
import signal

_PASSED_ON = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
_FROM_KERNEL = 0x80  # SI_KERNEL of sigaction(2): a terminal's, which the whole foreground group gets


def split_from_init() -> None:
    """As PID 1, returns in a child that is to be the server; the parent ends with the child's exit code."""
    if os.getpid() != 1 or not hasattr(signal, "sigwaitinfo"):
        return
    watched = {*_PASSED_ON, signal.SIGCHLD}
    # Blocked before the fork, so that no signal is lost between it and the first wait.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    while True:
        arrived = signal.sigwaitinfo(watched)
        if arrived.si_signo != signal.SIGCHLD:
            if arrived.si_code != _FROM_KERNEL:
                os.kill(child, arrived.si_signo)
            continue
        status = _reap(child)
        if status is not None:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _reap(child: int) -> int | None:
    """Collects every child that has ended; the status of ours when it is among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == child:
            found = status
