"""Bodies of a gibibyte through a server with flat memory, and streams whose client vanishes (promises 9, 13, 24).

Who reads is slow at first, until what is under way fills every window and buffer and the other side has stopped; then
it reads on as fast as it can. Resident memory is sampled all the while. One transfer each way is a full gibibyte, the
others are a sixteenth of it: what would grow shows in either.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.client import Client, request
from harness.server import APPS, Server, Servers
from harness.waiting import settled

sys.path.insert(0, str(APPS))

from probe.flow import BLOCK, Numbers, block

MIB = 1024 * 1024
GIB = 1024 * MIB
#: Beside the gibibyte in one framing, what shows that another one is as flat.
PART = GIB // 16
#: What resident memory may rise by while a body of any size passes: windows, buffers, an allocator's way with them.
FEW = 6 * MIB
PER_PIECE = MIB // BLOCK


@pytest.fixture
def server(servers: Servers) -> Server:
    """A server that has moved enough to have used its pools and buffers once."""
    server = servers.get("probe:app", validated=False)  # it takes seconds for a gibibyte
    if not getattr(server, "warm", False):
        server.warm = True  # type: ignore[attr-defined]
        for declared in (True, False):
            upload(server, 32 * MIB, declared)
            download(server, 32 * MIB, 1, declared)
    return server


@pytest.fixture(scope="session")
def holes(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Files that are nothing but a hole, by their size."""
    made = {}
    for total in (PART, GIB):
        made[total] = tmp_path_factory.mktemp("holes") / str(total)
        with made[total].open("wb") as hole:
            os.truncate(hole.fileno(), total)
    return made


@contextlib.contextmanager
def flat(server: Server) -> Iterator[None]:
    """Memory stays within a few MiB of what it is now."""
    before = server.usage().rss
    most = [before]
    stop = threading.Event()

    def sample() -> None:
        while not stop.wait(0.02):
            most[0] = max(most[0], server.usage().rss)

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield
    finally:
        stop.set()
        sampler.join()
    assert most[0] - before < FEW, f"{(most[0] - before) // 1024} KiB more"


