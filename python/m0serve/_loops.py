"""The asyncio loops: which one is asked for, whether it is installed, and how it is made."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from m0serve._native import Exit, Service
from m0serve._selector import Loop


def resolve(name: str) -> str:
    """The loop that runs for a value of ``--loop``; raises :class:`Exit` (78) when its package is missing."""
    if name in ("auto", "asyncio"):
        return "asyncio"  # the only one that waits on a selector of ours
    try:
        importlib.import_module(name)
    except ImportError as error:
        raise Exit(78, f"--loop {name}: {error}; pip install {name}, or use --loop asyncio") from None
    return name


def make(name: str, service: Service) -> asyncio.AbstractEventLoop:
    """Makes the loop that :func:`resolve` named. It belongs to the calling thread."""
    if name == "asyncio":
        return Loop(service.selector())
    return cast(asyncio.AbstractEventLoop, importlib.import_module(name).new_event_loop())


@contextmanager
def out_of_sight(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """While an application is imported, it finds no loop running, as under other servers.

    Django lets nobody at its database where one runs, and `asyncio.run` refuses to. `asyncio.get_event_loop` gives
    `loop` all the same.
    """
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)
        asyncio.set_event_loop(loop)  # `asyncio.run` leaves none behind
