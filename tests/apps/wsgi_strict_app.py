"""WSGI applications at the edge of PEP 3333 and beyond it: what the test asks for by path."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import contextvars
import gzip
import io
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from holding import held

Environ = dict[str, Any]
Start = Callable[..., Callable[[bytes], object]]

TEXT = [("Content-Type", "text/plain")]
JSON = [("Content-Type", "application/json")]
STATIC = Path(__file__).parent / "static" / "data.bin"
FAULT = "expected-by-the-test"

notes: list[str] = []
gates: dict[str, threading.Event] = {}
kept: dict[str, Any] = {}
seen: contextvars.ContextVar[str] = contextvars.ContextVar("seen", default="nothing")


class Body:
    """An iterable with a `close` that does what it is told."""

    def __init__(self, blocks: Iterable[bytes], close: Callable[[], object]) -> None:
        self.blocks, self.close = iter(blocks), close

    def __iter__(self) -> Iterator[bytes]:
        return self.blocks


def hello(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    start("200 OK", TEXT)
    return [b"hello"]


def bad(environ: Environ, start: Start, query: dict[str, str]) -> Any:
    """Breaks a rule, which is an error."""
    which = query["which"]
    heads: dict[str, tuple[Any, Any]] = {
        "no-latin-value": ("200 OK", [("X-A", "\u20ac")]),
        "crlf-value": ("200 OK", [("X-A", "a\r\nX-B: c")]),
        "crlf-status": ("200 OK\r\nX-B: c", []),
        "no-latin-status": ("200 \u20ac", []),
        "bad-name": ("200 OK", [("X A", "a")]),
        "bytes-name": ("200 OK", [(b"X-A", "a")]),
        "bytes-value": ("200 OK", [("X-A", b"a")]),
        "three-members": ("200 OK", [("X-A", "a", "b")]),
        "dict": ("200 OK", {"AB": "a"}),
        "length-no-number": ("200 OK", [("Content-Length", "five")]),
        "length-negative": ("200 OK", [("Content-Length", "-5")]),
        "two-lengths": ("200 OK", [("Content-Length", "5"), ("Content-Length", "6")]),
        "status-number": (200, []),
        "status-short": ("20 OK", []),
        "status-informational": ("103 Early Hints", []),
    }
    if which in heads:
        start(*heads[which])
        return [b"hello"]
    if which == "text-file":
        start("200 OK", TEXT)
        return environ["wsgi.file_wrapper"](Path(__file__).open(encoding="utf-8"))
    if which == "file-too-short":
        start("200 OK", [("Content-Length", str(STATIC.stat().st_size + 1))])
        return environ["wsgi.file_wrapper"](STATIC.open("rb"))
    bodies: dict[str, Any] = {
        "str-block": ["hello"],
        "str-block-later": iter(["hello"]),
        "bytes": b"hello",
        "none": None,
        "bytearray-block": [bytearray(b"hello")],
        "number": iter([1]),
    }
    if which in bodies:
        start("200 OK", TEXT)
        return bodies[which]
    return {"unstarted-list": [b"hello"], "unstarted-empty": [], "unstarted-iterator": iter([b"", b"a"])}[which]


def shape(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    """Right bodies of unusual shapes."""

    class Sized:
        def __len__(self) -> int:
            return 1

        def __iter__(self) -> Iterator[bytes]:
            return iter([b"one ", b"two"])

    class List(list[bytes]):
        def __iter__(self) -> Iterator[bytes]:
            return iter([b"one ", b"two"])

    class Items:
        def __getitem__(self, index: int) -> bytes:
            return [b"one ", b"two"][index]

    which = query["which"]
    write = start("200 OK", [["Content-Type", "text/plain"]] if which == "list-pairs" else TEXT)

    def writing() -> Iterator[bytes]:
        yield b"one "
        write(b"")
        write(b"two")
        yield b""

    def restarting() -> Iterator[bytes]:
        yield b""
        try:
            raise ValueError(FAULT)
        except ValueError:
            start("200 Again", TEXT, sys.exc_info())
        yield b"one two"

    bodies: dict[str, Any] = {
        "sized": Sized(),
        "list": List([b"one"]),
        "items": Items(),
        "tuple": (b"one two",),
        "empty-blocks": [b"", b"one ", b"", b"two", b""],
        "writing": writing(),
        "restarting": restarting(),
        "list-pairs": [b"one two"],
    }
    return bodies[which]


def closes(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    """A body whose `close` raises, or waits, or reads and writes."""
    write = start("200 OK", TEXT)

    def close() -> None:
        if query["how"] == "raises":
            raise ValueError(FAULT)
        if query["how"] == "waits":
            gate(query["key"]).wait(20)
        if query["how"] == "goes-on":
            for call in (lambda: write(b"more"), lambda: environ["wsgi.input"].read()):
                try:
                    call()
                except RuntimeError as error:
                    notes.append(f"{query['key']} {error}")

    return Body([b"one ", b"two"], close)


def endless(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    start(query.get("status", "200 OK"), TEXT)
    return Body(iter(lambda: b"x", b""), lambda: notes.append(f"closed {query['key']}"))


def bodiless(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    """A body where none may be."""
    write = start(query["status"], [("Content-Length", "5")] if "length" in query else [])
    if query["how"] == "write":
        write(b"hello")
        return []
    if query["how"] == "file":
        return environ["wsgi.file_wrapper"](STATIC.open("rb"))
    return [b"hello"] if query["how"] == "list" else iter([b"he", b"llo"])


def tiny(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    """More blocks at once than a thread may have under way."""
    start("200 OK", TEXT)
    for _ in range(3):
        gate("never").wait(0.01)
        yield from iter([b"x"] * 6000)


class Growing(io.RawIOBase):
    """Not a real file, although it has a descriptor of one."""

    def __init__(self) -> None:
        self.file = STATIC.open("rb")
        self.left = 3

    def fileno(self) -> int:
        return self.file.fileno()

    def read(self, size: int = -1) -> bytes:
        self.left -= 1
        return b"own " if self.left >= 0 else b""


def file(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    opened: Any
    which = query["which"]
    if which == "gzip":
        compressed = io.BytesIO()
        with gzip.open(compressed, "wb") as stream:
            stream.write(b"plain " * 1000)
        with tempfile.NamedTemporaryFile(delete=False) as named:
            named.write(compressed.getvalue())
        opened = gzip.open(named.name)  # noqa: SIM115
        Path(named.name).unlink()
    elif which == "named":
        opened = tempfile.NamedTemporaryFile()  # noqa: SIM115
        opened.write(b"temporary")
        opened.seek(4)
    elif which == "spooled":
        opened = tempfile.SpooledTemporaryFile()  # noqa: SIM115
        opened.write(b"spooled")
        opened.seek(0)
    elif which == "pipe":
        read, write = os.pipe()
        os.write(write, b"piped")
        os.close(write)
        opened = os.fdopen(read, "rb")
    elif which == "made-up":
        opened = Path(query["path"]).open("rb")  # noqa: SIM115
    elif which == "hole":
        opened = tempfile.TemporaryFile()  # noqa: SIM115
        opened.truncate(9)
    elif which == "unbuffered":
        opened = STATIC.open("rb", buffering=0)
        opened.read(10)
    elif which == "closed-early":
        opened = STATIC.open("rb")
        kept[which] = opened
    else:
        opened = Growing()
    start("200 OK", [*TEXT, ("Content-Length", query["says"])] if "says" in query else TEXT)
    return environ["wsgi.file_wrapper"](opened)


def sizes(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    """The odd sizes, before, within and behind the body."""
    stream = environ["wsgi.input"]
    parts = [stream.read(0), stream.readline(0), stream.readline(-5), stream.read(2), stream.read(None)]
    parts += [stream.read(), stream.read(5), stream.readline(), *stream.readlines(), stream.read(0)]
    start("200 OK", JSON)
    return [json.dumps([part.decode() for part in parts]).encode()]


def keeps(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    """Keeps what is the request's, and a thread that reads on when the view has returned."""
    key = query["key"]
    kept[key] = [environ["wsgi.input"].read, lambda: start("200 OK", TEXT)(b"more")]

    def read() -> None:
        try:
            environ["wsgi.input"].read()
        except RuntimeError as error:
            notes.append(f"{key} thread: {error}")

    if "thread" in query:
        threading.Thread(target=read).start()
    start("200 OK", TEXT)
    return [b"kept"]


