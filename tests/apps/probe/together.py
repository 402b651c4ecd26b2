"""Handlers in which several tasks receive and send, or receive and send are cut short by time-outs and scopes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from .core import Receive, Scope, Send, body, bump, gate, note, query, read, reply, reply_json, route, start


@route("two-receivers")
async def two_receivers(scope: Scope, receive: Receive, send: Send) -> None:
    """Two tasks take the body between them; then both wait while the response is sent."""
    taken: list[bytes] = []
    over = asyncio.Event()

    async def receiver() -> str:
        while (message := await receive())["type"] == "http.request":
            taken.append(message["body"])
            if not message["more_body"]:
                over.set()
        return str(message["type"])

    tasks = [asyncio.create_task(receiver()) for _ in range(2)]
    note(scope, "waiting")
    await over.wait()
    await reply_json(send, {"bytes": sum(map(len, taken)), "right": b"".join(taken).strip(b"u") == b""})
    note(scope, "ended", await asyncio.wait_for(asyncio.gather(*tasks), 5))


@route("many-senders")
async def many_senders(scope: Scope, receive: Receive, send: Send) -> None:
    """`tasks` tasks send `each` numbered lines of their own, all at once; some lines are larger than any buffer."""
    await start(send)
    size = int(query(scope).get("size", "20"))

    async def sender(name: int) -> None:
        for number in range(int(query(scope)["each"])):
            filling = b"%c" % (97 + name % 26) * (size if number % 3 else size * 7)
            await body(send, b"%d %d %s\n" % (name, number, filling), more=True)

    await asyncio.gather(*[asyncio.create_task(sender(name)) for name in range(int(query(scope)["tasks"]))])
    await body(send)


@route("another-task")
async def another_task(scope: Scope, receive: Receive, send: Send) -> None:
    """Everything is received and sent by a task that the request's own waits for."""

    async def work() -> None:
        await reply(send, await read(receive))

    await asyncio.create_task(work())


@route("polls")
async def polls(scope: Scope, receive: Receive, send: Send) -> None:
    """Look a thousand times whether the client is still there, as Starlette does: how many futures that has left."""

    def futures() -> int:
        return sum(isinstance(thing, asyncio.Future) for thing in gc.get_objects())

    await read(receive)
    before = futures()
    for _ in range(1000):
        with anyio.CancelScope() as cut:
            cut.cancel()
            await receive()
    await reply_json(send, futures() - before)


Cut = Callable[[Awaitable[Any], float], Awaitable[bool]]


async def by_wait_for(what: Awaitable[Any], seconds: float) -> bool:
    """Whether it was cut off."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(what, seconds)
        return False
    return True


async def by_timeout(what: Awaitable[Any], seconds: float) -> bool:
    """Whether it was cut off."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await what
        return False
    return True


async def by_scope(what: Awaitable[Any], seconds: float) -> bool:
    """Whether it was cut off."""
    with anyio.move_on_after(seconds) as scope:
        await what
    return scope.cancelled_caught


async def by_group(what: Awaitable[Any], seconds: float) -> bool:
    """Whether it was cut off: the group's other child fails."""

    async def fails() -> None:
        await asyncio.sleep(seconds)
        raise LookupError

    try:
        async with asyncio.TaskGroup() as group:
            failing = group.create_task(fails())
            await what
            failing.cancel()
    except ExceptionGroup:
        return True
    return False


async def by_cancel(what: Awaitable[Any], seconds: float) -> bool:
    """Whether it was cut off: as a task that is cancelled."""
    task = asyncio.ensure_future(what)
    done, _ = await asyncio.wait([task], timeout=seconds)
    if not done:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    return not done


CUTS: dict[str, Cut] = {
    "wait-for": by_wait_for,
    "timeout": by_timeout,
    "scope": by_scope,
    "group": by_group,
    "cancel": by_cancel,
}


@route("cut-receive")
async def cut_receive(scope: Scope, receive: Receive, send: Send) -> None:
    """A receive that is cut off before anything came, from the first step on and often; then the body is read."""
    cut = CUTS[query(scope)["by"]]
    cuts = [await cut(receive(), 0.005) for _ in range(5)]
    task = asyncio.current_task()
    assert task is not None
    note(scope, "cuts", [all(cuts), task.cancelling()])
    await reply(send, await read(receive))


