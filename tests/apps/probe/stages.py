"""Handlers that fail, or lose their client, at a stage that the test names."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from .core import EXPECTED, ExpectedError, Receive, Scope, Send, body, gate, note, query, read, reply, route, start


class Outermost(BaseException):
    """What `except Exception` does not catch."""


class Unprintable(Exception):
    """Whose text cannot be had."""

    def __str__(self) -> str:
        raise ValueError("no text")


def chained(text: str) -> Exception:
    """An error with a cause and a context."""
    try:
        try:
            raise KeyError("the context of it")
        except KeyError:
            raise ValueError("the cause of it")  # noqa: B904 - the context is wanted
    except ValueError as cause:
        error = ExpectedError(text)
        error.__cause__ = cause
        return error


KINDS: dict[str, Callable[[str], BaseException]] = {
    "plain": ExpectedError,
    "outermost": Outermost,
    "group": lambda text: ExceptionGroup(text, [ValueError(text + "-a"), ExpectedError(text + "-b")]),
    "base-group": lambda text: BaseExceptionGroup(text, [Outermost(text + "-a"), ExpectedError(text + "-b")]),
    "generator-exit": GeneratorExit,
    "stop-iteration": StopIteration,
    "stop-async-iteration": StopAsyncIteration,
    "os-error": OSError,
    "timeout": TimeoutError,
    "chained": chained,
    "unprintable": Unprintable,
}


@route("fail")
async def fail(scope: Scope, receive: Receive, send: Send) -> None:
    """Raise `kind` at the stage `at`; the text of the error is `id`."""
    at, error = query(scope)["at"], KINDS[query(scope)["kind"]](f"{EXPECTED} {query(scope)['id']}")
    if at == "first":
        raise error
    if at == "between-receives":
        await receive()
        raise error
    await read(receive)
    if at == "after-reading":
        raise error
    if at == "in-child":
        await _in_child(error)
    if at == "in-finally":
        await _in_finally(error)
    await start(send)
    if at == "after-start":
        raise error
    await body(send, b"part", more=True)
    if at == "between-chunks":
        await asyncio.sleep(0)
        raise error
    await body(send, b"whole")
    if at == "in-background":
        await asyncio.sleep(0.001)
    raise error


async def _in_child(error: BaseException) -> None:
    async def child() -> None:
        await asyncio.sleep(0)
        raise error

    async with asyncio.TaskGroup() as group:
        group.create_task(child())
        await asyncio.sleep(5)


async def _in_finally(error: BaseException) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    try:
        await asyncio.sleep(5)
    finally:
        raise error


@route("left")
async def left(scope: Scope, receive: Receive, send: Send) -> None:
    """Get to the stage `at`, wait there for the client to leave, then try to go on sending."""
    at = query(scope)["at"]
    note(scope, "started")
    try:
        if at != "upload":
            await read(receive)
        if at in ("started", "chunk", "complete"):
            await start(send)
        if at in ("chunk", "complete"):
            await body(send, b"part", more=at == "chunk")
        note(scope, "there")
        while (message := await receive())["type"] == "http.request":
            assert at == "upload"
        note(scope, "message", message["type"])
        note(scope, "at", time.monotonic())
        note(scope, "again", (await receive())["type"])
        if at in ("upload", "uploaded"):
            await start(send)
            note(scope, "taken")
        for _ in range(500):
            await body(send, b"more", more=True)
            note(scope, "taken")
            await asyncio.sleep(0.002)
    except BaseException as error:
        note(scope, "raised", [kind.__name__ for kind in type(error).__mro__])
    finally:
        note(scope, "finally", time.monotonic())


@route("left-unheard")
async def left_unheard(scope: Scope, receive: Receive, send: Send) -> None:
    """Does not ask for the client: waits at the gate before (`at` = before) or behind (after) the response."""
    if query(scope)["at"] == "before":
        note(scope, "there")
        await gate(scope)
        await reply(send, b"nobody reads this")
    else:
        await reply(send, b"read this")
        note(scope, "there")
        await gate(scope)
        note(scope, "message", (await receive())["type"])
    note(scope, "finished")


@route("left-in-group")
async def left_in_group(scope: Scope, receive: Receive, send: Send) -> None:
    """Streams from a child task and does not catch what its send raises."""

    async def stream() -> None:
        while True:
            await body(send, b"chunk", more=True)
            await asyncio.sleep(0.002)

    await start(send)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(stream())
            await asyncio.sleep(30)
    finally:
        note(scope, "finally")


class FarewellError(Exception):
    """As a framework turns the OSError of a send into an exception of its own."""


@route("left-wrapped")
async def left_wrapped(scope: Scope, receive: Receive, send: Send) -> None:
    """Streams, and raises something else when that fails, as Starlette does; `own` fails while it clears up."""
    await start(send)
    try:
        while True:
            await body(send, b"chunk", more=True)
            await asyncio.sleep(0.002)
    except OSError as error:
        if "own" in query(scope):
            _go_wrong(query(scope)["own"])
        if scope["path"].endswith("/from"):
            raise FarewellError from error
        raise FarewellError from None
    finally:
        note(scope, "finally")


def _go_wrong(mark: str) -> None:
    raise ExpectedError(f"{EXPECTED} {mark}")


@route("generator")
async def generator(scope: Scope, receive: Receive, send: Send) -> None:
    """A stream from an asynchronous generator that is left at the first send that fails; how it ended is noted."""

    async def chunks() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"chunk"
                await asyncio.sleep(0.002)
        except BaseException as error:
            note(scope, "generator", type(error).__name__)
            raise
        finally:
            await asyncio.sleep(0)
            note(scope, "closed")

    await start(send)
    async for chunk in chunks():
        await body(send, chunk, more=True)


@route("swallows")
async def swallows(scope: Scope, receive: Receive, send: Send) -> None:
    """Does not care about being cancelled, and answers; or makes another error of it."""
    task = asyncio.current_task()
    assert task is not None
    note(scope, "started")
    if "self" in query(scope):
        asyncio.get_running_loop().call_soon(task.cancel)
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        note(scope, "cancelled")
        if "raises" in query(scope):
            raise ExpectedError(f"{EXPECTED}: {query(scope)['raises']}") from None
    await asyncio.sleep(0.01)
    await reply(send, b"all the same")
