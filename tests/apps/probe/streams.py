"""Handlers that stream, compute, or outlive their response."""

from __future__ import annotations

import asyncio
import sys
import time

from .core import Receive, Scope, Send, body, bump, gate, note, query, read, reply, route, start


def compute(seconds: float) -> None:
    """Keep the interpreter without ever waiting."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@route("stream")
async def stream(scope: Scope, receive: Receive, send: Send) -> None:
    """`count` chunks of `size` bytes."""
    await start(send)
    chunk = b"x" * int(query(scope).get("size", "10"))
    for _ in range(int(query(scope).get("count", "3"))):
        await body(send, chunk, more=True)
    await body(send)


@route("compute-between")
async def compute_between(scope: Scope, receive: Receive, send: Send) -> None:
    """A chunk, then computing without an await, then the end. When the computing ended goes into the last chunk."""
    await start(send)
    await body(send, b"first", more=True)
    compute(0.3)
    await body(send, repr(time.monotonic()).encode())


@route("compute-behind")
async def compute_behind(scope: Scope, receive: Receive, send: Send) -> None:
    """A whole response, then a background task that computes."""
    await reply(send, b"done")
    compute(0.3)
    note(scope, "computed", time.monotonic())


@route("background")
async def background(scope: Scope, receive: Receive, send: Send) -> None:
    """A whole response, then work until the gate opens."""
    await reply(send, b"done")
    note(scope, "running")
    await gate(scope)
    note(scope, "finished")


@route("endless")
async def endless(scope: Scope, receive: Receive, send: Send) -> None:
    """Chunks of `size` for ever, with `pause` seconds between them; notes how it ended."""
    await start(send)
    chunk = b"x" * int(query(scope).get("size", "65536"))
    pause = query(scope).get("pause")
    try:
        while True:
            await body(send, chunk, more=True)
            bump(scope, "chunks")
            if pause is not None:
                await asyncio.sleep(float(pause))
    except OSError:
        note(scope, "raised", "OSError")
        raise
    except BaseException as error:
        note(scope, "raised", type(error).__name__)
        raise
    finally:
        note(scope, "finally", time.monotonic())


@route("outlive")
async def outlive(scope: Scope, receive: Receive, send: Send) -> None:
    """Does not look at the client: sleeps, then tries to answer, and says how that went."""
    note(scope, "started")
    await gate(scope)
    try:
        await reply(send, b"too late")
        await asyncio.sleep(0)
    except OSError:
        note(scope, "raised", "OSError")
    note(scope, "finished")


@route("gated-stream")
async def gated_stream(scope: Scope, receive: Receive, send: Send) -> None:
    """A chunk, the gate, another chunk."""
    await start(send)
    await body(send, b"before ", more=True)
    await gate(scope)
    await body(send, b"after")


@route("head-first")
async def head_first(scope: Scope, receive: Receive, send: Send) -> None:
    """The head by itself (an empty chunk says that it should leave), the gate, the body."""
    await start(send)
    await body(send, b"", more=True)
    await gate(scope)
    await body(send, b"after")


@route("echo-stream")
async def echo_stream(scope: Scope, receive: Receive, send: Send) -> None:
    """Every piece of the request body goes back as it comes."""
    await start(send)
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return
        more = message["more_body"]
        await body(send, message["body"], more=True)
    await body(send)


@route("upload")
async def upload(scope: Scope, receive: Receive, send: Send) -> None:
    """Read everything, say how much."""
    note(scope, "started")
    await reply(send, str(len(await read(receive))).encode())


@route("stream-slowly")
async def stream_slowly(scope: Scope, receive: Receive, send: Send) -> None:
    """`count` numbers with `pause` seconds between them."""
    await start(send)
    for number in range(int(query(scope)["count"])):
        await body(send, b"%d" % number, more=True)
        await asyncio.sleep(float(query(scope)["pause"]))
    await body(send)


def log_line(path: str) -> None:
    """Say in a file that the work is over."""
    with open(path, "a") as file:
        file.write('{"event": "background is over"}\n')


@route("background-slow")
async def background_slow(scope: Scope, receive: Receive, send: Send) -> None:
    """A whole response, then `s` seconds of work that end with a line in the file `log`."""
    await reply(send, b"done")
    await asyncio.sleep(float(query(scope)["s"]))
    log_line(query(scope)["log"])


@route("stubborn")
async def stubborn(scope: Scope, receive: Receive, send: Send) -> None:
    """Goes on when it is cancelled."""
    note(scope, "started")
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            note(scope, "cancelled")


@route("compute")
async def compute_only(scope: Scope, receive: Receive, send: Send) -> None:
    """Keeps the loop for `s` seconds."""
    print("computing now", file=sys.stderr, flush=True)
    compute(float(query(scope)["s"]))
    await reply(send, b"computed")
