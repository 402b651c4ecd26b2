"""Handlers whose messages are unusual, and allowed; or not, and refused."""

from __future__ import annotations

import asyncio
from collections import UserDict
from http import HTTPStatus
from pathlib import Path
from typing import Any

from .core import Receive, Scope, Send, body, note, query, read, route, start
from .errors import attempt


@route("mutated")
async def mutated(scope: Scope, receive: Receive, send: Send) -> None:
    """Everything that was sent is changed once its send has returned; the client must see none of that."""
    size = int(query(scope)["size"])
    headers = [[b"x-right", b"yes"]]
    message: dict[str, Any] = {"type": "http.response.start", "status": 200, "headers": headers}
    await send(message)
    headers[0][1] = b"no"
    headers.append([b"x-wrong", b"yes"])
    message["status"] = 500
    await asyncio.sleep(0)
    for more in (True, False):
        data = bytearray(b"r" * size)
        piece = {"type": "http.response.body", "body": data, "more_body": more}
        await send(piece)
        data[:] = b"w" * size
        piece["body"] = b"wrong"
        piece["more_body"] = not more
        await asyncio.sleep(0)


@route("headers-in-number")
async def headers_in_number(scope: Scope, receive: Receive, send: Send) -> None:
    """`count` headers with values of `size` bytes."""
    count, size = int(query(scope)["count"]), int(query(scope)["size"])
    await start(send, 200, [(b"x-%d" % number, b"v" * size) for number in range(count)])
    await body(send, b"ok")


class Message(dict):  # type: ignore[type-arg]
    """A dict with a class of its own."""


@route("odd-but-right")
async def odd_but_right(scope: Scope, receive: Receive, send: Send) -> None:
    """Keys that mean nothing here, classes of one's own, views of buffers."""
    size = int(query(scope)["size"])
    head = {
        "type": "http.response.start",
        "status": HTTPStatus.ACCEPTED,
        "reason": b"x",
        "trailers": False,
        "x": object(),
    }
    await send(Message(head, headers=((b"x-tuple", b"1"),)))
    await send(Message(type="http.response.body", body=bytearray(b"a" * size), more_body=1, x=object()))
    await send({"type": "http.response.body", "body": memoryview(b"b" * 2 * size)[::2], "more_body": True})
    await send({"type": "http.response.body", "body": memoryview(b"c" * 8 * size).cast("d"), "more_body": True})
    await send({"type": "http.response.body", "body": b"d", "more_body": None})


@route("mappings")
async def mappings(scope: Scope, receive: Receive, send: Send) -> None:
    """Messages that are no dicts, and one that is no mapping."""
    wrong: Any = [("type", "http.response.start"), ("status", 200)]
    await attempt(scope, "pairs", lambda: send(wrong))
    await send(UserDict(type="http.response.start", status=200, headers=[(b"content-length", b"4")]))
    await send(UserDict(type="http.response.body", body=b"fine"))


@route("not-offered")
async def not_offered(scope: Scope, receive: Receive, send: Send) -> None:
    """Messages of extensions that were not offered, at both stages; then a proper response."""
    messages: list[dict[str, Any]] = [
        {"type": "http.response.debug", "info": {}},
        {"type": "http.response.push", "path": "/x", "headers": []},
        {"type": "http.response.early_hint", "links": [b"</x>; rel=preload"]},
        {"type": "http.response.zerocopysend", "file": 0},
        {"type": "http.response.trailers", "headers": [(b"x", b"y")], "more_trailers": False},
        {"type": "websocket.accept"},
        {"type": "lifespan.startup.complete"},
    ]
    for message in messages:
        await attempt(scope, "before " + message["type"], lambda message=message: send(message))
    await start(send, 200, [(b"content-length", b"4")])
    for message in messages:
        await attempt(scope, "after " + message["type"], lambda message=message: send(message))
    await body(send, b"fine")


@route("trailers")
async def trailers(scope: Scope, receive: Receive, send: Send) -> None:
    """Announces trailers, which were not offered: the response is complete with its body."""
    await send({"type": "http.response.start", "status": 200, "headers": [], "trailers": True})
    await body(send, b"body")
    note(scope, "message", (await receive())["type"])


@route("file")
async def file(scope: Scope, receive: Receive, send: Send) -> None:
    """A file as a whole body or behind `before`; `size` is the declared length. What goes on meanwhile is noted."""
    asked = query(scope)
    await read(receive)
    waiting = asyncio.create_task(receive()) if "listen" in asked else None  # type: ignore[arg-type]
    await asyncio.sleep(0)
    await start(send, 200, [(b"content-length", asked["size"].encode())] if "size" in asked else [])
    if "before" in asked:
        await body(send, asked["before"].encode(), more=True)
    path: Any = Path(asked["path"]) if "pathlike" in asked else asked["path"]
    await attempt(scope, "file", lambda: send({"type": "http.response.pathsend", "path": path}))
    if "unlink" in asked:
        Path(asked["path"]).unlink()  # noqa: ASYNC240 - it is only a test's
    if "gone-on" in asked:
        await attempt(scope, "after", lambda: body(send, b"more"))
    if waiting is not None:
        note(scope, "message", (await asyncio.wait_for(waiting, 5))["type"])
    note(scope, "over")


@route("file-refused")
async def file_refused(scope: Scope, receive: Receive, send: Send) -> None:
    """A file that is not there, before and after the start, and then a response of another kind."""
    message = {"type": "http.response.pathsend", "path": query(scope)["path"]}
    await attempt(scope, "early", lambda: send(message))
    await start(send, 200, [(b"content-length", b"4")])
    await attempt(scope, "missing", lambda: send(message))
    await attempt(scope, "no path", lambda: send({"type": "http.response.pathsend"}))
    await attempt(scope, "number", lambda: send(message | {"path": 3.5}))
    await body(send, b"fine")


@route("unfit")
async def unfit(scope: Scope, receive: Receive, send: Send) -> None:
    """More body than was declared, while a task waits in receive."""
    await read(receive)
    waiting = asyncio.create_task(receive())  # type: ignore[arg-type]
    await start(send, 200, [(b"content-length", b"4")])
    await body(send, b"12", more=True)
    await attempt(scope, "unfit", lambda: body(send, b"345"))
    note(scope, "message", (await asyncio.wait_for(waiting, 5))["type"])


@route("bad-statuses")
async def bad_statuses(scope: Scope, receive: Receive, send: Send) -> None:
    """Statuses that no final response can have; then one that it can, though nobody knows it."""
    bad: list[Any] = [0, 99, 100, 101, 103, 199, 1000, -1, 1 << 70, True, None, "200", 200.0]
    for status in bad:
        await attempt(scope, repr(status), lambda status=status: start(send, status))
    await start(send, 799, [(b"Content-Length", b"4")])
    await body(send, b"fine")
