"""A Django site with sync views, to be served beside FastAPI in one process."""

from __future__ import annotations

import time

import django
from django.conf import settings

settings.configure(
    SECRET_KEY="only for measurements",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=["django.middleware.common.CommonMiddleware"],
    LOGGING_CONFIG=None,
)
django.setup()

from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.http import HttpRequest, HttpResponse  # noqa: E402
from django.urls import path  # noqa: E402


def home(request: HttpRequest) -> HttpResponse:
    """Answers at once."""
    return HttpResponse("Hello, world!")


def wait(request: HttpRequest) -> HttpResponse:
    """`/wait?S` is blocked for so many seconds, as by a database that does not answer."""
    time.sleep(float(request.META["QUERY_STRING"]))
    return home(request)


urlpatterns = [path("", home), path("wait", wait)]
site = get_wsgi_application()
