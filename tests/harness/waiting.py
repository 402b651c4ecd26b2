"""Waiting for conditions. Nothing in the suites sleeps for a fixed time and hopes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Seconds that anything which should happen soon may take on a loaded two-core machine.
SOON = 10.0


def until(condition: Callable[[], T], what: str, seconds: float = SOON) -> T:
    """Call `condition` until it returns something true, and return that; fail the test after `seconds`."""
    deadline = time.monotonic() + seconds
    pause = 0.001
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen within {seconds} s: {what} (last seen: {value!r})")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.02)


def settled(read: Callable[[], int], quiet: float = 0.4, seconds: float = SOON) -> int:
    """Read a counter until it has not changed for `quiet` seconds; return it. Fails when it never stops."""
    deadline = time.monotonic() + seconds
    last, since = read(), time.monotonic()
    while time.monotonic() - since < quiet:
        if time.monotonic() > deadline:
            raise AssertionError(f"still changing after {seconds} s (last seen: {last})")
        time.sleep(0.01)
        now = read()
        if now != last:
            last, since = now, time.monotonic()
    return last
