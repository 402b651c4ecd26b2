"""The applications that every arm serves. Each answers byte for byte the same under each server."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any

Scope = dict[str, Any]

TEXT = [(b"content-type", b"text/plain"), (b"content-length", b"13")]


async def lifespan(receive: Any, send: Any) -> None:
    """The whole of the lifespan protocol, for servers that insist."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def hello(scope: Scope, receive: Any, send: Any) -> None:
    """Thirteen bytes, nothing else: what a server costs."""
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
        return
    await send({"type": "http.response.start", "status": 200, "headers": TEXT})
    await send({"type": "http.response.body", "body": b"Hello, world!"})


async def _reply(send: Any, body: bytes, kind: bytes = b"application/json") -> None:
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _objects() -> int:
    for _ in range(3):
        gc.collect()
    return len(gc.get_objects())


async def mixed(scope: Scope, receive: Any, send: Any) -> None:
    """For the growth scenario: plain, echoed and streamed responses, and a count of live objects."""
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
    elif scope["path"] == "/objects":
        await _reply(send, str(_objects()).encode(), b"text/plain")
    elif scope["path"] == "/echo":
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        await _reply(send, body, b"application/octet-stream")
    elif scope["path"] == "/stream":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(4):
            await send({"type": "http.response.body", "body": b"x" * 100, "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b""})
    else:
        await _reply(send, b"Hello, world!", b"text/plain")


async def bodies(scope: Scope, receive: Any, send: Any) -> None:
    """Large bodies both ways: `/SIZE/COUNT` sends so many messages of that size, an upload is read to its end."""
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
    elif scope["method"] == "POST":
        while (await receive()).get("more_body", False):
            pass
        await _reply(send, b"read", b"text/plain")
    else:
        size, count = map(int, scope["path"].split("/")[1:])
        headers = [] if scope["query_string"] else [(b"content-length", str(size * count).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        message = b"x" * size
        for left in reversed(range(count)):
            await send({"type": "http.response.body", "body": message, "more_body": left > 0})


def _nothing() -> None:
    """What the executor callers run: the cost is all in getting there and back."""


async def _call(until: float, taken: list[float]) -> None:
    loop = asyncio.get_running_loop()
    while (start := time.perf_counter()) < until:
        await loop.run_in_executor(None, _nothing)
        taken.append(time.perf_counter() - start)


async def executor(scope: Scope, receive: Any, send: Any) -> None:
    """An async endpoint to saturate, and `/run?SECONDS`: eight callers of run_in_executor, timed from the inside."""
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
    elif scope["path"] == "/run":
        seconds = float(scope["query_string"])
        taken: list[float] = []
        start = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(_call(start + seconds, taken))
        wall = time.perf_counter() - start
        taken.sort()
        # Calls that were still in flight at the end count with the time they took, so starvation cannot hide.
        p50, p99 = (taken[int(len(taken) * part)] * 1e3 if taken else 0.0 for part in (0.50, 0.99))
        await _reply(send, f"{len(taken) / wall:.1f} {p50:.3f} {p99:.3f}".encode(), b"text/plain")
    else:
        await hello(scope, receive, send)
