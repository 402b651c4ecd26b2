"""The life of a server: load, bind, start up, serve, drain, shut down. R11: no step waits without a limit."""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, Unpack

from m0serve import _loops
from m0serve._lifespan import Lifespan
from m0serve._load import Mounted, check_names, load_all
from m0serve._native import Config, Exit, Service
from m0serve._report import answer, hide_machinery, say, say_plain, show
from m0serve._signals import Signals, Watchdog, code_of, end_child, end_now, ended_with_the_interpreter, leave_now
from m0serve._types import Application, Options
from m0serve._workers import Workers

# After the drain time-out: seconds for cancelled tasks and for the lifespan's shutdown, and for all of it. With the
# default drain time-out of 8 s everything is over before the 10 s after which `docker stop` kills.
GRACE = 0.5
LAST = 1.5


class Server:
    """One server, for an application or an import string such as ``"main:app"``, and for more of them in ``mounts``.

    :meth:`run` serves in the calling thread until a signal (on the main thread only) or :meth:`stop`. A server never
    ends the process; :func:`run` and the command line do where something does not end by itself.
    """

    def __init__(self, app: str | Application | None = None, **options: Unpack[Options]) -> None:
        """Checks the options; raises :class:`Exit` (2) for one that does not fit."""
        given: dict[str, Any] = dict(options)
        more = given.pop("mounts", None)
        if given.get("mount") is not None or not isinstance(more, Mapping | None):
            raise Exit(2, "mounts takes a dict: give mounts={PREFIX: APP}, such as mounts={'/api': 'api.main:app'}")
        mounts: list[tuple[str, Any]] = list((more or {}).items())
        if isinstance(app, str):
            given["app"] = app
        elif app is not None:
            mounts.insert(0, ("/", app))
        config = Config.from_options(given, [(prefix, one if isinstance(one, str) else None) for prefix, one in mounts])
        self._set_up(config, [one for _, one in mounts if not isinstance(one, str)])

    @classmethod
    def _from_config(cls, config: Config) -> Server:
        server = cls.__new__(cls)
        server._set_up(config, [])
        return server

    def _set_up(self, config: Config, objects: Sequence[Any]) -> None:
        check_names(config)
        #: Set once requests are accepted.
        self.started = threading.Event()
        #: What did not end within the drain time-out and still runs.
        self.hung: list[str] = []
        self._config = config
        self._objects = objects
        self._service: Service | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._ran = False
        self._stop_asked = False
        self._stopping: asyncio.Event | None = None
        self._failure: BaseException | None = None
        self._workers: Workers | None = None
        self._handlers: Signals | None = None
        # Only where the process is ours to end.
        self._watchdog: Watchdog | None = None

    @property
    def address(self) -> str:
        """Where the server listens: ``http://127.0.0.1:8000`` or ``unix:/run/app.sock``; empty before it is bound."""
        return self._service.address if self._service is not None else ""

    def resolved(self) -> dict[str, str]:
        """What ``auto`` became: backend, model, interface and loop (of WSGI alone: none); empty before :meth:`run`."""
        return self._service.resolved() if self._service is not None else {}

    def stats(self) -> dict[str, int]:
        """Counts of requests and connections; empty before :meth:`run`."""
        return self._service.stats() if self._service is not None else {}

    def stop(self) -> None:
        """Begins the drain, as SIGTERM does; from any thread, at any time, also before :meth:`run`."""
        with self._lock:
            self._stop_asked = True
            loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # closed meanwhile: it has stopped
                loop.call_soon_threadsafe(self._begin_stop)

    def run(self) -> int:
        """Serves until it is stopped, and returns the exit code: 0, 1, 2 or 78, or what the application asked for."""
        if asyncio._get_running_loop() is not None:  # ours could not run inside it
            raise RuntimeError("an event loop runs in this thread; run a Server in a thread of its own")
        with self._lock:
            if self._ran:
                raise RuntimeError("a Server runs once; make another one")
            self._ran = True
        on_main_thread = threading.current_thread() is threading.main_thread()
        limit = self._config.drain_timeout + LAST
        try:
            with nullcontext() if on_main_thread else ended_with_the_interpreter(self.stop, limit):
                return self._run()
        except Exit as end:
            return report_exit(end)

    def _run(self) -> int:
        config = self._config
        if config.log_level != "error":
            for sentence in config.strays:
                say(f"warning: {sentence}")
        loop_name = _loops.resolve(config.loop)
        self._service = service = Service(config)
        try:
            try:
                service.bind()
            except OSError as error:
                raise Exit(1, str(error)) from None
            loop = _loops.make(loop_name, service)
            try:
                return self._drive(loop)
            finally:
                with self._lock:
                    self._loop = None
                asyncio.set_event_loop(None)
                loop.close()
        finally:
            # Last: with asyncio the loop waits on the service's backend for as long as it is open.
            service.close()

    def _find_apps(self) -> list[Mounted]:
        def demo() -> Any:
            from m0serve.demo import make_app

            return make_app(self)

        return load_all(self._config, self._objects, demo)

    def _drive(self, loop: asyncio.AbstractEventLoop) -> int:
        asyncio.set_event_loop(loop)
        with self._lock:
            self._loop = loop
        # A task of its own rather than run_forever: it is the root task that anyio looks for.
        main = _MainTask(self._main(loop), loop, self._cancelled)
        mine, broken = os.getpid(), False
        os.register_at_fork(after_in_child=partial(_in_child, weakref.ref(self)))
        while True:
            try:
                code = loop.run_until_complete(main)
                break
            except (SystemExit, KeyboardInterrupt) as error:
                if os.getpid() != mine:
                    end_child(error)
                if main.done():
                    raise
                # From a task or callback of the application: the loop has stopped, and now drains.
                hide_machinery(error)
                self._fail(error)
            except BaseException as error:
                if os.getpid() != mine:
                    end_child(error)
                stopped = isinstance(error, RuntimeError) and "stopped before" in str(error)  # asyncio's own words
                if main.done() or (not stopped and broken):
                    raise
                if stopped:
                    say("error: the application stopped the event loop; the server stops")
                else:
                    # While the loop waits, signal handlers of the application's run inside its machinery. What cannot
                    # go on is raised a second time.
                    broken = True
                    say("error: an exception broke off the event loop; the server stops")
                    hide_machinery(error)
                    show(error)
                self._fail(SystemExit(1))
        return code if self._failure is None else code_of(self._failure)

    async def _main(self, loop: asyncio.AbstractEventLoop) -> int:
        assert self._service is not None
        self._stopping = asyncio.Event()
        if self._stop_asked:
            self._stopping.set()
        on_main_thread = threading.current_thread() is threading.main_thread()
        with self._signals(loop) if on_main_thread else nullcontext():
            try:
                with _loops.out_of_sight(loop):
                    found = self._find_apps()
                self._config.model_for([mounted.interface for mounted in found])
            except Exit as end:
                return report_exit(end)
            except (SystemExit, KeyboardInterrupt) as error:
                self._fail(error)
                return 0
            lifespans = [self._lifespan(mounted) for mounted in found]
            code = 0
            try:
                if await self._start_up(loop, lifespans) and not self._stopping.is_set():
                    apps = zip(found, lifespans, strict=True)
                    ready = self._service.start(loop, [(of.app, of.interface, its.state) for of, its in apps])
                    self._workers = Workers(self._service, loop)
                    self._workers.start()
                    say_plain(ready)
                    self.started.set()
                    await self._stopping.wait()
            except Exit as end:
                code = report_exit(end)
            except (SystemExit, KeyboardInterrupt) as error:
                self._fail(error)
            await self._shut_down(loop, lifespans)
            return code

    def _lifespan(self, of: Mounted) -> Lifespan:
        mode = self._config.lifespan if of.interface == "asgi" else "off"
        return Lifespan(of.app, mode, verbose=self._config.log_level == "debug", name=of.name)

    async def _start_up(self, loop: asyncio.AbstractEventLoop, lifespans: Iterable[Lifespan]) -> bool:
        """Runs the start-ups one after another; a stop meanwhile gives one the drain time-out to come to an end."""
        stopped = self._stopping
        assert stopped is not None

        async def start_all() -> None:
            for lifespan in lifespans:
                if not stopped.is_set():
                    await lifespan.start_up()

        starting = loop.create_task(start_all(), name="m0serve start-up")
        stopping = loop.create_task(stopped.wait(), name="m0serve stop")
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not starting.done():
            await asyncio.wait((starting,), timeout=self._config.drain_timeout)
        if not starting.done():
            say("the application's start-up did not end within the drain time-out and is cancelled")
            starting.cancel()
            return False
        if starting.cancelled():
            raise Exit(1, "the application cancelled its own start-up")
        starting.result()
        return True

    async def _shut_down(self, loop: asyncio.AbstractEventLoop, lifespans: Sequence[Lifespan]) -> None:
        """Everything between the stop and the end of the loop, in the drain time-out and a little more."""
        began = loop.time()
        deadline = began + self._config.drain_timeout
        if self.started.is_set():
            await self._drain(loop, deadline)
        if self._workers is not None:
            self.hung += await self._workers.end(max(deadline, loop.time() + GRACE))
        await self._stop_lifespans(loop, lifespans, deadline)
        mine = asyncio.current_task()
        rest = [task for task in asyncio.all_tasks(loop) if task is not mine and not self._is_known_hung(task)]
        await self._cancel(loop, rest, loop.time() + GRACE)
        limit = max(deadline, loop.time() + GRACE)
        await self._finish(loop, loop.shutdown_asyncgens(), limit, "an asynchronous generator")
        await self._finish(loop, loop.shutdown_default_executor(), limit, "a thread of the loop's executor")
        if self.hung:
            say(f"the drain time-out is over and {'; '.join(self.hung)}")
        if self.started.is_set():
            self._inform(f"stopped after {loop.time() - began:.1f} s")

    async def _drain(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        """Waits for what is in flight and for background tasks; names and cancels what is left."""
        assert self._service is not None
        service = self._service
        count = len(service.abandoned())
        what = f"{count} request{'s' if count > 1 else ''}" if count else "nothing"
        self._inform(f"stopping: {what} in flight; at most {self._config.drain_timeout:g} s are left")
        drained = service.drain()
        await asyncio.wait((drained,), timeout=max(0.0, deadline - loop.time()))
        while (tasks := _running(service.tasks())) and (left := deadline - loop.time()) > 0:
            await asyncio.wait(tasks, timeout=left)
        if drained.done() and not tasks:
            return
        names = service.abandoned() or [task.get_name() for task in tasks] or ["connections that did not close"]
        say(f"the drain time-out of {self._config.drain_timeout:g} s is over; abandoned: {', '.join(names)}")
        service.stop_now()
        # What a request's task raises is reported where every request's is.
        await self._cancel(loop, tasks, loop.time() + GRACE, show_errors=False)

    async def _stop_lifespans(
        self, loop: asyncio.AbstractEventLoop, lifespans: Sequence[Lifespan], deadline: float
    ) -> None:
        """The last to start is the first to stop; together they have some grace."""
        for lifespan in reversed(lifespans):
            await self._stop_lifespan(loop, lifespan, max(deadline, loop.time() + GRACE / len(lifespans)))
        await self._cancel(loop, [task for its in lifespans for task in its.cancel()], loop.time() + GRACE)

    async def _stop_lifespan(self, loop: asyncio.AbstractEventLoop, lifespan: Lifespan, limit: float) -> None:
        shutdown = loop.create_task(lifespan.shut_down(), name="m0serve shutdown")
        await asyncio.wait((shutdown,), timeout=max(0.0, limit - loop.time()))
        if not shutdown.done():
            say(f"{lifespan.name}'s shutdown did not end within the drain time-out and is cancelled")
            shutdown.cancel()
        if lifespan.ended_by is not None and self._failure is None:
            self._failure = lifespan.ended_by

    async def _cancel(
        self,
        loop: asyncio.AbstractEventLoop,
        tasks: Iterable[asyncio.Task[Any]],
        limit: float,
        *,
        show_errors: bool = True,
    ) -> None:
        """Cancels tasks; those that go on all the same are named and left."""
        waiting = _running(tasks)
        for task in waiting:
            task.cancel()
        if not waiting:
            return
        done, pending = await asyncio.wait(waiting, timeout=max(0.0, limit - loop.time()))
        for task in done if show_errors else ():
            if not task.cancelled() and (error := task.exception()) is not None:
                say(f"error: the task {task.get_name()} raised while it was cancelled")
                show(error)
        self.hung += [f"the task {task.get_name()} does not end when it is cancelled" for task in pending]

    async def _finish(self, loop: asyncio.AbstractEventLoop, step: Any, limit: float, what: str) -> None:
        task = loop.create_task(step, name=f"m0serve end of {what}")
        _, pending = await asyncio.wait((task,), timeout=max(0.0, limit - loop.time()))
        if pending:
            self.hung.append(f"{what} does not end")

    def _inform(self, sentence: str) -> None:
        if self._config.log_level in ("info", "debug"):
            say(sentence)

    def _is_known_hung(self, task: asyncio.Task[Any]) -> bool:
        return any(f"the task {task.get_name()} " in line for line in self.hung)

    def _begin_stop(self) -> None:
        """In the loop's thread."""
        self._stop_asked = True
        self._arm()
        if self._stopping is not None:
            self._stopping.set()

    def _cancelled(self) -> None:
        """The application cancelled all tasks, and the server's with them."""
        if self._stopping is None or not self._stopping.is_set():
            say("the application cancelled the server's task; the server stops")
            self._begin_stop()

    def _fail(self, error: BaseException) -> None:
        """Stops because the application raised SystemExit or KeyboardInterrupt."""
        if self._failure is None:
            self._failure = error
        self._begin_stop()

    def _arm(self) -> None:
        if self._watchdog is not None:
            # A server that broke down, and then hangs as well, is to be started again.
            self._watchdog.arm(self._config.drain_timeout + LAST, 0 if self._failure is None else 1)

    def _signals(self, loop: asyncio.AbstractEventLoop) -> Signals:
        self._handlers = Signals(
            loop,
            first=self._arm,
            wake=self._begin_stop,
            second=self._second_signal,
            stopping=lambda: self._stop_asked,
        )
        return self._handlers

    def _second_signal(self, number: int) -> None:
        names: list[str] = []
        # The engine may be in the middle of a turn; then there are no names, and the end comes all the same.
        with suppress(BaseException):
            names = self._service.abandoned() if self._service is not None else []
        end_now(128 + number, f"a second signal ended the server at once; abandoned: {', '.join(names) or 'nothing'}")


class _MainTask(asyncio.Task[int]):
    """The server's own task. A cancel, which only an application that cancels everything gives it, begins the drain."""

    def __init__(
        self, coroutine: Coroutine[Any, Any, int], loop: asyncio.AbstractEventLoop, cancelled: Callable[[], None]
    ) -> None:
        super().__init__(coroutine, loop=loop, name="m0serve")
        self._on_cancel = cancelled

    def cancel(self, msg: Any = None) -> bool:
        self._on_cancel()
        return False


def _in_child(reference: weakref.ref[Server]) -> None:
    server = reference()
    if server is not None and server._handlers is not None:
        server._handlers.leave()
    if server is not None and server._service is not None:
        with suppress(RuntimeError):  # forked by a thread that has no way to the connections anyway
            server._service.forked()


def run(app: str | Application | None = None, **options: Unpack[Options]) -> None:
    """Serves an application, or several, until it is stopped; raises SystemExit with the exit code when that is not 0.

    On the main thread, SIGTERM and SIGINT stop it, and where something of the application does not end within the
    drain time-out the process ends here, without finalizing the interpreter under it. Elsewhere it returns.
    """
    try:
        server = Server(app, **options)
    except Exit as end:
        sys.exit(report_exit(end))
    on_main_thread = threading.current_thread() is threading.main_thread()
    code = run_process(server, leave=False) if on_main_thread else server.run()
    if code != 0:
        sys.exit(code)


def run_process(server: Server, *, leave: bool = True) -> int:
    """Runs a server in a process that may be ended for it. With ``leave`` nothing but the process's end follows."""
    watchdog = server._watchdog = Watchdog()
    code = server.run()
    if server.hung:
        leave_now(code)
    if leave:
        # From here the interpreter waits for threads, which may be in views. What comes after that wait is not limited:
        # the application's own functions at exit.
        watchdog.arm(server._config.drain_timeout + LAST, code)
        atexit.register(watchdog.disarm)
    else:
        watchdog.disarm()
    return code


def report_exit(end: Exit) -> int:
    """Writes what an :class:`Exit` says, with the application's traceback where it has one, and returns its code."""
    if end.to_stdout:
        answer(end.message)
    else:
        say(end.message)
    if end.__cause__ is not None:
        show(end.__cause__)
    return end.code


def _running(tasks: Iterable[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    return [task for task in tasks if not task.done()]