def uses(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    said = []
    for call in kept.pop(query["key"]):
        try:
            said.append(repr(call()))
        except RuntimeError as error:
            said.append(str(error))
    start("200 OK", JSON)
    return [json.dumps(said).encode()]


def both(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    """A thread reads the body while the view writes more than a window of its response."""
    sizes: list[int] = []

    def read() -> None:
        while block := environ["wsgi.input"].read(10_000):
            sizes.append(len(block))

    reader = threading.Thread(target=read)
    write = start("200 OK", TEXT)
    reader.start()
    for _ in range(30):
        write(b"x" * 50_000)
    reader.join()
    return [b" read %d" % sum(sizes)]


def spoils(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    """Gives the environ as it came, and leaves nothing of it whole."""
    was = sorted(
        f"{key}={value}" for key, value in environ.items() if not key.startswith(("wsgi.input", "REMOTE_PORT"))
    )
    for key in list(environ):
        environ[key] = "spoilt"
    environ["own"] = "spoilt"
    start("200 OK", JSON)
    return [json.dumps(was).encode()]


def env(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    start("200 OK", JSON)
    return [json.dumps({key: value for key, value in environ.items() if isinstance(value, str)}).encode()]


def errors(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    stream = environ["wsgi.errors"]
    stream.write(f"written {query['key']} \u20ac\n")
    stream.writelines([f"lines {query['key']}\n"])
    stream.flush()
    return hello(environ, start, query)


def ignores(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    return hello(environ, start, query)


def reads(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    if "key" in query:
        notes.append(f"began {query['key']}")
    body = environ["wsgi.input"].read()
    if "key" in query:
        gate(query["key"]).set()
    start("200 OK", TEXT)
    return [b"%d" % len(body)]


def drips(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    """A stream that goes on when an upload has been read, and a `close` that takes its time."""
    start("200 OK", TEXT)

    def close() -> None:
        time.sleep(0.3)
        print(f"closed {query['key']}", file=sys.stderr)

    def blocks() -> Iterator[bytes]:
        yield b"drop"
        assert gate(query["key"]).wait(20)
        for _ in range(4):
            yield b"drop"

    return Body(blocks(), close)


def busy(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    """Computes, or sleeps in one call."""
    notes.append(f"began {query['key']}")
    end = time.perf_counter() + float(query["s"])
    if query["how"] == "sleeps":
        time.sleep(float(query["s"]))
    while time.perf_counter() < end:
        pass
    start("200 OK", TEXT)
    return [b"done"]


def forks(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    """Forks; the child leaves in the way that is asked for, and its exit code is the answer."""
    child = os.fork()
    if child == 0:
        if query["how"] == "exits":
            sys.exit(5)
        write = start("200 OK", TEXT)
        if query["how"] == "writes":
            write(b"from the child")
        return [b"as if it were the server"]
    for _ in range(500):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            start("200 OK", TEXT)
            return [b"%d" % os.waitstatus_to_exitcode(status)]
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    start("200 OK", TEXT)
    return [b"it did not end"]


def raises(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    class Own(BaseException):
        pass

    kinds: dict[str, type[BaseException]] = {
        "SystemExit": SystemExit,
        "KeyboardInterrupt": KeyboardInterrupt,
        "GeneratorExit": GeneratorExit,
        "CancelledError": asyncio.CancelledError,
        "StopIteration": StopIteration,
        "Own": Own,
    }
    if query["where"] == "call":
        raise kinds[query["kind"]](FAULT)
    start("200 OK", TEXT)

    class Raising:
        def __iter__(self) -> Iterator[bytes]:
            raise kinds[query["kind"]](FAULT)

    return Raising()


def context(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    """Sets a variable, and sees it for as long as the request lasts."""
    before = seen.get()
    seen.set(query["key"])
    start("200 OK", JSON)

    def blocks() -> Iterator[bytes]:
        yield json.dumps([before, seen.get()]).encode()

    return Body(blocks(), lambda: notes.append(f"{query['key']} closed in {seen.get()}"))


def gate(key: str) -> threading.Event:
    return gates.setdefault(key, threading.Event())


def opens(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    gate(query["key"]).set()
    return hello(environ, start, query)


def noted(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    start("200 OK", JSON)
    return [json.dumps(notes).encode()]


def holdings(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    start("200 OK", JSON)
    return [json.dumps(held()).encode()]


def fails_late(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    """An error of its own, when its client has long gone."""
    start("200 OK", TEXT)
    write = start("200 OK", TEXT, (None, None, None))
    notes.append(f"began {query['key']}")
    try:
        while True:
            write(b"x" * 30_000)
    except BrokenPipeError:
        pass
    raise FileNotFoundError(FAULT)


def farewell(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    """Reads on while it is being told that its client has gone, as a finalizer or another thread may."""
    read, real = environ["wsgi.input"].read, builtins.__import__

    def imports(name: str, *rest: Any, **more: Any) -> Any:
        if name == "m0serve._tasks":
            builtins.__import__ = real
            with contextlib.suppress(BrokenPipeError):
                read()
            notes.append(f"read on {query['key']}")
        return real(name, *rest, **more)

    notes.append(f"began {query['key']}")
    builtins.__import__ = imports
    try:
        return [read()]
    finally:
        builtins.__import__ = real


HANDLERS = {
    f"/{handler.__name__}": handler
    for handler in (
        hello, bad, shape, closes, endless, bodiless, tiny, file, sizes, keeps, uses, both, spoils, env, errors,
        ignores, reads, drips, busy, forks, raises, context, opens, noted, holdings, fails_late,
        farewell,
    )
}  # fmt: skip


def app(environ: Environ, start: Start) -> Iterable[bytes]:
    query = {name: values[0] for name, values in parse_qs(environ["QUERY_STRING"]).items()}
    return HANDLERS[environ["PATH_INFO"]](environ, start, query)
