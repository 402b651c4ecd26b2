"""An application that runs its loop again from within it (nest_asyncio)."""

from __future__ import annotations

import asyncio
from typing import Any

import nest_asyncio

RELEASE = asyncio.Event()


async def inner() -> bytes:
    """Something that really waits."""
    await asyncio.sleep(0.02)
    return b"nested"


async def wait() -> bytes:
    """Wait for what another request does."""
    await asyncio.wait_for(RELEASE.wait(), 5)
    RELEASE.clear()
    return b"was released"


async def app(scope: Any, receive: Any, send: Any) -> None:
    """`/nested` waits in a nested run; everything else answers at once."""
    if scope["type"] == "lifespan":
        await receive()
        nest_asyncio.apply()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    loop = asyncio.get_running_loop()
    text = b"plain"
    if scope["path"] == "/nested":
        text = loop.run_until_complete(inner())
    elif scope["path"] == "/nested-wait":
        text = loop.run_until_complete(wait())
    elif scope["path"] == "/release":
        RELEASE.set()
        text = b"released"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(text))]})
    await send({"type": "http.response.body", "body": text})
