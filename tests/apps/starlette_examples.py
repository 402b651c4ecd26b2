"""What Starlette's documentation shows, one small thing a route."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypedDict

from starlette.applications import Starlette
from starlette.background import BackgroundTask, BackgroundTasks
from starlette.convertors import Convertor, register_url_convertor
from starlette.endpoints import HTTPEndpoint
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Host, Mount, Route, Router
from starlette.staticfiles import StaticFiles

STATIC = Path(__file__).parent / "static"
#: What background tasks and streams have left for a later request.
DONE: dict[str, str] = {}


class State(TypedDict):
    """What the lifespan gives every request."""

    numbers: list[int]
    name: str


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[State]:
    """A state for all requests."""
    yield {"numbers": [1, 2], "name": "from the lifespan"}


class Hex(Convertor[int]):
    """A path parameter of hexadecimal digits."""

    regex = "[0-9a-f]+"

    def convert(self, value: str) -> int:
        """Out of the path."""
        return int(value, 16)

    def to_string(self, value: int) -> str:
        """Into a path."""
        return f"{value:x}"


register_url_convertor("hex", Hex())


async def about(request: Request) -> Response:
    """What the request knows of itself."""
    url = request.url
    shown = {name: str(value) for name, value in request.path_params.items()}
    parts = {"scheme": url.scheme, "host": url.hostname, "path": url.path, "query": url.query}
    return JSONResponse({"method": request.method, "url": str(url), **parts, "params": shown})


async def query(request: Request) -> Response:
    """Query parameters, repeated ones too."""
    return JSONResponse({"multi": request.query_params.multi_items(), "last": dict(request.query_params)})


async def fields(request: Request) -> Response:
    """A header that is asked for in another case, and one that comes twice."""
    return JSONResponse({"one": request.headers.get("X-ONE"), "many": request.headers.getlist("x-many")})


async def reverse(request: Request) -> Response:
    """A URL made from a route's name."""
    return PlainTextResponse(str(request.url_for("hex", number=255)))


async def json_body(request: Request) -> Response:
    """JSON in and out; what is no JSON is a 400."""
    try:
        return JSONResponse({"got": await request.json()})
    except ValueError:
        raise HTTPException(400, "no JSON") from None


async def form(request: Request) -> Response:
    """A form, URL-encoded or multipart; files are read in pieces."""
    shown: list[Any] = []
    async with request.form(max_files=4) as form:
        for name, value in form.multi_items():
            if isinstance(value, str):
                shown.append([name, value])
                continue
            digest = hashlib.sha256()
            size = 0
            while piece := await value.read(65536):
                digest.update(piece)
                size += len(piece)
            shown.append([name, value.filename, value.content_type, size, digest.hexdigest()])
    return JSONResponse(shown)


async def cookies(request: Request) -> Response:
    """Cookies in, cookies out, one of them taken back."""
    response = JSONResponse(request.cookies)
    response.set_cookie("plain", "1")
    response.set_cookie("strict", "a b", max_age=60, path="/cookies", secure=True, httponly=True, samesite="strict")
    response.delete_cookie("old")
    return response


async def count(request: Request) -> Response:
    """A session."""
    request.session["count"] = request.session.get("count", 0) + 1
    return JSONResponse({"count": request.session["count"]})


async def forget(request: Request) -> Response:
    """The end of the session."""
    request.session.clear()
    return RedirectResponse(request.url_for("count"), status_code=303)


async def html(request: Request) -> Response:
    """A page."""
    return HTMLResponse("<h1>Grüße</h1>")


async def nothing(request: Request) -> Response:
    """No content."""
    return Response(status_code=204)


async def stream(request: Request) -> Response:
    """The body is counted as it comes; the answer is a stream too."""
    total = 0
    async for piece in request.stream():
        total += len(piece)

    async def words() -> AsyncIterator[str]:
        yield f"{total} bytes"
        yield " in all"

    return StreamingResponse(words(), media_type="text/plain", status_code=202)


async def events(request: Request) -> Response:
    """Server-sent events: three, or without end until the client goes."""
    endless = "endless" in request.query_params
    key = request.query_params.get("key", "")

    async def lines() -> AsyncIterator[str]:
        number = 0
        try:
            while endless or number < 3:
                number += 1
                yield f'id: {number}\nevent: tick\ndata: {{"number": {number}}}\n\n'
                await asyncio.sleep(0.005)
        finally:
            DONE[key] = "closed"

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"cache-control": "no-store"})


async def watch(request: Request) -> Response:
    """Asks whether the client is there until it is not."""
    key = request.query_params["key"]
    DONE[key] = "watching"
    while not await request.is_disconnected():  # noqa: ASYNC110 - there is nothing else to ask
        await asyncio.sleep(0.005)
    DONE[key] = "gone"
    return Response()


async def interrupted(request: Request) -> Response:
    """Reads a body whose client goes."""
    key = request.query_params["key"]
    DONE[key] = "reading"
    try:
        await request.body()
    except ClientDisconnect:
        DONE[key] = "gone"
    return Response()


async def work(request: Request) -> Response:
    """Two background tasks, one of them in a thread."""
    key = request.query_params["key"]
    tasks = BackgroundTasks()
    tasks.add_task(asyncio.sleep, 0)
    tasks.add_task(DONE.__setitem__, key, "worked")
    return JSONResponse({"status": "accepted"}, status_code=202, background=tasks)


