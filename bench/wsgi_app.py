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


def hold(count: int, start_response: Callable[..., object]) -> list[bytes]:
    """One call of C that gives the GIL to nobody until it ends, and how many seconds that took."""
    start = time.perf_counter()
    sum(range(count))
    taken = f"{time.perf_counter() - start:.6f}".encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(taken)))])
    return [taken]


def mixed(environ: dict[str, Any], start_response: Callable[..., object]) -> list[bytes]:
    """`/wait?S` sleeps, `/compute?S` keeps the interpreter, `/hold?N` the GIL too; everything else answers at once."""
    path = environ["PATH_INFO"]
    if path == "/wait":
        time.sleep(float(environ["QUERY_STRING"]))
    elif path == "/compute":
        until = time.perf_counter() + float(environ["QUERY_STRING"])
        while time.perf_counter() < until:
            pass
    elif path == "/hold":
        return hold(int(environ["QUERY_STRING"]), start_response)
    return hello(environ, start_response)
