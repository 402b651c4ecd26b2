"""Notes what was framed on every connection, under its client's port; what a test compares with what it sent."""

from __future__ import annotations

import json
from typing import Any

_calls: dict[int, list[dict[str, Any]]] = {}


def _note(scope: Any) -> dict[str, Any]:
    call = {
        "method": scope["method"],
        "path": scope["raw_path"].decode("latin-1"),
        "query": scope["query_string"].decode("latin-1"),
        "version": scope["http_version"],
        "headers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in scope["headers"]],
        "body": "",
        "complete": False,
    }
    _calls.setdefault(scope["client"][1], []).append(call)
    return call


async def _lifespan(receive: Any, send: Any) -> None:
    for step in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{step}.complete"})


async def _answer(send: Any, body: bytes) -> None:
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def app(scope: Any, receive: Any, send: Any) -> None:
    """`/-/fence` answers, `/-/calls` answers with all notes and forgets them; all else is noted and answered empty."""
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
        return
    if scope["path"] == "/-/fence":
        await _answer(send, b"")
        return
    if scope["path"] == "/-/calls":
        body = json.dumps(_calls).encode()
        _calls.clear()
        await _answer(send, body)
        return
    call = _note(scope)
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        body += message["body"]
        if not message["more_body"]:
            call["complete"] = True
            break
    call["body"] = body.decode("latin-1")
    if call["complete"]:
        await _answer(send, b"")
