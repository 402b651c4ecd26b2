"""A WSGI application that makes the server fail an assertion of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def app(environ: dict[str, Any], start_response: Callable[..., object]) -> list[bytes]:
    """`/asserts` raises what PyO3 makes of a failed assertion: whoever takes it from Python goes on failing.

    That type has no name to import it by, and is there once the server has taken any exception.
    """
    if environ["PATH_INFO"] == "/asserts":
        (kind,) = [kind for kind in BaseException.__subclasses__() if kind.__name__ == "PanicException"]
        raise kind("expected-by-the-test")
    if environ["PATH_INFO"] == "/raises":
        raise ValueError("expected-by-the-test")
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hello"]
