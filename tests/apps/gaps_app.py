"""An ASGI application that looks at the process it runs in: threads, signals, forks, frames."""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import gc
import json
import os
import signal
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

atexit.register(lambda: print("atexit ran", file=sys.stderr, flush=True))

API = ctypes.pythonapi
API.PyThreadState_Get.restype = ctypes.c_void_p
API.PyThreadState_GetID.argtypes = [ctypes.c_void_p]
API.PyThreadState_GetID.restype = ctypes.c_uint64
API.PyThreadState_Next.argtypes = [ctypes.c_void_p]
API.PyThreadState_Next.restype = ctypes.c_void_p
API.PyInterpreterState_Get.restype = ctypes.c_void_p
API.PyInterpreterState_ThreadHead.argtypes = [ctypes.c_void_p]
API.PyInterpreterState_ThreadHead.restype = ctypes.c_void_p

PENDING: weakref.WeakSet[asyncio.Future[bytes]] = weakref.WeakSet()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _states() -> int:
    """How many thread states the interpreter has: one for each thread that is attached to it or ever was."""
    count = 0
    state = API.PyInterpreterState_ThreadHead(API.PyInterpreterState_Get())
    while state:
        count += 1
        state = API.PyThreadState_Next(state)
    return count


def _next_state() -> int:
    """The number of a thread state that is made now. They are counted up, whoever makes them."""
    numbers: list[int] = []
    thread = threading.Thread(target=lambda: numbers.append(API.PyThreadState_GetID(API.PyThreadState_Get())))
    thread.start()
    thread.join()
    return numbers[0]


def _tasks() -> dict[str, dict[str, str]]:
    """The kernel's view of every thread: its name to the fields of its status."""
    found = {}
    for entry in os.scandir("/proc/self/task"):
        fields = dict(line.split(":\t", 1) for line in Path(entry.path, "status").read_text().splitlines())
        if not fields["Name"].startswith("iou-"):  # the kernel's own workers
            found[f"{fields['Name']} {entry.name}"] = fields
    return found


async def threads(query: dict[str, str]) -> Any:
    """Threads as the kernel, the interpreter and `threading` know them, and the number of the next thread state."""
    tasks = _tasks()
    return {
        "tasks": {name: fields["SigBlk"] for name, fields in tasks.items()},
        "states": _states(),
        "known": threading.active_count(),
        "next": _next_state(),
    }


async def eager(query: dict[str, str]) -> Any:
    """What the event loop is running while a request takes its first step."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "_run":
        frame = frame.f_back  # type: ignore[assignment]
    return repr(frame.f_locals["self"]) if frame is not None else ""


async def pending(query: dict[str, str]) -> Any:
    """Waits for something that nothing but this request holds."""
    future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    PENDING.add(future)
    return (await future).decode()


async def plain(query: dict[str, str]) -> Any:
    """Nothing."""


async def collect(query: dict[str, str]) -> Any:
    """Collects garbage, then ends what waits in `pending`; says how many there were."""
    gc.collect()
    gc.collect()
    count = len(PENDING)
    for future in list(PENDING):
        future.set_result(b"kept")
    return count


async def on_signal(query: dict[str, str]) -> Any:
    """Sets a handler of the loop, a handler of the interpreter, or a timer that interrupts every wait."""
    loop = asyncio.get_running_loop()
    if query["how"] == "loop":
        loop.add_signal_handler(signal.SIGUSR1, lambda: _say("SIGUSR1 in the loop"))
    elif query["how"] == "python":
        signal.signal(signal.SIGUSR2, lambda *_: _say("SIGUSR2 in the interpreter"))
    else:
        ticks: list[int] = []
        done = asyncio.Event()

        def tick(*_: object) -> None:
            if len(ticks) == 100:
                return  # it was on its way when the timer was stopped
            ticks.append(1)
            if len(ticks) == 100:
                signal.setitimer(signal.ITIMER_REAL, 0)
                loop.call_soon_threadsafe(done.set)

        signal.signal(signal.SIGALRM, tick)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        await asyncio.wait_for(done.wait(), 20)
        return len(ticks)
    return "set"


async def fork(query: dict[str, str]) -> Any:
    """Forks; the child ends at once, as a script ends, or after it has dropped everything it can."""
    child = os.fork()
    if child == 0:
        code = 9
        try:
            if query["how"] == "exit":
                code = 7
            elif query["how"] == "close":
                asyncio.get_running_loop().close()
            elif query["how"] == "collect":
                gc.collect()
                code = 7
        except RuntimeError:
            code = 7  # a running loop cannot be closed
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(await asyncio.to_thread(lambda: os.waitpid(child, 0)[1]))


async def process(query: dict[str, str]) -> Any:
    """A forked child of multiprocessing, which finalizes much of what it got from us."""
    import multiprocessing
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = multiprocessing.get_context("fork").Process(target=gc.collect)
        child.start()
    await asyncio.to_thread(child.join)
    return child.exitcode


async def view(query: dict[str, str]) -> Any:
    """A view in a thread that does not end."""
    await asyncio.to_thread(lambda: (_say("the view runs"), time.sleep(30)))


HANDLERS = {
    function.__name__.replace("_", "-"): function
    for function in (threads, eager, pending, plain, collect, on_signal, fork, process, view)
}


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Calls what the path names and answers its result as JSON."""
    assert scope["type"] == "http"
    query = {name: values[-1] for name, values in parse_qs(scope["query_string"].decode()).items()}
    result = json.dumps(await HANDLERS[scope["path"][1:]](query)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(result))]})
    await send({"type": "http.response.body", "body": result})