async def done(request: Request) -> Response:
    """What has been done under a key."""
    return JSONResponse(DONE.get(request.query_params["key"]))


async def download(request: Request) -> Response:
    """A file under another name."""
    background = BackgroundTask(DONE.__setitem__, request.query_params.get("key", ""), "downloaded")
    return FileResponse(STATIC / "data.bin", filename="größe.bin", background=background)


async def state(request: Request) -> Response:
    """The lifespan's state."""
    return JSONResponse({"numbers": request.state.numbers, "name": request.state.name})


async def refuse(request: Request) -> Response:
    """An error with a header of its own."""
    raise HTTPException(402, "pay first", headers={"x-price": "1"})


async def fail(request: Request) -> Response:
    """An exception with a handler of its own."""
    raise LookupError("expected-by-the-test: not here")


async def broken(request: Request) -> Response:
    """An exception without one."""
    raise RuntimeError("expected-by-the-test")


def in_a_thread(request: Request) -> Response:
    """A plain function."""
    return PlainTextResponse(f"a plain function got {request.query_params.get('x')}")


class Thing(HTTPEndpoint):
    """A class for several methods."""

    async def get(self, request: Request) -> Response:
        """To look at it."""
        return PlainTextResponse("a thing")

    async def put(self, request: Request) -> Response:
        """To replace it."""
        return PlainTextResponse(f"put {len(await request.body())}")


async def not_found(request: Request, error: Exception) -> Response:
    """A page of our own."""
    return HTMLResponse(f"<p>nothing at {request.url.path}</p>", status_code=404)


async def lookup_failed(request: Request, error: Exception) -> Response:
    """For an exception of the application's own."""
    return JSONResponse({"error": str(error)}, status_code=410)


async def server_error(request: Request, error: Exception) -> Response:
    """What everything else becomes."""
    return PlainTextResponse("something went wrong", status_code=500)


class Around(BaseHTTPMiddleware):
    """Looks at the request, answers some itself, changes the response."""

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        """Around every request."""
        if request.headers.get("x-stop"):
            return PlainTextResponse("stopped", status_code=418)
        response = await call_next(request)
        response.headers["x-around"] = request.method
        return response


async def text(request: Request) -> Response:
    """Text that compresses well."""
    return PlainTextResponse("compress me " * 400)


async def text_stream(request: Request) -> Response:
    """The same in pieces."""

    async def pieces() -> AsyncIterator[str]:
        for _ in range(40):
            yield "compress me " * 10

    return StreamingResponse(pieces(), media_type="text/plain")


zipped = Starlette(
    routes=[Route("/text", text), Route("/stream", text_stream), Route("/file", download)],
    middleware=[Middleware(GZipMiddleware, minimum_size=500)],
)
shared = Starlette(
    routes=[Route("/", about, methods=["GET", "DELETE"])],
    middleware=[
        Middleware(
            CORSMiddleware,
            allow_origins=["https://example.org"],
            allow_methods=["GET", "DELETE"],
            allow_headers=["x-token"],
            allow_credentials=True,
            expose_headers=["x-around"],
            max_age=60,
        )
    ],
)
session = Starlette(
    routes=[Route("/count", count, name="count"), Route("/forget", forget, methods=["POST"])],
    middleware=[Middleware(SessionMiddleware, secret_key="only for tests", https_only=False)],
)
guarded = Starlette(
    routes=[Route("/", about)],
    middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=["testserver", "*.example"])],
)

pages = Starlette(
    routes=[
        Host("api.example", Router([Route("/", about)])),
        Route("/about", about, methods=["GET", "POST"]),
        Route("/users/{name}/{number:int}", about),
        Route("/files/{path:path}", about),
        Route("/prices/{price:float}", about),
        Route("/ids/{id:uuid}", about),
        Route("/hex/{number:hex}", about, name="hex"),
        Route("/query", query),
        Route("/fields", fields),
        Route("/reverse", reverse),
        Route("/json", json_body, methods=["POST"]),
        Route("/form", form, methods=["POST"]),
        Route("/cookies", cookies),
        Route("/html", html),
        Route("/nothing", nothing),
        Route("/stream", stream, methods=["POST"]),
        Route("/events", events),
        Route("/interrupted", interrupted, methods=["POST"]),
        Route("/work", work, methods=["POST"]),
        Route("/done", done),
        Route("/download", download),
        Route("/state", state),
        Route("/refuse", refuse),
        Route("/fail", fail),
        Route("/broken", broken),
        Route("/in-a-thread", in_a_thread),
        Route("/thing", Thing),
        Route("/slash/", about),
        Mount("/zipped", zipped),
        Mount("/shared", shared),
        Mount("/session", session),
        Mount("/guarded", guarded),
        Mount("/deep", routes=[Mount("/{level:int}", routes=[Route("/about", about)])]),
        Mount("/static", StaticFiles(directory=STATIC, html=True)),
    ],
    middleware=[Middleware(Around)],
    exception_handlers={404: not_found, LookupError: lookup_failed, 500: server_error},
)
# A middleware of that kind keeps what `is_disconnected` asks for from it.
app = Starlette(lifespan=lifespan, routes=[Route("/watch", watch, methods=["GET", "POST"]), Mount("/", pages)])
