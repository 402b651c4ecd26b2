"""What the native host needs of Python for a request's task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from types import FrameType
from typing import Any, TypeVar

from m0serve._report import say, show

_T = TypeVar("_T")


class ClientDisconnected(BrokenPipeError):
    """What ``send`` raises once the client has gone, and WSGI's ``write`` and ``wsgi.input``."""


async def wrap(awaitable: Awaitable[_T]) -> _T:
    """Makes a coroutine of an awaitable that is none, so that it can be a task."""
    return await awaitable


def report(error: BaseException, name: str) -> None:
    """Prints an exception that left the application while it served a request: once, in full."""
    say(f"exception in the application while serving {name}")
    show(error)


def is_farewell(error: BaseException, depth: int = 16) -> bool:
    """Whether an application that failed after its client had gone only passed on that ``send`` said so.

    As it was raised, within a group, as the cause of another error, or turned into one where it was caught, which is
    how Starlette makes its own ClientDisconnect of it. What goes wrong while it is being handled is an error like any
    other.
    """
    if isinstance(error, ClientDisconnected):
        return True
    if depth == 0:  # a chain without end is possible
        return False
    if isinstance(error, BaseExceptionGroup):
        return all(
            isinstance(member, asyncio.CancelledError) or is_farewell(member, depth - 1) for member in error.exceptions
        )
    if error.__cause__ is not None:
        return is_farewell(error.__cause__, depth - 1)
    caught = error.__context__
    if caught is None or not is_farewell(caught, depth - 1):
        return False
    *_, raised_in = [None, *_frames(error)]
    return raised_in in list(_frames(caught))


def _frames(error: BaseException) -> Iterator[FrameType]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def hush_exits(loop: asyncio.AbstractEventLoop) -> None:
    """Keeps asyncio from reporting the SystemExit or KeyboardInterrupt that a task raised while it started eagerly.

    It leaves the loop and is acted upon, but the task is gone by then and nobody can retrieve it there.
    """

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), SystemExit | KeyboardInterrupt):
            loop.default_exception_handler(context)

    if loop.get_exception_handler() is None:
        loop.set_exception_handler(handle)
