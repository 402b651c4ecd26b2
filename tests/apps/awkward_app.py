"""Things that are no ASGI application, and one that makes one."""

from __future__ import annotations

from typing import Any

import probe

number = 7
nothing = None


def wsgi(environ: Any, start_response: Any) -> Any:
    """WSGI, by its look."""
    start_response("200 OK", [])
    return []


def make() -> Any:
    """A factory."""
    return probe.app


def unclear(*args: Any) -> Any:
    """An application of some kind, in a wrapper that does not say which, as `wsgiref.validate.validator` makes them."""
    return wsgi(*args)
