"""Handlers about single messages: receive in all its states, headers of all shapes, files, odd bodies."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from .core import Receive, Scope, Send, body, bump, gate, note, query, read, reply, reply_json, route, start


@route("bare")
async def bare(scope: Scope, receive: Receive, send: Send) -> None:
    """Start without headers, one body: the server has to frame it."""
    await start(send)
    await body(send, query(scope).get("text", "").encode())


@route("status")
async def status(scope: Scope, receive: Receive, send: Send) -> None:
    """The status `code` with a body of four bytes whether or not it may have one."""
    code = int(query(scope)["code"])
    headers = [(b"content-length", b"4")] if "length" in query(scope) else []
    await start(send, code, headers)
    await body(send, b"body")


@route("own-headers")
async def own_headers(scope: Scope, receive: Receive, send: Send) -> None:
    """The application sets what the server would set."""
    own = [(b"date", b"Thu, 01 Jan 1970 00:00:00 GMT"), (b"server", b"mine"), (b"content-length", b"2")]
    await start(send, 200, own)
    await body(send, b"ok")


@route("own-framing")
async def own_framing(scope: Scope, receive: Receive, send: Send) -> None:
    """The application asks for chunked itself."""
    await start(send, 200, [(b"transfer-encoding", b"chunked")])
    await body(send, b"abc", more=True)
    await body(send, b"def")


@route("own-close")
async def own_close(scope: Scope, receive: Receive, send: Send) -> None:
    """The application asks to close."""
    await read(receive)
    await start(send, 200, [(b"content-length", b"2"), (b"connection", b"close")])
    await body(send, b"ok")


class _Pairs:
    """Iterable only once, and nothing but iterable."""

    def __iter__(self) -> Any:
        yield (b"x-one", b"1")
        yield [b"x-two", b"2"]
        yield (b"content-length", b"2")


@route("headers-of")
async def headers_of(scope: Scope, receive: Receive, send: Send) -> None:
    """The same headers in the shape that `shape` names."""
    pairs = [(b"x-one", b"1"), (b"x-two", b"2"), (b"content-length", b"2")]
    shapes: dict[str, Any] = {
        "list": pairs,
        "tuple": tuple(pairs),
        "lists": [list(pair) for pair in pairs],
        "generator": (pair for pair in pairs),
        "items": dict(pairs).items(),
        "map": map(tuple, pairs),
        "custom": _Pairs(),
    }
    await start(send, 200, shapes[query(scope)["shape"]])
    await body(send, b"ok")


@route("cookies")
async def cookies(scope: Scope, receive: Receive, send: Send) -> None:
    """Repeated and strange response headers."""
    headers = [
        (b"set-cookie", b"a=1; Path=/; Expires=Thu, 01 Jan 1970 00:00:00 GMT"),
        (b"x-odd", b"tab\there and  two spaces"),
        (b"set-cookie", b"b=\xe9\xff; HttpOnly"),
        (b"x-odd", b""),
        (b"content-length", b"0"),
    ]
    await start(send, 200, headers)
    await body(send)


@route("odd-body")
async def odd_body(scope: Scope, receive: Receive, send: Send) -> None:
    """Bodies that are bytes-like, and messages that leave out what has a default."""
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "body": bytearray(b"one "), "more_body": True})
    await send({"type": "http.response.body", "body": memoryview(b"xtwo x")[1:5], "more_body": True})
    await send({"type": "http.response.body", "more_body": True})
    await send({"type": "http.response.body", "body": b"three"})


@route("path-send")
async def path_send(scope: Scope, receive: Receive, send: Send) -> None:
    """A file, by its path."""
    assert "http.response.pathsend" in scope["extensions"]
    headers = [(b"content-length", query(scope)["size"].encode())] if "size" in query(scope) else []
    await start(send, 200, headers)
    await send({"type": "http.response.pathsend", "path": query(scope)["path"]})
    note(scope, "sent")


@route("receive-after-response")
async def receive_after_response(scope: Scope, receive: Receive, send: Send) -> None:
    """Read the body, answer, then receive twice."""
    await read(receive)
    await reply(send, b"fine")
    note(scope, "messages", [(await receive())["type"], (await receive())["type"]])


@route("receive-unread")
async def receive_unread(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer without reading, then receive."""
    await reply(send, b"fine")
    note(scope, "message", (await receive())["type"])


@route("receive-pending")
async def receive_pending(scope: Scope, receive: Receive, send: Send) -> None:
    """A task waits in receive while the response is sent: it must see the disconnect."""
    await read(receive)
    pending = asyncio.create_task(receive())  # type: ignore[arg-type]
    await asyncio.sleep(0)
    note(scope, "early", pending.done())
    await reply(send, b"fine")
    note(scope, "message", (await asyncio.wait_for(pending, 5))["type"])


@route("receive-task")
async def receive_task(scope: Scope, receive: Receive, send: Send) -> None:
    """receive() as a task from the first step on."""
    first = await asyncio.create_task(receive())  # type: ignore[arg-type]
    await reply_json(send, [first["type"], first["body"].decode(), first["more_body"]])


@route("receive-cancelled")
async def receive_cancelled(scope: Scope, receive: Receive, send: Send) -> None:
    """A receive that is cancelled while it waits raises CancelledError, and loses nothing that comes later."""
    task = asyncio.create_task(receive())  # type: ignore[arg-type]
    await asyncio.sleep(0.01)
    note(scope, "waiting", not task.done())
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        note(scope, "cancelled")
    try:
        await asyncio.wait_for(receive(), 0.02)
    except TimeoutError:
        note(scope, "timed out")
    await reply(send, await read(receive))


@route("wait-disconnect")
async def wait_disconnect(scope: Scope, receive: Receive, send: Send) -> None:
    """Read the body, then wait until the client has gone; twice, for it stays gone."""
    await read(receive)
    note(scope, "reading")
    message = await receive()
    note(scope, "message", message["type"])
    note(scope, "at", time.monotonic())
    note(scope, "again", (await receive())["type"])


@route("read-slowly")
async def read_slowly(scope: Scope, receive: Receive, send: Send) -> None:
    """Wait at the gate, then take the body message by message, counting."""
    note(scope, "started")
    await gate(scope)
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            note(scope, "disconnected", time.monotonic())
            return
        bump(scope, "bytes", len(message["body"]))
        bump(scope, "messages")
        if not message["more_body"]:
            note(scope, "complete")
            break
    await reply(send, b"read")


@route("answer-unread")
async def answer_unread(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer at once without looking at the body."""
    await reply(send, b"early")


@route("read-after-answer")
async def read_after_answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Begin to answer, then read the body and send it back."""
    await start(send)
    await body(send, b"begun:", more=True)
    data = await read(receive)
    await body(send, data)


@route("slow")
async def slow(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer after `s` seconds."""
    note(scope, "started", time.monotonic())
    await asyncio.sleep(float(query(scope)["s"]))
    note(scope, "finished", time.monotonic())
    await reply(send, b"slept")


@route("gated")
async def gated(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer when the gate opens."""
    note(scope, "started")
    await gate(scope)
    await reply(send, b"passed")
