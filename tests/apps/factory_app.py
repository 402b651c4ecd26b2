"""An application that sets a task factory at start-up and counts what it makes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

MADE: set[int] = set()
COUNT = [0]


def factory(loop: asyncio.AbstractEventLoop, coro: Any, **keywords: Any) -> asyncio.Task[Any]:
    """Make an ordinary task, and remember it."""
    task = asyncio.Task(coro, loop=loop, **keywords)
    MADE.add(id(task))
    COUNT[0] += 1
    return task


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Say whether this request runs in a task of the factory."""
    if scope["type"] == "lifespan":
        await receive()
        asyncio.get_running_loop().set_task_factory(factory)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    shown = {"made_by_factory": id(asyncio.current_task()) in MADE, "count": COUNT[0]}
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps(shown).encode()})
