"""A FastAPI application as people write them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import httpx
from fastapi import BackgroundTasks, Depends, FastAPI, File, Form, HTTPException, Query, Request, Response, UploadFile
from fastapi.responses import PlainTextResponse, RedirectResponse, StreamingResponse
from pydantic import BaseModel, Field

DONE: list[str] = []
CLOSED: list[str] = []


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    """Gives the requests a state."""
    yield {"greeting": "hello from the lifespan"}


app = FastAPI(lifespan=lifespan)


class Item(BaseModel):
    """What is posted."""

    name: str = Field(min_length=1)
    price: float
    tags: list[str] = []


async def token(request: Request) -> AsyncIterator[str]:
    """A dependency that is closed after the response."""
    yield request.headers.get("x-token", "anonymous")
    CLOSED.append("token")


def blocking_dependency() -> Iterator[str]:
    """A dependency that runs in a thread."""
    yield threading.current_thread().name.split("-")[0]


@app.post("/items", status_code=201)
async def create(item: Item, who: Annotated[str, Depends(token)]) -> dict[str, Any]:
    """Validated JSON in, JSON out."""
    return {"item": item, "who": who, "total": item.price * 2}


@app.get("/items/{number}")
async def read(number: int, q: Annotated[list[str] | None, Query()] = None) -> dict[str, Any]:
    """Path and query parameters."""
    if number == 404:
        raise HTTPException(404, "no such item", headers={"x-reason": "missing"})
    return {"number": number, "q": q}


@app.get("/sync")
def sync(name: Annotated[str, Depends(blocking_dependency)]) -> dict[str, Any]:
    """Runs in a worker thread."""
    return {"worker": threading.current_thread() is not threading.main_thread(), "dependency": bool(name)}


@app.get("/block")
def block(s: float = 0.01) -> dict[str, int]:
    """Blocks a worker thread; how many there are."""
    time.sleep(s)
    return {"threads": threading.active_count()}


@app.get("/stream")
async def stream() -> StreamingResponse:
    """A streamed response."""

    async def lines() -> AsyncIterator[str]:
        for number in range(20):
            yield f"line {number}\n"
            await asyncio.sleep(0)

    return StreamingResponse(lines(), media_type="text/plain")


@app.get("/stream-sync")
async def stream_sync() -> StreamingResponse:
    """A streamed response from a plain generator, which Starlette runs in threads."""
    return StreamingResponse((f"block {number}\n" for number in range(5)), media_type="text/plain")


@app.post("/background")
async def background(tasks: BackgroundTasks, name: str) -> dict[str, str]:
    """A background task."""
    tasks.add_task(DONE.append, name)
    return {"queued": name}


@app.get("/background")
async def finished() -> dict[str, list[str]]:
    """What the background tasks have done."""
    return {"done": DONE, "closed": CLOSED[-1:]}


@app.get("/timeout")
async def timeout() -> dict[str, str]:
    """asyncio.timeout around something slow."""
    try:
        async with asyncio.timeout(0.02):
            await asyncio.sleep(10)
    except TimeoutError:
        return {"result": "timed out"}
    return {"result": "finished"}


@app.get("/itself")
async def itself(request: Request) -> dict[str, Any]:
    """Calls this server over HTTP with httpx, several calls at once."""
    host, port = request.scope["server"]
    async with httpx.AsyncClient(base_url=f"http://{host}:{port}", timeout=5) as client:
        answers = await asyncio.gather(*[client.get(f"/items/{number}", params={"q": "x"}) for number in range(5)])
        posted = await client.post("/items", json={"name": "n", "price": 1.5}, headers={"x-token": "inner"})
    return {"got": [answer.json() for answer in answers], "posted": posted.json()}


@app.post("/upload")
async def upload(file: Annotated[UploadFile, File()], note: Annotated[str, Form()]) -> dict[str, Any]:
    """A multipart form."""
    data = await file.read()
    return {"name": file.filename, "type": file.content_type, "size": len(data), "note": note}


@app.get("/state")
async def state(request: Request) -> dict[str, Any]:
    """What the lifespan gave."""
    return {"greeting": request.state.greeting}


@app.get("/headers")
async def headers(request: Request, response: Response) -> dict[str, Any]:
    """Request headers in, cookies out."""
    response.set_cookie("a", "1", httponly=True)
    response.set_cookie("b", "2", path="/b")
    response.headers["x-own"] = "värde".encode().decode("latin-1")
    return {"headers": request.headers.raw and [[k.decode(), v.decode("latin-1")] for k, v in request.headers.raw]}


@app.get("/redirect")
async def redirect() -> RedirectResponse:
    """A redirect."""
    return RedirectResponse("/items/1?q=a b")


@app.get("/plain", response_class=PlainTextResponse)
async def plain() -> str:
    """Text."""
    return "plain text"


@app.get("/broken")
async def broken() -> None:
    """Raises."""
    raise RuntimeError("expected-by-the-test")


@app.get("/broken-stream")
async def broken_stream() -> StreamingResponse:
    """Raises within the stream."""

    async def lines() -> AsyncIterator[str]:
        yield "one\n"
        await asyncio.sleep(0)
        raise RuntimeError("expected-by-the-test")

    return StreamingResponse(lines(), media_type="text/plain")


@app.delete("/items/{number}", status_code=204)
async def delete(number: int) -> None:
    """No content."""


@app.get("/subprocess")
async def subprocess() -> dict[str, str]:
    """A subprocess."""
    child = await asyncio.create_subprocess_exec("echo", "hello", stdout=asyncio.subprocess.PIPE)
    out, _ = await child.communicate()
    return {"out": out.decode()}
