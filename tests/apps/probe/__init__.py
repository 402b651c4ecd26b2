"""A raw ASGI application whose every path does one thing that a test asks about."""

from __future__ import annotations

import json
import os
from typing import Any

from . import errors, flow, messages, odd, scopes, stages, streams, tasks, threads, together  # noqa: F401
from .core import COUNTS, HANDLERS, Receive, Scope, Send, reply


async def _lifespan(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve the lifespan; what happened is appended to the file that LIFESPAN_LOG names."""

    def log(event: str) -> None:
        if path := os.environ.get("LIFESPAN_LOG"):
            with open(path, "a") as file:
                file.write(json.dumps({"event": event, "requests": COUNTS["requests"]}) + "\n")

    while True:
        message = await receive()
        log(message["type"])
        if message["type"] == "lifespan.startup":
            scope["state"]["made_at_startup"] = ["one object for all requests"]
            await send({"type": "lifespan.startup.complete"})
        else:
            await send({"type": "lifespan.shutdown.complete"})
            log("complete")
            return


async def app(scope: Scope, receive: Receive, send: Send) -> Any:
    """Call the handler that the first segment of the path names."""
    if scope["type"] == "lifespan":
        await _lifespan(scope, receive, send)
        return None
    assert scope["type"] == "http", scope["type"]
    COUNTS["requests"] += 1
    handler = HANDLERS.get(scope["path"].removeprefix(scope["root_path"]).split("/")[1] if "/" in scope["path"] else "")
    if handler is None:
        await reply(send, b"no such path", 404)
        return None
    return await handler(scope, receive, send)
