"""A Django project in one file, served through get_asgi_application(): sessions, CSRF, forms, streams, sync and async
views, middleware."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import django
from django import forms
from django.conf import settings

settings.configure(
    DEBUG=False,
    SECRET_KEY="only for tests",
    ALLOWED_HOSTS=["testserver"],
    ROOT_URLCONF=__name__,
    SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
    MIDDLEWARE=[
        "django.middleware.security.SecurityMiddleware",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.middleware.clickjacking.XFrameOptionsMiddleware",
    ],
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
    LOGGING_CONFIG=None,
    USE_TZ=True,
)
django.setup()

from django.core.asgi import get_asgi_application  # noqa: E402
from django.http import (  # noqa: E402
    FileResponse,
    HttpRequest,
    HttpResponse,
    HttpResponseRedirect,
    JsonResponse,
    StreamingHttpResponse,
)
from django.template import engines  # noqa: E402
from django.urls import path  # noqa: E402

PAGE = engines["django"].from_string(
    "<form method=post>{% csrf_token %}{{ form.as_p }}</form><p>{{ name }}</p>"  # what a form page is made of
)


class NameForm(forms.Form):
    """One field."""

    name = forms.CharField(max_length=20)


def form(request: HttpRequest) -> HttpResponse:
    """Shows a form; a valid POST goes into the session and redirects."""
    bound = NameForm(request.POST or None)
    if request.method == "POST" and bound.is_valid():
        request.session["name"] = bound.cleaned_data["name"]
        return HttpResponseRedirect("/form")
    return HttpResponse(PAGE.render({"form": bound, "name": request.session.get("name", "")}, request))


def counter(request: HttpRequest) -> HttpResponse:
    """Counts in the session."""
    request.session["count"] = request.session.get("count", 0) + 1
    return JsonResponse({"count": request.session["count"]})


def stream(request: HttpRequest) -> StreamingHttpResponse:
    """A stream from a plain iterator."""

    def rows() -> Iterator[str]:
        for number in range(10):
            yield f"row {number}\n"

    return StreamingHttpResponse(rows(), content_type="text/plain")


async def stream_async(request: HttpRequest) -> StreamingHttpResponse:
    """A stream from an asynchronous iterator."""

    async def rows() -> AsyncIterator[str]:
        for number in range(10):
            yield f"row {number}\n"
            await asyncio.sleep(0)

    return StreamingHttpResponse(rows(), content_type="text/plain")


async def asynchronous(request: HttpRequest) -> HttpResponse:
    """An asynchronous view."""
    await asyncio.sleep(0)
    return JsonResponse({"path": request.path, "query": request.GET.dict()})


def meta(request: HttpRequest) -> HttpResponse:
    """What Django made of the scope."""
    names = ["REQUEST_METHOD", "QUERY_STRING", "SCRIPT_NAME", "PATH_INFO", "CONTENT_TYPE", "CONTENT_LENGTH"]
    shown: dict[str, Any] = {name: request.META.get(name) for name in names}
    shown |= {name: value for name, value in request.META.items() if name.startswith("HTTP_")}
    return JsonResponse({"meta": shown, "host": request.get_host(), "secure": request.is_secure()})


def body(request: HttpRequest) -> HttpResponse:
    """A large body spools to disk."""
    return JsonResponse({"length": len(request.body)})


body.csrf_exempt = True  # type: ignore[attr-defined]


def file(request: HttpRequest) -> FileResponse:
    """This file."""
    return FileResponse(open(__file__, "rb"))


def broken(request: HttpRequest) -> HttpResponse:
    """Raises."""
    raise RuntimeError("expected-by-the-test")


urlpatterns = [
    path("form", form),
    path("counter", counter),
    path("stream", stream),
    path("stream-async", stream_async),
    path("async", asynchronous),
    path("meta", meta),
    path("body", body),
    path("file", file),
    path("broken", broken),
]

application = get_asgi_application()
