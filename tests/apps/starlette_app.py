"""A Starlette application with BaseHTTPMiddleware, sessions, GZip and static files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

STATIC = Path(__file__).parent / "static"
SEEN: list[str] = []

Next = Callable[[Request], Awaitable[Response]]


class Stamp(BaseHTTPMiddleware):
    """Reads the body, passes on, adds a header."""

    async def dispatch(self, request: Request, call_next: Next) -> Response:
        """Around every request."""
        body = await request.body()
        response = await call_next(request)
        response.headers["x-body-length"] = str(len(body))
        return response


class Guard(BaseHTTPMiddleware):
    """Answers some requests itself."""

    async def dispatch(self, request: Request, call_next: Next) -> Response:
        """Around every request."""
        if request.url.path == "/forbidden":
            return PlainTextResponse("no", 403)
        request.state.guarded = True
        return await call_next(request)


async def home(request: Request) -> Response:
    """JSON about the request."""
    return JSONResponse({"path": request.url.path, "query": request.url.query, "guarded": request.state.guarded})


async def echo(request: Request) -> Response:
    """The body again."""
    return Response(await request.body(), media_type=request.headers.get("content-type"))


async def stream(request: Request) -> Response:
    """The body again, read as a stream and sent as one."""
    received = [piece async for piece in request.stream()]

    async def pieces() -> AsyncIterator[bytes]:
        yield b"["
        for piece in received:
            yield piece
        yield b"]"

    return StreamingResponse(pieces())


async def big(request: Request) -> Response:
    """Text that is worth compressing."""
    return PlainTextResponse("all work and no play\n" * 500)


async def background(request: Request) -> Response:
    """A background task behind the middlewares."""
    return PlainTextResponse("later", background=BackgroundTask(SEEN.append, "ran"))


async def seen(request: Request) -> Response:
    """What background tasks did."""
    return JSONResponse(SEEN)


async def file(request: Request) -> Response:
    """A file."""
    return FileResponse(STATIC / "data.bin", filename="data.bin")


async def broken(request: Request) -> Response:
    """Raises behind the middlewares."""
    raise RuntimeError("expected-by-the-test")


app = Starlette(
    routes=[
        Route("/", home),
        Route("/echo", echo, methods=["POST", "PUT"]),
        Route("/stream", stream, methods=["POST"]),
        Route("/background", background),
        Route("/seen", seen),
        Route("/file", file, methods=["GET", "HEAD"]),
        Route("/broken", broken),
        Mount("/zip", Starlette(routes=[Route("/big", big)], middleware=[Middleware(GZipMiddleware)])),
        Mount("/static", StaticFiles(directory=STATIC)),
    ],
    middleware=[Middleware(Stamp), Middleware(Guard)],
)
