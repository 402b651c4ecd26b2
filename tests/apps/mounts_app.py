"""Applications for one process, as people write them: `site` is Django over WSGI, `api` and `second` are FastAPI."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from wsgiref.validate import validator

import django
from django.conf import settings
from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse
from validator import Validator

settings.configure(
    DEBUG=False,
    SECRET_KEY="only for tests",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=["django.middleware.common.CommonMiddleware"],
    LOGGING_CONFIG=None,
    USE_TZ=True,
)
django.setup()

from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse  # noqa: E402
from django.shortcuts import redirect  # noqa: E402
from django.urls import path, re_path, reverse  # noqa: E402

#: What views and endpoints have begun to wait for, and the gates that they wait at.
begun: list[str] = []
gates: dict[str, threading.Event] = {}


# --- the site --------------------------------------------------------------------------------------------------------


def where(request: HttpRequest) -> JsonResponse:
    """The thread, whether a loop runs on it, and what Django makes of the prefix."""
    try:
        asyncio.get_running_loop()
        runs = True
    except RuntimeError:
        runs = False
    return JsonResponse(
        {
            "served_by": "site",
            "thread": threading.current_thread().name,
            "loop": runs,
            "script_name": request.META["SCRIPT_NAME"],
            "path_info": request.META["PATH_INFO"],
            "path": request.path,
            "reversed": reverse("named"),
            "absolute": request.build_absolute_uri(reverse("named")),
        }
    )


def anything(request: HttpRequest) -> JsonResponse:
    """Every path that nothing else has; but one is left to Django, which adds its slash."""
    return JsonResponse({"served_by": "site", "path_info": request.META["PATH_INFO"]})


def named(request: HttpRequest) -> HttpResponse:
    """Ends with a slash, which Django adds by a redirect."""
    return HttpResponse("named")


def go(request: HttpRequest) -> HttpResponse:
    """Redirects to a name."""
    return redirect("named")


def wait(request: HttpRequest, key: str) -> HttpResponse:
    """Keeps its thread until the gate opens."""
    begun.append(key)
    gates.setdefault(key, threading.Event()).wait(20)
    return HttpResponse("waited")


def open_gate(request: HttpRequest, key: str) -> HttpResponse:
    """Opens a gate."""
    gates.setdefault(key, threading.Event()).set()
    return HttpResponse("open")


def has_begun(request: HttpRequest) -> JsonResponse:
    """What waits or has waited."""
    return JsonResponse({"begun": begun})


def tiny(request: HttpRequest) -> StreamingHttpResponse:
    """More blocks than a thread's ring has room for, and each a single byte."""

    def blocks() -> Iterator[bytes]:
        for _ in range(5000):
            yield b"x"

    return StreamingHttpResponse(blocks(), content_type="text/plain")


def length(request: HttpRequest) -> JsonResponse:
    """Reads its body."""
    return JsonResponse({"length": len(request.body)})


def busy(request: HttpRequest) -> HttpResponse:
    """Computes for 20 ms."""
    until = time.perf_counter() + 0.02
    while time.perf_counter() < until:
        pass
    return HttpResponse("computed")


urlpatterns = [
    path("where", where),
    path("named/", named, name="named"),
    path("go", go),
    path("wait/<str:key>", wait),
    path("open/<str:key>", open_gate),
    path("begun", has_begun),
    path("tiny", tiny),
    path("length", length),
    path("busy", busy),
    re_path("^(?!named$)", anything),
]

_validated = validator(get_wsgi_application())


def site(environ: dict[str, Any], start_response: Any) -> Any:
    """Django with wsgiref's validator around it, which hides how many arguments it takes."""
    return _validated(environ, start_response)


# --- the API ---------------------------------------------------------------------------------------------------------


def lifespan_of(name: str) -> Any:
    """A lifespan that gives its requests a name."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        yield {"name": name}

    return lifespan


def make(name: str) -> FastAPI:
    """An application that knows its name."""
    app = FastAPI(lifespan=lifespan_of(name))

    @app.get("/where")
    async def where(request: Request) -> dict[str, Any]:
        return {
            "served_by": name,
            "thread": threading.current_thread().name,
            "loop": asyncio.get_running_loop().is_running(),
            "state": request.state.name,
            "root_path": request.scope["root_path"],
            "path": request.scope["path"],
            "raw_path": request.scope["raw_path"].decode(),
            "url": str(request.url),
            "url_for": str(request.url_for("read_item", number=7)),
        }

    @app.get("/items/{number}")
    async def read_item(number: int) -> dict[str, int]:
        return {"number": number}

    @app.get("/go")
    async def go(request: Request) -> RedirectResponse:
        return RedirectResponse(request.url_for("read_item", number=1))

    @app.get("/wait/{key}")
    async def wait(key: str) -> str:
        begun.append(key)
        while not gates.setdefault(key, threading.Event()).is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.005)  # opened on a view's thread
        return "waited"

    @app.post("/length")
    async def length(request: Request) -> dict[str, int]:
        return {"length": len(await request.body())}

    @app.get("/sync")
    def sync() -> str:
        return threading.current_thread().name

    @app.get("/")
    async def root() -> dict[str, str]:
        return {"served_by": name}

    return app


api = Validator(make("api"))
second = Validator(make("second"))
