"""The threads that run the views of a WSGI application."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

from m0serve._native import Service

#: Seconds between a thread's last word and its end.
LAST = 1.0


class Workers:
    """As many threads as the service asks for; none where its application is no WSGI one.

    Daemons: a view that never returns must not keep the process from ending, which then ends without finalizing the
    interpreter under it.
    """

    def __init__(self, service: Service, loop: asyncio.AbstractEventLoop) -> None:
        """Starts them."""
        self._service = service
        self._loop = loop
        self._threads: dict[threading.Thread, asyncio.Future[None]] = {}
        for number in range(1, service.threads + 1):
            ended = loop.create_future()
            thread = threading.Thread(target=self._work, args=(ended,), name=f"m0serve-worker-{number}", daemon=True)
            self._threads[thread] = ended
            thread.start()

    def _work(self, ended: asyncio.Future[None]) -> None:
        try:
            self._service.work()
        finally:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(ended.set_result, None)

    async def end(self, limit: float) -> list[str]:
        """Sends them home, and waits until `limit`, a time of the loop; what does not end is named."""
        self._service.end_work()
        if not self._threads:
            return []
        # Not wait_for, whose time-out cancels the task it runs in: the server's own is not cancelled by anybody.
        ended, running = await asyncio.wait(self._threads.values(), timeout=max(0.0, limit - self._loop.time()))
        for thread, future in self._threads.items():
            if future in ended:
                thread.join(LAST)
        if not running:
            return []
        return [f"the view {name} does not end" for name in self._service.abandoned()] or ["a thread does not end"]