def upload(server: Server, total: int, declared: bool, key: str = "") -> None:
    """Send so much; with a key, to an application that stops until all that will be taken meanwhile has been taken."""
    framing = f"Content-Length: {total}" if declared else "Transfer-Encoding: chunked"
    name = key or "open"
    if not key:
        server.open_gate(name)
    with server.connect(timeout=30) as client:
        client.send(request(f"/flow-upload?key={name}", framing, method="POST"))
        for at in range(total // MIB):
            piece = b"".join(block(at * PER_PIECE + number) for number in range(PER_PIECE))
            data = piece if declared else b"100000\r\n" + piece + b"\r\n"
            if at < 16 and key:
                taken = client.send_until_blocked(data, len(data), quiet=0.1)
                if taken < len(data):
                    server.note(key, "reading")
                    assert server.get("/hello").status == 200
                    server.open_gate(key)
                    key = ""
                    client.send(data[taken:])
            else:
                client.send(data)
        assert not key, "16 MiB were taken from a client whose application reads nothing"
        client.send(b"" if declared else b"0\r\n\r\n")
        assert client.response().body == f"{total} bytes, 0 blocks out of place".encode()


class Reader:
    """Reads the body of a response without keeping it."""

    def __init__(self, client: Client, every: int = 1 << 63) -> None:
        self.client = client
        self.numbers = Numbers(every)
        self.room = memoryview(bytearray(MIB))

    def head(self) -> None:
        """The response's head; what has come of the body behind it is taken too."""
        response = self.client.head()
        assert response.status == 200
        self.chunked = response.all("transfer-encoding") == [b"chunked"]
        #: Bytes of the current chunk, or of the whole body, to come; None when its size line has not ended.
        self.left: int | None = None if self.chunked else int(response.one("content-length"))
        self.line = b"\r\n"
        data = memoryview(bytes(self.client.buffer))
        self.client.buffer.clear()
        self.take(data)

    def read(self, numbered: bool = True) -> int:
        """All of the body, to its last byte and no further; how long it was."""
        while self.left != 0:
            length = self.client.sock.recv_into(self.room)
            assert length, f"closed after {self.numbers.total} bytes of the body"
            self.take(self.room[:length])
        assert self.numbers.wrong == 0 or not numbered, f"{self.numbers.wrong} blocks out of place"
        return self.numbers.total

    def take(self, data: memoryview) -> None:
        """Some of the body as it comes. A chunk's line begins with the CRLF of the one before."""
        while data:
            if self.left:
                piece, data = data[: self.left], data[self.left :]
                self.numbers.take(piece)
                self.left -= len(piece)
                if self.chunked and not self.left:
                    self.left = None
                continue
            assert self.left is None, f"bytes behind the body: {bytes(data[:100])!r}"
            # A line's end lies behind at least a digit; what is cut is gone on with.
            end = bytes(data[:16]).find(b"\n", 0 if len(self.line) > 2 else 2) + 1 or min(16, len(data))
            self.line += data[:end]
            data = data[end:]
            if self.line == b"\r\n0\r\n\r\n":
                self.left = 0
            elif self.line.endswith(b"\r\n") and not self.line.startswith(b"\r\n0") and len(self.line) > 2:
                self.left, self.line = int(self.line[2:-2], 16), b""


def download(server: Server, total: int, each: int, declared: bool, key: str = "") -> None:
    """Ask for so much, in messages of so many blocks; with a key, read only when the application has stopped."""
    target = f"/flow-download?key={key or each}&blocks={total // BLOCK}&each={each}" + "&declared=1" * declared
    with server.connect(timeout=30) as client:
        client.send(request(target))
        if key:
            sent = settled(lambda: int(server.notes(key).get("sent", 0)), quiet=0.1)  # type: ignore[call-overload]
            assert sent * BLOCK < 64 * MIB, "a client that reads nothing, and the application went on"
            assert server.get("/hello").status == 200
        reader = Reader(client, each if each > 1 else 1 << 63)
        reader.head()
        assert reader.read() == total
        assert client.get("/hello").status == 200


@pytest.mark.parametrize(("framing", "total"), [("length", GIB), ("chunked", PART)])
@pytest.mark.behaviour(9)
def test_an_upload_to_an_application_that_reads_slowly(server: Server, key: str, framing: str, total: int) -> None:
    with flat(server):
        upload(server, total, framing == "length", key)


@pytest.mark.parametrize(
    ("framing", "each", "total"),
    [("chunked", 1, GIB), ("length", 1, PART), ("length", 16, PART), ("chunked", 256, PART)],
)
@pytest.mark.behaviour(9, 24)
def test_a_download_by_a_client_that_reads_slowly(
    server: Server, key: str, framing: str, each: int, total: int
) -> None:
    """In messages of 64 KiB, 1 MiB and 16 MiB: of a large message the application holds the one copy there is."""
    download(server, 2 * each * BLOCK, each, framing == "length")  # the message is made
    with flat(server):
        download(server, total, each, framing == "length", key)
    assert int(server.notes(key)["sent"]) == total // BLOCK  # type: ignore[call-overload]


@pytest.mark.kqueue
@pytest.mark.beyond_uvicorn("does not know pathsend")
@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.behaviour(9, 21)
def test_a_file_to_a_client_that_reads_slowly(server: Server, key: str, holes: dict[int, Path], declared: bool) -> None:
    total = GIB if declared else PART
    with flat(server), server.connect(timeout=30) as client:
        client.send(request(f"/path-send?key={key}&path={holes[total]}" + f"&size={total}" * declared))
        server.note(key, "sent")
        assert server.get("/hello").status == 200
        reader = Reader(client)
        reader.head()
        assert reader.read(numbered=False) == total
        assert client.get("/hello").status == 200


@pytest.mark.kqueue
@pytest.mark.beyond_uvicorn("drops what is sent to a client that has gone")
@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("state", ["reading", "not reading"])
@pytest.mark.behaviour(13, 19, 20, 24)
def test_an_endless_stream_whose_client_vanishes(server: Server, key: str, how: str, state: str) -> None:
    """`send` raises OSError, `receive` reports the disconnect, `finally` runs: all of it within a second."""
    with flat(server):
        client = server.connect(rcvbuf=0 if state == "reading" else 65536)
        client.send(request(f"/flow-endless?key={key}"))
        if state == "reading":
            client.some(16 * MIB)
        else:
            settled(lambda: int(server.notes(key).get("sent", 0)), quiet=0.1)  # type: ignore[call-overload]
        left = time.monotonic()
        client.reset() if how == "reset" else client.close()
        for what in ("raised", "disconnected", "finally"):
            assert server.note(key, what) - left < 1.0, what  # type: ignore[operator]
