"""Every limit to the byte, by its flag and by its variable: what fits is served, one more is refused (promise 15).

What a refusal must be is the same everywhere: the limit's status, `connection: close`, the end of the connection, and
an application that has not heard of the request. Limits that need a crowd are in test_slow_clients.py.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from harness.client import Client, chunked, request
from harness.server import Server, Servers
from harness.waiting import until

MIB = 1024 * 1024
HEAD, TARGET, FIELDS, BODY = 2048, 300, 10, 1000
LIMITS = {"max-head": "2k", "max-target": "300", "max-fields": "10", "max-body": "1000"}

pytestmark = pytest.mark.beyond_uvicorn("has no such limits")


def variables(options: dict[str, str]) -> dict[str, str]:
    """The options as the environment gives them."""
    return {"M0_" + name.upper().replace("-", "_"): value for name, value in options.items()}


@pytest.fixture(params=["flags", "variables"])
def limited(servers: Servers, request: pytest.FixtureRequest) -> Server:
    """A server with small limits, which it was told in one way or the other."""
    if request.param == "variables":
        return servers.get("probe:app", env=variables(LIMITS))
    return servers.get("probe:app", *[word for name, value in LIMITS.items() for word in (f"--{name}", value)])


def dispatched(server: Server) -> int:
    """Requests that the application has been called for."""
    return int(server.get("/count").json())


def assert_served(server: Server, raw: bytes) -> None:
    with server.connect() as client:
        client.send(raw)
        assert client.response().status == 200
        assert client.get("/hello").status == 200  # and the connection goes on


def assert_refused(server: Server, status: int, raw: bytes, heard: int = 0) -> None:
    """`heard`: whether the application was told of the request before it turned out to be too much."""
    before = dispatched(server)
    with server.connect() as client:
        client.send(raw + request("/hello"))
        response = client.response()
        assert response.status == status, response
        assert response.one("connection").lower() == b"close"
        client.expect_end()
    assert dispatched(server) - before == heard


def padded(total: int) -> bytes:
    """A request whose head is so many bytes."""
    bare = len(request("/hello", "X-Pad: "))
    return request("/hello", "X-Pad: " + "x" * (total - bare))


@pytest.mark.behaviour(15)
def test_a_head_to_the_byte(limited: Server) -> None:
    assert len(padded(HEAD)) == HEAD
    assert_served(limited, padded(HEAD))
    assert_refused(limited, 431, padded(HEAD + 1))


@pytest.mark.behaviour(15)
def test_a_target_to_the_byte(limited: Server) -> None:
    assert_served(limited, request("/hello?" + "x" * (TARGET - 7)))
    assert_refused(limited, 414, request("/hello?" + "x" * (TARGET - 6)))


@pytest.mark.behaviour(15)
def test_fields_are_counted(limited: Server) -> None:
    fields = [f"X-{number}: a" for number in range(FIELDS)]  # and Host
    assert_served(limited, request("/hello", *fields[:-1]))
    assert_refused(limited, 431, request("/hello", *fields))


@pytest.mark.behaviour(15)
def test_a_declared_body_to_the_byte(limited: Server) -> None:
    assert_served(limited, request("/echo", method="POST", body=b"x" * BODY))
    assert_refused(limited, 413, request("/echo", f"Content-Length: {BODY + 1}", method="POST"))


CHUNKED = request("/upload", "Transfer-Encoding: chunked", method="POST")


@pytest.mark.parametrize("size", [1, 7, 999, 1000])
@pytest.mark.behaviour(15)
def test_a_chunked_body_to_the_byte(limited: Server, size: int) -> None:
    """In chunks of any size; the chunk that is too much is refused when it is announced, before a byte of it."""
    chunks = [b"x" * min(size, BODY - at) for at in range(0, BODY, size)]
    assert_served(limited, CHUNKED + chunked(*chunks))
    # All of it comes in one piece, so the application never hears of it.
    assert_refused(limited, 413, CHUNKED + chunked(*chunks, b"x"))
    assert_refused(limited, 413, CHUNKED + chunked(*chunks[:-1]).removesuffix(b"0\r\n\r\n") + b"%x\r\n" % (size + 1))


def framed(overhead: int) -> bytes:
    """A body of 70 chunks of one byte whose framing, up to the last chunk's line, takes so many bytes."""
    chunks = 70
    extensions = overhead - chunks * len("1;\r\n\r\n") - len("0;\r\n")
    each = extensions // (chunks + 1)
    last = extensions - chunks * each
    return (b"1;" + b"e" * each + b"\r\nx\r\n") * chunks + b"0;" + b"e" * last + b"\r\n\r\n"


