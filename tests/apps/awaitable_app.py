"""An application whose call returns awaitables of every kind but a coroutine, or none."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Generator
from typing import Any


async def respond(send: Any, text: bytes) -> None:
    """The response."""
    await asyncio.sleep(0)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(text))]})
    await send({"type": "http.response.body", "body": text})


class Awaitable:
    """Has `__await__` and nothing else."""

    def __init__(self, send: Any) -> None:
        self.send = send

    def __await__(self) -> Generator[Any, None, None]:
        return respond(self.send, b"awaitable").__await__()


@types.coroutine
def generator(send: Any) -> Generator[Any, None, None]:
    """A coroutine of the old kind: a flagged generator."""
    yield from respond(send, b"generator").__await__()


def app(scope: Any, receive: Any, send: Any) -> Any:
    """No coroutine function."""
    kind = scope["path"][1:]
    if kind == "raises":
        raise TypeError("expected-by-the-test")
    if kind in ("nothing", "number"):
        return {"nothing": None, "number": 7}[kind]
    if kind == "awaitable":
        return Awaitable(send)
    if kind == "future":
        return _future(send)
    if kind == "task":
        return asyncio.ensure_future(respond(send, b"task"))
    return generator(send)


def _future(send: Any) -> asyncio.Future[None]:
    future = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(respond(send, b"future"))
    task.add_done_callback(lambda _: future.set_result(None))
    return future
