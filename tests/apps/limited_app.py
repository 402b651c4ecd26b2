"""An application in a process that may open few files: it lowers the limit at start-up."""

from __future__ import annotations

import resource
from typing import Any


async def app(scope: Any, receive: Any, send: Any) -> None:
    """One answer, or this file."""
    if scope["type"] == "lifespan":
        await receive()
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    if scope["path"] == "/file":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.pathsend", "path": __file__})
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"7")]})
    await send({"type": "http.response.body", "body": b"limited"})
