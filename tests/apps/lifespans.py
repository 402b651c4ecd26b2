"""Applications that differ in their lifespan."""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from starlette.applications import Starlette


async def serve(send: Any) -> None:
    """The one response."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"6")]})
    await send({"type": "http.response.body", "body": b"served"})


async def raises(scope: Any, receive: Any, send: Any) -> None:
    """Knows no lifespan and says so."""
    if scope["type"] != "http":
        raise NotImplementedError("expected-by-the-test: only http")
    await serve(send)


async def returns(scope: Any, receive: Any, send: Any) -> None:
    """Knows no lifespan and keeps silent."""
    if scope["type"] == "http":
        await serve(send)


async def asserts(scope: Any, receive: Any, send: Any) -> None:
    """Knows no lifespan and asserts so, after an await."""
    await asyncio.sleep(0)
    assert scope["type"] == "http"
    await serve(send)


async def breaks(scope: Any, receive: Any, send: Any) -> None:
    """Raises within its start-up, having heard of it."""
    if scope["type"] == "lifespan":
        await receive()
        raise RuntimeError("expected-by-the-test: half-way")
    await serve(send)


async def fails(scope: Any, receive: Any, send: Any) -> None:
    """Start-up fails with a message."""
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "the database is not there"})
        return
    await serve(send)


async def cancels(scope: Any, receive: Any, send: Any) -> None:
    """Cancels in its start-up whatever there is."""
    assert scope["type"] == "lifespan"
    for task in asyncio.all_tasks():
        task.cancel()
    await receive()


async def slow(scope: Any, receive: Any, send: Any) -> None:
    """Start-up takes a moment."""
    if scope["type"] == "lifespan":
        await receive()
        await asyncio.sleep(0.2)
        print("start-up is over", file=sys.stderr, flush=True)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    await serve(send)


async def shutdown_fails(scope: Any, receive: Any, send: Any) -> None:
    """Shutdown fails with a message."""
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.failed", "message": "the farewell failed\n"})
        return
    await serve(send)


async def leaves(scope: Any, receive: Any, send: Any) -> None:
    """Start-up completes, and the lifespan does not wait for shutdown."""
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        return
    await serve(send)


async def listens(scope: Any, receive: Any, send: Any) -> None:
    """Answers every message of its lifespan, and goes on listening after the shutdown."""
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"]
            print(f"heard {kind}", file=sys.stderr, flush=True)
            await send({"type": f"{kind}.complete"})
    await serve(send)


_VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("_VARIABLE", default="unset")


async def scoped(scope: Any, receive: Any, send: Any) -> None:
    """Keeps a task group, a cancel scope and a context variable from start-up to shutdown."""
    if scope["type"] == "lifespan":
        task = asyncio.current_task()
        await receive()
        _VARIABLE.set("set at start-up")
        with anyio.CancelScope():
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.sleep_forever)
                await send({"type": "lifespan.startup.complete"})
                await receive()
                group.cancel_scope.cancel()
        same = task is asyncio.current_task() and _VARIABLE.get() == "set at start-up"
        print(f"left the scope in the same task: {same}", file=sys.stderr, flush=True)
        await send({"type": "lifespan.shutdown.complete"})
        return
    await serve(send)


@asynccontextmanager
async def broken_lifespan(app: Starlette) -> AsyncIterator[None]:
    """Raises at start-up."""
    raise RuntimeError("expected-by-the-test: no database")
    yield


starlette_fails = Starlette(lifespan=broken_lifespan)
