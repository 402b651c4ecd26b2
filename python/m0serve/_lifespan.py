"""The application's lifespan: one task in the serving loop, from before the first request to after the last."""

from __future__ import annotations

import asyncio
from typing import Any

from m0serve._native import Exit
from m0serve._report import say, show
from m0serve._types import ASGIApplication, Message


class Lifespan:
    """Runs ``lifespan.startup`` and ``lifespan.shutdown``, each at most once, as uvicorn does.

    ``mode`` is ``auto`` (an application that raises has no lifespan, and is served), ``on`` (then it is not) or
    ``off`` (nothing is run).
    """

    def __init__(
        self, app: ASGIApplication, mode: str, *, verbose: bool = False, name: str = "the application"
    ) -> None:
        self.state: dict[str, Any] = {}
        #: What the application is called in sentences.
        self.name = name
        self.ended_by: BaseException | None = None
        self._app = app
        self._mode = mode
        self._verbose = verbose
        self._events: asyncio.Queue[Message] = asyncio.Queue(2)
        self._started = asyncio.Event()
        self._stopped = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._asked = False
        self._complete = False
        self._stopping = False
        self._told: Message | None = None
        self._error: BaseException | None = None

    async def start_up(self) -> None:
        """Waits until the application says that it has started; raises :class:`Exit` where it must not be served."""
        if self._mode == "off":
            return
        self._events.put_nowait({"type": "lifespan.startup"})
        self._task = asyncio.create_task(self._run(), name="m0serve lifespan")
        await self._started.wait()
        if self._told is not None:
            raise Exit(1, f"{self.name}'s start-up failed: {_said(self._told)}")
        if self.ended_by is not None:
            raise self.ended_by
        if self._error is None:
            return
        if self._mode == "on":
            raise Exit(1, f"{self.name} failed in its lifespan, and --lifespan on demands one") from self._error
        if self._asked:
            # The specification wants it served all the same, but a start-up that broke is worth a line.
            say(
                f"warning: {self.name}'s start-up raised"
                f" {type(self._error).__name__}: {self._error}; it is served without a lifespan"
                " (--lifespan on makes this fatal)"
            )
        elif self._verbose:
            say(f"debug: {self.name} has no lifespan")

    async def shut_down(self) -> None:
        """Waits until the application says that it has shut down; does nothing where nothing was started."""
        if self._task is None or self._task.done() or not self._complete or self._stopping:
            return
        self._stopping = True
        self._events.put_nowait({"type": "lifespan.shutdown"})
        await self._stopped.wait()
        if self._told is not None:
            say(f"error: {self.name}'s shutdown failed: {_said(self._told)}")

    def cancel(self) -> list[asyncio.Task[None]]:
        """Cancels the task if it still runs, and returns it to be waited for."""
        if self._task is None or self._task.done():
            return []
        self._task.cancel()
        return [self._task]

    async def _run(self) -> None:
        scope = {
            "type": "lifespan",
            "asgi": {"version": "3.0", "spec_version": "2.0"},
            "state": self.state,
        }
        try:
            await self._app(scope, self._receive, self._send)
        except (SystemExit, KeyboardInterrupt) as error:
            self.ended_by = error
        except asyncio.CancelledError as error:
            self._error = error
            raise
        except BaseException as error:
            self._error = error
            # Before the start-up is answered the caller decides; a failure that was answered has been told.
            if self._complete and self._told is None:
                say(f"error: {self.name} raised in its lifespan")
                show(error)
        finally:
            self._started.set()
            self._stopped.set()

    async def _receive(self) -> Message:
        message = await self._events.get()
        self._asked = True
        return message

    async def _send(self, message: Message) -> None:
        kind = message["type"]
        answered = self._stopped if self._stopping else self._started
        phase = "shutdown" if self._stopping else "startup"
        if kind not in (f"lifespan.{phase}.complete", f"lifespan.{phase}.failed") or answered.is_set():
            raise RuntimeError(f"{kind!r} is not expected in the lifespan now")
        if kind.endswith("failed"):
            self._told = message
        elif not self._stopping:
            self._complete = True
        answered.set()


def _said(told: Message) -> str:
    """The message of a failure. Starlette's is a traceback, with the end of its last line."""
    return str(told.get("message") or "").rstrip() or "it gave no message"
