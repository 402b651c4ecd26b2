"""What the native host needs of Python for a request's task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from m0serve._report import say, show

_T = TypeVar("_T")


async def wrap(awaitable: Awaitable[_T]) -> _T:
    """Makes a coroutine of an awaitable that is none, so that it can be a task."""
    return await awaitable


def report(error: BaseException, name: str) -> None:
    """Prints an exception that left the application while it served a request: once, in full."""
    say(f"exception in the ASGI application while serving {name}")
    show(error)


def hush_exits(loop: asyncio.AbstractEventLoop) -> None:
    """Keeps asyncio from reporting the SystemExit or KeyboardInterrupt that a task raised while it started eagerly.

    It leaves the loop and is acted upon, but the task is gone by then and nobody can retrieve it there.
    """

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), SystemExit | KeyboardInterrupt):
            loop.default_exception_handler(context)

    if loop.get_exception_handler() is None:
        loop.set_exception_handler(handle)
