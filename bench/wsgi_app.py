"""The WSGI applications that every arm serves."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

TEXT = [("Content-Type", "text/plain"), ("Content-Length", "13")]


def hello(environ: dict[str, Any], start_response: Callable[..., object]) -> list[bytes]:
    """Thirteen bytes, nothing else: what a server costs."""
    start_response("200 OK", TEXT)
    return [b"Hello, world!"]


def mixed(environ: dict[str, Any], start_response: Callable[..., object]) -> list[bytes]:
    """`/wait?S` sleeps, `/compute?S` keeps the interpreter; everything else answers at once."""
    path = environ["PATH_INFO"]
    if path == "/wait":
        time.sleep(float(environ["QUERY_STRING"]))
    elif path == "/compute":
        until = time.perf_counter() + float(environ["QUERY_STRING"])
        while time.perf_counter() < until:
            pass
    return hello(environ, start_response)
