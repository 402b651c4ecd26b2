"""An application that keeps a ledger: which requests were dispatched to it, and which of them it answered to the end.

What the path says happens, mostly at a gate that one request opens for all. At its shutdown the ledger is written to
the file that LEDGER names, so that a test can hold it against what its clients got.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

Scope = dict[str, Any]

ENTERED: list[str] = []
ANSWERED: list[str] = []
BEHIND: list[str] = []
GATE = asyncio.Event()
THREAD_GATE = threading.Event()
BIG = 8 * 1024 * 1024


def view(request: Request) -> PlainTextResponse:
    """An endpoint that blocks its thread at the gate."""
    THREAD_GATE.wait()
    return PlainTextResponse(f"thread {request.url.query}")


threads = Starlette(routes=[Route("/thread", view)])


async def read(receive: Any) -> int:
    """The length of the request body."""
    length = 0
    while True:
        message = await receive()
        assert message["type"] == "http.request", message
        length += len(message["body"])
        if not message["more_body"]:
            return length


async def answer(send: Any, text: str) -> None:
    """A whole response."""
    headers = [(b"content-length", b"%d" % len(text)), (b"content-type", b"text/plain")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})


async def quick(name: str, receive: Any, send: Any) -> None:
    """At once."""
    await answer(send, f"quick {name}")


async def wait(name: str, receive: Any, send: Any) -> None:
    """At the gate."""
    await GATE.wait()
    await answer(send, f"wait {name}")


async def upload(name: str, receive: Any, send: Any) -> None:
    """When the body is there."""
    await answer(send, f"upload {name} {await read(receive)}")


async def expect(name: str, receive: Any, send: Any) -> None:
    """Asks for the body only at the gate."""
    await GATE.wait()
    await answer(send, f"expect {name} {await read(receive)}")


async def early(name: str, receive: Any, send: Any) -> None:
    """Answers without the body."""
    await answer(send, f"early {name}")


async def stream(name: str, receive: Any, send: Any) -> None:
    """A piece before the gate, three after it."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"stream ", "more_body": True})
    await GATE.wait()
    for piece in (name.encode(), b" to its", b" end"):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        await asyncio.sleep(0.01)
    await send({"type": "http.response.body", "body": b""})


async def endless(name: str, receive: Any, send: Any) -> None:
    """Pieces for ever."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send({"type": "http.response.body", "body": b"piece", "more_body": True})
        await asyncio.sleep(0.01)


async def behind(name: str, receive: Any, send: Any) -> None:
    """A whole response, and work behind it until the gate."""
    await answer(send, f"behind {name}")
    await GATE.wait()
    await asyncio.sleep(0.05)
    BEHIND.append(name)


async def big(name: str, receive: Any, send: Any) -> None:
    """More than the sockets hold, in one piece."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % BIG)]})
    await send({"type": "http.response.body", "body": name[:1].encode() * BIG})


async def file(name: str, receive: Any, send: Any) -> None:
    """A file of that size, which the server sends."""
    path = os.environ["BIG_FILE"]
    headers = [(b"content-length", b"%d" % BIG)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.pathsend", "path": path})


async def open_gate(name: str, receive: Any, send: Any) -> None:
    """Opens the gate when its body is complete."""
    await read(receive)
    GATE.set()
    THREAD_GATE.set()
    await answer(send, f"open-gate {name}")


async def entered(name: str, receive: Any, send: Any) -> None:
    """How many requests have been dispatched, this one not counted."""
    ENTERED.pop()
    await answer(send, str(len(ENTERED)))


HANDLERS = {
    handler.__name__.replace("_", "-"): handler
    for handler in (quick, wait, upload, expect, early, stream, endless, behind, big, file, open_gate, entered)
}


def write_ledger() -> None:
    """What was dispatched, what was answered, what work was done behind answers."""
    if path := os.environ.get("LEDGER"):
        Path(path).write_text(json.dumps({"entered": ENTERED, "answered": ANSWERED, "behind": BEHIND}))


async def lifespan(receive: Any, send: Any) -> None:
    """Writes the ledger at the end."""
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    write_ledger()
    await send({"type": "lifespan.shutdown.complete"})


async def app(scope: Scope, receive: Any, send: Any) -> None:
    """Does what the path says, for the name that the query is."""
    if scope["type"] == "lifespan":
        return await lifespan(receive, send)
    what, name = scope["path"][1:], scope["query_string"].decode()
    ENTERED.append(name)

    async def noting(message: Any) -> None:
        await send(message)
        if message["type"].endswith(("body", "pathsend")) and not message.get("more_body", False):
            ANSWERED.append(name)

    if what == "thread":
        return await threads(scope, receive, noting)
    if what == "entered":
        return await entered(name, receive, send)
    return await HANDLERS[what](name, receive, noting)
