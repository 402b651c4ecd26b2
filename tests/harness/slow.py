"""Slow clients of the three kinds of slowhttptest, any number of them in one poll loop.

A process of its own, so that the test's fast client is not slowed by it:

    python slow.py HOST PORT PATH COUNT     JSON on standard output; a line "connected" when all have begun

Every client begins like an honest one and then gives a piece now and then. `head` never ends its request's head; `body`
announces a body, half of them by length and half in chunks, and stops in the middle of it; `read` asks for the endless
response at PATH and reads a few bytes of it now and then, which opens no window worth sending into. What is reported
for each: its kind, the status that it was answered with (0 for none), how long after its last honest byte it was let
go, and how that ended ("end" or "reset").
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from dataclasses import dataclass

PAUSE = 0.25
GIVE_UP = 12.0


@dataclass
class Slow:
    """One slow client."""

    kind: str
    sock: socket.socket
    began: float
    reply: bytes = b""
    ended: str = ""
    after: float = 0.0

    def trickle(self) -> None:
        """What it gives, or takes, now."""
        try:
            if self.kind == "head":
                self.sock.send(b"X-A: b\r\n")
            elif self.kind == "read":
                self.sock.recv(5)
        except BlockingIOError:
            pass
        except OSError:
            self.over("reset")

    def look(self) -> None:
        """Reads an answer. What reads slowly looks for the end only when it is told of a hang-up."""
        try:
            data = self.sock.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            self.over("reset")
            return
        self.reply += data
        if not data:
            self.over("end")

    def over(self, how: str) -> None:
        """The server has let go of it."""
        if not self.ended:
            self.ended, self.after = how, time.monotonic() - self.began
            self.sock.close()


def begin(kind: str, number: int, address: tuple[str, int], path: str) -> Slow:
    """Connect and send what is honest."""
    sock = socket.socket()
    if kind == "read":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        # As over a network: with the loopback's segments of 64 KiB the kernel would take megabytes for each of them.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1400)
    sock.connect(address)
    framing = "Content-Length: 4096" if number % 2 else "Transfer-Encoding: chunked"
    sock.sendall(
        {
            "head": "GET /hello HTTP/1.1\r\nHost: slow\r\n",
            "body": f"POST /upload HTTP/1.1\r\nHost: slow\r\n{framing}\r\n\r\n20\r\nnot all of it",
            "read": f"GET {path} HTTP/1.1\r\nHost: slow\r\n\r\n",
        }[kind].encode()
    )
    sock.setblocking(False)
    return Slow(kind, sock, time.monotonic())


def run(address: tuple[str, int], path: str, count: int) -> list[Slow]:
    """All of them until the last has ended."""
    kinds = ("head", "body", "read")
    clients = [begin(kinds[number % 3], number // 3, address, path) for number in range(count)]
    print("connected", flush=True)
    poll = select.poll()
    by_fd = {client.sock.fileno(): client for client in clients}
    for fd, client in by_fd.items():
        poll.register(fd, select.POLLRDHUP if client.kind == "read" else select.POLLIN)
    deadline = time.monotonic() + GIVE_UP
    due = time.monotonic() + PAUSE
    while by_fd and time.monotonic() < deadline:
        for fd, event in poll.poll(max(0.0, due - time.monotonic()) * 1000):
            client = by_fd[fd]
            if client.kind != "read":
                client.look()
            elif event & (select.POLLERR | select.POLLHUP | select.POLLRDHUP):
                client.over("reset" if event & select.POLLERR else "end")
        if time.monotonic() >= due:
            due += PAUSE
            for client in by_fd.values():
                if not client.ended:
                    client.trickle()
        for fd in [fd for fd, client in by_fd.items() if client.ended]:
            poll.unregister(fd)
            del by_fd[fd]
    return clients


def status(reply: bytes) -> int:
    """Of a whole answer with `connection: close`; 0 for none."""
    if not reply:
        return 0
    whole = reply.startswith(b"HTTP/1.1 ") and reply.count(b"HTTP/1.1 ") == 1
    return int(reply[9:12]) if whole and b"\r\nconnection: close\r\n" in reply else -1


if __name__ == "__main__":
    host, port, path, count = sys.argv[1:]
    shown = [
        {"kind": one.kind, "status": status(one.reply), "ended": one.ended, "after": one.after}
        for one in run((host, int(port)), path, int(count))
    ]
    print(json.dumps(shown))
