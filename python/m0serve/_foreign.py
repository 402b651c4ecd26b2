"""Drives the server from an event loop that takes no selector of ours (uvloop, rloop)."""

from __future__ import annotations

import asyncio
import contextvars

from m0serve._native import Driver

# Deadlines (idle, head and body time-outs) are looked at this often when nothing else happens.
PERIOD = 1.0


class Foreign:
    """Calls the driver's tick when the backend's descriptor is readable, and once a second."""

    def __init__(self, loop: asyncio.AbstractEventLoop, driver: Driver) -> None:
        self._loop = loop
        self._driver = driver
        self._again = False
        # Turns start from here, not from the context of whichever request asked for one.
        self._context = contextvars.copy_context()
        loop.add_reader(driver.poll_fd(), self._tick)
        self._timer = loop.call_later(PERIOD, self._each_period)
        self.nudge()

    def nudge(self) -> None:
        """Something was said to the engine outside a tick."""
        if not self._again:
            self._again = True
            self._loop.call_soon(self._come_back, context=self._context.copy())

    def close(self) -> None:
        """Lets go of the driver, which holds this object (R9). The loop is closed: nothing is called any more."""
        self._again = True
        del self._driver

    def _come_back(self) -> None:
        self._again = False
        self._tick()

    def _tick(self) -> None:
        if self._driver.tick():
            self.nudge()

    def _each_period(self) -> None:
        self._timer = self._loop.call_later(PERIOD, self._each_period)
        self._tick()
