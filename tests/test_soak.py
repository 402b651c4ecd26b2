"""A little of everything at once, as a seed decides: applications of both interfaces in one process, whose requests
read, wait, compute, stream, fail and leave, and clients that pipeline, tear, finish and vanish; then a signal while all
of it goes on (promises 2, 6, 8, 13, 18, 29, 37; R4, R8, R9).

Every answer is that of its request or breaks off where its application does, everything that begins ends once, and what
had been sent before the signal is answered. `M0_SEED` repeats what a failure prints, but for the order of things, which
is the machine's.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness.client import Client, WireError, chunked, request
from harness.server import APPS, Server
from harness.waiting import until

SEED = int(os.environ.get("M0_SEED") or int.from_bytes(os.urandom(4)))
CLIENTS = 6
TURNS = 5
FILE = Path(APPS, "static", "data.bin").read_bytes()


@dataclass
class Ask:
    """A request, and what must come back."""

    tag: str
    wsgi: bool
    steps: list[str] = field(default_factory=list)
    body: bytes | None = None
    method: str = "GET"
    answer: bytes = b""
    #: "whole", "error" (a 500) or "cut" (in the middle of its body)
    end: str = "whole"

    def data(self, pick: random.Random) -> bytes:
        """The request's bytes."""
        target = f"{'/w' if self.wsgi else ''}/{self.tag}/{','.join(self.steps)}"
        if self.body is None or pick.random() < 0.6:
            return request(target, method=self.method, body=self.body)
        cut = pick.randint(0, len(self.body))
        pieces = [piece for piece in (self.body[:cut], self.body[cut:]) if piece]
        return request(target, "Transfer-Encoding: chunked", method=self.method) + chunked(*pieces)

    def take(self, client: Client) -> bool:
        """Reads its answer and judges it; whether the connection goes on."""
        try:
            response = client.response(self.method)
        except WireError:
            assert self.end == "cut", f"broke off: {self}"
            return False
        assert self.end != "cut", f"looks whole: {self}"
        assert response.status == (500 if self.end == "error" else 200), (self, response)
        goes_on = response.all("connection") != [b"close"]
        if self.end == "error":
            return goes_on
        assert response.one("x-tag") == self.tag.encode(), (self, response)
        if "R" in self.steps:
            assert response.one("x-digest").decode() == hashlib.sha1(self.body or b"").hexdigest(), self
        if self.method != "HEAD":
            assert response.body == self.answer, self
        return goes_on


def length(pick: random.Random) -> int:
    """Of a piece."""
    return pick.choice((0, 1, 80, 3_000, pick.randrange(300_000) if pick.random() < 0.3 else 200))


def draw(pick: random.Random, tag: str, ends: tuple[str, ...] = ("whole",)) -> Ask:
    """Some request that ends in one of these ways."""
    ask = Ask(tag, wsgi=pick.random() < 0.5, end=pick.choice(ends))
    if pick.random() < 0.5:
        ask.method, ask.body = "POST", pick.randbytes(length(pick))
    elif pick.random() < 0.2 and ask.end == "whole":
        ask.method = "HEAD"
    add = ask.steps.append
    for _ in range(pick.randint(0, 2)):
        add(pick.choice(("z1", "z5", "k1", "f20")))
    if pick.random() < 0.6 or (ask.body and len(ask.body) > 2_000):
        add("R")
        if not ask.wsgi and pick.random() < 0.2:
            add("l")
    elif ask.body and pick.random() < 0.5:
        add("r")
    if ask.end == "error":
        add("x" if ask.wsgi else pick.choice("xqC"))
        return ask
    respond(pick, ask)
    return ask


