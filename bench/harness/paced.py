"""Clients that ask at fixed times, however late the answers are: what waits is counted for as long as it waits.

`wrk` asks again when it was answered. Where everything stands still for a tenth of a second, sixteen of its requests
are late among thousands that came before and after, and no quantile shows them.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

from .client import Connection
from .scenarios import Record

PERIOD = 0.2
"""Seconds from one request of a client to its next: long enough to be answered once every second hold of the GIL."""
DOORS = 4
"""Clients that come with a new connection each time."""
REFUSED = b"no request\r\n\r\n"
HOLD_SECONDS = 0.1


def calls_of_a_tenth() -> int:
    """How many numbers `sum(range(N))` adds in a tenth of a second, which it spends in one call of C."""
    count = 1_000_000
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        sum(range(count))
        taken.append(time.perf_counter() - start)
    return int(count * HOLD_SECONDS / min(taken))


def quantile(ordered: list[float], part: float) -> float:
    """Of what is in order already; nothing was measured where there is nothing.

    Raises:
        ValueError: the list is empty.
    """
    if not ordered:
        raise ValueError("no answer came in the whole measurement")
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]


def _refused(port: int) -> None:
    """A new connection whose first line is no request: accepted, read and refused."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(REFUSED)
        answer = b""
        while b"\r\n" not in answer and (piece := connection.recv(4096)):
            answer += piece
    assert b" 400 " in answer.split(b"\r\n")[0], f"{answer[:100]!r} instead of a refusal"


def _pace(ask: Callable[[], None], start: float, until: float, taken: list[float]) -> None:
    """Asks at `start` and every period after it; each wait begins when its request should have been sent."""
    due = start
    while due < until:
        time.sleep(max(0.0, due - time.perf_counter()))
        ask()
        taken.append(time.perf_counter() - due)
        due += PERIOD


def measure(port: int, connections: int, seconds: float) -> Record:
    """So many connections that ask for the fast view, and clients that are refused on a new connection each time."""
    start = time.perf_counter() + PERIOD
    until = start + seconds
    answered: list[float] = []
    refused: list[float] = []
    failures: list[BaseException] = []

    def guarded(ask: Callable[[], None], offset: float, taken: list[float]) -> None:
        try:
            _pace(ask, start + offset, until, taken)
        except BaseException as error:  # raised again by the caller's thread
            failures.append(error)

    def known(connection: Connection) -> Callable[[], None]:
        def ask() -> None:
            status = connection.ask("/")[0]
            assert status == 200, f"a fast view is answered {status}"

        return ask

    held = [Connection(port) for _ in range(connections)]
    plans = [(known(connection), PERIOD * at / connections, answered) for at, connection in enumerate(held)]
    plans += [(lambda: _refused(port), PERIOD * at / DOORS, refused) for at in range(DOORS)]
    threads = [threading.Thread(target=guarded, args=plan) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for connection in held:
        connection.close()
    if failures:
        raise failures[0]
    answered.sort()
    refused.sort()
    return {
        "p50": quantile(answered, 0.5) * 1e6,
        "p99": quantile(answered, 0.99) * 1e6,
        "longest": answered[-1] * 1e3,
        "refused_p50": quantile(refused, 0.5) * 1e3,
        "refused_p99": quantile(refused, 0.99) * 1e3,
    }
