"""What the native host needs of Python for a request's task."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from m0serve._report import say, show

_T = TypeVar("_T")


async def wrap(awaitable: Awaitable[_T]) -> _T:
    """Makes a coroutine of an awaitable that is none, so that it can be a task."""
    return await awaitable


def report(error: BaseException, name: str) -> None:
    """Prints an exception that left the application while it served a request: once, in full."""
    say(f"exception in the ASGI application while serving {name}")
    show(error)
