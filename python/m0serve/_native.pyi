"""The native module: configuration, and the service that listens and calls the application."""

import asyncio
import selectors
from typing import Any, final

from m0serve._selector import Selector

__all__ = ["Config", "Driver", "Exit", "LastWord", "Service", "__version__"]

__version__: str

@final
class Exit(Exception):
    """Why the process should end."""

    def __new__(cls, code: int, message: str, to_stdout: bool = False) -> Exit: ...
    @property
    def code(self) -> int:
        """0 for help and version, 2 usage, 1 start-up failure, 78 what cannot be run here."""
    @property
    def message(self) -> str:
        """One sentence that names the fix."""
    @property
    def to_stdout(self) -> bool:
        """Whether the message goes to stdout (help and version)."""

@final
class Config:
    """The checked configuration of one server."""

    @staticmethod
    def parse(argv: list[str]) -> Config:
        """Parses a command line without the program's name; raises Exit."""
    @staticmethod
    def from_options(options: dict[str, object], mounts: list[tuple[str, str | None]]) -> Config:
        """Takes options by their names in Python, and mounts: prefixes, each with an import string or none.

        Raises Exit, or TypeError for a value of no fitting type.
        """
    def model_for(self, interfaces: list[str]) -> str:
        """The model for applications of these interfaces; raises Exit (78) where it is not built."""
    def mounts(self) -> list[tuple[str, str | None]]:
        """Every application: its prefix, and its import string or none."""
    def report(
        self, *, interfaces: list[str | None], loop_name: str | None, interpreter: str, refusal: Exit | None
    ) -> tuple[str, int]:
        """The report of --doctor as JSON, and the exit code."""
    @property
    def interface(self) -> str: ...
    @property
    def factory(self) -> bool: ...
    @property
    def app_dir(self) -> str | None: ...
    @property
    def lifespan(self) -> str: ...
    @property
    def root_path(self) -> str: ...
    @property
    def backend(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def loop(self) -> str: ...
    @property
    def drain_timeout(self) -> float: ...
    @property
    def access_log(self) -> bool: ...
    @property
    def log_level(self) -> str: ...
    @property
    def doctor(self) -> bool: ...
    @property
    def strays(self) -> list[str]:
        """A sentence for each variable that begins with M0_ and is no option's."""

@final
class LastWord:
    """Ends the process some seconds after it was armed, without the GIL."""

    def __new__(cls) -> LastWord: ...
    def arm(self, seconds: float, code: int) -> None:
        """Starts the time; raises OSError where no thread can be started."""
    def disarm(self) -> None:
        """Stops the time."""

@final
class Service:
    """Backend, engine and host of one server. All calls are made by the thread that made it."""

    def __new__(cls, config: Config) -> Service: ...
    def bind(self) -> None:
        """Binds, without listening yet; raises OSError with one sentence."""
    def resolved(self) -> dict[str, str]:
        """backend, model, interface, loop (empty for WSGI alone) and the reason for the backend."""
    def selector(self) -> Selector:
        """The selector that asyncio waits on."""
    def start(
        self, event_loop: asyncio.AbstractEventLoop, apps: list[tuple[object, str, dict[str, Any] | None]]
    ) -> str:
        """Listens, and returns the ready line. The applications, in the order of Config.mounts, each come with their
        interface and the state of their lifespan."""
    @property
    def threads(self) -> int:
        """How many threads are to call :meth:`work`; none without a WSGI application."""
    def work(self) -> None:
        """Serves views in the calling thread, until :meth:`end_work`; any thread may call it."""
    def end_work(self) -> None:
        """Sends the threads home that have nothing to do; they end within a view that is in flight."""
    def drain(self) -> asyncio.Future[None]:
        """Accepts no more; the future is done when nothing is in flight."""
    def stop_now(self) -> None:
        """Closes every connection."""
    def abandoned(self) -> list[str]:
        """What is in flight, such as ``GET /slow``."""
    def tasks(self) -> list[asyncio.Task[Any]]:
        """Tasks of requests that still run."""
    def stats(self) -> dict[str, int]:
        """requests, connections and what else is counted."""
    @property
    def address(self) -> str: ...
    def forked(self) -> None:
        """In a child that the application forked: from here on nothing reaches a connection."""
    def close(self) -> None:
        """Gives everything back; after the loop is closed."""

@final
class Driver:
    """Drives the server from an event loop; used by the selector and by ``m0serve._foreign`` only."""

    @property
    def keys(self) -> dict[int, selectors.SelectorKey]:
        """Foreign descriptors and their keys; filled by the selector."""
    def watch(self, fd: int, events: int) -> None:
        """Watches a descriptor, or changes what it is watched for."""
    def unwatch(self, fd: int) -> None:
        """Forgets a descriptor."""
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """asyncio's wait."""
    def wake(self) -> None:
        """Makes the loop look at its callbacks; any thread may call it."""
    def turn(self) -> None:
        """The application's part of a turn."""
    def tick(self) -> bool:
        """A whole turn without waiting; says whether to come back at once."""
    def poll_fd(self) -> int:
        """The descriptor that another loop watches."""
