"""Small blocking HTTP/1.1 client pieces: one response, a counted number of requests, many idle connections."""

from __future__ import annotations

import socket

BROWSER = {
    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
    "Accept-Language": "en-GB,en;q=0.5",
    "Accept-Encoding": "gzip, deflate, br",
    "Referer": "http://127.0.0.1/index.html",
    "Cookie": "session=0123456789abcdef0123456789abcdef; theme=dark",
    "Cache-Control": "max-age=0",
    "Upgrade-Insecure-Requests": "1",
    "DNT": "1",
}
"""With `Host`, which every client adds itself, ten fields."""


def request(path: str, body: bytes | None = None) -> bytes:
    """The bytes of a browser-like request."""
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"{name}: {value}" for name, value in BROWSER.items()]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b"")


class Connection:
    """One keep-alive connection that reads whole responses."""

    def __init__(self, port: int, source: str = "127.0.0.1") -> None:
        """Connects from a loopback address."""
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20, source_address=(source, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def _line(self) -> bytes:
        while b"\r\n" not in self.buffer:
            self._more()
        line, _, self.buffer = self.buffer.partition(b"\r\n")
        return line

    def _more(self) -> None:
        piece = self.socket.recv(65536)
        if not piece:
            raise ConnectionError("the server closed the connection inside a response")
        self.buffer += piece

    def _exactly(self, count: int) -> bytes:
        while len(self.buffer) < count:
            self._more()
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def ask(self, path: str, body: bytes | None = None) -> tuple[int, dict[str, str], bytes]:
        """Sends a request and returns status, fields (names in lower case) and body."""
        self.socket.sendall(request(path, body))
        status = int(self._line().split(b" ", 2)[1])
        fields: dict[str, str] = {}
        while line := self._line():
            name, _, value = line.partition(b":")
            fields[name.decode().lower()] = value.decode().strip()
        if fields.get("transfer-encoding") == "chunked":
            pieces = []
            while size := int(self._line().split(b";")[0], 16):
                pieces.append(self._exactly(size))
                self._exactly(2)
            while self._line():
                pass
            return status, fields, b"".join(pieces)
        return status, fields, self._exactly(int(fields.get("content-length", "0")))

    def close(self) -> None:
        """Closes it."""
        self.socket.close()


def get(port: int, path: str) -> tuple[int, dict[str, str], bytes]:
    """One request on a connection of its own."""
    connection = Connection(port)
    try:
        return connection.ask(path)
    finally:
        connection.close()
