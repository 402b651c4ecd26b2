"""A WSGI application whose paths do what the tests ask for. `app` has wsgiref's validator around it, `plain` not."""

from __future__ import annotations

import io
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs
from wsgiref.validate import validator

Environ = dict[str, Any]
Start = Callable[..., Callable[[bytes], object]]

TEXT = [("Content-Type", "text/plain")]
STATIC = Path(__file__).parent / "static" / "data.bin"

#: What handlers noted, and the gates that they wait at.
notes: list[str] = []
gates: dict[str, threading.Event] = {}
threads: set[int] = set()
local = threading.local()


class Body:
    """An iterable that notes how it was treated."""

    def __init__(self, name: str, blocks: Iterable[bytes]) -> None:
        self.name, self.blocks, self.on = name, iter(blocks), threading.get_ident()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        assert threading.get_ident() == self.on, "a body is iterated on its view's thread"
        return next(self.blocks)

    def close(self) -> None:
        assert threading.get_ident() == self.on, "and closed there"
        notes.append(f"closed {self.name}")


def hello(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    start("200 OK", [*TEXT, ("Content-Length", "5")])
    return [b"hello"]


def env(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    start("200 OK", [("Content-Type", "application/json")])
    plain = {key: value for key, value in environ.items() if isinstance(value, str | bool | tuple)}
    return [json.dumps(plain).encode()]


def take(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    """Reads the body as `how` says and gives the list of what each call gave."""
    stream, how, size = environ["wsgi.input"], query["how"], int(query.get("size", "-1"))
    calls: dict[str, Callable[[], list[bytes]]] = {
        "read": lambda: [stream.read(size)],
        "pieces": lambda: [*iter(lambda: stream.read(size), b""), stream.read(size)],
        "readline": lambda: list(iter(lambda: stream.readline(size), b"")),
        "readlines": lambda: stream.readlines(size),
        "iterate": lambda: list(stream),
    }
    parts = calls[how]()
    start("200 OK", [("Content-Type", "application/json")])
    return [json.dumps([part.decode("latin-1") for part in parts]).encode()]


def echo(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    start("200 OK", TEXT)
    return iter(lambda: environ["wsgi.input"].read(50_000), b"")


def stream(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    """Blocks, each when its gate opens; starts the response with its first one."""

    def blocks() -> Iterator[bytes]:
        for number in range(int(query["count"])):
            gate(f"{query['key']}{number}").wait(20)
            if number == 0:
                start("200 OK", TEXT)
            yield b"%d" % number

    return Body(query["key"], blocks())


def endless(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    start("200 OK", TEXT)

    def blocks() -> Iterator[bytes]:
        while True:
            yield b"x" * int(query.get("size", "30000"))
            time.sleep(float(query.get("pause", "0")))

    return Body(query["key"], blocks())


def status(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    start(query["line"], [] if query["line"][:3] in ("204", "304") else TEXT)
    return []


def writes(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    write = start("200 OK", TEXT)
    write(b"one ")
    if key := query.get("key"):
        gate(key).wait(20)
    write(b"two ")
    return [b"three"]


def twice(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    """Starts a second response: with exc_info before or after the head has left, or without it."""
    write = start("200 OK", TEXT)
    if query["when"] == "after":
        write(b"first")
    if query["when"] == "without":
        start("200 OK", TEXT)
    try:
        raise KeyError("expected-by-the-test")
    except KeyError:
        start("503 Sorry", TEXT, sys.exc_info())
    return [b"replaced"]


def fails(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    where, name = query["where"], query.get("key", "")
    if where == "call":
        raise ValueError("expected-by-the-test")

    def blocks() -> Iterator[bytes]:
        if where == "first":
            raise ValueError("expected-by-the-test")
        yield b"a block"
        raise ValueError("expected-by-the-test")

    start("200 OK", TEXT)
    return Body(name, blocks())


def length(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    """A Content-Length that its blocks may not fit."""
    start("200 OK", [*TEXT, ("Content-Length", query["says"])])
    return Body("length", [b"x" * int(size) for size in query["sizes"].split()])


def file(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    headers = [("Content-Type", "application/octet-stream")]
    if "says" in query:
        headers.append(("Content-Length", query["says"]))
    opened: Any = io.BytesIO(b"in memory") if query["kind"] == "memory" else STATIC.open("rb")
    opened.seek(int(query.get("from", "0")))
    start("200 OK", headers)
    return environ["wsgi.file_wrapper"](opened, 4096)


def slow(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    notes.append(f"began {query.get('key')}")
    time.sleep(float(query["s"]))
    start("200 OK", TEXT)
    return [b"slept"]


def waits(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    notes.append(f"began {query['key']}")
    gate(query["key"]).wait(20)
    start("200 OK", TEXT)
    return [b"waited"]


def busy(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    until = time.perf_counter() + float(query["s"])
    while time.perf_counter() < until:
        pass
    start("200 OK", TEXT)
    return [b"computed"]


def steps(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    """Does what the steps of `call` say, starts the response, and then what those of `body` say: (s)leeps or (c)omputes
    for so many milliseconds, (r)eads so many bytes and gives them back, (w)rites a block with the `tag`, e(x)plodes."""

    def run(program: str) -> Iterator[bytes]:
        for step in program.split():
            amount = int(step[1:])
            if step[0] == "s":
                time.sleep(amount / 1000)
            elif step[0] == "c":
                busy(environ, lambda *_: lambda _: None, {"s": str(amount / 1000)})
            elif step[0] == "r":
                yield environ["wsgi.input"].read(amount)
            elif step[0] == "w":
                yield f"{query['tag']}:{amount} ".encode()
            else:
                raise ValueError("expected-by-the-test")

    first = b"".join(run(query.get("call", "")))
    start("200 OK", TEXT)
    return Body("steps", (block for blocks in ([first], run(query.get("body", ""))) for block in blocks))


def thread(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    """How many requests this thread has served, and how many threads there were."""
    local.served = getattr(local, "served", 0) + 1
    threads.add(threading.get_ident())
    start("200 OK", [("Content-Type", "application/json")])
    return [json.dumps([threading.current_thread().name, local.served, len(threads)]).encode()]


def gate(key: str) -> threading.Event:
    return gates.setdefault(key, threading.Event())


def opens(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    gate(query["key"]).set()
    return hello(environ, start, query)


def noted(environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
    start("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(notes).encode()]


HANDLERS = {
    f"/{handler.__name__}": handler
    for handler in (
        hello, env, take, echo, stream, endless, status, writes, twice, fails, length, file,
        slow, waits, busy, steps, thread, opens, noted,
    )
}  # fmt: skip


def plain(environ: Environ, start: Start) -> Iterable[bytes]:
    query = {name: values[0] for name, values in parse_qs(environ["QUERY_STRING"]).items()}
    handler = env if environ["PATH_INFO"].startswith("/env") else HANDLERS[environ["PATH_INFO"]]
    return handler(environ, start, query)


app = validator(plain)
