"""WSGI applications (PEP 3333) over a real socket: environ, body, responses, errors, and the threads they run on."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.client import Client, WireError, request
from harness.server import Server, Servers
from harness.waiting import settled, until

pytestmark = pytest.mark.wsgi

STATIC = (Path(__file__).parent / "apps" / "static" / "data.bin").read_bytes()
Start = Callable[..., Server]


@pytest.fixture
def server(servers: Servers) -> Server:
    return servers.get("wsgi_app:app", "--interface", "wsgi", "--blocking-threads", "4", validated=False)


@pytest.fixture
def bare(servers: Servers) -> Server:
    """Without wsgiref's validator, which allows less than the specification where it says what is broken."""
    return servers.get("wsgi_app:plain", "--blocking-threads", "4", validated=False)


def noted(server: Server, what: str) -> None:
    until(lambda: what in server.get("/noted").json(), f"note {what!r}")


@pytest.mark.behaviour(25)
def test_an_application_under_wsgirefs_validator(server: Server) -> None:
    response = server.get("/hello")
    assert (response.status, response.body) == (200, b"hello")
    assert b"date" in {name for name, _ in response.headers}


@pytest.mark.behaviour(27)
def test_environ(server: Server) -> None:
    assert isinstance(server.address, tuple)
    environ = server.get("/env%20a/%E9%C3%A9?q=%20+&", "X-One: a b", "Content-Type: text/x").json()
    assert environ["REQUEST_METHOD"] == "GET"
    assert environ["SCRIPT_NAME"] == ""
    assert environ["PATH_INFO"] == "/env a/\xe9\xc3\xa9", "bytes as latin-1"
    assert environ["QUERY_STRING"] == "q=%20+&", "as it was sent"
    assert environ["SERVER_PROTOCOL"] == "HTTP/1.1"
    assert (environ["SERVER_NAME"], environ["SERVER_PORT"]) == ("127.0.0.1", str(server.address[1]))
    assert environ["REMOTE_ADDR"] == "127.0.0.1"
    assert environ["REMOTE_PORT"].isdigit()
    assert environ["HTTP_X_ONE"] == "a b"
    assert environ["CONTENT_TYPE"] == "text/x"
    assert "HTTP_CONTENT_TYPE" not in environ
    assert environ["wsgi.version"] == [1, 0]
    assert environ["wsgi.url_scheme"] == "http"
    assert environ["wsgi.multithread"] is True
    assert environ["wsgi.multiprocess"] is False
    assert environ["wsgi.run_once"] is False
    assert environ["wsgi.input_terminated"] is True


@pytest.mark.behaviour(26)
def test_fields_that_repeat_or_would_shadow_others(server: Server) -> None:
    fields = ["X-A: 1", "X-A: 2", "Cookie: a=1", "Cookie: b=2", "Proxy: http://evil", "X_A: shadow", "X-High: \xe9"]
    environ = server.get("/env", *fields).json()
    assert environ["HTTP_X_A"] == "1,2"
    assert environ["HTTP_COOKIE"] == "a=1; b=2"
    assert "HTTP_PROXY" not in environ
    assert environ["HTTP_X_HIGH"] == "\xe9"


@pytest.mark.behaviour(27)
def test_script_name_is_where_the_application_is_mounted(servers: Servers) -> None:
    server = servers.get("wsgi_app:plain", "--root-path", "/env", validated=False)
    # Whether the proxy in front takes its prefix off or not; whole segments are compared.
    for target, path in (("/env/env/x", "/env/x"), ("/environ/x", "/environ/x")):
        environ = server.get(target).json()
        assert (environ["SCRIPT_NAME"], environ["PATH_INFO"]) == ("/env", path)


BODY = b"first line\nsecond\n\nlast without an end"


@pytest.mark.behaviour(26)
@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize(
    ("how", "size", "parts"),
    [
        ("read", -1, [BODY]),
        ("read", 5, [b"first"]),
        ("read", 1000, [BODY]),
        ("pieces", 10, [BODY[at : at + 10] for at in range(0, len(BODY), 10)] + [b""]),
        ("readline", -1, BODY.splitlines(keepends=True)),
        ("readline", 7, [b"first l", b"ine\n", b"second\n", b"\n", b"last wi", b"thout a", b"n end"]),
        ("readlines", -1, BODY.splitlines(keepends=True)),
        ("readlines", 12, [b"first line\n", b"second\n"]),
        ("iterate", -1, BODY.splitlines(keepends=True)),
    ],
)
def test_reading_the_body(bare: Server, framing: str, how: str, size: int, parts: list[bytes]) -> None:
    with bare.connect() as client:
        target = f"/take?how={how}&size={size}"
        if framing == "length":
            client.send(request(target, f"Content-Length: {len(BODY)}", method="POST"), BODY[:8], BODY[8:])
        else:
            client.send(request(target, "Transfer-Encoding: chunked", method="POST"))
            for at in range(0, len(BODY), 6):
                piece = BODY[at : at + 6]
                client.send(b"%x\r\n%s\r\n" % (len(piece), piece))
            client.send(b"0\r\n\r\n")
        assert client.response().json() == [part.decode() for part in parts]
        assert client.get("/hello").body == b"hello", "the connection goes on"


