"""Which servers are compared, and how each is started. Every arm is one process with one worker."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or Path(__file__).resolve().parent.parent.parent / "target")


@dataclass(frozen=True)
class Arm:
    """One server in one configuration."""

    name: str
    command: list[str]
    """Started with the environment's python; `{app}` (the last part) and `{port}` are filled in."""
    ready_line: bool = False
    """Whether it says on stderr that it is ready (otherwise it is asked until it answers)."""
    extra: dict[str, list[str]] = field(default_factory=dict)
    """More flags for a scenario, by its name."""
    program: Path | None = None
    """What is started instead of python; it serves no application, so `{app}` is left out."""

    def argv(self, python: str, app: str, port: int, scenario: str) -> list[str]:
        """The command line for one application on one port."""
        filled = [part.format(app=app, port=port) for part in self.command]
        if self.program is not None:
            return [str(self.program), *filled]
        return [python, *filled[:-1], *self.extra.get(scenario, []), filled[-1]]


LISTEN = ["--host", "127.0.0.1", "--port", "{port}"]


def m0serve(model: str, backend: str) -> Arm:
    """One of ours."""
    return Arm(
        f"m0serve-{model}-{backend}",
        ["-m", "m0serve", *LISTEN, "--backend", backend, "--model", model, "{app}"],
        ready_line=True,
    )


def uvicorn(loop: str) -> Arm:
    """The reference: uvicorn with its fast parser."""
    quiet = ["--no-access-log", "--log-level", "error"]
    return Arm(
        "uvicorn" if loop == "uvloop" else f"uvicorn-{loop}",
        ["-m", "uvicorn", *LISTEN, "--loop", loop, "--http", "httptools", *quiet, "{app}"],
        extra={"idle": ["--timeout-keep-alive", "300"]},
    )


SINGLE = ["--interface", "asgi", "--workers", "1", "--loop", "uvloop", "--http", "1", "--no-ws", "--no-log"]
GRANIAN = Arm("granian", ["-m", "granian", *LISTEN, *SINGLE, "{app}"])
FASTPYSGI = Arm("fastpysgi", ["-c", "import fastpysgi; fastpysgi.run_from_cli()", *LISTEN, "{app}"])

OURS = [m0serve(model, backend) for model in ("inverted", "pump") for backend in ("io_uring", "epoll")]
UVICORN = uvicorn("uvloop")
STOCK = uvicorn("asyncio")
OTHERS = [UVICORN, GRANIAN, FASTPYSGI]
WSGI_THREADS = 8
"""Handler threads of every WSGI arm; granian has its own default of one where no view waits or computes."""


def m0serve_wsgi(model: str, backend: str, threads: int = WSGI_THREADS) -> Arm:
    """One of ours with a WSGI application; without threads its views are not isolated from each other."""
    name = f"m0serve-wsgi-{model}-{backend}" + ("" if threads else "-alone")
    flags = ["--backend", backend, "--model", model, "--blocking-threads", str(threads)]
    return Arm(name, ["-m", "m0serve", *LISTEN, *flags, "{app}"], ready_line=True)


def granian_wsgi(threads: int) -> Arm:
    """Granian with so many blocking threads."""
    flags = ["--interface", "wsgi", "--workers", "1", "--http", "1", "--no-log", "--blocking-threads", str(threads)]
    return Arm(f"granian-wsgi-{threads}", ["-m", "granian", *LISTEN, *flags, "{app}"])


GTHREAD = ["--worker-class", "gthread", "--workers", "1", "--threads", str(WSGI_THREADS)]
QUIET = ["--keep-alive", "75", "--log-level", "error"]
GUNICORN = Arm("gunicorn-gthread", ["-m", "gunicorn", "--bind", "127.0.0.1:{port}", *GTHREAD, *QUIET, "{app}"])
FASTPYSGI_WSGI = Arm("fastpysgi-wsgi", FASTPYSGI.command)

OURS_WSGI = [m0serve_wsgi("inverted", "epoll"), m0serve_wsgi("pump", "io_uring"), m0serve_wsgi("pump", "epoll")]
ALONE_WSGI = [m0serve_wsgi("inverted", "epoll", 0), m0serve_wsgi("pump", "epoll", 0)]
OTHERS_WSGI = [granian_wsgi(1), FASTPYSGI_WSGI]
THREADED_WSGI = [granian_wsgi(WSGI_THREADS), GUNICORN]


def m0serve_mounts(model: str, backend: str) -> Arm:
    """One of ours with a WSGI application at / and FastAPI beside it at /api."""
    flags = ["--backend", backend, "--model", model, "--blocking-threads", str(WSGI_THREADS)]
    mounted = ["--mount", "/api=fastapi_app:app"]
    return Arm(
        f"m0serve-mounts-{model}-{backend}", ["-m", "m0serve", *LISTEN, *flags, *mounted, "{app}"], ready_line=True
    )


OURS_MOUNTS = [m0serve_mounts(model, backend) for model in ("inverted", "pump") for backend in ("io_uring", "epoll")]
CEILING = [
    Arm(f"ceiling-{backend}", ["{port}", backend], program=TARGET / "release" / "ceiling")
    for backend in ("io_uring", "epoll")
]
"""No HTTP, no Python: what backend and client allow. Measured where it has been built (`run.sh --ceiling`)."""
ALL = [*OURS, *OTHERS, STOCK, *OURS_WSGI, *ALONE_WSGI, *OTHERS_WSGI, *THREADED_WSGI, *OURS_MOUNTS]
