"""PEP 3333 to the letter (promises 25 to 28): applications that break it, and servers that would break on them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.client import chunked, request
from harness.server import Server, Servers
from harness.waiting import until

pytestmark = pytest.mark.wsgi

STATIC = (Path(__file__).parent / "apps" / "static" / "data.bin").read_bytes()
Start = Callable[..., Server]


@pytest.fixture
def server(servers: Servers) -> Server:
    return servers.get("wsgi_strict_app:app", "--blocking-threads", "4", validated=False)


def noted(server: Server, what: str) -> None:
    until(lambda: what in server.get("/noted").json(), f"note {what!r}")


BAD = {
    "no-latin-value": "ValueError: a response's status or header has a character outside latin-1",
    "crlf-value": "ValueError: a response header value contains CR",
    "crlf-status": "ValueError: the response status has a character",
    "no-latin-status": "ValueError: a response's status or header has a character outside latin-1",
    "bad-name": "ValueError: a response header name",
    "bytes-name": "TypeError: response header names and values must be strings",
    "bytes-value": "TypeError: response header names and values must be strings",
    "three-members": "ValueError: each of the response's headers must be a pair",
    "dict": "ValueError: each of the response's headers must be a pair",
    "length-no-number": "ValueError: the response's content-length",
    "length-negative": "ValueError: the response's content-length",
    "two-lengths": "ValueError: the response's content-length",
    "status-number": "TypeError: the status must be a string",
    "status-short": "ValueError: the status must begin with three digits",
    "status-informational": "ValueError: the response status must be",
    "text-file": "TypeError: a WSGI body consists of bytes",
    "file-too-short": "RuntimeError: Response content shorter than Content-Length",
    "str-block": "TypeError: a WSGI body consists of bytes",
    "str-block-later": "TypeError: a WSGI body consists of bytes",
    "bytes": "TypeError: a WSGI body consists of bytes",
    "none": "TypeError: 'NoneType' object is not iterable",
    "bytearray-block": "TypeError: a WSGI body consists of bytes",
    "number": "TypeError: a WSGI body consists of bytes",
    "unstarted-list": "AssertionError: the application did not call start_response",
    "unstarted-empty": "AssertionError: the application did not call start_response",
    "unstarted-iterator": "AssertionError: the application did not call start_response",
}


@pytest.mark.behaviour(11, 25)
@pytest.mark.parametrize("which", BAD)
def test_what_is_broken_is_a_500_and_says_what(server: Server, which: str) -> None:
    server.expected_tracebacks.append(BAD[which])
    before = server.stderr.count(BAD[which])
    response = server.get(f"/bad?which={which}")
    assert (response.status, response.body) == (500, b"Internal Server Error\n")
    until(lambda: server.stderr.count(BAD[which]) == before + 1, f"its line {BAD[which]!r}")


@pytest.mark.behaviour(25)
@pytest.mark.parametrize(
    "which", ["sized", "list", "items", "tuple", "empty-blocks", "writing", "restarting", "list-pairs"]
)
def test_bodies_of_other_shapes(server: Server, which: str) -> None:
    with server.connect() as client:
        response = client.get(f"/shape?which={which}")
        assert response.body == b"one two"
        assert response.reason == (b"Again" if which == "restarting" else b"OK")
        assert client.get("/hello").body == b"hello"


@pytest.mark.behaviour(25)
def test_a_close_that_raises_spoils_nothing_but_the_log(server: Server) -> None:
    with server.connect() as client:
        for _ in range(3):
            assert client.get("/closes?how=raises").body == b"one two"
    until(lambda: server.stderr.count("while serving GET /closes") >= 3, "three tracebacks")


@pytest.mark.behaviour(25)
def test_nobody_waits_for_a_close(server: Server, key: str) -> None:
    with server.connect() as client:
        assert client.get(f"/closes?how=waits&key={key}").body == b"one two"
        assert client.get("/hello").body == b"hello", "on the same connection"
        server.get(f"/opens?key={key}")


@pytest.mark.behaviour(25)
def test_after_its_response_a_view_can_neither_write_nor_wait_for_the_body(server: Server, key: str) -> None:
    with server.connect() as client:
        client.send(request(f"/closes?how=goes-on&key={key}", "Content-Length: 5", method="POST"))
        assert client.response().body == b"one two"
        until(lambda: server.get("/noted").json().count(f"{key} the request is over") == 2, "both told so")
        client.send(b"12345")
        assert client.get("/hello").body == b"hello"


@pytest.mark.behaviour(1, 25)
@pytest.mark.parametrize(("method", "status"), [("HEAD", "200 OK"), ("GET", "204 No Content"), ("GET", "304 Same")])
def test_a_body_without_end_that_nobody_sees_ends(server: Server, key: str, method: str, status: str) -> None:
    with server.connect() as client:
        response = client.get(f"/endless?key={key}&status={status.replace(' ', '+')}", method=method)
        assert (response.status, response.body) == (int(status[:3]), b"")
        assert client.get("/hello").body == b"hello"
    noted(server, f"closed {key}")


@pytest.mark.behaviour(1, 25)
@pytest.mark.parametrize("how", ["write", "file", "list", "blocks"])
@pytest.mark.parametrize("length", ["", "&length=5"])
def test_a_body_where_none_may_be(server: Server, how: str, length: str) -> None:
    with server.connect() as client:
        for status, method in (("204", "GET"), ("304", "GET"), ("200", "HEAD"), ("204", "HEAD")):
            response = client.get(f"/bodiless?status={status}+X&how={how}{length}", method=method)
            assert (response.status, response.body) == (int(status), b"")
            if status == "204":
                assert not response.all("content-length")
            if status == "200" and not length and how in ("list", "file"):
                assert response.one("content-length") == (b"5" if how == "list" else b"%d" % len(STATIC))
        assert client.get("/hello").body == b"hello"


@pytest.mark.behaviour(1)
def test_head_without_a_body_says_nothing_about_the_length(server: Server) -> None:
    response = server.get("/file?which=pipe", method="HEAD")
    assert not response.all("content-length")
    response = server.get("/bodiless?status=200+OK&how=write", method="HEAD")
    assert not response.all("content-length")


@pytest.mark.behaviour(28)
def test_a_flood_of_tiny_blocks_does_not_lock_up(server: Server) -> None:
    """Inverted, whoever runs the loop needed the GIL, and the view kept it until the loop had gone on."""
    clients = [server.connect() for _ in range(6)]
    for client in clients:
        client.send(request("/tiny"))
    for client in clients:
        assert len(client.response().body) == 18_000
        client.close()


@pytest.mark.behaviour(25)
@pytest.mark.parametrize(
    ("which", "expected"),
    [
        ("gzip", b"plain " * 1000),
        ("named", b"orary"),
        ("spooled", b"spooled"),
        ("pipe", b"piped"),
        ("unbuffered", STATIC[10:]),
        ("growing", b"own own own "),
    ],
)
def test_files_that_are_more_or_less_than_they_seem(server: Server, which: str, expected: bytes) -> None:
    with server.connect() as client:
        assert client.get(f"/file?which={which}").body == expected
        assert client.get("/hello").body == b"hello"


@pytest.mark.parametrize("path", ["/proc/version", "/sys/kernel/profiling"])
@pytest.mark.behaviour(25)
def test_a_file_whose_size_says_nothing_was_sent_as_long_as_it_says(server: Server, path: str) -> None:
    if not Path(path).exists():
        pytest.skip(f"NOT TESTED HERE: no {path}")
    with server.connect() as client:
        assert client.get(f"/file?which=made-up&path={path}").body == Path(path).read_bytes()
        assert client.get("/hello").body == b"hello"


@pytest.mark.parametrize("which", ["hole", "spooled"])
@pytest.mark.behaviour(25)
def test_a_file_that_is_read_is_longer_than_the_content_length(server: Server, which: str) -> None:
    """As of one that the kernel sends, the rest is left out."""
    with server.connect() as client:
        assert len(client.get(f"/file?which={which}&says=4").body) == 4
        assert client.get("/hello").body == b"hello"


@pytest.mark.behaviour(26)
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_odd_sizes_of_reads(server: Server, framing: str) -> None:
    body = b"line\nab and the rest"
    with server.connect() as client:
        if framing == "length":
            client.send(request("/sizes", method="POST", body=body))
        else:
            client.send(request("/sizes", "Transfer-Encoding: chunked", method="POST") + chunked(body[:3], body[3:]))
        assert client.response().json() == ["", "", "line\n", "ab", " and the rest", "", "", "", ""]


@pytest.mark.behaviour(26)
def test_what_is_kept_of_a_request_is_of_no_use_later(server: Server, key: str) -> None:
    assert server.get(f"/keeps?key={key}", method="POST", body=b"body").body == b"kept"
    assert server.get(f"/uses?key={key}").json() == ["the request is over"] * 2


@pytest.mark.behaviour(26)
def test_a_thread_that_reads_on_is_not_left_waiting(server: Server, key: str) -> None:
    with server.connect() as client:
        client.send(request(f"/keeps?key={key}&thread=1", "Content-Length: 5", method="POST"))
        assert client.response().body == b"kept"
        noted(server, f"{key} thread: the request is over")
        client.send(b"12345")
        assert client.get("/hello").body == b"hello"


@pytest.mark.behaviour(26)
def test_a_read_within_the_farewell_of_another_hung_the_server(server: Server, key: str) -> None:
    with server.connect() as client:
        client.send(request(f"/farewell?key={key}", "Content-Length: 100", method="POST"), b"x")
        noted(server, f"began {key}")
        client.reset()
    noted(server, f"read on {key}")


@pytest.mark.behaviour(26, 28)
def test_one_thread_may_read_while_another_writes(server: Server) -> None:
    with server.connect() as client:
        client.send(request("/both", "Content-Length: 1000000", method="POST"))
        sender = threading.Thread(target=client.send, args=(b"y" * 1_000_000,))
        sender.start()
        body = client.response().body
        sender.join()
    assert body == b"x" * 1_500_000 + b" read 1000000"


@pytest.mark.behaviour(27)
def test_an_environ_is_its_requests_own(server: Server) -> None:
    first = server.get("/spoils").json()
    assert server.get("/spoils").json() == first
    assert "wsgi.version=(1, 0)" in first


@pytest.mark.behaviour(27)
def test_what_recurs_in_requests_is_not_mixed_up(server: Server) -> None:
    """What environs have in common is made once, and so is what the request before had alike."""
    kinds = {
        "none": [],
        "some": ["Cookie: a=1", "X-Own: b", "X-Forwarded-For: 192.0.2.7"],
        "others": ["Cookie: a=2", "Cookie: c=3", "Accept: x/y"],
    }
    seen: dict[str, dict[str, str]] = {}
    with server.connect() as first, server.connect() as second:
        for kind in ("none", "some", "others", "none", "others", "some"):
            for client in (first, second, first, second):
                environ = client.get(f"/env?{kind}", *kinds[kind]).json()
                assert environ.pop("QUERY_STRING") == kind
                environ.pop("REMOTE_PORT", None)
                assert seen.setdefault(kind, environ) == environ
    assert [seen[kind].get("HTTP_COOKIE") for kind in kinds] == [None, "a=1", "a=2; c=3"]
    assert [seen[kind]["REMOTE_ADDR"] for kind in kinds] == ["127.0.0.1", "192.0.2.7", "127.0.0.1"]
    assert ("HTTP_X_OWN" in seen["some"], "HTTP_X_OWN" in seen["others"]) == (True, False)


@pytest.mark.behaviour(25)
def test_wsgi_errors_goes_to_stderr(server: Server, key: str) -> None:
    assert server.get(f"/errors?key={key}").body == b"hello"
    until(lambda: f"lines {key}" in server.stderr, "the line")
    assert f"written {key} \u20ac" in server.stderr


@pytest.mark.behaviour(27)
def test_names_and_addresses_on_a_unix_socket(start: Start, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    server = start("wsgi_strict_app:app", "--uds", path, address=path, validated=False)
    for fields, expected in {
        (): ("testserver", "80"),
        ("Host: example.org:8080",): ("example.org", "8080"),
        ("Host: [::1]",): ("[::1]", "80"),
        ("Host:",): ("localhost", "80"),
    }.items():
        environ = server.get("/env", *fields).json()
        assert (environ["SERVER_NAME"], environ["SERVER_PORT"]) == expected
        assert environ["REMOTE_ADDR"] == ""


@pytest.mark.behaviour(7, 26)
def test_100_continue_comes_when_the_body_is_read(server: Server) -> None:
    with server.connect() as client:
        client.send(request("/reads", "Content-Length: 5", "Expect: 100-continue", method="POST"))
        assert client.head().status == 100
        client.send(b"12345")
        assert client.response().body == b"5"
        client.send(request("/ignores", "Content-Length: 5", "Expect: 100-continue", method="POST"))
        response = client.response()
        assert (response.interim, response.body) == ([], b"hello")
        client.expect_end()


@pytest.mark.behaviour(8, 26)
def test_a_body_that_is_not_read_keeps_the_connection(server: Server) -> None:
    with server.connect() as client:
        for size in (5, 5000, 50_000):
            client.send(request("/ignores", method="POST", body=b"x" * size))
            assert client.response().body == b"hello"
        client.send(request("/ignores", "Transfer-Encoding: chunked", method="POST") + chunked(b"abc", b"de"))
        assert client.response().body == b"hello"
        assert client.get("/reads", method="POST", body=b"12").body == b"2"


@pytest.mark.behaviour(25)
@pytest.mark.parametrize("where", ["call", "iteration"])
@pytest.mark.parametrize(
    "kind", ["SystemExit", "KeyboardInterrupt", "GeneratorExit", "CancelledError", "StopIteration", "Own"]
)
def test_no_exception_of_a_view_stops_the_server(server: Server, kind: str, where: str) -> None:
    assert server.get(f"/raises?kind={kind}&where={where}").status == 500
    assert server.get("/hello").body == b"hello"


@pytest.mark.behaviour(32)
@pytest.mark.parametrize(("how", "code"), [("exits", b"5"), ("returns", b"1"), ("writes", b"1")])
def test_a_forked_child_that_comes_back_ends_and_says_nothing_to_a_client(
    server: Server, how: str, code: bytes
) -> None:
    with server.connect() as other, server.connect() as client:
        assert other.get("/hello").body == b"hello"
        assert client.get(f"/forks?how={how}").body == code
        assert client.get("/hello").body == other.get("/hello").body == b"hello"


@pytest.mark.behaviour(28)
def test_context_variables_end_with_their_request(server: Server, key: str) -> None:
    with server.connect() as client:
        for number in range(10):
            assert client.get(f"/context?key={key}{number}").json() == ["nothing", f"{key}{number}"]
    noted(server, f"{key}9 closed in {key}9")


@pytest.mark.behaviour(25)
def test_an_error_of_its_own_is_reported_although_the_client_has_gone(server: Server, key: str) -> None:
    before = server.stderr.count("FileNotFoundError: expected-by-the-test")
    client = server.connect()
    client.send(request(f"/fails_late?key={key}"))
    noted(server, f"began {key}")
    client.reset()
    until(lambda: server.stderr.count("FileNotFoundError: expected-by-the-test") == before + 1, "its traceback")


@pytest.mark.behaviour(29)
def test_an_upload_and_a_stream_in_flight_at_a_signal_end_well(start: Start, key: str) -> None:
    server = start("wsgi_strict_app:app", validated=False)
    with server.connect() as upload, server.connect() as stream, server.connect() as idle:
        assert idle.get("/hello").status == 200
        upload.send(request(f"/reads?key={key}", "Content-Length: 10", method="POST"), b"12345")
        stream.send(request(f"/drips?key={key}"))
        assert stream.head().status == 200
        noted(server, f"began {key}")
        server.signal(signal.SIGTERM)
        server.line("stopping: 2 requests in flight")
        idle.expect_end()  # the loop has heard of it
        upload.send(b"67890")
        response = upload.response()
        assert (response.body, response.one("connection")) == (b"10", b"close")
        assert [stream.chunk() for _ in range(6)] == [b"drop"] * 5 + [None]
    assert server.wait(5) == 0
    assert f"closed {key}" in server.stderr