@pytest.mark.behaviour(15)
def test_chunk_framing_to_the_byte(limited: Server) -> None:
    """On the wire as well as decoded: 64 KiB and eight times the body (but no more than its limit) are allowed."""
    most = 64 * 1024 + 8 * 70
    assert_served(limited, CHUNKED + framed(most))
    with limited.connect() as client:
        client.send(CHUNKED + framed(most + 1))
        assert client.response().status == 413
        client.expect_end()


@pytest.mark.parametrize("framing", ["Content-Length: 6291456", "Transfer-Encoding: chunked"])
@pytest.mark.behaviour(15)
def test_a_client_that_writes_all_of_it_first_still_gets_the_413(limited: Server, framing: str) -> None:
    head = request("/upload", framing, method="POST")
    body = b"x" * (6 * MIB) if "Length" in framing else chunked(*[b"x" * 65536] * 96)
    with limited.connect() as client:
        client.send(head + body)
        assert client.response().status == 413
        client.expect_end()


@pytest.mark.behaviour(15)
def test_a_body_that_grows_too_long_is_taken_back_from_the_application(limited: Server, key: str) -> None:
    before = dispatched(limited)
    with limited.connect() as client:
        client.send(request(f"/read-slowly?key={key}", "Transfer-Encoding: chunked", method="POST"))
        limited.note(key, "started")
        limited.open_gate(key)
        client.send(b"3e8\r\n" + b"x" * BODY + b"\r\n")
        until(lambda: limited.notes(key).get("bytes") == BODY, "what is allowed")
        client.send(b"1\r\n")
        assert client.response().status == 413
        client.expect_end()
    assert limited.note(key, "disconnected")
    assert "complete" not in limited.notes(key)
    assert dispatched(limited) > before


# --- how many ---------------------------------------------------------------------------------------------------

COUNTS = {"max-connections": "3", "max-keepalive-requests": "4"}


@pytest.mark.behaviour(15)
def test_the_limits_of_how_many_come_from_variables_too(start: Callable[..., Server]) -> None:
    server = start(env=variables(COUNTS))
    clients = [server.connect() for _ in range(3)]
    for client in clients:
        assert client.get("/hello").status == 200
    for _ in range(2):  # who is refused takes no place
        with server.connect() as one_more:
            one_more.send(request("/hello"))
            response = one_more.response()
            assert (response.status, response.one("connection").lower()) == (503, b"close")
            one_more.expect_end()
    clients[0].send(request("/hello") * 5)
    responses = [clients[0].response() for _ in range(3)]
    assert [response.all("connection") for response in responses] == [[], [], [b"close"]]
    clients[0].expect_end()
    clients.pop(0).close()

    def free() -> Client | None:
        client = server.connect()
        client.send(request("/count"))
        if client.response().status == 200:
            return client
        client.close()
        return None

    last = until(free, "a free place")
    for client in (last, *clients):
        client.close()
    assert server.stop() == 0


# --- how long ---------------------------------------------------------------------------------------------------

#: Seconds: apart enough that one taken for another shows.
TIMES = {"header-timeout": 0.5, "body-timeout": 1.25, "idle-timeout": 2.0}


