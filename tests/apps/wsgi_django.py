"""A Django project with sync views: the admin, sessions and users in a database, forms, uploads, downloads, streams."""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import django
from django import forms
from django.conf import settings

settings.configure(
    DEBUG=False,
    SECRET_KEY="only for tests",
    ALLOWED_HOSTS=["testserver"],
    ROOT_URLCONF=__name__,
    INSTALLED_APPS=[
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.sessions",
        "django.contrib.messages",
    ],
    MIDDLEWARE=[
        "django.middleware.security.SecurityMiddleware",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.http.ConditionalGetMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
        "django.middleware.clickjacking.XFrameOptionsMiddleware",
    ],
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {
                "context_processors": [
                    "django.template.context_processors.request",
                    "django.contrib.auth.context_processors.auth",
                    "django.contrib.messages.context_processors.messages",
                ]
            },
        }
    ],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": os.path.join(os.environ.get("SITE_FOLDER") or tempfile.mkdtemp(), "db.sqlite3"),
            "CONN_MAX_AGE": None,
        }
    },
    # One that takes its time is not what is tested.
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    STATIC_URL="/static/",
    LOGGING_CONFIG=None,
    USE_TZ=True,
)
django.setup()

from django.contrib import admin, messages  # noqa: E402
from django.contrib.auth.models import User  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.db import connection  # noqa: E402
from django.db.backends.signals import connection_created  # noqa: E402
from django.http import (  # noqa: E402
    FileResponse,
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseRedirect,
    JsonResponse,
    StreamingHttpResponse,
)
from django.template import engines  # noqa: E402
from django.urls import include, path  # noqa: E402
from django.views.decorators.csrf import csrf_exempt, ensure_csrf_cookie  # noqa: E402

DATA = Path(__file__).parent / "static" / "data.bin"
#: Threads whose connection to the database was made, one entry for each time.
connections: list[str] = []

call_command("migrate", verbosity=0)
User.objects.create_superuser("ada", "ada@example.org", "lovelace")
connection.close()
connection_created.connect(
    lambda **_: connections.append(threading.current_thread().name), weak=False, dispatch_uid="count"
)


def about(request: HttpRequest, name: str, number: int) -> JsonResponse:
    return JsonResponse(
        {
            "name": name,
            "number": number,
            "query": dict(request.GET.lists()),
            "uri": request.build_absolute_uri(),
            "path": [request.path, request.path_info],
            "one": request.headers.get("X-One"),
            "remote": request.META["REMOTE_ADDR"],
        }
    )


def count(request: HttpRequest) -> HttpResponse:
    request.session["count"] = request.session.get("count", 0) + 1
    messages.info(request, f"seen {request.session['count']} times")
    return HttpResponse(", ".join(str(message) for message in messages.get_messages(request)))


class Form(forms.Form):
    """With a file."""

    name = forms.CharField(max_length=10)
    file = forms.FileField(required=False)


@ensure_csrf_cookie
def form(request: HttpRequest) -> HttpResponse:
    bound = Form(request.POST, request.FILES) if request.method == "POST" else Form()
    if request.method == "POST" and bound.is_valid():
        uploaded = bound.cleaned_data["file"]
        shown = [uploaded.name, uploaded.size, digest(uploaded.chunks())] if uploaded else []
        return JsonResponse({"name": bound.cleaned_data["name"], "file": shown})
    page = engines["django"].from_string("<form method=post>{% csrf_token %}{{ form }}</form>")
    return HttpResponse(page.render({"form": bound}, request), status=400 if bound.errors else 200)


def digest(blocks: Any) -> list[Any]:
    total, hashed = 0, hashlib.sha256()
    for block in blocks:
        total += len(block)
        hashed.update(block)
    return [total, hashed.hexdigest()]


@csrf_exempt
def hash_body(request: HttpRequest) -> JsonResponse:
    return JsonResponse(digest(iter(lambda: request.read(65536), b"")), safe=False)


@csrf_exempt
def body(request: HttpRequest) -> HttpResponse:
    return HttpResponse(request.body, content_type="application/octet-stream")


def download(request: HttpRequest) -> FileResponse:
    return FileResponse(DATA.open("rb"), as_attachment=True, filename="größe.bin")


def stream(request: HttpRequest) -> StreamingHttpResponse:
    def lines() -> Iterator[str]:
        for number in range(5):
            yield f"{number} of {request.GET['name']}\n"

    return StreamingHttpResponse(lines(), content_type="text/plain")


def cookies(request: HttpRequest) -> HttpResponse:
    response = JsonResponse(request.COOKIES)
    response.set_cookie("own", "a b;c", max_age=60, path="/x", httponly=True, samesite="Lax")
    response.delete_cookie("old")
    return response


def go(request: HttpRequest, code: int) -> HttpResponse:
    return HttpResponseRedirect("/elsewhere?a=b", status=code)


def fail(request: HttpRequest, how: str) -> HttpResponse:
    if how == "missing":
        raise Http404("nothing there")
    if how == "denied":
        return HttpResponse("no", status=403, reason="Not For You")
    raise RuntimeError("expected-by-the-test")


def nothing(request: HttpRequest) -> HttpResponse:
    return HttpResponse(status=204)


def big(request: HttpRequest) -> HttpResponse:
    return HttpResponse(b"0123456789abcdef" * 200_000, content_type="text/plain")


def users(request: HttpRequest) -> JsonResponse:
    """Asks the database, and says in which thread, and how often anybody has connected to it."""
    users = User.objects.count()
    made = {"connections": len(connections), "from": len(set(connections))}
    return JsonResponse({"users": users, "thread": threading.current_thread().name} | made)


urlpatterns = [
    path("admin/", admin.site.urls),
    path("about/<str:name>/<int:number>", about),
    path("count", count),
    path("form", form),
    path("hash", hash_body),
    path("body", body),
    path("download", download),
    path("stream", stream),
    path("cookies", cookies),
    path("go/<int:code>", go),
    path("fail/<str:how>", fail),
    path("nothing", nothing),
    path("big", big),
    path("users", users),
    path("slash/", include([path("", nothing)])),
]

app = get_wsgi_application()