@pytest.mark.behaviour(26)
def test_a_large_body_both_ways(bare: Server) -> None:
    body = bytes(range(256)) * 20_000
    with bare.connect() as client:
        client.send(request("/echo", f"Content-Length: {len(body)}", method="POST"))
        sender = threading.Thread(target=client.send, args=(body,))
        sender.start()
        response = client.response()
        sender.join()
    assert response.body == body


@pytest.mark.behaviour(26)
def test_a_client_that_leaves_within_its_body(bare: Server) -> None:
    client = bare.connect()
    client.send(request("/take?how=read", "Content-Length: 100", method="POST"), b"x" * 50)
    client.close()
    assert bare.get("/hello").body == b"hello"


@pytest.mark.behaviour(28)
def test_each_block_leaves_when_it_is_yielded(server: Server, key: str) -> None:
    with server.connect() as client:
        client.send(request(f"/stream?count=3&key={key}"))
        server.get(f"/opens?key={key}0")
        assert client.head().status == 200
        assert client.chunk() == b"0"
        server.get(f"/opens?key={key}1")
        assert client.chunk() == b"1"
        server.get(f"/opens?key={key}2")
        assert client.chunk() == b"2"
        assert client.chunk() is None
    noted(server, f"closed {key}")


@pytest.mark.behaviour(28)
def test_a_body_without_end_waits_for_its_client_and_ends_with_it(bare: Server, key: str) -> None:
    with bare.connect(rcvbuf=4096) as client:
        client.send(request(f"/endless?key={key}"))
        assert client.head().status == 200
        assert bare.get("/hello").body == b"hello", "others are served beside it"
    noted(bare, f"closed {key}")


@pytest.mark.behaviour(28)
def test_a_view_that_says_little_went_on_for_hours_without_its_client(bare: Server, key: str) -> None:
    """It looked for news of its client only when its window was full, which takes two thousand small blocks."""
    with bare.connect() as client:
        client.send(request(f"/endless?key={key}&size=1&pause=0.05"))
        assert client.head().status == 200
        assert client.chunk() == b"x"
    noted(bare, f"closed {key}")


@pytest.mark.behaviour(25)
@pytest.mark.parametrize("line", ["200 OK", "204 No Content", "304 Not Modified", "404 Gone Fishing", "599 Own"])
def test_statuses_and_empty_bodies(bare: Server, line: str) -> None:
    with bare.connect() as client:
        response = client.get(f"/status?line={line.replace(' ', '+')}")
        assert (response.status, response.body) == (int(line[:3]), b"")
        assert response.reason == line[4:].encode(), "the application's own"
        if line[:3] not in ("204", "304"):
            assert response.one("content-length") == b"0"
        assert client.get("/hello").body == b"hello"


@pytest.mark.behaviour(1, 25)
def test_head_has_the_length_and_no_body(server: Server) -> None:
    with server.connect() as client:
        response = client.get("/hello", method="HEAD")
        assert (response.body, response.one("content-length")) == (b"", b"5")
        assert client.get("/hello").body == b"hello"


@pytest.mark.behaviour(25)
def test_write_sends_at_once(server: Server, key: str) -> None:
    with server.connect() as client:
        client.send(request(f"/writes?key={key}"))
        client.head()
        assert client.chunk() == b"one "
        server.get(f"/opens?key={key}")
        assert [client.chunk() for _ in range(3)] == [b"two ", b"three", None]


@pytest.mark.behaviour(25)
def test_a_second_start_response(bare: Server) -> None:
    replaced = bare.get("/twice?when=before")
    assert (replaced.status, replaced.body) == (503, b"replaced")
    bare.expected_tracebacks.append("AssertionError: start_response was called a second time")
    assert bare.get("/twice?when=without").status == 500
    with bare.connect() as client:
        client.send(request("/twice?when=after"))
        assert client.head().status == 200
        assert client.chunk() == b"first"
        with pytest.raises(WireError, match="closed"):
            client.chunk()


@pytest.mark.behaviour(25)
@pytest.mark.parametrize("where", ["call", "first", "later"])
def test_an_exception_is_a_500_or_cuts_the_response(server: Server, where: str, key: str) -> None:
    with server.connect() as client:
        client.send(request(f"/fails?where={where}&key={key}"))
        if where == "later":
            assert client.head().status == 200
            assert client.chunk() == b"a block"
            with pytest.raises(WireError, match="closed"):
                client.chunk()
        else:
            response = client.response()
            assert (response.status, response.body) == (500, b"Internal Server Error\n")
    if where != "call":
        noted(server, f"closed {key}")


