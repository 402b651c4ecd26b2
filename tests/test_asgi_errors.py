"""Applications that raise, return too early or send the wrong message (promises 18, 19, 31, and 11 for headers)."""

from __future__ import annotations

import uuid

import pytest

from harness.client import Response, WireError, request
from harness.server import Server, tracebacks
from harness.waiting import until

EARLY = ["first", "before-start"]
LATE = ["after-start", "in-body"]


def assert_500(response: Response) -> None:
    assert response.status == 500
    assert response.body.strip().lower() == b"internal server error"
    assert response.one("content-type").startswith(b"text/plain")


def assert_cut_off(raw: bytes, most: bytes) -> None:
    """At most a truncated 200 was written: one head at most, no more body than was sent, and no proper end.

    A server may hold the head back until the first body message (the ASGI specification allows it); then the head may
    also be that of a 500 which closes, with nothing of the application's in it.
    """
    assert raw.count(b"HTTP/1.1") <= 1
    if raw.startswith(b"HTTP/1.1 500") and not most:
        assert b"connection: close" in raw
        assert b"content-length: 10\r\n" not in raw
    elif raw:
        head, _, rest = raw.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        assert rest in (b"", most, b"%x\r\n%s\r\n" % (len(most), most)), rest


@pytest.mark.uvloop
@pytest.mark.parametrize("stage", [*EARLY, "after-read"])
@pytest.mark.behaviour(18)
def test_an_exception_before_the_start_is_a_500(probe: Server, stage: str) -> None:
    assert_500(probe.get(f"/raise?at={stage}", method="POST", body=b"data"))
    assert probe.get("/hello").status == 200


@pytest.mark.parametrize("stage", EARLY)
@pytest.mark.behaviour(18)
def test_a_return_before_the_start_is_a_500(probe: Server, stage: str) -> None:
    assert_500(probe.get(f"/return?at={stage}"))
    said = "ASGI callable returned without starting response."
    until(lambda: said in probe.stderr, "the log says why")


@pytest.mark.parametrize("how", ["raise", "return"])
@pytest.mark.parametrize("stage", LATE)
@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.behaviour(18)
def test_after_the_start_the_connection_closes(probe: Server, how: str, stage: str, framing: str) -> None:
    with probe.connect() as client:
        target = f"/{how}?at={stage}" + ("&length=1" if framing == "length" else "")
        client.send(request(target), request("/hello"))
        assert_cut_off(client.to_end(), b"12345" if stage == "in-body" else b"")


@pytest.mark.beyond_uvicorn("sends chunks to HTTP/1.0")
@pytest.mark.behaviour(4, 18)
def test_a_response_that_only_the_close_ends_is_not_whole_when_it_breaks_off(probe: Server) -> None:
    """A FIN would make it look so: there is a reset, after what had been said (RFC 9112, 6.3)."""
    with probe.connect() as client:
        client.send(b"GET /raise?at=in-body HTTP/1.0\r\n\r\n")
        assert client.head().status == 200
        assert client.some(5) == b"12345"
        with pytest.raises(ConnectionResetError):
            client.sock.recv(1)


def test_an_exception_after_the_end_changes_nothing_for_the_client(probe: Server) -> None:
    with probe.connect() as client:
        client.send(request("/raise?at=after-end&length=1"))
        response = client.response()
        assert (response.status, response.body) == (200, b"1234567890")
        assert b"HTTP/1.1" not in client.waiting()


@pytest.mark.uvloop
@pytest.mark.behaviour(31)
def test_a_traceback_is_printed_in_full_and_once(probe: Server) -> None:
    mark = uuid.uuid4().hex
    for stage in ("first", "before-start", "in-body"):
        with probe.connect() as client:
            client.send(request(f"/raise?at={stage}&id={stage}{mark}"))
            client.to_end() if stage == "in-body" else client.response()
        until(lambda text=f"{stage}{mark}": text in probe.stderr, "the exception in the log")
    probe.get("/hello")
    for stage in ("first", "before-start", "in-body"):
        found = [block for block, last in tracebacks(probe.stderr) if f"{stage}{mark}" in last]
        assert len(found) == 1, probe.stderr[-3000:]
        assert "in raises" in found[0]
        assert "apps/probe/errors.py" in found[0]
        assert probe.stderr.count(f"{stage}{mark}") == 1
        if probe.target.server == "m0serve":
            assert "/m0serve/" not in found[0]