@pytest.mark.behaviour(15)
def test_each_time_out_is_its_own(start: Callable[..., Server]) -> None:
    """All at once: who says nothing, who begins a head, a body or a chunk, who does not read, who has been served."""
    server = start(env=variables({name: str(seconds) for name, seconds in TIMES.items()}))
    head, body, idle = TIMES.values()
    cases: dict[str, tuple[bytes, float, bytes]] = {
        "nothing": (b"", head, b""),
        "an empty line": (b"\r\n", head, b""),
        "half a head": (b"GET /hello HTTP/1.1\r\nHo", head, b"408"),
        "half a body": (request("/upload", "Content-Length: 9", method="POST") + b"some", body, b"408"),
        "half a chunk's size": (CHUNKED + b"4\r\nsome\r\n1", body, b"408"),
        "half a chunk": (CHUNKED + b"5\r\nsome", body, b"408"),
        "half the trailers": (CHUNKED + b"4\r\nsome\r\n0\r\nA: b\r\n", body, b"408"),
        "a whole request": (request("/hello"), idle, b"200"),
        "a request and half of the next": (request("/hello") + b"GET /", head, b"200"),
        "a request and an empty line": (request("/hello") + b"\r\n", idle, b"200"),
    }
    server.expected_tracebacks.append("the client left")
    began = time.monotonic()
    clients = {name: server.connect() for name in cases}
    for name, (raw, _, _) in cases.items():
        clients[name].send(raw)
    for name, (_, after, status) in sorted(cases.items(), key=lambda case: case[1][1]):
        reply = clients[name].to_end()
        took = time.monotonic() - began
        assert reply.startswith(b"HTTP/1.1 " + status) if status else reply == b"", (name, reply)
        if name.endswith("next"):
            assert b"HTTP/1.1 408" in reply
        # A tick of the clock is a quarter of a second; the rest is for a loaded machine.
        assert after - 0.05 <= took < after + 0.7, (name, took)
        clients[name].close()
    assert server.stop() == 0


@pytest.mark.behaviour(15)
def test_a_body_in_chunks_of_one_byte_may_take_as_long_as_it_keeps_coming(servers: Servers) -> None:
    """Silence is limited, not slowness: as under nginx there is no least rate (see docs/operations.md)."""
    server = servers.get("probe:app", "--body-timeout", "0.4", "--header-timeout", "0.4")
    with server.connect() as client:
        client.send(CHUNKED)
        began, sent = time.monotonic(), 0
        while time.monotonic() - began < 1.0:
            for byte in b"1\r\nx\r\n":
                client.send(bytes([byte]))
            sent += 1
            time.sleep(0.1)
        client.send(b"0\r\n\r\n")
        assert client.response().body == str(sent).encode()


# --- what is left of it -----------------------------------------------------------------------------------------


@pytest.mark.behaviour(15)
def test_a_refused_request_has_a_line_in_the_access_log(start: Callable[..., Server]) -> None:
    options = ["--max-body", "10", "--max-target", "256", "--max-head", "1k", "--header-timeout", "0.4"]
    server = start("probe:app", "--access-log", *options)
    target = "/" + "t" * 256
    for raw, status in (
        (b"\x16\x03\x01\x02\x00\x01\x00", 400),
        (request("/bad", "Content-Length: x", method="POST"), 400),
        (b"GET /slow HTTP/1.1\r\n", 408),
        (request("/big", "Content-Length: 11", method="POST"), 413),
        (request(target), 414),
        (request("/long", "X-A: " + "x" * 1024), 431),
    ):
        with server.connect() as client:
            client.send(raw)
            assert client.response().status == status
            client.expect_end()
    assert server.stop() == 0
    lines = [re.sub(r"^[\d.]+:\d+ - ", "", line) for line in server.stdout.splitlines()]
    assert lines == [
        r'"\x16\x03\x01\x02\x00\x01\x00" 400',
        '"POST /bad HTTP/1.1" 400',
        '"GET /slow HTTP/1.1" 408',
        '"POST /big HTTP/1.1" 413',
        f'"GET {target} HTTP/1.1" 414',
        '"GET /long HTTP/1.1" 431',
    ]
