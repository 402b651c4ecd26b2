"""The threads that run the views of a WSGI application."""

from __future__ import annotations

import _thread
import asyncio
import threading
from contextlib import suppress

from m0serve._native import Exit, Service

#: What puts something else in the place of threads.
_GREENLETS = ("gevent", "eventlet")
#: Seconds between a thread's last word and its end.
LAST = 1.0


class Workers:
    """As many threads as the service asks for; none where its application is no WSGI one.

    Daemons: a view that never returns must not keep the process from ending, which then ends without finalizing the
    interpreter under it.
    """

    def __init__(self, service: Service, loop: asyncio.AbstractEventLoop) -> None:
        """Starts none yet."""
        self._service = service
        self._loop = loop
        self._threads: dict[threading.Thread, asyncio.Future[None]] = {}

    def start(self) -> None:
        """Starts them; raises :class:`Exit` where one cannot be, and leaves the others for :meth:`end`."""
        library = (getattr(_thread.start_new_thread, "__module__", None) or "").partition(".")[0]
        if self._service.threads and library in _GREENLETS:
            # A thread would be a greenlet of this one, and keep it: no signal would end the process.
            raise Exit(
                1,
                f"{library} has made greenlets of threads (`monkey.patch_all`), and views run on threads;"
                " serve the application without it",
            )
        for number in range(1, self._service.threads + 1):
            ended = self._loop.create_future()
            thread = threading.Thread(target=self._work, args=(ended,), name=f"m0serve-worker-{number}", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                raise Exit(
                    1,
                    f"thread {number} of {self._service.threads} for views could not be started;"
                    " raise the limit of threads or processes, or lower --blocking-threads",
                ) from None
            self._threads[thread] = ended

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
