"""A raw HTTP/1.1 client that is strict about what it reads and waits for nothing longer than its time-out.

It sends exactly the bytes that a test gives it. What it reads must be HTTP/1.1 to the letter: CRLF line ends, one
framing, no stray bytes; anything else fails the test that read it.
"""

from __future__ import annotations

import json
import re
import select
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import Any, Self

from .waiting import SOON

_STATUS = re.compile(rb"HTTP/1\.1 ([1-5][0-9][0-9]) ([\t\x20-\x7e\x80-\xff]*)")
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_SIZE = re.compile(rb"[0-9a-fA-F]{1,15}")


class WireError(AssertionError):
    """The server wrote something that is not HTTP/1.1, or stopped writing in the middle."""


@dataclass
class Response:
    """One response, as it came."""

    status: int
    reason: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes = b""
    #: "none", "length", "chunked" or "close"
    framing: str = "none"
    #: 1xx responses that came before it
    interim: list[int] = field(default_factory=list)
    #: sizes of the chunks as they stood on the wire, without the last
    chunks: list[int] = field(default_factory=list)

    def all(self, name: str) -> list[bytes]:
        """Every value of a header, in order."""
        want = name.encode().lower()
        return [value for key, value in self.headers if key.lower() == want]

    def one(self, name: str) -> bytes:
        """The value of a header that must be there exactly once."""
        values = self.all(name)
        assert len(values) == 1, f"{name}: {values}"
        return values[0]

    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)


