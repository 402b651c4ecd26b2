"""Routing, notes and gates of the probe application, and the small things every handler uses.

A *note* is a fact that a handler leaves for the test to read (`/notes?key=K`); a *gate* holds a handler until the
test opens it (`/open?key=K`), so that a test decides what happens first instead of guessing at times.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from urllib.parse import parse_qs

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Handler = Callable[[Scope, Receive, Send], Awaitable[None]]

#: Carried by every exception that is raised on purpose.
EXPECTED = "expected-by-the-test"


class ExpectedError(Exception):
    """Raised on purpose."""


HANDLERS: dict[str, Handler] = {}
NOTES: dict[str, dict[str, Any]] = {}
GATES: dict[str, asyncio.Event] = {}
COUNTS = {"requests": 0}


def route(path: str) -> Callable[[Handler], Handler]:
    """Register a handler for a path (the first segment)."""

    def register(handler: Handler) -> Handler:
        assert path not in HANDLERS, path
        HANDLERS[path] = handler
        return handler

    return register


def query(scope: Scope) -> dict[str, str]:
    """The query's parameters, each once."""
    return {name: values[-1] for name, values in parse_qs(scope["query_string"].decode("latin-1")).items()}


def note(scope: Scope, name: str, value: Any = True) -> None:
    """Leave a fact for the test."""
    NOTES.setdefault(query(scope).get("key", "-"), {})[name] = value


def bump(scope: Scope, name: str, by: int = 1) -> None:
    """Count something for the test."""
    notes = NOTES.setdefault(query(scope).get("key", "-"), {})
    notes[name] = notes.get(name, 0) + by


async def gate(scope: Scope, suffix: str = "") -> None:
    """Wait until the test opens the gate of this request."""
    await GATES.setdefault(query(scope)["key"] + suffix, asyncio.Event()).wait()


async def start(send: Send, status: int = 200, headers: Iterable[Any] = ()) -> None:
    """Begin a response."""
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def body(send: Send, data: Any = b"", more: bool = False) -> None:
    """Send a piece of a body."""
    await send({"type": "http.response.body", "body": data, "more_body": more})


async def reply(send: Send, data: bytes, status: int = 200, *headers: tuple[bytes, bytes]) -> None:
    """Send a whole response."""
    await start(send, status, [(b"content-length", b"%d" % len(data)), *headers])
    await body(send, data)


async def reply_json(send: Send, value: Any) -> None:
    """Send a whole response of JSON."""
    await reply(send, json.dumps(value).encode(), 200, (b"content-type", b"application/json"))


async def read(receive: Receive) -> bytes:
    """The whole request body; raises ExpectedError when the client goes before its end."""
    data = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ExpectedError(f"{EXPECTED}: the client left")
        data += message.get("body", b"")
        if not message.get("more_body", False):
            return data


@route("notes")
async def _notes(scope: Scope, receive: Receive, send: Send) -> None:
    await reply_json(send, NOTES.get(query(scope)["key"], {}))


@route("open")
async def _open(scope: Scope, receive: Receive, send: Send) -> None:
    GATES.setdefault(query(scope)["key"], asyncio.Event()).set()
    await reply(send, b"open")


@route("count")
async def _count(scope: Scope, receive: Receive, send: Send) -> None:
    COUNTS["requests"] -= 1  # this one does not count
    await reply_json(send, COUNTS["requests"])


@route("hello")
async def _hello(scope: Scope, receive: Receive, send: Send) -> None:
    await reply(send, b"Hello, World!", 200, (b"content-type", b"text/plain"))


@route("echo")
async def _echo(scope: Scope, receive: Receive, send: Send) -> None:
    await reply(send, await read(receive), 200, (b"content-type", b"application/octet-stream"))
