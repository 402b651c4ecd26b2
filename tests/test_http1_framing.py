"""Responses on the wire, and connections over several requests (promises 1 to 5, 10, 12, 16)."""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Callable

import pytest

from harness.client import Client, request
from harness.server import Server, Servers
from harness.waiting import until


def still_works(client: Client) -> None:
    """The connection is in step: the next response is exactly the next response."""
    assert client.get("/hello").body == b"Hello, World!"


# --- 1: no body where there must be none -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "length"),
    [
        ("/hello", [b"13"]),
        ("/bare?text=some", None),
        ("/stream", None),
        ("/stream?count=9&size=65536", None),  # more than a window: what is not sent must not be waited for
        ("/status?code=200&length=1", [b"4"]),
    ],
)
@pytest.mark.behaviour(1)
def test_head_sends_no_body_and_keeps_the_connection(probe: Server, path: str, length: list[bytes] | None) -> None:
    with probe.connect() as client:
        for _ in range(2):
            response = client.get(path, method="HEAD")
            assert response.status == 200
            if length is not None:
                assert response.all("content-length") == length
        still_works(client)


@pytest.mark.parametrize("code", [204, 304])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.behaviour(1)
def test_statuses_without_a_body(probe: Server, code: int, method: str) -> None:
    if probe.target.server == "uvicorn" and method != "HEAD":
        pytest.skip("uvicorn writes the body that the application sends")
    with probe.connect() as client:
        for declared in ("", "&length=1") if probe.target.server == "m0serve" else ("",):
            body = b"" if method == "POST" else None
            response = client.get(f"/status?code={code}{declared}", method=method, body=body)
            assert response.status == code
            assert not response.all("transfer-encoding")
            # RFC 9110, 8.6: never with 204; with 304 it says what GET would have got.
            assert response.all("content-length") == ([b"4"] if declared and code == 304 else [])
        still_works(client)


@pytest.mark.parametrize("code", [200, 201, 206, 302, 404, 418, 500, 503, 599, 299])
def test_statuses_with_a_body(probe: Server, code: int) -> None:
    if probe.target.server == "uvicorn" and code in (599, 299):
        pytest.skip("uvicorn writes no reason for unknown codes")
    with probe.connect() as client:
        response = client.get(f"/status?code={code}&length=1")
        assert (response.status, response.body) == (code, b"body")
        still_works(client)


# --- 2: pipelining ---------------------------------------------------------------------------------------------


@pytest.mark.uvloop
@pytest.mark.behaviour(2)
def test_pipelined_requests_are_answered_in_order(probe: Server) -> None:
    with probe.connect() as client:
        client.send(
            request("/slow?s=0.05")
            + request("/echo", method="POST", body=b"one")
            + request("/hello", method="HEAD")
            + request("/stream?count=2&size=3")
            + request("/echo", "Transfer-Encoding: chunked", method="POST")
            + b"3\r\ntwo\r\n0\r\n\r\n"
            + request("/hello")
        )
        assert client.response().body == b"slept"
        assert client.response().body == b"one"
        assert client.response("HEAD").body == b""
        assert client.response().body == b"xxxxxx"
        assert client.response().body == b"two"
        assert client.response().body == b"Hello, World!"
        assert client.waiting() == b""


@pytest.mark.behaviour(2)
def test_a_long_pipeline(probe: Server) -> None:
    with probe.connect(timeout=30) as client:
        for _ in range(5):
            client.send(b"".join(request("/echo", method="POST", body=b"%d" % n) for n in range(200)))
            assert [client.response().body for _ in range(200)] == [b"%d" % n for n in range(200)]


@pytest.mark.beyond_uvicorn("takes every request into memory")
@pytest.mark.behaviour(9)
def test_a_client_that_pipelines_without_reading_is_held_back(probe: Server) -> None:
    before = probe.usage().rss
    client = probe.connect(timeout=30, rcvbuf=65536)
    raw = request("/stream?count=1&size=65536", "X-Padding: " + "p" * 4000)
    limit = 100 * 1024 * 1024
    assert client.send_until_blocked(raw, limit) < limit, "100 MB of requests were taken while nothing was read"
    assert probe.usage().rss - before < 24 * 1024 * 1024
    assert probe.get("/hello").status == 200
    for _ in range(300):
        assert client.response().body == b"x" * 65536
    client.reset()


# --- 3: who closes when ----------------------------------------------------------------------------------------


