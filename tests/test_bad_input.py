"""Clients that send nonsense, too much, too little or nothing, while another client notices nothing of it."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import pytest

from harness.client import chunked, request
from harness.server import Server, Servers

MIB = 1024 * 1024
OPTIONS = ("--header-timeout", "1", "--body-timeout", "1", "--max-body", "100k", "--max-head", "8k")

pytestmark = pytest.mark.beyond_uvicorn("has no limits to hold")


@pytest.fixture
def server(servers: Servers) -> Iterator[Server]:
    """A server with limits, and a client beside the test that must notice nothing; memory is flat at the end."""
    server = servers.get("probe:app", *OPTIONS)
    with server.connect() as warm:
        for _ in range(50):
            warm.get("/echo", method="POST", body=b"x" * 50_000)
    before = server.usage()
    stop = threading.Event()
    failed: list[BaseException] = []

    def witness() -> None:
        try:
            with server.connect(timeout=3) as client:
                while not stop.wait(0.005):
                    assert client.get("/echo", method="POST", body=b"witness").body == b"witness"
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=witness)
    thread.start()
    yield server
    stop.set()
    thread.join(10)
    assert not failed, f"the other client was disturbed: {failed[0]!r}"
    assert server.get("/hello").status == 200
    after = server.usage()
    assert after.rss - before.rss < 8 * MIB, f"{(after.rss - before.rss) // 1024} KiB more"


def refusal(reply: bytes) -> bool:
    """Nothing, or one refusal."""
    return reply == b"" or (reply.startswith(b"HTTP/1.1 4") and reply.count(b"HTTP/1.1") == 1)


def exchange(server: Server, *pieces: bytes, finish: bool = False) -> bytes:
    """Send whatever it is, as far as it is taken; read to the end."""
    with server.connect(timeout=6) as client:
        try:
            client.send(*pieces)
            if finish:
                client.finish()
        except OSError:
            pass
        return client.to_end()


def test_garbage(server: Server) -> None:
    chance = random.Random(7)
    for _ in range(60):
        noise = chance.randbytes(chance.randrange(1, 3000))
        assert refusal(exchange(server, noise, finish=True))
    for _ in range(20):
        text = "".join(chance.choice("GETPOS /:\r\n\tHost1.abc%?#") for _ in range(chance.randrange(1, 2000)))
        assert refusal(exchange(server, text.encode(), finish=True))


def test_requests_with_one_byte_changed(server: Server) -> None:
    """Whatever a changed byte makes of a request: it is answered or refused, the connection ends, nothing hangs."""
    chance = random.Random(11)
    good = request("/echo", "X-A: b", "Connection: close", "Transfer-Encoding: chunked", method="POST")
    good += chunked(b"some", b"body")
    for _ in range(150):
        data = bytearray(good)
        data[chance.randrange(len(data))] = chance.randrange(256)
        reply = exchange(server, bytes(data), finish=True)
        assert reply == b"" or reply.startswith(b"HTTP/1.1 "), (data, reply)
        assert reply.count(b"HTTP/1.1 ") <= 1, (data, reply)


@pytest.mark.parametrize(
    ("start_of", "piece"),
    [
        (b"", b"x"),
        (b"GET /", b"x"),
        (b"GET /hello HTTP/1.1\r\n", b"X-A: b\r\n"),
        (b"GET /hello HTTP/1.1\r\nX-A: ", b"b"),
        (b"GET /hello HTTP/1.1\r\n", b"\r"),
        (b"", b"\r\n"),
        (b"POST /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
        (b"POST /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"e"),
        (b"POST /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"A: b\r\n"),
        (b"POST /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    ],
)
def test_input_without_an_end(server: Server, start_of: bytes, piece: bytes) -> None:
    with server.connect(timeout=6) as client:
        sent = 0
        try:
            client.send(start_of)
            while sent < 64 * MIB and not client.waiting() and not client.eof:
                client.send(piece * (65536 // len(piece)))
                sent += 65536
        except OSError:
            pass
        assert sent < 64 * MIB, "64 MiB of this were taken"
        assert refusal(client.to_end())


@pytest.mark.parametrize(
    "body",
    [b"fffffffffffffffff\r\n", b"ffffffffffffffff\r\n", b"7fffffffffffffff\r\n", b"-1\r\n", b"10000000000000000\r\nx"],
)
def test_a_chunk_size_that_overflows(server: Server, body: bytes) -> None:
    head = request("/upload", "Transfer-Encoding: chunked", method="POST")
    assert exchange(server, head + body).startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 413 "))


def test_content_length_with_transfer_encoding(server: Server) -> None:
    head = request("/upload", "Content-Length: 3", "Transfer-Encoding: chunked", method="POST")
    reply = exchange(server, head + b"0\r\n\r\n" + request("/hello"))
    assert reply.startswith(b"HTTP/1.1 400 ")
    assert b"Hello" not in reply


def test_bodies_over_the_limit(server: Server) -> None:
    for _ in range(5):
        assert exchange(server, request("/upload", "Content-Length: 999999999999", method="POST")).startswith(
            b"HTTP/1.1 413 "
        )
        with server.connect(timeout=6) as client:
            client.send(request("/upload", "Transfer-Encoding: chunked", method="POST") + chunked(*[b"x" * 1000] * 200))
            assert client.response().status == 413
            client.expect_end()


@pytest.mark.parametrize("how", ["close", "reset", "silence"])
@pytest.mark.parametrize("framing", ["Content-Length: 90000", "Transfer-Encoding: chunked"])
def test_clients_that_vanish_within_their_upload(server: Server, key: str, how: str, framing: str) -> None:
    clients = [server.connect(timeout=6) for _ in range(30)]
    for client in clients:
        client.send(request(f"/read-slowly?key={key}", framing, method="POST"), b"4000\r\n" + b"x" * 10_000)
    server.open_gate(key)
    server.expected_tracebacks.append("the client left")
    for client in clients:
        if how == "close":
            client.close()
        elif how == "reset":
            client.reset()
    assert server.note(key, "disconnected")
    if how == "silence":
        for client in clients:
            assert client.response().status == 408
            client.expect_end()
            client.close()
    assert "complete" not in server.notes(key)


def test_clients_that_stop_reading(server: Server, key: str) -> None:
    clients = [server.connect(rcvbuf=32768) for _ in range(20)]
    for client in clients:
        client.send(request(f"/endless?key={key}&size=65536"))
    with server.connect() as other:
        for _ in range(100):
            assert other.get("/hello").status == 200
    for client in clients:
        client.reset()
    assert server.note(key, "finally")


def test_connections_that_say_nothing(server: Server) -> None:
    clients = [server.connect(timeout=6) for _ in range(200)]
    with server.connect() as other:
        assert other.get("/hello").status == 200
    for client in clients:
        assert refusal(client.to_end())
        client.close()


def test_heads_that_trickle(server: Server) -> None:
    clients = [server.connect(timeout=6) for _ in range(100)]
    for client in clients:
        client.send(b"GET /hello HTTP/1.1\r\nX")
    for client in clients:
        assert client.response().status == 408
        client.expect_end()
        client.close()


def test_a_smuggled_request_is_never_answered(server: Server) -> None:
    """Heads on whose end two parsers might disagree: what could be a second request is not taken for one."""
    inner = request("/count")
    for head in (
        b"POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 0\r\n\r\n",
        b"POST /hello HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x\r\nContent-Length: 0\r\n\r\n",
        b"POST /hello HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\tchunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n",
        b"POST /hello HTTP/1.1\r\nHost: a\r\nTransfer-Encoding\n: chunked\r\n\r\n",
        b"POST /hello HTTP/1.1\r\nHost: a\r\n\tContent-Length: 5\r\n\r\n",
        b"POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\n",
    ):
        reply = exchange(server, head + inner)
        assert reply.startswith(b"HTTP/1.1 400 "), (head, reply)
        assert reply.count(b"HTTP/1.1 ") == 1, (head, reply)