@pytest.mark.parametrize("stage", ["first", "in-body"])
def test_a_cancelled_error_out_of_nowhere_ends_only_its_request(probe: Server, stage: str) -> None:
    with probe.connect() as client:
        client.send(request(f"/cancelled?at={stage}"))
        if stage == "first":
            assert client.response().status == 500
        else:
            assert_cut_off(client.to_end(), b"12345")
    assert probe.get("/hello").status == 200


@pytest.mark.uvloop
@pytest.mark.parametrize(
    ("path", "notes"),
    [
        ("body-first", ["raised"]),
        ("start-twice", ["raised"]),
        ("unknown-message", ["before", "after"]),
    ],
)
@pytest.mark.behaviour(19)
def test_wrong_order_raises_and_a_proper_response_can_follow(
    probe: Server, key: str, path: str, notes: list[str]
) -> None:
    with probe.connect() as client:
        response = client.get(f"/{path}?key={key}")
        assert (response.status, response.body) == (200, b"fine")
        assert not response.all("x-second")
        for name in notes:
            assert "RuntimeError" in probe.note(key, name) or "ValueError" in probe.note(key, name)  # type: ignore[operator]
        assert client.get("/hello").body == b"Hello, World!"


@pytest.mark.uvloop
@pytest.mark.behaviour(19)
def test_sending_after_the_end_raises_and_leaks_nothing(probe: Server, key: str) -> None:
    with probe.connect() as client:
        client.send(request(f"/after-end?key={key}"), request("/hello"))
        assert client.response().body == b"fine"
        assert client.response().body == b"Hello, World!"
        probe.note(key, "done")
        assert client.waiting() == b""
    for name in ("body", "start"):
        assert "RuntimeError" in probe.notes(key)[name]  # type: ignore[operator]


@pytest.mark.beyond_uvicorn("takes a malformed start for the start")
@pytest.mark.behaviour(19)
def test_malformed_messages_raise(probe: Server, key: str) -> None:
    response = probe.get(f"/bad-message?key={key}")
    assert (response.status, response.body) == (200, b"fine")
    notes = probe.notes(key)
    assert len(notes) == 8
    for name, kinds in notes.items():
        assert "Exception" in kinds, (name, kinds)  # type: ignore[operator]


@pytest.mark.parametrize("sent", [0, 5])
@pytest.mark.parametrize("method", ["GET"])
@pytest.mark.behaviour(5)
def test_a_body_shorter_than_declared_closes(probe: Server, key: str, sent: int, method: str) -> None:
    with probe.connect() as client:
        client.send(request(f"/length?key={key}&declared=10&sent={sent}", method=method) + request("/hello"))
        assert_cut_off(client.to_end(), b"abcde"[:sent])


@pytest.mark.behaviour(5)
def test_a_body_longer_than_declared_never_leaks(probe: Server, key: str) -> None:
    with probe.connect() as client:
        client.send(request(f"/length?key={key}&declared=7&sent=15") + request("/hello"))
        raw = client.to_end()
    assert raw.count(b"HTTP/1.1") <= 1
    head, _, rest = raw.partition(b"\r\n\r\n")
    assert not raw or head.startswith(b"HTTP/1.1 200")
    assert b"abcdeab".startswith(rest), rest


BAD = [
    "value-crlf",
    "value-lf",
    "value-cr",
    "value-nul",
    "name-crlf",
    "name-lf",
    "name-nul",
    "name-colon",
    "name-space",
    "name-empty",
    "length-text",
    "length-sign",
]


@pytest.mark.beyond_uvicorn("closes after having taken the start, or sends some of them")
@pytest.mark.parametrize("which", BAD)
@pytest.mark.behaviour(11)
def test_a_header_that_would_break_the_wire_never_reaches_it(probe: Server, which: str) -> None:
    with probe.connect() as client:
        client.send(request(f"/bad-header?which={which}"))
        try:
            response = client.response()
        except WireError:
            assert client.to_end() == b""
            return
        assert response.status == 500
        raw = repr(response)
        assert "x-injected" not in raw
        assert "x-good" not in raw
