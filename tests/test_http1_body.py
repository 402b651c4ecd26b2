"""Request bodies beside responses: 100 Continue, early answers, limits and time-outs (promises 2, 7, 8, 15)."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

import pytest

from harness.client import chunked, request
from harness.server import Server, Servers
from harness.waiting import until

MIB = 1024 * 1024
EXPECT = "Expect: 100-continue"


# --- 7: 100 Continue -------------------------------------------------------------------------------------------


@pytest.mark.uvloop
@pytest.mark.behaviour(7)
def test_100_is_sent_once_and_only_when_the_application_asks(probe: Server, key: str) -> None:
    with probe.connect() as client:
        client.send(request(f"/read-slowly?key={key}", EXPECT, "Content-Length: 8", method="POST"))
        probe.note(key, "started")
        assert client.waiting() == b""
        probe.open_gate(key)
        interim = client.head()
        assert (interim.status, interim.headers) == (100, [])
        client.send(b"half")
        until(lambda: probe.notes(key).get("bytes") == 4, "the first half")
        client.send(b"half")
        response = client.response()
        assert (response.status, response.interim) == (200, [])
        assert client.get("/hello").interim == []


def test_100_in_any_case_and_with_chunks(probe: Server) -> None:
    with probe.connect() as client:
        client.send(request("/echo", "expect: 100-Continue", "Transfer-Encoding: chunked", method="POST"))
        assert client.head().status == 100
        client.send(chunked(b"one", b"two"))
        assert client.response().body == b"onetwo"


def test_no_100_when_the_body_does_not_wait(probe: Server) -> None:
    with probe.connect() as client:
        client.send(request("/echo", EXPECT, method="POST", body=b"already here"))
        response = client.response()
        assert response.body == b"already here"
        assert response.interim in ([], [100])
        assert client.get("/hello").interim == []


def test_no_100_without_a_body_or_in_http_1_0(probe: Server) -> None:
    with probe.connect() as client:
        assert client.get("/echo", EXPECT).status == 200
        assert client.get("/hello").interim == []
    with probe.connect() as client:
        client.send(b"POST /echo HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        probe.get("/hello")  # by then the application has asked for the body
        if probe.target.server == "m0serve":
            assert client.waiting() == b""
        client.send(b"ab")
        assert client.response().body == b"ab"


@pytest.mark.beyond_uvicorn("sends it within the response")
@pytest.mark.behaviour(7)
def test_no_100_after_a_response_has_begun(probe: Server) -> None:
    with probe.connect() as client:
        client.send(request("/read-after-answer", EXPECT, "Content-Length: 4", method="POST"))
        head = client.head()
        assert head.status == 200
        assert client.chunk() == b"begun:"
        client.send(b"body")
        assert client.chunk() == b"body"
        assert client.chunk() is None


@pytest.mark.beyond_uvicorn("keeps the connection and takes the next request for the body")
@pytest.mark.behaviour(8)
def test_a_final_answer_instead_of_100_closes(probe: Server) -> None:
    with probe.connect() as client:
        client.send(request("/answer-unread", EXPECT, "Content-Length: 4", method="POST"))
        response = client.response()
        assert (response.body, response.interim) == (b"early", [])
        assert response.one("connection").lower() == b"close"
        client.expect_end()


# --- 8: answers before the body has ended ----------------------------------------------------------------------


@pytest.mark.uvloop
@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.behaviour(8)
def test_an_early_answer_keeps_the_connection(probe: Server, framing: str) -> None:
    with probe.connect() as client:
        if framing == "length":
            client.send(request("/answer-unread", "Content-Length: 10000", method="POST"), b"x" * 4000)
            rest = b"x" * 6000
        else:
            client.send(
                request("/answer-unread", "Transfer-Encoding: chunked", method="POST"), b"2710\r\n" + b"x" * 4000
            )
            rest = b"x" * 6000 + b"\r\n0\r\n\r\n"
        response = client.response()
        assert response.body == b"early"
        assert not response.all("connection")
        client.send(rest + request("/hello"))
        assert client.response().body == b"Hello, World!"
        assert client.waiting() == b""


@pytest.mark.beyond_uvicorn("takes it all and never closes")
@pytest.mark.behaviour(8)
def test_an_early_answer_to_a_body_without_end_is_bounded(start: Callable[..., Server], key: str) -> None:
    server = start("probe:app", "--body-timeout", "0.5")
    before = server.usage().rss
    with server.connect() as client:
        client.send(request("/answer-unread", f"Content-Length: {10 * 1024 * MIB}", method="POST"))
        assert client.response().body == b"early"
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 1024 * MIB and not client.eof:
                client.send(b"x" * MIB)
                sent += MIB
                client.waiting()
        # A MiB is thrown away, then the server's FIN is there; the rest is what a client sends before it looks.
        assert sent < 64 * MIB, f"{sent // MIB} MiB after the answer, and the connection was still open"
        assert client.to_end() == b""
        assert server.usage().rss - before < 16 * MIB
    assert server.get("/hello").status == 200


@pytest.mark.beyond_uvicorn("has no such time-out")
@pytest.mark.behaviour(8)
def test_an_early_answer_to_a_body_that_stalls_closes(servers: Servers) -> None:
    server = servers.get("probe:app", "--body-timeout", "0.4", "--header-timeout", "0.4")
    with server.connect() as client:
        client.send(request("/answer-unread", "Content-Length: 100", method="POST"), b"part")
        assert client.response().body == b"early"
        client.expect_end()


# --- 15: limits ------------------------------------------------------------------------------------------------

LIMITS = ("--max-head", "2k", "--max-body", "1000")


@pytest.fixture
def limited(servers: Servers) -> Server:
    """A server with small limits."""
    return servers.get("probe:app", *LIMITS)


def assert_refused(server: Server, status: int, *pieces: bytes) -> None:
    with server.connect() as client:
        client.send(*pieces)
        response = client.response()
        assert response.status == status, response
        assert response.one("connection").lower() == b"close"
        client.expect_fin()
    assert server.get("/hello").status == 200


@pytest.mark.beyond_uvicorn("has no such limit")
class TestLimits:
    """What a server with --max-head 2k and --max-body 1000 takes and refuses."""

    @pytest.mark.behaviour(15)
    def test_a_long_target_is_414(self, limited: Server) -> None:
        assert_refused(limited, 414, request("/" + "x" * 3000))

    def test_an_endless_target_is_414(self, limited: Server) -> None:
        assert_refused(limited, 414, b"GET /" + b"x" * 2500)

    @pytest.mark.behaviour(15)
    def test_a_long_head_is_431(self, limited: Server) -> None:
        assert_refused(limited, 431, request("/hello", "X-Long: " + "x" * 3000))

    def test_an_endless_head_is_431(self, limited: Server) -> None:
        assert_refused(limited, 431, b"GET /hello HTTP/1.1\r\nHost: a\r\n" + b"X-A: b\r\n" * 300)

    def test_a_head_that_just_fits_is_served(self, limited: Server) -> None:
        assert limited.get("/hello", "X-Long: " + "x" * 1900).status == 200

    @pytest.mark.behaviour(15)
    def test_a_declared_body_is_413(self, limited: Server) -> None:
        assert_refused(limited, 413, request("/echo", "Content-Length: 1001", method="POST"))

    def test_a_body_that_just_fits_is_served(self, limited: Server) -> None:
        assert limited.get("/echo", method="POST", body=b"x" * 1000).body == b"x" * 1000
        with limited.connect() as client:
            client.send(request("/echo", "Transfer-Encoding: chunked", method="POST") + chunked(b"x" * 500, b"y" * 500))
            assert client.response().body == b"x" * 500 + b"y" * 500

    @pytest.mark.behaviour(15)
    def test_a_chunked_body_is_413(self, limited: Server, key: str) -> None:
        raw = request(f"/upload?key={key}", "Transfer-Encoding: chunked", method="POST")
        assert_refused(limited, 413, raw + chunked(b"x" * 600, b"x" * 600))

    def test_a_single_chunk_that_is_too_long_is_413(self, limited: Server) -> None:
        raw = request("/upload", "Transfer-Encoding: chunked", method="POST")
        assert_refused(limited, 413, raw + b"fffff\r\n" + b"x" * 100)

    @pytest.mark.behaviour(15)
    def test_chunk_overhead_counts_too(self, limited: Server) -> None:
        raw = request("/upload", "Transfer-Encoding: chunked", method="POST")
        with limited.connect() as client:
            client.send(raw)
            data = b"".join(b"1;" + b"e" * 200 + b"\r\nx\r\n" for _ in range(900)) + b"0\r\n\r\n"
            client.send_until_blocked(data, len(data), quiet=0.2)
            assert client.response().status in (413, 400)
            client.expect_end()

    def test_endless_trailers_are_refused(self, limited: Server) -> None:
        raw = request("/upload", "Transfer-Encoding: chunked", method="POST")
        with limited.connect() as client:
            client.send(raw + b"1\r\nx\r\n0\r\n" + b"A: b\r\n" * 20_000)
            assert client.response().status in (400, 413, 431)
            client.expect_end()

    @pytest.mark.behaviour(15)
    def test_a_client_that_writes_before_it_reads_gets_its_413(self, limited: Server) -> None:
        body = b"x" * (6 * MIB)
        with limited.connect() as client:
            client.send(request("/echo", method="POST", body=body))
            assert client.response().status == 413
            client.expect_end()

    def test_the_application_sees_a_disconnect_when_its_body_grows_too_long(self, limited: Server, key: str) -> None:
        with limited.connect() as client:
            client.send(request(f"/read-slowly?key={key}", "Transfer-Encoding: chunked", method="POST"))
            limited.note(key, "started")
            limited.open_gate(key)
            client.send(b"200\r\n" + b"x" * 512 + b"\r\n")
            until(lambda: limited.notes(key).get("bytes") == 512, "the first chunk")
            client.send(b"200\r\n" + b"x" * 512 + b"\r\n")
            assert client.response().status == 413
            client.expect_end()
        assert limited.note(key, "disconnected")
        assert "complete" not in limited.notes(key)


@pytest.mark.beyond_uvicorn("answers without closing")
@pytest.mark.behaviour(15)
def test_max_connections_answers_503_and_closes(start: Callable[..., Server]) -> None:
    server = start("probe:app", "--max-connections", "2")
    one, two = server.connect(), server.connect()
    assert one.get("/hello").status == two.get("/hello").status == 200
    with server.connect() as three:
        three.send(request("/hello"))
        response = three.response()
        assert response.status == 503
        assert response.one("connection").lower() == b"close"
        three.expect_end()
    assert one.get("/hello").status == 200
    one.close()

    def free() -> bool:
        with server.connect() as client:
            client.send(request("/hello"))
            return client.response().status == 200

    until(free, "a free place")
    two.close()
    assert server.stop() == 0


# --- 2, 15: time-outs ------------------------------------------------------------------------------------------

TIMEOUTS = ("--header-timeout", "0.4", "--body-timeout", "0.4", "--idle-timeout", "0.4")


@pytest.fixture
def hasty(servers: Servers) -> Server:
    """A server with short time-outs."""
    return servers.get("probe:app", *TIMEOUTS)


@pytest.mark.beyond_uvicorn("has no such time-outs")
class TestTimeouts:
    """What a server does whose time-outs are all 0.4 seconds."""

    @pytest.mark.behaviour(15)
    def test_a_slow_head_is_408(self, hasty: Server) -> None:
        with hasty.connect(timeout=4) as client:
            began = time.monotonic()
            client.send(b"GET /hello HTTP/1.1\r\nHo")
            response = client.response()
            assert response.status == 408
            assert response.one("connection").lower() == b"close"
            client.expect_end()
            assert 0.3 < time.monotonic() - began < 2.5

    def test_a_head_that_trickles_is_408_all_the_same(self, hasty: Server) -> None:
        with hasty.connect(timeout=4) as client:
            began = time.monotonic()
            client.send(b"GET /hello HTTP/1.1\r\n")
            while not client.waiting() and time.monotonic() - began < 4:
                client.send(b"X")
                time.sleep(0.05)
            assert time.monotonic() - began < 3, "each byte gives it its time anew"
            assert client.response().status == 408

    def test_a_slow_second_head_is_408(self, hasty: Server) -> None:
        with hasty.connect(timeout=4) as client:
            client.get("/hello")
            client.send(b"GET /hel")
            assert client.response().status == 408
            client.expect_end()

    def test_a_connection_that_never_says_anything_closes(self, hasty: Server) -> None:
        with hasty.connect(timeout=4) as client:
            assert client.to_end() == b"" or client.buffer.startswith(b"HTTP/1.1 408")

    def test_an_idle_connection_closes_without_a_word(self, hasty: Server) -> None:
        with hasty.connect(timeout=4) as client:
            client.get("/hello")
            began = time.monotonic()
            client.expect_end()
            assert time.monotonic() - began > 0.25

    @pytest.mark.behaviour(15)
    def test_a_stalled_body_is_408_and_the_application_hears_of_it(self, hasty: Server, key: str) -> None:
        with hasty.connect(timeout=4) as client:
            client.send(request(f"/read-slowly?key={key}", "Content-Length: 100", method="POST"), b"some")
            hasty.note(key, "started")
            hasty.open_gate(key)
            assert client.response().status == 408
            client.expect_end()
        assert hasty.note(key, "disconnected")
        assert "complete" not in hasty.notes(key)

    def test_a_body_that_keeps_coming_may_take_longer(self, hasty: Server) -> None:
        with hasty.connect(timeout=4) as client:
            client.send(request("/echo", "Content-Length: 8", method="POST"))
            for byte in b"slowbody":
                client.send(bytes([byte]))
                time.sleep(0.12)
            assert client.response().body == b"slowbody"

    def test_the_body_clock_stands_still_while_we_do_not_read(self, hasty: Server, key: str) -> None:
        """Also for a client that waits to be asked for its body."""
        with hasty.connect(timeout=8) as client, hasty.connect() as polite:
            total = 8 * MIB
            client.send(request(f"/read-slowly?key={key}", f"Content-Length: {total}", method="POST"))
            polite.send(request(f"/read-slowly?key={key}-2", EXPECT, "Content-Length: 4", method="POST"))
            hasty.note(key, "started")
            sender = threading.Thread(target=lambda: client.sock.sendall(b"x" * total))
            sender.start()
            time.sleep(1.0)  # longer than the time-out: the application is late, not the client
            hasty.open_gate(key)
            hasty.open_gate(f"{key}-2")
            assert polite.head().status == 100
            polite.send(b"body")
            assert polite.response().body == b"read"
            sender.join(8)
            assert client.response().body == b"read"

    @pytest.mark.behaviour(2)
    def test_no_time_out_runs_while_a_request_is_pending(self, hasty: Server) -> None:
        with hasty.connect(timeout=4) as client:
            client.send(request("/slow?s=1.0") + request("/slow?s=0.7") + request("/hello"))
            assert [client.response().body for _ in range(3)] == [b"slept", b"slept", b"Hello, World!"]

    def test_a_stream_may_take_longer(self, hasty: Server, key: str) -> None:
        with hasty.connect(timeout=4) as client:
            client.send(request(f"/gated-stream?key={key}"))
            client.head()
            assert client.chunk() == b"before "
            time.sleep(0.9)  # longer than every time-out
            hasty.open_gate(key)
            assert client.chunk() == b"after"
            assert client.chunk() is None
