"""Handlers that show what a scope holds."""

from __future__ import annotations

import contextvars
from typing import Any

from .core import Receive, Scope, Send, gate, note, query, read, reply_json, route

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


def describe(value: Any) -> Any:
    """A JSON form that keeps types apart."""
    if isinstance(value, bytes):
        return {"bytes": value.decode("latin-1")}
    if isinstance(value, tuple):
        return {"tuple": [describe(item) for item in value]}
    if isinstance(value, list):
        return [describe(item) for item in value]
    if isinstance(value, dict):
        return {name: describe(item) for name, item in value.items()}
    if value is None or type(value) in (str, int, bool):
        return value
    return {"other": repr(type(value))}


@route("scope")
async def show_scope(scope: Scope, receive: Receive, send: Send) -> None:
    """The scope, and the type of the scope itself."""
    await reply_json(send, {"scope": describe(scope), "is_dict": type(scope) is dict})


@route("spoil")
async def spoil(scope: Scope, receive: Receive, send: Send) -> None:
    """Show the scope as it came, then change everything in it that can be changed."""
    shown = describe(scope)
    scope["headers"].append((b"spoilt", b"yes"))
    scope["asgi"]["spoilt"] = "yes"
    scope.setdefault("extensions", {})["spoilt"] = {"yes": "yes"}
    for extension in scope["extensions"].values():
        extension["spoilt"] = "yes"
    scope["state"]["spoilt"] = "yes"
    scope["spoilt"] = "yes"
    await reply_json(send, shown)


@route("state")
async def state(scope: Scope, receive: Receive, send: Send) -> None:
    """The state, the identity of what start-up put there, and a change to that shared object."""
    shared = scope["state"]["made_at_startup"]
    shown = {"keys": sorted(scope["state"]), "id": id(shared), "length": len(shared)}
    shared.append("seen")
    scope["state"]["private"] = True
    await reply_json(send, shown)


@route("context")
async def context(scope: Scope, receive: Receive, send: Send) -> None:
    """The context variable as it was, then set to `set` (and still so after waiting at the gate, with `gate=1`)."""
    before = VARIABLE.get()
    mine = query(scope)["set"]
    VARIABLE.set(mine)
    note(scope, "set-" + mine)
    if "gate" in query(scope):
        await gate(scope)
    await reply_json(send, {"before": before, "after": VARIABLE.get()})
    VARIABLE.set("late-" + mine)


@route("receive-all")
async def receive_all(scope: Scope, receive: Receive, send: Send) -> None:
    """The length of the body, and what its messages looked like."""
    shapes = set()
    total = 0
    while True:
        message = await receive()
        assert type(message) is dict, message
        shapes.add((message["type"], *sorted(name for name in message if name != "type")))
        assert type(message["body"]) is bytes, message
        assert type(message["more_body"]) is bool, message
        total += len(message["body"])
        if not message["more_body"]:
            break
    await reply_json(send, {"total": total, "shapes": sorted(map(list, shapes))})


@route("echo-headers")
async def echo_headers(scope: Scope, receive: Receive, send: Send) -> None:
    """Every request header that begins with x- or is set-cookie comes back as a response header, in order."""
    await read(receive)
    back = [(name, value) for name, value in scope["headers"] if name.startswith(b"x-") or name == b"set-cookie"]
    await send({"type": "http.response.start", "status": 200, "headers": [*back, (b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@route("callables")
async def callables(scope: Scope, receive: Receive, send: Send) -> None:
    """What the application was called with."""
    await reply_json(send, [receive.__qualname__, send.__qualname__, type(receive.__self__).__module__])  # type: ignore[attr-defined]
