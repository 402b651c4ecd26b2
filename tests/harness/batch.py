"""Many raw connections at once, and what the application saw on each of them (apps/framing_app.py).

What was sent on a connection has been read by the server once a whole request on another connection, begun later, has
been answered: the fence. So pieces arrive one at a time without a sleep, and a few hundred connections share a fence.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from .client import Client, WireError
from .server import Server
from .waiting import SOON

#: Connections that are open at the same time.
AT_ONCE = 250

_STATUS = re.compile(rb"HTTP/1\.1 ([1-5][0-9][0-9]) [ -~]*")
_LENGTH = re.compile(rb"content-length: *([0-9]+)", re.IGNORECASE)


@dataclass(frozen=True)
class Call:
    """One request as the application saw it. Bytes are strings of latin-1."""

    method: str
    path: str
    query: str
    version: str
    headers: list[list[str]]
    body: str
    complete: bool


@dataclass
class Outcome:
    """What came of one connection."""

    #: Final status codes, in order.
    statuses: list[int] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    @property
    def refused(self) -> bool:
        """Its last answer was a refusal, or it was closed without any."""
        return not self.statuses or self.statuses[-1] >= 400


def statuses(data: bytes) -> tuple[list[int], bytes]:
    """The final responses at the front of `data`, each of which has a Content-Length, and what is left of it."""
    found = []
    while (end := data.find(b"\r\n\r\n")) >= 0:
        head = data[:end]
        status, length = _STATUS.match(head), _LENGTH.search(head)
        if not status:
            raise WireError(f"no response: {data[:300]!r}")
        if status[1] < b"200":
            data = data[end + 4 :]
            continue
        if not length:
            raise WireError(f"a response without Content-Length: {data[:300]!r}")
        if len(data) < end + 4 + int(length[1]):
            break
        data = data[end + 4 + int(length[1]) :]
        found.append(int(status[1]))
    return found, data


class Connection:
    """One of many; once the server has gone what is still to be sent is dropped, as it would be on the way."""

    def __init__(self, address: tuple[str, int]) -> None:
        # Of tens of thousands each: without a name to look up.
        self.sock = socket.socket()
        self.sock.settimeout(SOON)
        self.sock.connect(address)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port: int = self.sock.getsockname()[1]
        self.statuses: list[int] = []
        self.ended = False
        self._unread = b""

    def send(self, piece: bytes) -> None:
        """Send a piece."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.sock.sendall(piece)

    def finish(self) -> None:
        """Send a FIN."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def read(self, responses: int) -> None:
        """Read until there have been so many responses, or to the end; fails when neither comes."""
        while not self.ended and len(self.statuses) < responses:
            self._read_once()

    def read_to_end(self) -> None:
        """Read to the end of the stream; fails when it does not come."""
        while not self.ended:
            self._read_once()

    def is_quiet(self) -> bool:
        """Whether neither an end nor another final response has come by now."""
        before = len(self.statuses)
        self.sock.setblocking(False)
        try:
            while not self.ended:
                self._read_once()
        except BlockingIOError:
            pass
        finally:
            self.sock.settimeout(SOON)
        return not self.ended and len(self.statuses) == before

    def _read_once(self) -> None:
        try:
            data = self.sock.recv(65536)
        except ConnectionResetError:
            data = b""
        except TimeoutError:
            raise WireError(f"neither a response nor an end within {SOON} s, after {self.statuses}") from None
        self.ended = not data
        found, self._unread = statuses(self._unread + data)
        self.statuses += found
        if self.ended and self._unread.endswith(b"\r\n\r\n"):
            # The refusal of a HEAD, or the 500 to one: its Content-Length is that of a body it does not have.
            self.statuses.append(int(self._unread[9:12]))
        elif self.ended and self._unread:
            raise WireError(f"cut off within a response: {self._unread[:300]!r}")


class Batch:
    """Connections to one server, opened together; leaving the block closes them."""

    def __init__(self, server: Server, count: int) -> None:
        assert isinstance(server.address, tuple)
        self._fence = server.connect()
        self.connections = [Connection(server.address) for _ in range(count)]

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, *_: object) -> None:
        self._fence.close()
        for connection in self.connections:
            connection.sock.close()

    def fence(self) -> None:
        """Returns when the server has read all that was sent."""
        ask(self._fence, "/-/fence")

    def outcomes(self) -> list[Outcome]:
        """What has come of the connections so far, in their order."""
        calls = ask(self._fence, "/-/calls")
        return [
            Outcome(connection.statuses, [Call(**call) for call in calls.get(str(connection.port), [])])
            for connection in self.connections
        ]


def ask(client: Client, target: str) -> dict[str, list[dict[str, object]]]:
    """One request on the fence's connection."""
    response = client.get(target)
    assert response.status == 200, response
    return dict(response.json()) if response.body else {}


def play(server: Server, scripts: Iterable[Sequence[bytes]]) -> Iterator[Outcome]:
    """Plays each script on a connection of its own: its pieces with a fence between them, then a FIN."""
    waiting = iter(scripts)
    while scripts_now := list(islice(waiting, AT_ONCE)):
        with Batch(server, len(scripts_now)) as batch:
            for turn in range(max(map(len, scripts_now))):
                if turn:
                    batch.fence()
                for connection, script in zip(batch.connections, scripts_now, strict=True):
                    if turn < len(script):
                        connection.send(script[turn])
                    if turn == len(script) - 1:
                        connection.finish()
            for connection in batch.connections:
                connection.read_to_end()
            yield from batch.outcomes()
