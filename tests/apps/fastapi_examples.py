"""What FastAPI's documentation shows, one small thing a route."""

from __future__ import annotations

import asyncio
import datetime
import enum
import hashlib
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import (
    APIRouter,
    BackgroundTasks,
    Body,
    Cookie,
    Depends,
    FastAPI,
    File,
    Form,
    Header,
    HTTPException,
    Path,
    Query,
    Request,
    Response,
    Security,
    UploadFile,
)
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.middleware.gzip import GZipMiddleware
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, StreamingResponse
from fastapi.security import APIKeyHeader, HTTPBasic, HTTPBasicCredentials, OAuth2PasswordBearer
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, Field, field_validator

STATIC = FilePath(__file__).parent / "static"
#: In which order dependencies are closed and tasks are run, by the request's key.
ORDER: dict[str, list[str]] = {}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    """A state for all requests."""
    yield {"model": {"loaded": True}}


app = FastAPI(title="Examples", lifespan=lifespan)


class Size(enum.StrEnum):
    """A choice."""

    small = "small"
    large = "large"


class Maker(BaseModel):
    """Part of an item."""

    name: str
    founded: datetime.date | None = None


class Item(BaseModel):
    """An item."""

    name: str = Field(min_length=1, max_length=20)
    price: float = Field(gt=0)
    tags: set[str] = set()
    makers: list[Maker] = []

    @field_validator("name")
    @classmethod
    def no_spaces(cls, name: str) -> str:
        """A rule of its own."""
        if " " in name:
            raise ValueError("must not have spaces")
        return name


class Shown(BaseModel):
    """What is shown of an item."""

    name: str
    price: float


class TeapotError(Exception):
    """An error of the application's own."""


@app.exception_handler(TeapotError)
async def teapot(request: Request, error: TeapotError) -> JSONResponse:
    """What it becomes."""
    return JSONResponse({"message": f"{error} is a teapot"}, status_code=418)


@app.exception_handler(RequestValidationError)
async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
    """Validation errors, shortened."""
    return JSONResponse([[list(map(str, one["loc"])), one["type"]] for one in error.errors()], status_code=422)


@app.middleware("http")
async def stamp(request: Request, call_next: Any) -> Response:
    """A header on every response."""
    response: Response = await call_next(request)
    response.headers["x-stamp"] = request.url.path
    return response


app.add_middleware(CORSMiddleware, allow_origins=["*"], allow_methods=["*"], allow_headers=["*"])
app.add_middleware(GZipMiddleware, minimum_size=2000)


async def outer(key: str = "") -> AsyncIterator[str]:
    """A dependency that is closed last."""
    ORDER.setdefault(key, []).append("outer opens")
    try:
        yield "outer"
    finally:
        ORDER[key].append("outer closes")


def inner(above: Annotated[str, Depends(outer)], key: str = "") -> Iterator[str]:
    """A dependency in a thread, that is closed first and sees what the endpoint raised."""
    try:
        yield f"{above}, inner"
    except TeapotError:
        ORDER[key].append("inner saw it")
        raise
    finally:
        ORDER[key].append("inner closes")


@app.get("/depends")
async def depends(got: Annotated[str, Depends(inner)], key: str, tasks: BackgroundTasks) -> dict[str, str]:
    """Dependencies with `yield`, and a task behind the response."""
    ORDER[key].append("endpoint")
    tasks.add_task(ORDER[key].append, "task")
    return {"got": got}


@app.get("/depends-fails")
async def depends_fails(got: Annotated[str, Depends(inner)]) -> None:
    """The same with an error."""
    raise TeapotError(got)


@app.get("/order")
async def order(key: str) -> list[str] | None:
    """What happened, in order."""
    return ORDER.get(key)


@app.get("/users/me")
async def me() -> str:
    """Before the route with a parameter."""
    return "the current user"


@app.get("/users/{number}")
async def user(
    number: Annotated[int, Path(ge=1, le=100)],
    size: Size = Size.small,
    q: Annotated[list[str] | None, Query(alias="item-query", max_length=3)] = None,
    short: bool = False,
    since: datetime.datetime | None = None,
) -> dict[str, Any]:
    """Path and query parameters of all kinds."""
    return {"number": number, "size": size, "q": q, "short": short, "since": since}


@app.get("/files/{path:path}")
async def files(path: str) -> dict[str, str]:
    """A path within the path."""
    return {"path": path}


