"""Applications that do what a request's path says, step by step: `app` is ASGI, `site` WSGI (tests/test_soak.py).

/TAG/STEP,STEP,... where a step is a letter and a number. The body of an answer is the tag over and over, so that a byte
of another request's is seen. /counts tells what has begun and ended.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FAULT = "expected-by-the-test"
FILE = Path(__file__).parent / "static" / "data.bin"

#: What has begun (`in`, `iterable`) and what has ended (`out`, `closed`).
counts: Counter[str] = Counter()
lock = threading.Lock()


def count(what: str) -> None:
    """One more, from any thread."""
    with lock:
        counts[what] += 1


class Answer:
    """How far an answer is."""

    def __init__(self, tag: str) -> None:
        self.tag = tag.encode()
        self.at = 0
        self.digest = ""
        self.fill = 0

    def piece(self, length: int) -> bytes:
        """The next bytes of the body."""
        start = self.at % len(self.tag)
        self.at += length
        return (self.tag * (length // len(self.tag) + 2))[start : start + length]

    def fields(self, length: str) -> list[tuple[str, str]]:
        """Those of the head; `length` may be empty."""
        fields = [("x-tag", self.tag.decode()), ("x-digest", self.digest)]
        fields += [(f"x-fill-{number}", "f" * 80) for number in range(self.fill)]
        return [*fields, ("content-length", length)] if length else fields


def compute(milliseconds: int) -> None:
    """Keeps the GIL busy."""
    end = time.perf_counter() + milliseconds / 1000
    while time.perf_counter() < end:
        sum(range(100))


class Steps:
    """One request's way through the ASGI application."""

    def __init__(self, tag: str, receive: Any, send: Any) -> None:
        self.answer = Answer(tag)
        self.receive = receive
        self.say = send
        self.beside: list[asyncio.Task[None]] = []

    async def step(self, kind: str, number: str) -> None:
        """Everything but raising and returning."""
        match kind:
            case "R":
                await self.read_all()
            case "r":
                await self.receive()
            case "z":
                await asyncio.sleep(int(number) / 1000)
            case "k":
                compute(int(number))
            case "f":
                self.answer.fill = int(number)
            case "h":
                fields = [(name.encode(), value.encode()) for name, value in self.answer.fields(number)]
                await self.say({"type": "http.response.start", "status": 200, "headers": fields})
            case "c" | "t" | "g" | "w" | "e":
                await self.send_piece(kind, int(number))
            case "p":
                await self.say({"type": "http.response.pathsend", "path": str(FILE)})
            case "l":
                self.beside.append(asyncio.create_task(self.listen()))
            case "d":
                with_limit = asyncio.wait_for(self.listen(), int(number) / 1000)
                await asyncio.gather(with_limit, return_exceptions=True)
            case "C":
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(0)

    async def send_piece(self, kind: str, length: int) -> None:
        """From here, from a task, from a call that is cancelled, from a thread; `e` is the last."""
        message = {"type": "http.response.body", "body": self.answer.piece(length), "more_body": kind != "e"}

        async def send() -> None:
            await self.say(message)

        if kind == "t":
            await asyncio.create_task(send())
        elif kind == "g":
            # What `send` was called with stays said.
            sending = asyncio.ensure_future(self.say(message))
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        elif kind == "w":
            loop = asyncio.get_running_loop()
            await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(send(), loop).result())
        else:
            await send()

    async def read_all(self) -> None:
        """The whole body of the request."""
        digest = hashlib.sha1(usedforsecurity=False)
        while (message := await self.receive())["type"] == "http.request":
            digest.update(message.get("body", b""))
            if not message.get("more_body", False):
                self.answer.digest = digest.hexdigest()
                return
        raise OSError(FAULT)

    async def listen(self) -> None:
        """Until the client has gone, or the response is over."""
        while (await self.receive())["type"] != "http.disconnect":
            pass


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """The ASGI application."""
    assert scope["type"] == "http", "no lifespan"
    *_, tag, steps = scope["path"].split("/")
    if steps == "counts":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(counts).encode()})
        return
    count("in")
    way = Steps(tag, receive, send)
    try:
        for step in steps.split(","):
            if step == "x":
                raise ValueError(FAULT)
            if step == "q":
                break
            await way.step(step[0], step[1:])
    finally:
        for task in way.beside:
            task.cancel()
        await asyncio.gather(*way.beside, return_exceptions=True)
        count("out")


class Blocks:
    """A body as an iterable that is to be closed once."""

    def __init__(self, blocks: Iterator[bytes], fails: bool) -> None:
        self.blocks = blocks
        self.fails = fails
        self.is_closed = False
        count("iterable")

    def __iter__(self) -> Iterator[bytes]:
        return self.blocks

    def close(self) -> None:
        """Twice would be counted twice."""
        count("closed")
        if self.fails:
            raise ValueError(FAULT)


def site(environ: dict[str, Any], start_response: Callable[..., Callable[[bytes], object]]) -> Any:
    """The WSGI application."""
    *_, tag, steps = environ["PATH_INFO"].split("/")
    answer = Answer(tag)
    kept: dict[str, Any] = {}

    def step(kind: str, number: str) -> None:
        match kind:
            case "R":
                answer.digest = hashlib.sha1(environ["wsgi.input"].read(), usedforsecurity=False).hexdigest()
            case "r":
                environ["wsgi.input"].read(100)
            case "z":
                time.sleep(int(number) / 1000)
            case "k":
                compute(int(number))
            case "f":
                answer.fill = int(number)
            case "h":
                kept["write"] = start_response("200 OK", answer.fields(number))
            case "w":
                kept["write"](answer.piece(int(number)))
            case "x":
                raise ValueError(FAULT)

    def blocks(rest: list[str]) -> Iterator[bytes]:
        for one in rest:
            if one[0] == "c":
                yield answer.piece(int(one[1:]))
            elif one == "q":
                return
            else:
                step(one[0], one[1:])

    names = steps.split(",")
    for position, one in enumerate(names):
        if one == "p":
            return environ["wsgi.file_wrapper"](FILE.open("rb"))
        if one[0] == "c":
            return Blocks(blocks(names[position:]), "X" in names)
        step(one[0], one[1:])
    return []
