"""The drain under load (promises 29, 30): whatever a server has in hand when the signal comes ends as it should.

A request counts as accepted once it was dispatched to the application, and also when all of its bytes had reached the
machine before the signal: in the backlog of the listener, or in the socket of a connection that was idle. Accepted
requests are answered in full; the application's ledger of them and what the clients got are compared at the end.
Everything else is closed, so that its client knows: a request that was pipelined behind a response that says
`connection: close`, idle connections, new ones that say nothing, and heads that do not come to their end.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness.client import Client, chunked, request
from harness.server import Server, Target
from harness.waiting import SOON, until

Start = Callable[..., Server]
Play = Iterator[None]

BIG = 8 * 1024 * 1024


@dataclass
class Run:
    """One server and what its clients know: the requests that must have been accepted, and the answers they got."""

    server: Server
    sent: list[str] = field(default_factory=list)
    got: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)

    def open(self, name: str, *pieces: bytes, rcvbuf: int = 0) -> Client:
        """A new connection that has sent this, which makes the server accept a request of that name."""
        client = self.server.connect(rcvbuf=rcvbuf)
        client.send(*pieces)
        self.sent.append(name)
        return client

    def last(self, client: Client, name: str, text: str) -> None:
        """The answer, which was begun in the drain and says that it is the last; then the end."""
        response = client.response()
        assert response.body == text.encode(), response
        assert response.one("connection").lower() == b"close", response
        client.expect_end()
        self.got.append(name)


# --- what a connection is at; the first `yield` is the signal, and at the second the gate is open ---------------


def waiting(run: Run, name: str) -> Play:
    """A request that waits."""
    client = run.open(name, request(f"/wait?{name}"))
    yield
    yield
    run.last(client, name, f"wait {name}")


def in_a_thread(run: Run, name: str) -> Play:
    """A `def` endpoint."""
    client = run.open(name, request(f"/thread?{name}"))
    yield
    yield
    run.last(client, name, f"thread {name}")


def uploading(run: Run, name: str) -> Play:
    """A body that is still arriving, and goes on arriving."""
    client = run.open(name, request(f"/upload?{name}", "Content-Length: 40000", method="POST"), b"u" * 20_000)
    yield
    client.send(*[b"u" * 1000] * 10)
    yield
    client.send(*[b"u" * 1000] * 10)
    run.last(client, name, f"upload {name} 40000")


def uploading_chunks(run: Run, name: str) -> Play:
    """The same in chunks, the signal coming within one of them."""
    head = request(f"/upload?{name}", "Transfer-Encoding: chunked", method="POST")
    client = run.open(name, head, b"4e20\r\n" + b"u" * 10_000)
    yield
    client.send(b"u" * 10_000, b"\r\n")
    yield
    client.send(chunked(b"more"))
    run.last(client, name, f"upload {name} 20004")


def not_yet_asked_to_continue(run: Run, name: str) -> Play:
    """`Expect: 100-continue`, and the application asks for the body in the drain."""
    client = run.open(name, request(f"/expect?{name}", "Expect: 100-continue", "Content-Length: 5", method="POST"))
    yield
    yield
    assert client.head().status == 100
    client.send(b"bytes")
    run.last(client, name, f"expect {name} 5")


def asked_to_continue(run: Run, name: str) -> Play:
    """The same when it has asked for it before."""
    client = run.open(name, request(f"/upload?{name}", "Expect: 100-continue", "Content-Length: 5", method="POST"))
    assert client.head().status == 100
    yield
    client.send(b"bytes")
    run.last(client, name, f"upload {name} 5")
    yield


def the_stream(client: Client, name: str) -> None:
    """The rest of a stream whose first piece was read."""
    rest = b""
    while (chunk := client.chunk()) is not None:
        rest += chunk
    assert rest == f"{name} to its end".encode()


def streaming(run: Run, name: str) -> Play:
    """A response that has begun."""
    client = run.open(name, request(f"/stream?{name}"))
    assert (client.head().status, client.chunk()) == (200, b"stream ")
    yield
    yield
    the_stream(client, name)
    client.expect_end()
    run.got.append(name)


def pipelined(run: Run, name: str) -> Play:
    """Requests behind one whose response can still say that it is the last: they are dropped."""
    behind = [f"{name}-{number}" for number in range(3)]
    client = run.open(
        name, request(f"/wait?{name}") + b"".join(request(f"/quick?{other}") for other in behind) + b"GET /qui"
    )
    run.dropped += behind
    yield
    yield
    run.last(client, name, f"wait {name}")


def pipelined_behind_a_promise(run: Run, name: str) -> Play:
    """A request behind one whose response has begun and did not say so: it is served."""
    client = run.open(name, request(f"/stream?{name}") + request(f"/quick?{name}-next") + b"GET /qui")
    assert (client.head().status, client.chunk()) == (200, b"stream ")
    run.sent.append(f"{name}-next")
    yield
    yield
    the_stream(client, name)
    run.got.append(name)
    run.last(client, f"{name}-next", f"quick {name}-next")


def half_a_head_behind_a_promise(run: Run, name: str) -> Play:
    """The same when its head comes to its end only in the drain."""
    client = run.open(name, request(f"/stream?{name}") + request(f"/quick?{name}-next")[:20])
    assert (client.head().status, client.chunk()) == (200, b"stream ")
    run.sent.append(f"{name}-next")
    yield
    client.send(request(f"/quick?{name}-next")[20:])
    yield
    the_stream(client, name)
    run.got.append(name)
    run.last(client, f"{name}-next", f"quick {name}-next")


def half_a_head(run: Run, name: str) -> Play:
    """A head that has begun, and comes to its end in the drain."""
    client = run.open(name, request(f"/quick?{name}")[:20])
    yield
    client.send(request(f"/quick?{name}")[20:])
    run.last(client, name, f"quick {name}")
    yield


def idle(run: Run, name: str) -> Play:
    """A connection between two requests."""
    client = run.open(name, request(f"/quick?{name}"))
    assert client.response().body == f"quick {name}".encode()
    run.got.append(name)
    yield
    client.expect_end()
    yield


def silent(run: Run, name: str) -> Play:
    """A connection that has not said anything."""
    client = run.server.connect()
    yield
    yield
    client.expect_end()


def with_work_behind(run: Run, name: str) -> Play:
    """A background task behind a response."""
    client = run.open(name, request(f"/behind?{name}"))
    assert client.response().body == f"behind {name}".encode()
    run.got.append(name)
    yield
    client.expect_end()
    yield


def answered_early(run: Run, name: str) -> Play:
    """The rest of a body that the application did not want; the client goes on sending and then reads."""
    client = run.open(name, request(f"/early?{name}", "Content-Length: 90000", method="POST") + b"e" * 1000)
    until(client.waiting, "the early answer")
    yield
    client.send(b"e" * 1000)
    yield
    client.send(b"e" * 1000)
    assert client.response().body == f"early {name}".encode()
    client.expect_end()
    run.got.append(name)


def reading_slowly(run: Run, name: str) -> Play:
    """A client that takes its response in small pieces."""
    client = run.open(name, request(f"/big?{name}"), rcvbuf=65536)
    assert int(client.head().one("content-length")) == BIG
    yield
    assert client.some(1000) == name[:1].encode() * 1000
    yield
    for _ in range(8):
        client.some(4096)
        time.sleep(0.005)
    assert client.some(BIG - 1000 - 8 * 4096) == name[:1].encode() * (BIG - 1000 - 8 * 4096)
    client.expect_end()
    run.got.append(name)


def taking_a_file(run: Run, name: str) -> Play:
    """A file on its way."""
    client = run.open(name, request(f"/file?{name}"), rcvbuf=65536)
    assert int(client.head().one("content-length")) == BIG
    client.some(1000)
    yield
    client.some(4096)
    yield
    rest = client.some(BIG - 5096)
    assert rest.endswith(b"end of the file")
    client.expect_end()
    run.got.append(name)


#: How many of each there are in a crowd of two hundred. What must act soon after the signal comes first.
CROWD = {
    half_a_head: 10,
    half_a_head_behind_a_promise: 6,
    waiting: 40,
    in_a_thread: 12,
    uploading: 20,
    uploading_chunks: 20,
    not_yet_asked_to_continue: 8,
    asked_to_continue: 8,
    streaming: 20,
    pipelined: 10,
    pipelined_behind_a_promise: 8,
    idle: 20,
    silent: 8,
    with_work_behind: 8,
    answered_early: 4,
    reading_slowly: 4,
    taking_a_file: 2,
}


#: New connections at the signal: more than a server accepts in the few turns until its drain begins (64 in each).
BACKLOG = 300


def in_the_backlog(run: Run, count: int, new: int) -> list[tuple[Client, str]]:
    """New connections with a request, while nobody accepts them; and requests on idle ones, while nobody reads them."""
    idle = [run.server.connect() for _ in range(count)]
    for number, client in enumerate(idle):
        run.sent.append(f"warm-{number}")
        assert client.get(f"/quick?warm-{number}").body == f"quick warm-{number}".encode()
        run.got.append(f"warm-{number}")
    os.kill(run.server.pid, signal.SIGSTOP)
    until(lambda: "T (stopped)" in Path(f"/proc/{run.server.pid}/status").read_text(), "it stands still")
    late = []
    for number, client in enumerate(idle):
        client.send(request(f"/quick?idle-{number}"))
        run.sent.append(f"idle-{number}")
        late.append((client, f"idle-{number}"))
    for name in (f"late-{number}" for number in range(new)):
        late.append((run.open(name, request(f"/quick?{name}")), name))
    return late


def refused(server: Server) -> bool:
    """Whether a new connection is refused at once; one that is taken and left waiting would fail the test."""
    try:
        with server.connect():
            return False
    except ConnectionRefusedError:
        return True


@pytest.fixture
def big_file(tmp_path: Path) -> Path:
    """A file that takes its time."""
    path = tmp_path / "file"
    path.write_bytes(b"f" * (BIG - 15) + b"end of the file")
    return path


@pytest.mark.uvloop
@pytest.mark.beyond_uvicorn("resets its backlog, and drops heads that have begun and what is pipelined")
@pytest.mark.parametrize(("number", "share"), [(signal.SIGTERM, 1), (signal.SIGINT, 8)])
@pytest.mark.behaviour(29)
def test_a_crowd_of_every_kind_is_answered_or_closed(
    start: Start, number: int, share: int, tmp_path: Path, big_file: Path
) -> None:
    ledger = tmp_path / "ledger"
    server = start("drain_app:app", env={"LEDGER": str(ledger), "BIG_FILE": str(big_file)})
    run = Run(server)
    crowd = {kind: -(-count // share) for kind, count in CROWD.items()}
    plays = [kind(run, f"{kind.__name__}-{number}") for kind, count in crowd.items() for number in range(count)]
    opener = run.open("opener", request("/open-gate?opener", "Content-Length: 2", method="POST") + b"1")
    for play in plays:
        next(play)
    # Of what was sent, heads that have begun are not dispatched yet, nor what is pipelined.
    yet = crowd[half_a_head] + crowd[half_a_head_behind_a_promise] + crowd[pipelined_behind_a_promise]
    with server.connect() as asking:
        until(lambda: int(asking.get("/entered").body) == len(run.sent) - yet, "everything is in hand")
    late = in_the_backlog(run, -(-20 // share), -(-BACKLOG // share))

    began = time.monotonic()
    server.signal(number)
    server.signal(signal.SIGCONT)
    in_flight = int(server.line(r"stopping: (\d+) requests in flight")[1])
    assert in_flight >= crowd[waiting] + crowd[streaming] + crowd[uploading] + crowd[with_work_behind]
    for play in plays:
        next(play)
    for client, name in late:
        # It may have been answered a moment before the drain began.
        assert client.response().body == f"quick {name}".encode()
        client.expect_end()
        run.got.append(name)
    until(lambda: refused(server), "new connections are refused", 2.0)
    assert server.process.poll() is None
    opener.send(b"2")
    run.last(opener, "opener", "open-gate opener")
    for play in plays:
        next(play, None)

    assert server.wait() == 0
    assert time.monotonic() - began < 8.0, "the drain time-out"
    assert "abandoned" not in server.stderr
    assert "stopped after" in server.stderr
    noted = json.loads(ledger.read_text())
    assert sorted(noted["entered"]) == sorted(run.sent)
    assert sorted(noted["answered"]) == sorted(run.sent)
    assert sorted(run.got) == sorted(run.sent)
    assert len(noted["behind"]) == crowd[with_work_behind]
    assert not set(run.dropped) & set(noted["entered"])
    assert share > 1 or len(plays) >= 200


@pytest.mark.uvloop
@pytest.mark.beyond_uvicorn("has no drain time-out by default, and names nothing")
@pytest.mark.behaviour(30)
def test_what_does_not_end_is_cut_off_and_named(start: Start, big_file: Path) -> None:
    server = start("drain_app:app", "--drain-timeout", "1", env={"BIG_FILE": str(big_file)})
    run = Run(server)
    stuck = ["wait", "stream", "endless", "expect"]
    clients = [run.open(name, request(f"/{name}?{name}", "Content-Length: 0", method="POST")) for name in stuck]
    clients.append(run.open("upload", request("/upload?upload", "Content-Length: 9", method="POST") + b"half"))
    clients.append(run.open("big", request("/big?big"), rcvbuf=4096))
    behind = run.open("behind", request("/behind?behind"))
    assert behind.response().status == 200
    with server.connect() as asking:
        until(lambda: int(asking.get("/entered").body) == len(run.sent), "everything is in hand")
    began = time.monotonic()
    server.signal(signal.SIGTERM)
    behind.expect_end()
    assert server.wait(5) == 0
    assert 0.9 < time.monotonic() - began < 1.0 + 1.5 + 1.0
    for client in clients:
        client.to_end()
    named = next(line for line in server.stderr.splitlines() if "abandoned" in line)
    assert "the drain time-out of 1 s is over" in named
    for name in [*stuck, "upload", "big", "behind"]:
        assert f"/{name}" in named, named


@pytest.mark.beyond_uvicorn("says it in other words")
def test_the_end_is_two_lines_and_none_where_only_warnings_are_wanted(start: Start) -> None:
    for options, expected in (
        ((), ["stopping: nothing in flight; at most 8 s are left", "stopped after 0."]),
        (("--log-level", "warn"), []),
    ):
        server = start("drain_app:app", *options)
        with server.connect() as client:
            assert client.get("/quick?one").status == 200
            assert server.stop() == 0
        lines = [line for line in server.stderr.splitlines() if "ready" not in line]
        assert len(lines) == len(expected), lines
        for line, start_of_it in zip(lines, expected, strict=True):
            assert line.startswith(f"m0serve: {start_of_it}"), lines


@pytest.mark.uvloop
@pytest.mark.behaviour(29)
def test_a_rolling_restart_loses_nothing(target: Target) -> None:
    """Clients that open a connection for each request, while one server takes over from another on a shared socket."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener, contextlib.ExitStack() as stack:
        address = listener.getsockname()

        def serve() -> Server:
            fd = listener.fileno()
            server = Server(target, "drain_app:app", "--fd", str(fd), pass_fds=(fd,))
            stack.callback(server.kill)
            server.address = address
            return server

        counts, faults, over = [0, 0], [], threading.Event()

        def ask(number: int) -> None:
            while not over.is_set():
                try:
                    with Client(address) as client:
                        client.send(request(f"/quick?{number}", "Connection: close"))
                        assert client.response().status == 200
                        counts[number] += 1
                except (OSError, AssertionError) as error:
                    faults.append(repr(error))
                    return

        first = serve()
        askers = [threading.Thread(target=ask, args=(number,), daemon=True) for number in range(2)]
        for asker in askers:
            asker.start()
        for old, new in [(first, serve())]:
            until(lambda: min(counts) > 100, "both ask")
            assert old.stop() in (0, -signal.SIGTERM)
            seen = list(counts)
            until(lambda seen=seen: min(now - then for now, then in zip(counts, seen, strict=True)) > 100, "both go on")
            assert new.process.poll() is None
        over.set()
        for asker in askers:
            asker.join(SOON)
        assert faults == []
        assert new.stop() in (0, -signal.SIGTERM)
        assert not old.bad_output()
        assert not new.bad_output()
