"""Flask, Django and httpbin in one application, each below its own prefix."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import wsgi_django
import wsgi_flask

logging.getLogger("httpbin.core").setLevel(logging.ERROR)  # it would like a package for its front page

import httpbin  # noqa: E402

logging.getLogger("wsgi_flask").setLevel(logging.CRITICAL)
logging.getLogger("django").setLevel(logging.CRITICAL)

APPLICATIONS = {"flask": wsgi_flask.app, "django": wsgi_django.app, "bin": httpbin.app}


def app(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    """Takes the prefix from the path."""
    _, name, *rest = environ["PATH_INFO"].split("/", 2)
    environ["SCRIPT_NAME"], environ["PATH_INFO"] = f"/{name}", "/" + "".join(rest)
    # httpbin takes chunked bodies from one server only, which it knows by its name.
    if name == "bin":
        environ["SERVER_SOFTWARE"] = "gunicorn/any"
    return APPLICATIONS[name](environ, start)
