"""An application that says something when the interpreter ends properly."""

from __future__ import annotations

import atexit
import sys
from typing import Any

atexit.register(lambda: print("atexit ran", file=sys.stderr, flush=True))


async def app(scope: Any, receive: Any, send: Any) -> None:
    """One answer."""
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"atexit"})
