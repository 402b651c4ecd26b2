"""The selector that asyncio waits on: asyncio's own descriptors and the server's sockets in one wait."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Mapping
from typing import Any

from m0serve._native import Driver


class Loop(asyncio.SelectorEventLoop):
    """asyncio's own loop, woken by other threads through the backend's waker instead of a socket pair."""

    def __init__(self, selector: Selector) -> None:
        self._wake = selector.wake
        super().__init__(selector)

    def _write_to_self(self) -> None:
        # What call_soon_threadsafe does last. A wake costs a system call only where the loop is parked.
        self._wake()

    def close(self) -> None:
        """Closes, and lets go of the server, which holds this loop: no collector sees through native objects (R9)."""
        super().close()
        self._wake = _nothing


def _nothing() -> None:
    """Wakes nobody: the loop is closed."""


class Selector(selectors.BaseSelector):
    """A selector over the server's backend. ``select`` is the driver's own."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._keys: dict[int, selectors.SelectorKey] = driver.keys
        self.select = driver.select  # type: ignore[method-assign]
        #: Ends a wait, from any thread.
        self.wake = driver.wake

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Watches a descriptor."""
        fd = _descriptor(fileobj)
        if not events or events & ~(selectors.EVENT_READ | selectors.EVENT_WRITE):
            raise ValueError(f"Invalid events: {events!r}")
        if fd in self._keys:
            raise KeyError(f"{fileobj!r} (FD {fd}) is already registered")
        self._driver.watch(fd, events)
        key = self._keys[fd] = selectors.SelectorKey(fileobj, fd, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Forgets a descriptor, also one that is closed already."""
        fd = self._known(fileobj)
        key = self._keys.pop(fd)
        self._driver.unwatch(fd)
        return key

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Changes what a descriptor is watched for, or the data that comes with it."""
        fd = self._known(fileobj)
        if self._keys[fd].events != events:
            self._driver.watch(fd, events)
        key = self._keys[fd] = selectors.SelectorKey(fileobj, fd, events, data)
        return key

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Waits; replaced by the driver's own method, so that no call is paid for in between."""
        events: list[tuple[selectors.SelectorKey, int]] = self._driver.select(timeout)
        return events

    def close(self) -> None:
        """Forgets all descriptors; the backend is closed by the service that owns it."""
        for fd in list(self._keys):
            self._driver.unwatch(fd)
        self._keys.clear()

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        """The key of a descriptor."""
        return self._keys[self._known(fileobj)]

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """All keys by descriptor number."""
        return self._keys

    def _known(self, fileobj: Any) -> int:
        try:
            fd = _descriptor(fileobj)
        except ValueError:
            # Closed already: it is found by identity.
            for fd, key in self._keys.items():
                if key.fileobj is fileobj:
                    return fd
            raise
        if fd not in self._keys:
            raise KeyError(f"{fileobj!r} is not registered")
        return fd


def _descriptor(fileobj: Any) -> int:
    fd = fileobj if isinstance(fileobj, int) else int(fileobj.fileno())
    if fd < 0:
        raise ValueError(f"Invalid file descriptor: {fd}")
    return fd