@app.post("/items", response_model=Shown, status_code=201)
async def create(item: Item, response: Response) -> Item:
    """A model in, part of it out."""
    response.headers["location"] = f"/items/{item.name}"
    return item


@app.put("/items/{key}")
async def replace(
    key: uuid.UUID, item: Item, importance: Annotated[int, Body()], q: str | None = None
) -> dict[str, Any]:
    """Several bodies, and a query."""
    return {"key": key, "item": item.model_dump(mode="json") | {"tags": sorted(item.tags)}, "more": [importance, q]}


@app.delete("/items/{name}", status_code=204)
async def delete(name: str) -> None:
    """No content."""
    if name == "kept":
        raise HTTPException(409, {"reason": "in use"}, headers={"x-why": "kept"})


@app.post("/login")
async def login(user: Annotated[str, Form()], password: Annotated[str, Form(min_length=3)]) -> dict[str, str]:
    """A form."""
    return {"user": user, "password": "*" * len(password)}


@app.post("/upload")
async def upload(
    big: UploadFile,
    parts: list[UploadFile],
    note: Annotated[str, Form()],
    small: Annotated[bytes | None, File()] = None,
) -> dict[str, Any]:
    """Files and fields."""
    digest = hashlib.sha256(await big.read()).hexdigest()
    names = [part.filename for part in parts]
    return {"size": big.size, "sha": digest, "names": names, "note": note, "small": small and len(small)}


@app.get("/headers")
async def headers(
    response: Response,
    user_agent: Annotated[str | None, Header()] = None,
    x_token: Annotated[list[str] | None, Header()] = None,
    ads: Annotated[str | None, Cookie()] = None,
) -> dict[str, Any]:
    """Headers and cookies in and out."""
    response.set_cookie("fresh", "yes", samesite="lax")
    response.headers["x-cat"] = "alone"
    return {"agent": user_agent, "token": x_token, "ads": ads}


basic, bearer, key_header = HTTPBasic(), OAuth2PasswordBearer(tokenUrl="token"), APIKeyHeader(name="x-key")


@app.get("/basic")
def who(given: Annotated[HTTPBasicCredentials, Depends(basic)]) -> dict[str, str]:
    """HTTP Basic."""
    return {"user": given.username}


@app.get("/bearer")
async def token(given: Annotated[str, Depends(bearer)]) -> dict[str, str]:
    """A bearer token."""
    return {"token": given}


@app.get("/key")
async def api_key(given: Annotated[str, Security(key_header)]) -> dict[str, str]:
    """A key in a header."""
    return {"key": given}


@app.get("/html", response_class=HTMLResponse)
def html() -> str:
    """A page, from a plain function."""
    return "<p>page</p>"


@app.get("/go", response_class=RedirectResponse, status_code=302)
async def go() -> str:
    """Elsewhere."""
    return "/users/me"


@app.get("/video")
def video() -> StreamingResponse:
    """A file as a stream, from a plain generator."""

    def pieces() -> Iterator[bytes]:
        with (STATIC / "data.bin").open("rb") as file:
            yield from iter(lambda: file.read(1000), b"")

    return StreamingResponse(pieces(), media_type="video/mp4")


@app.get("/file", response_class=FileResponse)
async def file() -> str:
    """A file."""
    return str(STATIC / "data.bin")


@app.get("/ticks")
async def ticks(request: Request) -> StreamingResponse:
    """Server-sent events that look for the client."""

    async def lines() -> AsyncIterator[str]:
        for number in range(3):
            if await request.is_disconnected():
                return
            yield f"data: {number}\n\n"
            await asyncio.sleep(0.002)

    return StreamingResponse(lines(), media_type="text/event-stream")


@app.get("/state")
async def state(request: Request) -> dict[str, Any]:
    """The lifespan's state."""
    return {"model": request.state.model}


@app.get("/long")
async def long() -> list[dict[str, Any]]:
    """Enough to be compressed."""
    return [{"number": number, "name": f"item {number}"} for number in range(200)]


router = APIRouter(prefix="/routed", tags=["routed"], dependencies=[Depends(outer)])


@router.get("/{name}")
async def routed(name: str) -> dict[str, str]:
    """On a router with a dependency of its own."""
    return {"name": name}


app.include_router(router)

sub = FastAPI(title="Below")


@sub.get("/where")
async def where(request: Request) -> dict[str, Any]:
    """Within a mounted application."""
    return {"root": request.scope["root_path"], "url": str(request.url), "docs": request.app.title}


app.mount("/below", sub)
app.mount("/static", StaticFiles(directory=STATIC))
