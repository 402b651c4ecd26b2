"""An application that has put greenlets in the place of threads, as `monkey.patch_all` of LIBRARY does."""

from __future__ import annotations

import _thread
import os
from collections.abc import Callable
from typing import Any


def start_new_thread(*_: object) -> int:
    """Would run it in this thread, once that waits for something of the library."""
    return 0


start_new_thread.__module__ = f"{os.environ['LIBRARY']}.thread"
_thread.start_new_thread = start_new_thread


def app(environ: dict[str, Any], start_response: Callable[..., object]) -> list[bytes]:
    """Is never called."""
    start_response("200 OK", [])
    return [b"hello"]
