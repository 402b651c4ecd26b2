"""Signals, and the end of a process that does not end by itself.

The first SIGTERM or SIGINT begins the drain, the second ends the process at once. Both are seen while the application
keeps the loop busy too: asyncio's own handlers would wait for the loop, so a handler of ours runs between two of the
application's instructions, beside the loop's.
"""

from __future__ import annotations

import _thread
import asyncio
import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any, NoReturn

from m0serve._native import LastWord
from m0serve._report import flush, say, say_plain

SIGNALS = (signal.SIGTERM, signal.SIGINT)
#: Seconds after which a thread that wants the GIL will not get it.
WITHOUT_GIL = 1.0


def leave_now(code: int) -> NoReturn:
    """Ends the process without finalizing an interpreter that still has application code in flight."""
    flush()
    os._exit(code)


def end_now(code: int, why: str) -> NoReturn:
    """Says why, and leaves."""
    say(why)
    leave_now(code)


def end_child(error: BaseException | None) -> NoReturn:
    """Ends a child that the application forked, and that came back to what its parent alone goes on with."""
    code = 1
    if isinstance(error, SystemExit | KeyboardInterrupt):
        code = code_of(error)
    else:
        say("a forked child came back to its parent's server, and ends; it must leave by os._exit")
    leave_now(code)


def code_of(failure: BaseException) -> int:
    """The exit code that an application asked for."""
    if isinstance(failure, KeyboardInterrupt):
        return 130
    code = failure.code if isinstance(failure, SystemExit) else 1
    if code is None or isinstance(code, int):
        return code or 0
    say_plain(str(code))
    return 1


@contextmanager
def ended_with_the_interpreter(stop: Callable[[], None], seconds: float) -> Iterator[None]:
    """While entered: the interpreter's end stops the server before, and waits for that so many seconds.

    What runs then is in daemon threads. Those are killed where they next want the interpreter, be it in a view, and
    unwinding them through the native code that called it would crash the process.
    """
    ended = threading.Event()
    mine = os.getpid()

    def end() -> None:
        if os.getpid() == mine:  # in a forked child there is nobody to wait for
            stop()
            ended.wait(seconds)

    atexit.register(end)
    try:
        yield
    finally:
        atexit.unregister(end)
        ended.set()


class Watchdog:
    """Ends the process some seconds after it was armed, unless it is disarmed before.

    It is threads only while it is armed: an idle server has none of this kind. Starting them takes no lock of
    Python's, so that a signal handler may do it. The first says what keeps the process; the other comes to its turn
    where the first does not, because native code keeps the GIL (a regular expression that backtracks without end, say).
    """

    def __init__(self) -> None:
        self._disarmed: _thread.LockType | None = None
        self._last = LastWord()

    def arm(self, seconds: float, code: int) -> None:
        """Starts the time; what was armed before stays as it was."""
        if self._disarmed is None:
            self._disarmed = _thread.allocate_lock()
            self._disarmed.acquire()
            try:
                _thread.start_new_thread(self._watch, (self._disarmed, seconds, code, threading.get_ident()))
                self._last.arm(seconds + WITHOUT_GIL, code)
            except (RuntimeError, OSError):  # from a signal handler it would be raised in the application's code
                say("warning: no thread could be started to end what outlasts the drain time-out")

    def disarm(self) -> None:
        """Stops the time."""
        if self._disarmed is not None and self._disarmed.locked():
            self._disarmed.release()
        self._last.disarm()

    @staticmethod
    def _watch(disarmed: _thread.LockType, seconds: float, code: int, watched: int) -> None:
        if not disarmed.acquire(timeout=seconds):
            end_now(code, f"the drain time-out is over and the process does not end; {_busy(watched)}")


def _busy(watched: int) -> str:
    """What keeps the process: threads that would be waited for, or else where the watched thread is."""
    names = [
        thread.name for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()
    ]
    frame = sys._current_frames().get(watched)
    # The interpreter's own wait for threads at its end is no news; the threads are.
    while frame is not None and frame.f_code.co_filename == threading.__file__:
        frame = frame.f_back
    place = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}" if frame is not None else ""
    parts = [f"the application is at {place}"] if place else []
    parts += [f"threads still run: {', '.join(names)}"] if names else []
    return " and ".join(parts) or "it is held up in native code"


def _nothing() -> None:
    """Python's own handlers have run by the time the loop calls this."""


class Signals:
    """While entered, on the main thread: the first signal calls ``first`` and, from the loop, ``wake``."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        first: Callable[[], None],
        wake: Callable[[], None],
        second: Callable[[int], None],
        stopping: Callable[[], bool],
    ) -> None:
        self._loop = loop
        self._first = first
        self._wake = wake
        self._second = second
        self._stopping = stopping
        self._seen = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> None:
        for number in SIGNALS:
            self._before[number] = signal.getsignal(number)
            # The loop's handler brings the wake-up descriptor, by which a waiting loop notices a signal. That is all: a
            # child has the same descriptor, and what it is told (by multiprocessing, to end) is not told to us.
            self._loop.add_signal_handler(number, _nothing)
            # Not restarted after it: a call in which the application blocks this thread (a child that is waited for, a
            # socket, a lock) would go on before Python's handlers have run, and no signal would end the process.
            signal.signal(number, self._handle)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            with suppress(AttributeError):  # rloop's fails so (0.5), and its close() lets go of them all the same
                self._loop.remove_signal_handler(number)
            # None: a handler that was not set from Python cannot be put back from Python.
            signal.signal(number, signal.SIG_DFL if before is None else before)

    @property
    def should_exit(self) -> bool:
        """Whether the server drains, by uvicorn's name: sse-starlette looks behind the handler of SIGTERM for an object
        that has it, and then ends its streams, which would hold a drain up for all of its time."""
        return self._stopping()

    def leave(self) -> None:
        """In a forked child: signals do to it what they did before, and wake nobody in its parent."""
        for number, before in self._before.items():
            with suppress(ValueError):  # not its main thread
                if signal.getsignal(number) == self._handle:
                    signal.set_wakeup_fd(-1)
                    signal.signal(number, signal.SIG_DFL if before is None else before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._seen:
            self._second(number)
        self._seen = True
        self._first()
        # Also without the wake-up descriptor: the process has one, gone once another loop of this thread had handlers.
        # Then a signal that comes on the loop's way into its wait is seen when something else ends that.
        with suppress(RuntimeError):  # closed meanwhile: it has stopped
            self._loop.call_soon_threadsafe(self._wake)