class Client:
    """One connection."""

    def __init__(self, address: tuple[str, int] | str, timeout: float = SOON, rcvbuf: int = 0) -> None:
        if isinstance(address, str):
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        else:
            family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
            self.sock = socket.socket(family, socket.SOCK_STREAM)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if rcvbuf:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.timeout = timeout
        self.sock.settimeout(timeout)
        self.sock.connect(address)
        self.buffer = bytearray()
        self.eof = False
        #: Bytes that have come, ever.
        self.came = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- sending ---------------------------------------------------------------------------------------------

    def send(self, *pieces: bytes) -> None:
        """Send every piece, each in a call of its own."""
        for piece in pieces:
            self.sock.sendall(piece)

    def send_until_blocked(self, data: bytes, limit: int, quiet: float = 0.5) -> int:
        """Send `data` over and over until the peer has taken nothing for `quiet` seconds; return the bytes taken."""
        sent = 0
        poll = select.poll()
        poll.register(self.sock, select.POLLOUT)
        self.sock.setblocking(False)
        try:
            while sent < limit:
                if not poll.poll(quiet * 1000):
                    return sent
                piece = data[sent % len(data) :][: limit - sent]
                try:
                    sent += self.sock.send(piece)
                except BlockingIOError:
                    continue
        finally:
            self.sock.settimeout(self.timeout)
        return sent

    def finish(self) -> None:
        """Send a FIN and keep reading."""
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Go away with an RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def close(self) -> None:
        """Close."""
        self.sock.close()

    # --- reading ---------------------------------------------------------------------------------------------

    def _fill(self, deadline: float) -> bool:
        """Read once; False at the end of the stream."""
        if self.eof:
            return False
        self.sock.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            data = self.sock.recv(262144)
        except TimeoutError:
            raise WireError(f"nothing came within {self.timeout} s; so far: {bytes(self.buffer[:500])!r}") from None
        finally:
            self.sock.settimeout(self.timeout)
        if not data:
            self.eof = True
            return False
        self.came += len(data)
        self.buffer += data
        return True

    def _need(self, count: int, deadline: float) -> bytes:
        while len(self.buffer) < count:
            if not self._fill(deadline):
                raise WireError(f"closed {count - len(self.buffer)} bytes too early: {bytes(self.buffer[:500])!r}")
        data = bytes(self.buffer[:count])
        del self.buffer[:count]
        return data

    def _line(self, deadline: float) -> bytes:
        while (end := self.buffer.find(b"\n")) < 0:
            if not self._fill(deadline):
                raise WireError(f"closed within a line: {bytes(self.buffer[:500])!r}")
        line = self._need(end + 1, deadline)
        if not line.endswith(b"\r\n") or b"\r" in line[:-2]:
            raise WireError(f"line does not end in one CRLF: {line!r}")
        return line[:-2]

    def _fields(self, deadline: float) -> list[tuple[bytes, bytes]]:
        fields = []
        while line := self._line(deadline):
            name, colon, value = line.partition(b":")
            if not colon or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
                raise WireError(f"bad field line: {line!r}")
            fields.append((name, value.strip(b" \t")))
        return fields

    def head(self, deadline: float | None = None) -> Response:
        """Read one head (a final one or an interim one)."""
        deadline = deadline or time.monotonic() + self.timeout
        line = self._line(deadline)
        match = _STATUS.fullmatch(line)
        if not match:
            raise WireError(f"bad status line: {line!r}")
        return Response(int(match[1]), match[2], self._fields(deadline))

    def response(self, method: str = "GET") -> Response:
        """Read one whole response to a request of `method`, with any 1xx before it."""
        deadline = time.monotonic() + self.timeout
        interim = []
        while True:
            head = self.head(deadline)
            if head.status >= 200:
                break
            assert not head.all("content-length"), head
            assert not head.all("transfer-encoding"), head
            interim.append(head.status)
        head.interim = interim
        self._frame(head, method)
        if head.framing == "length":
            head.body = self._need(int(head.one("content-length")), deadline)
        elif head.framing == "chunked":
            while (chunk := self.chunk(deadline)) is not None:
                head.chunks.append(len(chunk))
                head.body += chunk
        elif head.framing == "close":
            while self._fill(deadline):
                pass
            head.body, self.buffer = bytes(self.buffer), bytearray()
        return head

    @staticmethod
    def _frame(head: Response, method: str) -> None:
        lengths, codings = head.all("content-length"), head.all("transfer-encoding")
        if len(lengths) > 1 or (lengths and not lengths[0].isdigit()):
            raise WireError(f"bad content-length: {lengths}")
        if codings not in ([], [b"chunked"]):
            raise WireError(f"bad transfer-encoding: {codings}")
        if lengths and codings:
            raise WireError("both content-length and transfer-encoding")
        if method == "HEAD" or head.status in (204, 304):
            head.framing = "none"
        elif codings:
            head.framing = "chunked"
        elif lengths:
            head.framing = "length"
        else:
            head.framing = "close"

    def chunk(self, deadline: float | None = None) -> bytes | None:
        """Read one chunk of a chunked body; None for the last one (its trailer section must be empty)."""
        deadline = deadline or time.monotonic() + self.timeout
        line = self._line(deadline)
        if not _SIZE.fullmatch(line):
            raise WireError(f"bad chunk size line: {line!r}")
        size = int(line, 16)
        if size == 0:
            if trailers := self._fields(deadline):
                raise WireError(f"unexpected trailers: {trailers}")
            return None
        data = self._need(size, deadline)
        if self._need(2, deadline) != b"\r\n":
            raise WireError("chunk without its CRLF")
        return data

    def some(self, count: int) -> bytes:
        """Read exactly `count` bytes."""
        return self._need(count, time.monotonic() + self.timeout)

    def to_end(self) -> bytes:
        """Everything up to the end of the stream. A reset counts as an end."""
        deadline = time.monotonic() + self.timeout
        try:
            while self._fill(deadline):
                pass
        except (ConnectionResetError, BrokenPipeError):
            self.eof = True
        data, self.buffer = bytes(self.buffer), bytearray()
        return data

    def expect_end(self) -> None:
        """The server must close now, and nothing may come before that."""
        rest = self.to_end()
        assert rest == b"", f"bytes after the response: {rest[:500]!r}"

    def expect_fin(self) -> None:
        """The same in good order: a reset, which may destroy what came before it, is no such end."""
        deadline = time.monotonic() + self.timeout
        while self._fill(deadline):
            pass
        assert not self.buffer, f"bytes after the response: {bytes(self.buffer[:500])!r}"

    def waiting(self) -> bytes:
        """What has come and was not read, without waiting."""
        while not self.eof and self._readable():
            if not self._fill(time.monotonic() + 0.1):
                break
        return bytes(self.buffer)

    def _readable(self) -> bool:
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return bool(poll.poll(0))

    # --- the common case -------------------------------------------------------------------------------------

    def get(self, target: str, *headers: str, method: str = "GET", body: bytes | None = None) -> Response:
        """Send one ordinary request, read its response; nothing may follow it."""
        self.send(request(target, *headers, method=method, body=body))
        response = self.response(method)
        assert self.waiting() == b"", f"bytes after the response: {self.waiting()[:500]!r}"
        return response


def request(target: str, *headers: str, method: str = "GET", body: bytes | None = None) -> bytes:
    """The bytes of one request; `body` gets a Content-Length."""
    lines = [f"{method} {target} HTTP/1.1"]
    if not any(header.lower().startswith("host:") for header in headers):
        lines.append("Host: testserver")
    lines += headers
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b"")


def chunked(*chunks: bytes) -> bytes:
    """A chunked body, its end included."""
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
