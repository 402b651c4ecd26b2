"""Handlers that once found a defect of the server; see test_regressions.py."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from asyncio import run_coroutine_threadsafe
from typing import Any
from urllib.parse import parse_qs

from asgiref.sync import async_to_sync, sync_to_async


async def reply(send: Any, body: bytes) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


async def upload(query: dict[str, str], receive: Any, send: Any) -> None:
    """Answers with the bytes and the messages that it took."""
    size = count = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, count, more = size + len(message["body"]), count + 1, message["more_body"]
        await asyncio.sleep(0)
    await reply(send, b"%d %d" % (size, count))


async def download(query: dict[str, str], receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(int(query["count"])):
        await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})
    await send({"type": "http.response.body"})


class Counted:
    """Counts how often something that is awaited has to wait."""

    def __init__(self, awaitable: Any) -> None:
        self.awaitable, self.waits = awaitable, 0

    def __await__(self) -> Any:
        for future in self.awaitable.__await__():
            self.waits += 1
            yield future


async def crowd(query: dict[str, str], receive: Any, send: Any) -> None:
    """Many tasks send at once, twice each; the last line says how often the unluckiest of them had to wait."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    most = 0

    async def one(number: int) -> None:
        nonlocal most
        for turn in range(2):
            body = b"%d %d " % (number, turn) + bytes(4000) + b"\n"
            sent = Counted(send({"type": "http.response.body", "body": body, "more_body": True}))
            await sent
            most = max(most, sent.waits)

    await asyncio.gather(*(one(number) for number in range(int(query["tasks"]))))
    await send({"type": "http.response.body", "body": b"%d" % most})


async def endless(query: dict[str, str], receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    try:
        while True:
            await send({"type": "http.response.body", "body": b"tick", "more_body": True})
            await asyncio.sleep(0.01)
    except OSError:
        print("the endless response has ended", file=sys.stderr)
        raise


async def block(query: dict[str, str], receive: Any, send: Any) -> None:
    time.sleep(float(query["seconds"]))  # noqa: ASYNC251 - the point
    await reply(send, b"blocked")


async def path(query: dict[str, str], receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.pathsend", "path": query["path"]})


async def cancel_itself(query: dict[str, str], receive: Any, send: Any) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def fork(query: dict[str, str], receive: Any, send: Any) -> None:
    """Forks; the child leaves in the way that is asked for, and its exit code is the answer."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        if query["how"] == "exit":
            sys.exit(5)
        if query["how"] == "wait":
            os.write(writer, b"!")
            time.sleep(30)  # noqa: ASYNC251 - this process serves nobody
        return  # as if it were the server
    if query["how"] == "wait":
        os.read(reader, 1)
        os.kill(child, signal.SIGTERM)
    os.close(reader)
    os.close(writer)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)  # noqa: ASYNC222 - does not block
        if done:
            await reply(send, b"%d" % os.waitstatus_to_exitcode(status))
            return
        await asyncio.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, 9)
    os.waitpid(child, 0)  # noqa: ASYNC222 - it is dead
    await reply(send, b"it did not end")


async def leave_a_child(query: dict[str, str], receive: Any, send: Any) -> None:
    """Forks a child that lives until it is killed, with all descriptors but those whose end is waited for."""
    child = os.fork()
    if child == 0:
        os.closerange(0, 3)
        while True:
            signal.pause()
    await reply(send, b"%d" % child)


async def stop_loop(query: dict[str, str], receive: Any, send: Any) -> None:
    asyncio.get_running_loop().stop()
    await reply(send, b"stopped")


async def cancel_all(query: dict[str, str], receive: Any, send: Any) -> None:
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await reply(send, b"cancelled")


async def read_nothing(query: dict[str, str], receive: Any, send: Any) -> None:
    """Blocks the loop's thread in a system call, for ever."""
    reader, _ = os.pipe()
    print("reading", file=sys.stderr)
    os.read(reader, 1)


async def other_loop(query: dict[str, str], receive: Any, send: Any) -> None:
    """Another loop of this thread has a signal handler; with it goes the process's wake-up descriptor."""
    loop = asyncio.new_event_loop()
    loop.add_signal_handler(signal.SIGUSR1, int)
    loop.close()
    await reply(send, b"closed")


async def alarm(query: dict[str, str], receive: Any, send: Any) -> None:
    """A signal comes while the loop waits, and its handler raises."""

    def ring(*_: object) -> None:
        raise ValueError("expected-by-the-test")

    signal.signal(signal.SIGALRM, ring)
    await reply(send, b"set")
    signal.setitimer(signal.ITIMER_REAL, 0.1)


async def late(query: dict[str, str], receive: Any, send: Any) -> None:
    """How long a short sleep was."""
    began = time.monotonic()
    await asyncio.sleep(float(query["after"]))
    await reply(send, b"%f" % (time.monotonic() - began))


async def last_words(query: dict[str, str], receive: Any, send: Any) -> None:
    """Says more, when it is cancelled, than finds room anywhere."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"x", "more_body": True})
    try:
        await asyncio.sleep(60)
    finally:
        for _ in range(2000):
            await send({"type": "http.response.body", "body": b"x", "more_body": True})


async def from_thread(query: dict[str, str], receive: Any, send: Any) -> None:
    """Synchronous code sends: it calls `send` on its own thread and has the loop await what that gives."""
    loop = asyncio.get_running_loop()
    by_loop = {"asgiref": async_to_sync(send), "asyncio": lambda it: run_coroutine_threadsafe(send(it), loop).result(9)}

    def view(say: Any) -> None:
        say({"type": "http.response.start", "status": 200, "headers": []})
        for number in range(5):
            say({"type": "http.response.body", "body": b"%d" % number * 100_000, "more_body": True})
        say({"type": "http.response.body"})

    await sync_to_async(view)(by_loop[query["by"]])


async def until_exit(query: dict[str, str], receive: Any, send: Any) -> None:
    """A stream of events as sse-starlette has them: it asks whom the signals go to whether the server stops."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"x", "more_body": True})
    while not signal.getsignal(signal.SIGTERM).__self__.should_exit:  # type: ignore[union-attr]  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    await send({"type": "http.response.body", "body": b"over"})


class Opaque(Exception):
    """Nobody is told what caused it."""

    @property
    def __cause__(self) -> Any:  # type: ignore[override]
        raise ValueError("opaque")


async def raise_opaque(query: dict[str, str], receive: Any, send: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        print("waiting", file=sys.stderr)
    raise Opaque


HANDLERS = {
    f"/{handler.__name__}": handler
    for handler in (
        *(upload, download, crowd, endless, block, path),
        *(cancel_itself, fork, leave_a_child, stop_loop, cancel_all),
        *(read_nothing, other_loop, alarm, late, last_words, from_thread, until_exit, raise_opaque),
    )
}


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    assert scope["type"] == "http", "no lifespan"
    query = {name: values[0] for name, values in parse_qs(scope["query_string"].decode()).items()}
    await HANDLERS[scope["path"]](query, receive, send)