@route("cut-race")
async def cut_race(scope: Scope, receive: Receive, send: Send) -> None:
    """Every receive is cancelled at once or a few steps later, while the body arrives; how much of it came through."""
    total = cut = 0
    more = True
    while more:
        task = asyncio.ensure_future(receive())
        for _ in range((total + cut) % 4):
            await asyncio.sleep(0)
        task.cancel()
        try:
            message = await task
        except asyncio.CancelledError:
            cut += 1
            continue
        assert message["type"] == "http.request", "the client left"
        total += len(message["body"])
        more = message["more_body"]
    await reply_json(send, [total, cut > 0])


@route("cut-send")
async def cut_send(scope: Scope, receive: Receive, send: Send) -> None:
    """Sends that are cut off while the client does not read; what was sent stays sent, in order."""
    cut = CUTS[query(scope)["by"]]
    pieces = [b"%d" % number * (1 << 20) for number in range(8)] + [b"end"]
    length = (b"content-length", b"%d" % sum(map(len, pieces)))
    await start(send, 200, [length] if "length" in query(scope) else [])
    cuts = [await cut(body(send, piece, more=True), 0.02) for piece in pieces[:-1]]
    note(scope, "cuts", cuts)
    await gate(scope)
    await body(send, pieces[-1])
    note(scope, "sent")


@route("listener")
async def listener(scope: Scope, receive: Receive, send: Send) -> None:
    """A stream beside a task that waits for the disconnect, each ending the other, as frameworks do it."""
    count = int(query(scope)["count"])

    async def stream() -> None:
        await start(send)
        number = 0
        while count < 0 or number < count:
            await body(send, b"chunk" * 2000, more=True)
            bump(scope, "sent")
            number += 1
        await body(send)
        note(scope, "streamed")

    async def listen() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        note(scope, "heard")

    try:
        async with anyio.create_task_group() as group:

            async def until_done(what: Callable[[], Awaitable[None]]) -> None:
                await what()
                group.cancel_scope.cancel()

            group.start_soon(until_done, listen)
            await until_done(stream)
    finally:
        note(scope, "over")


@route("left-behind")
async def left_behind(scope: Scope, receive: Receive, send: Send) -> None:
    """Returns in the middle of its response; what it leaves behind goes on with receive and send."""
    waiting = asyncio.create_task(receive())  # type: ignore[arg-type]
    await start(send)
    await body(send, b"part", more=True)

    async def later() -> None:
        note(scope, "message", (await asyncio.wait_for(waiting, 5))["type"])
        note(scope, "again", (await receive())["type"])
        try:
            await body(send, b"more", more=True)
        except BaseException as error:
            note(scope, "raised", [kind.__name__ for kind in type(error).__mro__])
        note(scope, "over")

    _TASKS.append(asyncio.create_task(later()))
    await asyncio.sleep(0.05)  # until it really waits


_TASKS: list[asyncio.Task[None]] = []


@route("through-thread")
async def through_thread(scope: Scope, receive: Receive, send: Send) -> None:
    """A thread receives and sends by way of the loop, as middlewares for synchronous code do."""

    def work() -> None:
        message = anyio.from_thread.run(receive)
        anyio.from_thread.run(start, send, 200)
        for number in range(3):
            anyio.from_thread.run(body, send, b"%d " % number, True)
        anyio.from_thread.run(send, {"type": "http.response.body", "body": message["body"]})

    await anyio.to_thread.run_sync(work)


@route("from-thread")
async def from_thread(scope: Scope, receive: Receive, send: Send) -> None:
    """receive and send are called on another thread: refused there, and of no consequence here."""

    def wrongly() -> list[str]:
        raised = []
        for call in (lambda: receive(), lambda: send({"type": "http.response.start", "status": 500})):
            try:
                call().send(None)  # type: ignore[attr-defined]
            except BaseException as error:
                raised.append(type(error).__name__)
        return raised

    await reply_json(send, await asyncio.to_thread(wrongly))
