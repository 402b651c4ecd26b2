"""Handlers about tasks, cancellation and what asynchronous libraries see, from the first step of a request on.

None of them awaits anything that really waits before it looks: that is the step in which a server that starts requests
in a way of its own is caught.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import anyio
import sniffio

from .core import Receive, Scope, Send, gate, note, query, reply_json, route

CHECKS: dict[str, Any] = {}


def check(function: Any) -> Any:
    """Register one check, by its name."""
    CHECKS[function.__name__.replace("_", "-")] = function
    return function


@route("task")
async def run_check(scope: Scope, receive: Receive, send: Send) -> None:
    """Run the check that `check` names; its result is the response."""
    await reply_json(send, await CHECKS[query(scope)["check"]](scope))


@check
async def current_task(scope: Scope) -> Any:
    """There is a task, it stays the same over awaits, it is among all_tasks(), and it is a Task."""
    first = asyncio.current_task()
    known = first in asyncio.all_tasks()
    await asyncio.sleep(0)
    second = asyncio.current_task()
    await asyncio.sleep(0.001)
    third = asyncio.current_task()
    return [isinstance(first, asyncio.Task), known, first is second is third, first in asyncio.all_tasks()]


@check
async def loop(scope: Scope) -> Any:
    """The running loop is the one that the task belongs to, and it runs."""
    running = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    return [running is task.get_loop(), running.is_running(), asyncio.get_event_loop() is running]


@check
async def timeout(scope: Scope) -> Any:
    """asyncio.timeout as the first thing, both ways."""
    async with asyncio.timeout(5):
        inside = await asyncio.sleep(0, "in time")
    try:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(5)
    except TimeoutError:
        task = asyncio.current_task()
        assert task is not None
        return [inside, "timed out", task.cancelling()]


@check
async def wait_for(scope: Scope) -> Any:
    """asyncio.wait_for as the first thing, both ways."""
    inside = await asyncio.wait_for(asyncio.sleep(0, "in time"), 5)
    try:
        await asyncio.wait_for(asyncio.Event().wait(), 0.01)
    except TimeoutError:
        return [inside, "timed out"]


@check
async def task_group(scope: Scope) -> Any:
    """A TaskGroup, one that succeeds and one whose child fails."""
    async with asyncio.TaskGroup() as group:
        results = [group.create_task(asyncio.sleep(0, number)) for number in range(3)]
    seen = [task.result() for task in results]
    try:
        async with asyncio.TaskGroup() as group:
            sibling = group.create_task(asyncio.sleep(5))
            group.create_task(_fail())
    except* ValueError:
        seen.append("failed")
    return [*seen, sibling.cancelled()]


async def _fail() -> None:
    await asyncio.sleep(0)
    raise ValueError("child")


@check
async def anyio_scopes(scope: Scope) -> Any:
    """anyio's cancel scopes and task groups."""
    with anyio.move_on_after(0.01) as cut:
        await anyio.sleep(5)
    done = []
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep, 0)
        group.start_soon(anyio.sleep, 5)
        done.append("cancelling")
        group.cancel_scope.cancel()
    try:
        with anyio.fail_after(0.01):
            await anyio.sleep(5)
    except TimeoutError:
        done.append("timed out")
    return [cut.cancelled_caught, *done]


@check
async def anyio_current(scope: Scope) -> Any:
    """anyio knows the current task, and shields work."""
    info = anyio.get_current_task()
    task = asyncio.current_task()
    assert task is not None
    with anyio.CancelScope() as outer:
        outer.cancel()
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.001)
            shielded = True
        await anyio.sleep(5)
    return [info.id == id(task), shielded, outer.cancelled_caught]


@check
async def sniff(scope: Scope) -> Any:
    """sniffio names the library."""
    first = sniffio.current_async_library()
    await asyncio.sleep(0)
    return [first, sniffio.current_async_library()]


@check
async def cancel_self(scope: Scope) -> Any:
    """A request may cancel its own task and go on."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    try:
        await asyncio.sleep(5)
    except asyncio.CancelledError:
        return ["cancelled", task.uncancel()]


@check
async def from_thread(scope: Scope) -> Any:
    """A thread calls back into the loop while the request waits for it."""
    running = asyncio.get_running_loop()

    def work() -> str:
        return asyncio.run_coroutine_threadsafe(asyncio.sleep(0, "from the loop"), running).result(5)

    return await asyncio.to_thread(work)


@check
async def subprocess(scope: Scope) -> Any:
    """A subprocess is started, fed, read and reaped."""
    code = "import sys; print(sys.stdin.read().upper()); sys.exit(7)"
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", code, stdin=pipe, stdout=pipe)
    out, _ = await child.communicate(b"hello")
    return [out.decode().strip(), child.returncode]


@check
async def socket_stream(scope: Scope) -> Any:
    """Foreign descriptors: a server and a client on the application's own loop."""

    async def upper(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readline()).upper())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(upper, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"over the application's own socket\n")
    line = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    await writer.wait_closed()
    server.close()
    return line.decode()


@check
async def many_timers(scope: Scope) -> Any:
    """Timers fire in order and none too early."""
    running = asyncio.get_running_loop()
    began = running.time()
    fired: list[tuple[int, bool]] = []
    done = asyncio.Event()
    for ms in (30, 10, 20, 0, 40):
        running.call_later(ms / 1000, lambda ms=ms: fired.append((ms, running.time() - began >= ms / 1000 - 0.002)))
    running.call_later(0.06, done.set)
    await done.wait()
    return fired


@check
async def async_generator(scope: Scope) -> Any:
    """An asynchronous generator that is left early is closed by the loop's hooks."""
    closed = asyncio.Event()

    async def numbers() -> Any:
        try:
            while True:
                yield 1
                await asyncio.sleep(0)
        finally:
            closed.set()

    async for _ in numbers():
        break
    await asyncio.wait_for(closed.wait(), 5)
    return "closed"


TASKS: dict[str, list[int]] = {}


@route("task-identity")
async def task_identity(scope: Scope, receive: Receive, send: Send) -> None:
    """Two requests at once: each says which task it is, both wait for the gate."""
    name = query(scope)["name"]
    note(scope, name, id(asyncio.current_task()))
    await gate(scope)
    note(scope, name + " later", id(asyncio.current_task()))
    await reply_json(send, "ok")


@route("stray-task")
async def stray_task(scope: Scope, receive: Receive, send: Send) -> None:
    """A task that the request leaves behind runs on after the response."""

    async def left_behind() -> None:
        await gate(scope)
        note(scope, "ran")

    _STRAY.append(asyncio.create_task(left_behind()))
    await reply_json(send, "ok")


_STRAY: list[asyncio.Task[None]] = []
_BEGUN: list[Any] = []


@route("loose-ends")
async def loose_ends(scope: Scope, receive: Receive, send: Send) -> None:
    """A task that waits and an asynchronous generator that has begun outlive their request; both say how they end."""

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            print("the task was cancelled", file=sys.stderr, flush=True)
            raise

    async def numbers() -> Any:
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            print("the generator was closed", file=sys.stderr, flush=True)

    _STRAY.append(asyncio.create_task(waits()))
    _BEGUN.append(numbers())
    await anext(_BEGUN[-1])
    await reply_json(send, "ok")
