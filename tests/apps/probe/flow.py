"""Handlers that move bodies of any size and know which byte belongs where, without keeping any of it.

A body is made of blocks of 64 KiB that begin with their number (or, where one large message is sent over and over, with
their number in the message); whoever reads it looks at the numbers, so that a block that is lost, doubled or out of its
place shows although nobody compares a gibibyte.
"""

from __future__ import annotations

import asyncio
import functools
import time

from .core import Receive, Scope, Send, body, bump, gate, note, query, reply, route, start

BLOCK = 65536
#: A reader that is slow now and then: so many seconds after so many bytes.
PAUSE, PAUSE_AFTER = 0.02, 128 * 1024 * 1024


REST = bytes(BLOCK - 8)


def block(number: int) -> bytes:
    """One block."""
    return number.to_bytes(8, "big") + REST


@functools.cache
def message_of(blocks: int) -> bytes:
    """A message of so many blocks, made once."""
    return b"".join(map(block, range(blocks)))


class Numbers:
    """Looks at the blocks of a body that comes in pieces of any size."""

    def __init__(self, every: int = 1 << 63) -> None:
        self.total = 0
        self.wrong = 0
        #: The numbers begin anew after so many blocks.
        self.every = every

    def take(self, data: bytes | memoryview) -> None:
        """The next piece. A number that is cut by the end of a piece is not looked at."""
        at = -self.total % BLOCK
        while at + 8 <= len(data):
            self.wrong += int.from_bytes(data[at : at + 8], "big") != (self.total + at) // BLOCK % self.every
            at += BLOCK
        self.total += len(data)


@route("flow-upload")
async def upload(scope: Scope, receive: Receive, send: Send) -> None:
    """Take a message, wait at the gate, then read on at full speed with a pause now and then; say what came."""
    numbers = Numbers()
    pause_at = PAUSE_AFTER
    more = True
    while more:
        message = await receive()
        assert message["type"] == "http.request", message
        if not numbers.total:
            note(scope, "reading")
            await gate(scope)
        numbers.take(message["body"])
        more = message["more_body"]
        if numbers.total >= pause_at:
            pause_at += PAUSE_AFTER
            await asyncio.sleep(PAUSE)
    await reply(send, f"{numbers.total} bytes, {numbers.wrong} blocks out of place".encode())


@route("flow-download")
async def download(scope: Scope, receive: Receive, send: Send) -> None:
    """`blocks` blocks, `each` of them in a message (always the same one), with a Content-Length when `declared`."""
    blocks, each = int(query(scope)["blocks"]), int(query(scope).get("each", "1"))
    await start(send, 200, [(b"content-length", b"%d" % (blocks * BLOCK))] if "declared" in query(scope) else [])
    for number in range(0, blocks, each):
        data = block(number) if each == 1 else message_of(each)
        await body(send, data, more=number + each < blocks)
        bump(scope, "sent", each)


@route("flow-endless")
async def endless(scope: Scope, receive: Receive, send: Send) -> None:
    """Blocks for ever, and beside them a task that waits for the client to leave; notes when each heard of it."""

    async def listen() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        note(scope, "disconnected", time.monotonic())

    listener = asyncio.create_task(listen())
    data = block(0)
    try:
        await start(send)
        while True:
            await body(send, data, more=True)
            bump(scope, "sent")
    except OSError:
        note(scope, "raised", time.monotonic())
        await listener
    finally:
        note(scope, "finally", time.monotonic())
