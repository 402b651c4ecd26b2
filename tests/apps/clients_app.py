"""What the HTTP clients of the suite talk to: it answers with what it was sent, so that they can compare."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

STATIC = Path(__file__).parent / "static"


async def show(request: Request) -> Response:
    """Everything about a request: who asked, with what, and how long and of which digest the body was."""
    digest, size = hashlib.sha256(), 0
    async for piece in request.stream():
        digest.update(piece)
        size += len(piece)
    assert request.client is not None
    shown: dict[str, Any] = {
        "method": request.method,
        "path": request.url.path,
        "query": request.url.query,
        "version": request.scope["http_version"],
        "headers": dict(request.headers),
        "size": size,
        "sha": digest.hexdigest(),
        # The client's port names the connection.
        "port": request.client.port,
    }
    return JSONResponse(shown)


class Echo:
    """The body, each piece as it comes."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Without Starlette, whose streams read `receive` themselves under some servers."""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return
            more = message.get("more_body", False)
            await send({"type": "http.response.body", "body": message.get("body", b""), "more_body": more})


async def form(request: Request) -> Response:
    """A form's fields and files."""
    async with request.form() as form:
        shown = []
        for name, value in form.multi_items():
            if isinstance(value, str):
                shown.append([name, value])
            else:
                data = await value.read()
                shown.append([name, value.filename, len(data), hashlib.sha256(data).hexdigest()])
    return JSONResponse(shown)


async def stream(request: Request) -> Response:
    """`count` pieces of `size` bytes, `pause` seconds apart."""
    count, size = int(request.query_params["count"]), int(request.query_params["size"])
    pause = float(request.query_params.get("pause", "0"))

    async def pieces() -> AsyncIterator[bytes]:
        for number in range(count):
            yield bytes([65 + number % 26]) * size
            await asyncio.sleep(pause)

    return StreamingResponse(pieces(), media_type="application/octet-stream")


async def slow(request: Request) -> Response:
    """After `s` seconds."""
    await asyncio.sleep(float(request.query_params["s"]))
    return PlainTextResponse("at last")


async def compressed(request: Request) -> Response:
    """Compressed where that is accepted."""
    text = json.dumps([{"number": number} for number in range(2000)])
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(text, media_type="application/json")
    return Response(gzip.compress(text.encode()), media_type="application/json", headers={"content-encoding": "gzip"})


async def reject(request: Request) -> Response:
    """An answer that does not wait for the body."""
    return PlainTextResponse("too much for me", status_code=413)


async def redirect(request: Request) -> Response:
    """Elsewhere, the method kept."""
    return RedirectResponse("/show?redirected=yes", status_code=307)


async def cookie(request: Request) -> Response:
    """The cookies that came, and one more."""
    response = JSONResponse(request.cookies)
    response.set_cookie("seen", str(int(request.cookies.get("seen", "0")) + 1))
    return response


async def file(request: Request) -> Response:
    """A file."""
    return FileResponse(STATIC / "data.bin")


async def close(request: Request) -> Response:
    """The last answer on its connection."""
    return PlainTextResponse("closing", headers={"connection": "close"})


ANY = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PURGE"]

app = Starlette(
    routes=[
        Route("/show", show, methods=ANY),
        Route("/show/{more:path}", show, methods=ANY),
        Route("/echo", Echo()),
        Route("/form", form, methods=["POST"]),
        Route("/stream", stream),
        Route("/slow", slow),
        Route("/compressed", compressed),
        Route("/reject", reject, methods=["POST", "PUT"]),
        Route("/redirect", redirect, methods=["GET", "POST"]),
        Route("/cookie", cookie),
        Route("/file", file),
        Route("/close", close),
    ]
)