@pytest.mark.uvloop
@pytest.mark.parametrize("body", [None, b"some"])
@pytest.mark.parametrize("after", [b"", b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n", b"\0garbage\r\n\r\n"])
@pytest.mark.behaviour(3)
def test_close_asked_by_the_client(probe: Server, body: bytes | None, after: bytes) -> None:
    method = "GET" if body is None else "POST"
    with probe.connect() as client:
        client.send(request("/echo", "Connection: close", method=method, body=body) + after)
        response = client.response()
        assert (response.status, response.body) == (200, body or b"")
        assert response.one("connection").lower() == b"close"
        client.expect_fin()


@pytest.mark.parametrize("after", [b"", b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n", b"\0garbage\r\n\r\n"])
@pytest.mark.behaviour(3)
def test_close_asked_by_the_application(probe: Server, after: bytes) -> None:
    if probe.target.server == "uvicorn" and after.startswith(b"\0"):
        pytest.skip("uvicorn answers the garbage")
    with probe.connect() as client:
        client.send(request("/own-close", method="POST", body=b"x") + after)
        response = client.response()
        assert response.body == b"ok"
        assert response.one("connection") == b"close"
        client.expect_fin()


@pytest.mark.parametrize("path", ["/hello", "/stream?count=2&size=5"])
@pytest.mark.behaviour(4)
def test_http_1_0_closes_and_is_not_chunked(probe: Server, path: str) -> None:
    if probe.target.server == "uvicorn" and "stream" in path:
        pytest.skip("uvicorn sends chunks to HTTP/1.0")
    with probe.connect() as client:
        client.send(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        response = client.response()
        assert not response.all("transfer-encoding")
        assert response.body in (b"Hello, World!", b"x" * 10)
        client.expect_fin()


@pytest.mark.beyond_uvicorn("says nothing about keeping an HTTP/1.0 connection")
@pytest.mark.behaviour(4)
def test_http_1_0_with_keep_alive(probe: Server) -> None:
    with probe.connect() as client:
        client.send(b"GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        response = client.response()
        assert response.body == b"Hello, World!"
        assert response.one("connection") == b"keep-alive"
        still_works(client)
        # Where only the connection's end can end the body, nothing else may be said.
        client.send(b"GET /stream?count=2&size=5 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        response = client.response()
        assert (response.framing, response.body) == ("close", b"x" * 10)
        assert response.one("connection") == b"close"
        client.expect_end()


@pytest.mark.beyond_uvicorn("has no such option")
def test_a_connection_closes_after_its_number_of_requests(servers: Servers) -> None:
    with servers.get("probe:app", "--max-keepalive-requests", "3").connect() as client:
        client.send(request("/hello") * 5)
        assert [client.response().all("connection") for _ in range(3)] == [[], [], [b"close"]]
        client.expect_fin()


# --- 4: chunked responses --------------------------------------------------------------------------------------


@pytest.mark.uvloop
@pytest.mark.parametrize("path", ["/stream?count=0", "/stream?count=3&size=0", "/bare"])
@pytest.mark.behaviour(4)
def test_an_empty_body_ends_once(probe: Server, path: str) -> None:
    with probe.connect() as client:
        response = client.get(path)
        assert (response.body, response.chunks) == (b"", [])
        assert response.framing in ("chunked", "length")
        still_works(client)


@pytest.mark.behaviour(4)
def test_chunks_stand_on_the_wire_as_chunks(probe: Server) -> None:
    with probe.connect() as client:
        client.send(request("/stream?count=2&size=300"))
        client.head()
        want = b"12c\r\n" + b"x" * 300 + b"\r\n"
        assert client.some(len(want)).lower() == want
        assert client.some(len(want) + 5).lower() == want + b"0\r\n\r\n"
        still_works(client)


def test_the_application_may_ask_for_chunked_itself(probe: Server) -> None:
    with probe.connect() as client:
        response = client.get("/own-framing")
        assert response.all("transfer-encoding") == [b"chunked"]
        assert response.body == b"abcdef"
        still_works(client)


# --- 10, 12, 16: header fields ---------------------------------------------------------------------------------


@pytest.mark.beyond_uvicorn("httptools loses the body")
@pytest.mark.parametrize(
    "fields",
    [
        ("Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"),
        ("Upgrade: TLS/1.2", "Connection: Upgrade"),
        ("Upgrade: foo",),
    ],
)
@pytest.mark.behaviour(10)
def test_an_upgrade_that_is_not_websocket_is_ignored(probe: Server, fields: tuple[str, ...]) -> None:
    with probe.connect() as client:
        response = client.get("/echo", *fields, method="POST", body=b"intact")
        assert (response.status, response.body) == (200, b"intact")
        still_works(client)


@pytest.mark.beyond_uvicorn("takes each of them for a handshake, or loses the body")
@pytest.mark.parametrize(
    ("method", "connection", "body"),
    [("GET", "Upgrade", b"intact"), ("POST", "Upgrade", None), ("GET", "keep-alive", None)],
)
@pytest.mark.behaviour(10)
def test_what_names_websocket_and_is_no_handshake_is_served(
    probe: Server, method: str, connection: str, body: bytes | None
) -> None:
    """A handshake is a GET without a body whose Connection names the upgrade (RFC 6455, 4.1)."""
    with probe.connect() as client:
        fields = ("Upgrade: websocket", f"Connection: {connection}", "Sec-WebSocket-Version: 13")
        response = client.get("/echo", *fields, method=method, body=body)
        assert (response.status, response.body) == (200, body or b"")
        still_works(client)


@pytest.mark.behaviour(12)
def test_field_values_pass_both_ways(probe: Server) -> None:
    values = ["plain", "tab\tinside", "two  spaces", "\xe9\xff\x80", "a,b", '"quoted; x"', ""]
    sent = [f"x-odd: {value}" for value in values]
    response = probe.get("/echo-headers", *sent, "set-cookie: a=1", "set-cookie: b=\xe9")
    assert response.all("x-odd") == [value.encode("latin-1") for value in values]
    assert response.all("set-cookie") == [b"a=1", b"b=\xe9"]


def test_white_space_around_a_value_goes(probe: Server) -> None:
    with probe.connect() as client:
        client.send(b"GET /echo-headers HTTP/1.1\r\nHost: a\r\nx-a:b\r\nx-a: \t c d \t \r\nx-a:\t\r\n\r\n")
        assert client.response().all("x-a") == [b"b", b"c d", b""]


@pytest.mark.behaviour(12)
def test_repeated_response_headers_stay_repeated(probe: Server) -> None:
    response = probe.get("/cookies")
    cookies = [b"a=1; Path=/; Expires=Thu, 01 Jan 1970 00:00:00 GMT", b"b=\xe9\xff; HttpOnly"]
    assert response.all("set-cookie") == cookies
    assert response.all("x-odd") == [b"tab\there and  two spaces", b""]


DATE = rb"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z][a-z] \d{4} \d\d:\d\d:\d\d GMT"


@pytest.mark.parametrize("path", ["/hello", "/stream", "/status?code=204", "/raise", "/nowhere"])
@pytest.mark.behaviour(16)
def test_date_and_server_are_there(probe: Server, path: str) -> None:
    response = probe.get(path)
    if path == "/raise" and probe.target.server == "uvicorn":
        pytest.skip("not the point")
    assert re.fullmatch(DATE, response.one("date"))
    assert response.one("server") == probe.target.server.encode()


@pytest.mark.behaviour(16)
def test_the_date_goes_with_the_clock(probe: Server) -> None:
    def shown() -> float:
        return email.utils.parsedate_to_datetime(probe.get("/hello").one("date").decode()).timestamp()

    first = shown()
    until(lambda: shown() > first, "the next second", 3.0)
    assert abs(shown() - time.time()) < 3.0


@pytest.mark.beyond_uvicorn("sends its own beside the application's")
@pytest.mark.behaviour(16)
def test_date_and_server_of_the_application_replace_ours(probe: Server) -> None:
    response = probe.get("/own-headers")
    assert response.one("date") == b"Thu, 01 Jan 1970 00:00:00 GMT"
    assert response.one("server") == b"mine"


@pytest.mark.behaviour(16)
def test_date_and_server_can_be_switched_off(servers: Servers) -> None:
    server = servers.get("probe:app", "--no-date-header", "--no-server-header")
    with server.connect() as client:
        client.send(request("/hello") + b"nonsense\r\n\r\n")
        for status in (200, 400):
            response = client.response()
            assert response.status == status
            assert not response.all("date")
            assert not response.all("server")


# --- 5, again: nothing leaks into the next response ------------------------------------------------------------


def test_responses_of_many_connections_never_mix(probe: Server) -> None:
    clients = [probe.connect() for _ in range(50)]
    try:
        for round_ in range(3):
            for n, client in enumerate(clients):
                data = b"%d:%d:" % (round_, n) + bytes([n]) * (1000 + n)
                client.send(request("/echo", method="POST", body=data))
            for n, client in enumerate(clients):
                assert client.response().body == b"%d:%d:" % (round_, n) + bytes([n]) * (1000 + n)
    finally:
        for client in clients:
            client.close()


def test_connections_come_and_go(start: Callable[..., Server]) -> None:
    """Slots are reused hundreds of times, some of them while work of the one before is still under way."""
    server = start("probe:app")
    before = server.usage().sockets
    for n in range(400):
        client = server.connect()
        if n % 4 == 0:
            client.send(request("/slow?s=0.02"))
            client.reset()
        elif n % 4 == 1:
            client.send(request("/echo", "Content-Length: 100", method="POST"), b"part")
            client.reset()
        else:
            assert client.get("/echo", method="POST", body=b"%d" % n).body == b"%d" % n
            client.close()
    server.expected_tracebacks.append("OSError")
    assert server.get("/hello").status == 200
    assert server.stop() in (0, -15)
    assert before == server.baseline.sockets
