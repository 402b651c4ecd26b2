"""Applications of a process that may start hardly any thread: none by itself, and of the server's for views one."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from typing import Any, NoReturn

start = threading.Thread.start


def none_left(*_: object) -> NoReturn:
    """What the interpreter says at the limit."""
    raise RuntimeError("can't start new thread")


def start_one(thread: threading.Thread) -> None:
    """Starts the first for views."""
    if thread.name == "m0serve-worker-2":
        none_left()
    start(thread)


_thread.start_new_thread = none_left
threading.Thread.start = start_one  # type: ignore[method-assign]


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Says hello."""
    assert scope["type"] == "http", "no lifespan"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def view(environ: dict[str, Any], start_response: Callable[..., object]) -> list[bytes]:
    """Is never called."""
    start_response("200 OK", [])
    return [b"hello"]