def respond(pick: random.Random, ask: Ask) -> None:
    """The steps of a response, and its body."""
    pieces = [length(pick) for _ in range(pick.randint(1, 4))]
    sends_file = ask.end == "whole" and pick.random() < 0.1
    if sends_file:
        pieces = [] if ask.wsgi else pieces[:1]
    total = sum(pieces)
    ask.answer = (ask.tag.encode() * (total // len(ask.tag) + 1))[:total] + (FILE if sends_file else b"")
    # One that is cut has sent something, and of a known length comes short by a byte.
    said = len(ask.answer) + (81 if ask.end == "cut" else 0)
    ask.steps.append(pick.choice(("h", f"h{said}")))
    writes = pick.randrange(len(pieces)) if pieces and pick.random() < 0.2 else 0
    for number, size in enumerate(pieces):
        kind = ("w" if number < writes else "c") if ask.wsgi else pick.choice("cccctgw")
        ask.steps.append(f"{kind}{size}")
        if pick.random() < 0.2:
            ask.steps.append(pick.choice(("z1", "z5", "k1")))
    if ask.end == "cut":
        ask.steps += ["c80", "x"]
    elif sends_file:
        ask.steps.append("p")
    elif not ask.wsgi:
        ask.steps.append("e0")
    if ask.end == "whole" and pick.random() < 0.2:
        ask.steps.append("X" if ask.wsgi else pick.choice(("z5", "d5", "d20")))


def pipeline(pick: random.Random, tag: str) -> list[Ask]:
    """Some requests, of which only the last may end the connection."""
    asks = [draw(pick, f"{tag}.{number}.") for number in range(pick.randint(0, 3))]
    return [*asks, draw(pick, f"{tag}.9.", ("whole", "whole", "whole", "error", "cut"))]


def converse(server: Server, pick: random.Random, tag: str) -> None:
    """A client that reads all its answers, over one connection as long as that goes on."""
    with server.connect(rcvbuf=pick.choice((0, 0, 4096))) as client:
        for turn in range(TURNS):
            asks = pipeline(pick, f"{tag}.{turn}")
            data = b"".join(ask.data(pick) for ask in asks)
            cut = pick.randint(0, min(len(data), 2_000))
            finishes = pick.random() < 0.2
            sender = threading.Thread(target=feed, args=(client, data[:cut], data[cut:], finishes))
            sender.start()
            goes_on = [ask.take(client) for ask in asks]
            sender.join()
            assert all(goes_on[:-1]), f"closed early: {asks}"
            if finishes or not goes_on[-1]:
                assert client.to_end() == b"" or asks[-1].end == "cut"
                return


def feed(client: Client, first: bytes, rest: bytes, finishes: bool) -> None:
    """Sends beside the reading, which may hold it up."""
    with contextlib.suppress(OSError):  # an answer that ends the connection may come before the whole request
        client.send(first, rest)
        if finishes:
            client.finish()


def tear(server: Server, pick: random.Random, tag: str) -> None:
    """Clients that leave at any moment."""
    for turn in range(TURNS):
        data = b"".join(ask.data(pick) for ask in pipeline(pick, f"{tag}.{turn}"))[:100_000]
        with server.connect(timeout=0.05) as client, contextlib.suppress(OSError, WireError):
            client.send(data[: pick.randint(0, len(data))])
            if pick.random() < 0.3:
                client.finish()
            if pick.random() < 0.5:
                client.some(pick.choice((1, 200, 5_000)))
            time.sleep(pick.choice((0, 0.001, 0.01)))
            if pick.random() < 0.5:
                client.reset()


def is_over(server: Server) -> bool:
    """Whether all that began has ended, once."""
    open_sockets = server.usage().sockets - server.baseline.sockets  # first: asking for the counts takes one
    counts = Counter(server.get("/counts").json())
    return counts["in"] == counts["out"] and counts["iterable"] == counts["closed"] and open_sockets <= 0


@pytest.mark.beyond_uvicorn("it serves one application")
@pytest.mark.behaviour(2, 6, 8, 13, 18, 29, 37)
def test_whatever_requests_and_clients_do_each_is_answered_as_itself(start: Callable[..., Server]) -> None:
    print(f"repeat this with M0_SEED={SEED}")
    server = start("soak_app:app", "--mount", "/w=soak_app:site", "--blocking-threads", "3")
    picks = [random.Random(f"{SEED} {number}") for number in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as pool:
        jobs = [
            pool.submit(tear if number % 3 == 2 else converse, server, pick, str(number))
            for number, pick in enumerate(picks)
        ]
        for job in jobs:
            job.result()
    until(lambda: is_over(server), "what began has ended")
    clients = [(server.connect(), draw(pick, f"last.{number}.")) for number, pick in enumerate(picks)]
    for (client, ask), pick in zip(clients, picks, strict=True):
        client.send(ask.data(pick))
    server.signal(signal.SIGTERM)
    for client, ask in clients:
        ask.take(client)
        assert client.to_end() == b"", ask
        client.close()
    assert server.wait() == 0
    assert "drain time-out" not in server.stderr
