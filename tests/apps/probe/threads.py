"""Handlers about threads beside the loop, and about what the process holds."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from holding import held

from .core import Receive, Scope, Send, note, query, reply_json, route

POOL = ThreadPoolExecutor(8, thread_name_prefix="probe")


@route("to-thread")
async def to_thread(scope: Scope, receive: Receive, send: Send) -> None:
    """Work in asyncio's default executor, then in one of the application's own."""
    name = await asyncio.to_thread(lambda: threading.current_thread().name)
    loop = asyncio.get_running_loop()
    other = await loop.run_in_executor(POOL, lambda: threading.current_thread().name)
    await reply_json(send, [name.split("_")[0], other.split("_")[0], threading.current_thread().name])


@route("executor-rate")
async def executor_rate(scope: Scope, receive: Receive, send: Send) -> None:
    """How many round trips through the executor `callers` callers make in `s` seconds, and how long each took."""
    loop = asyncio.get_running_loop()
    end = time.monotonic() + float(query(scope)["s"])
    took: list[float] = []

    async def caller() -> None:
        while (began := time.monotonic()) < end:
            await loop.run_in_executor(POOL, time.monotonic)
            took.append(time.monotonic() - began)

    note(scope, "started")
    await asyncio.gather(*[caller() for _ in range(int(query(scope)["callers"]))])
    took.sort()
    await reply_json(send, {"calls": len(took), "p99": took[len(took) * 99 // 100], "max": took[-1]})


@route("thread-progress")
async def thread_progress(scope: Scope, receive: Receive, send: Send) -> None:
    """A thread that computes for `s` seconds of its own time: the longest it was kept waiting for the interpreter."""

    def work() -> Any:
        gaps, last = [], time.monotonic()
        end = last + float(query(scope)["s"])
        rounds = 0
        while last < end:
            sum(range(200))
            now = time.monotonic()
            gaps.append(now - last)
            last = now
            rounds += 1
        return {"rounds": rounds, "longest": max(gaps)}

    note(scope, "started")
    await reply_json(send, await asyncio.to_thread(work))


@route("holdings")
async def holdings(scope: Scope, receive: Receive, send: Send) -> None:
    """What the process holds: Python objects after a full collection, references, threads, tasks, descriptors."""
    await reply_json(send, held() | {"tasks": len(asyncio.all_tasks())})


@route("orphan")
async def orphan(scope: Scope, receive: Receive, send: Send) -> None:
    """Start a process whose own child outlives it: process 1 inherits that child."""
    child = await asyncio.create_subprocess_exec("sh", "-c", "sleep 0.05 & exit 0")
    await reply_json(send, await child.wait())