@pytest.mark.behaviour(5, 25)
@pytest.mark.parametrize(("says", "sizes"), [(10, "4 4"), (4, "4 4"), (4, "8"), (0, "1")])
def test_a_body_that_does_not_fit_its_length(bare: Server, says: int, sizes: str) -> None:
    bare.expected_tracebacks += ["longer than Content-Length", "shorter than Content-Length"]
    with bare.connect() as client:
        client.send(request(f"/length?says={says}&sizes={sizes.replace(' ', '+')}"), request("/hello"))
        received = client.to_end()
    assert received.count(b"HTTP/1.1 ") == 1, "nothing else comes on the connection"
    head, _, body = received.partition(b"\r\n\r\n")
    assert b" 500 " in head or (len(body) <= says)


@pytest.mark.behaviour(25)
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("kind=real", STATIC),
        ("kind=real&from=1000", STATIC[1000:]),
        ("kind=real&says=500", STATIC[:500]),
        ("kind=real&from=100&says=7", STATIC[100:107]),
        ("kind=memory", b"in memory"),
        ("kind=memory&from=3", b"memory"),
    ],
)
def test_files(bare: Server, query: str, expected: bytes) -> None:
    with bare.connect() as client:
        assert client.get(f"/file?{query}").body == expected
        assert client.get("/hello").body == b"hello"


@pytest.mark.behaviour(28)
def test_views_that_wait_do_not_hold_up_others(server: Server, key: str) -> None:
    clients = [server.connect() for _ in range(3)]
    for number, client in enumerate(clients):
        client.send(request(f"/waits?key={key}{number}"))
        noted(server, f"began {key}{number}")
    for _ in range(50):
        assert server.get("/hello").body == b"hello"
    for number, client in enumerate(clients):
        server.get(f"/opens?key={key}{number}")
        assert client.response().body == b"waited"
        client.close()


@pytest.mark.behaviour(28)
def test_more_views_than_threads_wait_for_their_turn(bare: Server) -> None:
    clients = [bare.connect() for _ in range(12)]
    for client in clients:
        client.send(request("/slow?s=0.1"))
    assert [client.response().body for client in clients] == [b"slept"] * 12
    for client in clients:
        client.close()


@pytest.mark.behaviour(28)
def test_a_body_that_is_late_does_not_hold_up_others(server: Server) -> None:
    late = [server.connect() for _ in range(3)]
    for client in late:
        client.send(request("/echo", "Content-Length: 10", method="POST"), b"12345")
    for _ in range(50):
        assert server.get("/hello").body == b"hello"
    for client in late:
        client.send(b"67890")
        assert client.response().body == b"1234567890"
        client.close()


@pytest.mark.behaviour(28)
def test_a_thread_keeps_its_locals_from_view_to_view(start: Start) -> None:
    server = start("wsgi_app:plain", validated=False)
    with server.connect() as client:
        seen = [client.get("/thread").json() for _ in range(50)]
    # How many threads share even this is the machine's matter: one that is late back to its place is not waited for.
    counted: dict[str, int] = {}
    for name, served, _ in seen:
        counted[name] = counted.get(name, 0) + 1
        assert served == counted[name], seen
    assert len(counted) <= 8


@pytest.mark.behaviour(28)
def test_quiet_views_share_one_thread(server: Server) -> None:
    """And so one connection to a database, where the machine lets each view return before it looks as if it waited."""
    with server.connect() as client:

        def threads() -> set[str]:
            return {client.get("/thread").json()[0] for _ in range(20)}

        until(lambda: len(threads()) == 1, "twenty requests, one after another, on one thread", 20.0)


@pytest.mark.behaviour(29)
def test_a_view_in_flight_at_a_signal_is_answered(start: Start, key: str) -> None:
    server = start("wsgi_app:plain", validated=False)
    with server.connect() as client:
        client.send(request(f"/slow?s=1&key={key}"))
        noted(server, f"began {key}")
        server.signal(signal.SIGTERM)
        response = client.response()
        assert response.body == b"slept"
        assert response.one("connection") == b"close"
    assert server.wait(3) == 0


@pytest.mark.behaviour(30)
def test_a_view_that_does_not_end_is_named(start: Start, key: str) -> None:
    server = start("wsgi_app:plain", "--drain-timeout", "0.5", validated=False)
    client: Client = server.connect()
    client.send(request(f"/waits?key={key}"))
    noted(server, f"began {key}")
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began < 4
    assert "abandoned: GET /waits" in server.stderr
    client.close()


@pytest.mark.behaviour(29)
def test_signals_are_handled_while_every_view_waits(start: Start, key: str) -> None:
    server = start("wsgi_app:plain", "--blocking-threads", "2", "--drain-timeout", "1", validated=False)
    clients = [server.connect() for _ in range(4)]
    for client in clients:
        client.send(request(f"/slow?s=0.5&key={key}"))
    noted_at_once = server.stop()
    assert noted_at_once == 0
    for client in clients:
        client.close()


@pytest.mark.behaviour(35)
def test_an_idle_server_sleeps_after_its_views(start: Start) -> None:
    server = start("wsgi_app:plain", validated=False)
    with server.connect() as client:
        for _ in range(20):
            assert client.get("/hello").body == b"hello"
        settled(server.switches, quiet=0.15, seconds=3.0)  # the sentinel goes to sleep
        before = server.switches()
        time.sleep(2.0)  # this is the measurement
        assert server.switches() - before <= 10
