"""The demo application that is served when no APP is named: plain ASGI, no dependencies."""

from __future__ import annotations

import asyncio
import json
import platform
from html import escape
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qs

from m0serve._types import ASGIApplication, Receive, Scope, Send

_LONGEST_WAIT_MS = 60_000
_CHUNKS = 5


class Described(Protocol):
    """What the demo wants to know of the server that serves it."""

    def resolved(self) -> dict[str, str]:
        """Backend, model, interface and loop."""

    def stats(self) -> dict[str, int]:
        """Counts."""


def make_app(server: Described) -> ASGIApplication:
    """The application, for the server that will serve it."""
    page = Path(__file__).with_name("demo.html").read_text(encoding="utf-8")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"the demo does not speak {scope['type']}")
        path = scope["path"].removeprefix(scope.get("root_path", "")) or "/"
        if path == "/":
            await _respond(send, 200, b"text/html; charset=utf-8", _fill(page, _facts(server)))
        elif path == "/json":
            await _respond(send, 200, b"application/json", json.dumps(_facts(server)).encode() + b"\n")
        elif path == "/echo":
            await _echo(scope, receive, send)
        elif path == "/slow":
            waited = _milliseconds(scope["query_string"])
            await asyncio.sleep(waited / 1000)
            await _respond(send, 200, b"text/plain; charset=utf-8", f"waited {waited} ms\n".encode())
        elif path == "/stream":
            await _stream(send)
        else:
            await _respond(send, 404, b"text/plain; charset=utf-8", b"not found\n")

    return app


def _facts(server: Described) -> dict[str, str | int]:
    resolved = server.resolved()
    return {
        "backend": resolved.get("backend", ""),
        "reason": resolved.get("reason", ""),
        "model": resolved.get("model", ""),
        "interface": resolved.get("interface", ""),
        "loop": resolved.get("loop", ""),
        "interpreter": f"{platform.python_implementation()} {platform.python_version()}",
        "requests": server.stats().get("requests", 0),
    }


def _fill(page: str, facts: dict[str, str | int]) -> bytes:
    for name, value in facts.items():
        page = page.replace("{{" + name + "}}", escape(str(value)))
    return page.encode()


async def _respond(send: Send, status: int, kind: bytes, body: bytes) -> None:
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Sends the request's body back piece by piece, with its type and, where it is known, its length."""
    kept = (b"content-type", b"content-length")
    headers = [(name, value) for name, value in scope["headers"] if name in kept]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return  # the client has gone: there is nobody to send it to
        more = message.get("more_body", False)
        await send({"type": "http.response.body", "body": message.get("body", b""), "more_body": more})


async def _stream(send: Send) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for number in range(1, _CHUNKS + 1):
        body = f"chunk {number} of {_CHUNKS}\n".encode()
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await asyncio.sleep(0.2)
    await send({"type": "http.response.body", "body": b""})


def _milliseconds(query: bytes) -> int:
    text = parse_qs(query.decode("latin-1")).get("ms", ["500"])[0]
    return min(int(text), _LONGEST_WAIT_MS) if text.isascii() and text.isdigit() and len(text) < 10 else 500
