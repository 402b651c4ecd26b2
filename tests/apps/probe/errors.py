"""Handlers that break the protocol, raise or return too early."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from .core import EXPECTED, ExpectedError, Receive, Scope, Send, body, note, query, read, reply, route, start

HEADERS = [(b"content-length", b"10")]


@route("raise")
async def raises(scope: Scope, receive: Receive, send: Send) -> None:
    """Raise at the stage that `at` names; `id` tells one traceback from another."""
    stage = query(scope).get("at", "first")
    error = ExpectedError(f"{EXPECTED}: {stage} {query(scope).get('id', '')}")
    if stage == "first":
        raise error
    await asyncio.sleep(0)
    if stage == "before-start":
        raise error
    if stage == "after-read":
        await read(receive)
        raise error
    await start(send, 200, HEADERS if "length" in query(scope) else [])
    if stage == "after-start":
        raise error
    await body(send, b"12345", more=True)
    if stage == "in-body":
        raise error
    await body(send, b"67890", more=False)
    raise error


@route("return")
async def returns(scope: Scope, receive: Receive, send: Send) -> Any:
    """Return at the stage that `at` names."""
    stage = query(scope)["at"]
    if stage == "first":
        return
    await asyncio.sleep(0)
    if stage == "before-start":
        return
    await start(send, 200, HEADERS if "length" in query(scope) else [])
    if stage == "after-start":
        return
    await body(send, b"12345", more=True)


@route("cancelled")
async def cancelled(scope: Scope, receive: Receive, send: Send) -> None:
    """Raise CancelledError that nobody asked for, before the response or within it."""
    if query(scope)["at"] == "in-body":
        await start(send)
        await body(send, b"12345", more=True)
    raise asyncio.CancelledError(EXPECTED)


async def attempt(scope: Scope, name: str, call: Callable[[], Awaitable[Any]]) -> None:
    """Call, and note the name of what it raised."""
    try:
        await call()
    except BaseException as error:
        note(scope, name, [kind.__name__ for kind in type(error).__mro__])
    else:
        note(scope, name, [])


@route("body-first")
async def body_first(scope: Scope, receive: Receive, send: Send) -> None:
    """A body before the start; the response is sent properly afterwards."""
    await attempt(scope, "raised", lambda: body(send, b"too early"))
    await reply(send, b"fine")


@route("start-twice")
async def start_twice(scope: Scope, receive: Receive, send: Send) -> None:
    """A second start between start and body."""
    await start(send, 200, [(b"content-length", b"4")])
    await attempt(scope, "raised", lambda: start(send, 500, [(b"x-second", b"head")]))
    await body(send, b"fine")


@route("unknown-message")
async def unknown_message(scope: Scope, receive: Receive, send: Send) -> None:
    """A message of a type that does not exist, before the start and after it."""
    await attempt(scope, "before", lambda: send({"type": "http.response.nonsense"}))
    await start(send, 200, [(b"content-length", b"4")])
    await attempt(scope, "after", lambda: send({"type": "http.response.nonsense"}))
    await body(send, b"fine")


@route("after-end")
async def after_end(scope: Scope, receive: Receive, send: Send) -> None:
    """Messages after the end of the response."""
    await reply(send, b"fine")
    await attempt(scope, "body", lambda: body(send, b"leak"))
    await attempt(scope, "start", lambda: start(send, 200, []))
    note(scope, "done")


@route("bad-message")
async def bad_message(scope: Scope, receive: Receive, send: Send) -> None:
    """Messages of wrong types, each of which must raise, then a proper response."""
    bad: list[Any] = [
        {"type": "http.response.start", "status": 200, "headers": [("text", "text")]},
        {"type": "http.response.start", "status": 200, "headers": [(b"only-a-name",)]},
        {"type": "http.response.start", "status": 200, "headers": 7},
        {"type": "http.response.start", "status": "200"},
        {"type": "http.response.start"},
        {},
        None,
    ]
    for number, message in enumerate(bad):
        await attempt(scope, f"raised-{number}", lambda message=message: send(message))
    await start(send, 200, [(b"content-length", b"4")])
    await attempt(scope, "text-body", lambda: body(send, "text"))
    await body(send, b"fine")


@route("length")
async def length(scope: Scope, receive: Receive, send: Send) -> None:
    """Declare `declared` bytes, send `sent`, in pieces of 5."""
    declared, sent = query(scope)["declared"], int(query(scope)["sent"])
    await start(send, 200, [(b"content-length", declared.encode())])
    try:
        for _ in range(sent // 5):
            await body(send, b"abcde", more=True)
        await body(send)
    except BaseException as error:
        note(scope, "raised", type(error).__name__)
        raise ExpectedError(EXPECTED) from None


BAD_HEADERS: dict[str, tuple[bytes, bytes]] = {
    "value-crlf": (b"x-bad", b"a\r\nx-injected: yes"),
    "value-lf": (b"x-bad", b"a\nx-injected: yes"),
    "value-cr": (b"x-bad", b"a\rx-injected: yes"),
    "value-nul": (b"x-bad", b"a\0x-injected"),
    "name-crlf": (b"x-bad\r\nx-injected", b"yes"),
    "name-lf": (b"x-bad\nx-injected", b"yes"),
    "name-nul": (b"x-bad\0x-injected", b"yes"),
    "name-colon": (b"x-injected: yes\r\nx", b"yes"),
    "name-space": (b"x-injected ", b"yes"),
    "name-empty": (b"", b"x-injected"),
    "length-text": (b"content-length", b"x-injected"),
    "length-sign": (b"content-length", b"+4"),
}


@route("bad-header")
async def bad_header(scope: Scope, receive: Receive, send: Send) -> None:
    """A response with a header that must not reach the wire."""
    headers = [(b"x-good", b"yes"), BAD_HEADERS[query(scope)["which"]]]
    if not query(scope)["which"].startswith("length"):
        headers.append((b"content-length", b"4"))
    try:
        await start(send, 200, headers)
        await body(send, b"fine")
    except Exception as error:
        raise ExpectedError(f"{EXPECTED}: {error}") from None


@route("exit")
async def exits(scope: Scope, receive: Receive, send: Send) -> None:
    """Raise what stops a server."""
    raise {"system": SystemExit(3), "keyboard": KeyboardInterrupt()}[query(scope)["what"]]
