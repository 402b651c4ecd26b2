"""Views of every kind at once while other processes take the CPUs: every answer is right, none is lost (promise 28).

The views sleep, compute, stream, read bodies that are late, raise before and after their first block, and hang, in
programs that a seed decides. Threads of the server lose their CPU at any point of a hand-over between them.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlencode

import pytest

from harness.client import Client, WireError, request
from harness.server import Server
from harness.waiting import until

pytestmark = pytest.mark.wsgi

Start = Callable[..., Server]
HOGS = 3
VISITORS = 10
TURNS = 14
THREADS = 6
HANGING = 2


@contextmanager
def hogs() -> Iterator[None]:
    """Processes that take every CPU."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(HOGS)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@dataclass
class Ask:
    """A request for `/steps`, and what must come back."""

    data: bytes
    body: bytes
    answer: bytes = b""
    explodes: str = ""

    @classmethod
    def random(cls, pick: random.Random, tag: str) -> Ask:
        """Some steps in the call and some while the body is iterated; the request's body has what they read."""
        ask = cls(b"", b"")
        query = {"tag": tag}
        for part in ("call", "body"):
            steps = []
            for number in range(pick.randint(0, 4)):
                kind, amount = pick.choice("scrw"), pick.choice((0, 1, 1, 2, 7))
                if kind == "w":
                    ask.answer += f"{tag}:{number} ".encode()
                    amount = number
                elif kind == "r":
                    piece = pick.randbytes(pick.choice((1, 300, 20_000)))
                    ask.body, ask.answer, amount = ask.body + piece, ask.answer + piece, len(piece)
                steps.append(f"{kind}{amount}")
            if not ask.explodes and pick.random() < 0.05:
                steps.append("x0")
                ask.explodes = part
            query[part] = " ".join(steps)
        fields = [f"Content-Length: {len(ask.body)}"] if ask.body else []
        ask.data = request(f"/steps?{urlencode(query)}", *fields, method="POST" if ask.body else "GET")
        return ask

    def is_answered(self, client: Client) -> bool:
        """Reads the answer; whether the connection can be used for more."""
        if self.explodes == "body":
            with pytest.raises(WireError):
                client.response()
            return False
        response = client.response()
        if self.explodes:
            assert (response.status, response.body) == (500, b"Internal Server Error\n")
        else:
            assert (response.status, response.body) == (200, self.answer)
        return not response.all("connection")


def visit(server: Server, seed: int) -> None:
    """One client: asks, sends its bodies in pieces, now and then two requests at once or none of it to the end."""
    pick = random.Random(seed)
    client = server.connect(timeout=60)
    for turn in range(TURNS):
        asks = [Ask.random(pick, f"{seed}-{turn}-{number}") for number in range(pick.choice((1, 1, 2)))]
        for ask in asks:
            middle = pick.randint(0, len(ask.body))
            client.send(ask.data + ask.body[:middle])
            if ask is asks[-1] and pick.random() < 0.5:
                time.sleep(pick.choice((0, 0.002, 0.01)))  # late, as clients are
            if middle < len(ask.body):
                client.send(ask.body[middle:])
        leaves = pick.random() < 0.05
        if leaves:
            client.reset()
        if leaves or not all(ask.is_answered(client) for ask in asks):
            client.close()
            client = server.connect(timeout=60)
    client.close()


@pytest.mark.behaviour(28)
def test_views_of_every_kind_beside_processes_that_take_the_cpus(start: Start, key: str) -> None:
    server = start("wsgi_app:plain", "--blocking-threads", str(THREADS), validated=False)
    hanging = [server.connect(timeout=60) for _ in range(HANGING)]
    for client in hanging:
        client.send(request(f"/waits?key={key}"))
    until(lambda: server.get("/noted").json().count(f"began {key}") == HANGING, "the views that hang")
    faults: list[str] = []

    def run(seed: int) -> None:
        try:
            visit(server, seed)
        except BaseException as error:
            faults.append(f"seed {seed}: {error!r}")

    visitors = [threading.Thread(target=run, args=(seed,)) for seed in range(VISITORS)]
    with hogs():
        for visitor in visitors:
            visitor.start()
        for visitor in visitors:
            visitor.join()
    assert not faults
    assert server.get(f"/opens?key={key}").body == b"hello"
    for client in hanging:
        assert client.response().body == b"waited"
        client.close()
    assert server.stop() == 0
