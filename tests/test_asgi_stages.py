"""What goes wrong at which stage of a request: errors of every kind, clients that leave, swallowed cancellations
(promises 13, 18, 19, 20, 30, 31)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

import pytest

from harness.client import Client, WireError, request
from harness.server import Server, Servers, tracebacks
from harness.waiting import until

BEFORE = ["first", "between-receives", "after-reading", "in-child", "in-finally"]
WITHIN = ["after-start", "between-chunks"]
AFTER = ["after-last-chunk", "in-background"]

#: What is the last line of the traceback, and how often the error's own text stands in the log.
KINDS = {
    "plain": ("ExpectedError: ", 1),
    "outermost": ("Outermost: ", 1),
    "group": ("", 3),
    "base-group": ("", 3),
    "generator-exit": ("GeneratorExit: ", 1),
    "stop-iteration": ("RuntimeError: coroutine raised StopIteration", 1),
    "stop-async-iteration": ("StopAsyncIteration: ", 1),
    "os-error": ("OSError: ", 1),
    "timeout": ("TimeoutError: ", 1),
    "chained": ("ExpectedError: ", 1),
}


def fail_at(server: Server, at: str, kind: str, mark: str) -> None:
    """A request that fails there, and what the client must see of it."""
    with server.connect() as client:
        client.send(request(f"/fail?at={at}&kind={kind}&id={mark}", method="POST", body=b"body"))
        if at in BEFORE:
            response = client.response()
            assert (response.status, response.body.strip().lower()) == (500, b"internal server error")
        elif at in WITHIN:
            raw = client.to_end()
            assert raw.count(b"HTTP/1.1") <= 1
            assert b"whole" not in raw
            assert not raw.endswith(b"0\r\n\r\n"), "a response that was cut off looks complete"
        else:
            assert client.response().body == b"partwhole"
            assert b"HTTP/1.1" not in client.waiting()


@pytest.mark.uvloop
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.behaviour(18, 31)
def test_an_error_of_any_kind_at_any_stage(probe: Server, kind: str) -> None:
    """The client sees a 500, a cut or nothing of it; the log has its traceback once; other requests go on."""
    probe.expected_tracebacks += ["coroutine raised StopIteration", "GeneratorExit", "ValueError: the cause"]
    probe.expected_tracebacks += ["KeyError: 'the context", "CancelledError"]
    base = f"{kind}-{uuid.uuid4().hex}"
    with probe.connect() as beside:
        for at in BEFORE + WITHIN + AFTER:
            if at == "in-child" and kind in ("generator-exit", "stop-iteration"):
                continue  # a TaskGroup turns these into something else, or hangs itself
            mark = f"{base}.{at}."
            fail_at(probe, at, kind, mark)
            until(lambda mark=mark: mark in probe.stderr, "the error in the log")
            assert beside.get("/hello").status == 200
    if probe.target.server != "m0serve":
        return
    last, times = KINDS[kind]
    for at in BEFORE + WITHIN + AFTER:
        mark = f"{base}.{at}."
        found = [(block, end) for block, end in tracebacks(probe.stderr) if mark in block]
        if found and last and kind != "stop-iteration" and at != "in-child":
            assert [end.startswith(last) or f".{last}" in end for _, end in found] == [True], found
        if found and at == "first":
            assert probe.stderr.count(mark) == times, probe.stderr[-4000:]
            assert "in fail" in "".join(block for block, _ in found)


@pytest.mark.beyond_uvicorn("prints its own frames")
@pytest.mark.behaviour(31)
def test_the_cause_and_the_context_of_an_error_are_printed(probe: Server) -> None:
    probe.expected_tracebacks += ["ValueError: the cause", "KeyError: 'the context"]
    mark = uuid.uuid4().hex
    fail_at(probe, "first", "chained", mark)
    until(lambda: mark in probe.stderr, "the error in the log")
    report = probe.stderr[: probe.stderr.index(mark)].rpartition("exception in the ASGI application")[2]
    assert report.index("the context of it") < report.index("the cause of it")
    assert "direct cause" in report


def test_an_error_that_cannot_be_printed_is_reported_all_the_same(probe: Server) -> None:
    probe.expected_tracebacks.append("Unprintable")
    assert probe.get("/fail?at=first&kind=unprintable&id=x").status == 500
    until(lambda: "Unprintable: <exception str() failed>" in probe.stderr, "the error in the log")
    assert probe.get("/hello").status == 200


@pytest.mark.parametrize("kind", ["raises", "nothing", "number"])
def test_a_call_that_gives_no_awaitable_is_a_500(servers: Servers, kind: str) -> None:
    asgi = "asgi3" if servers.target.server == "uvicorn" else "asgi"
    server = servers.get("awaitable_app:app", "--interface", asgi, "--lifespan", "off")
    server.expected_tracebacks.append("TypeError: ")
    with server.connect() as client:
        assert client.get(f"/{kind}").status == 500
    assert server.get("/awaitable").body == b"awaitable"


@pytest.mark.behaviour(8, 18)
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_an_error_within_an_upload_is_a_500_that_is_not_lost(probe: Server, framing: str) -> None:
    """The client goes on uploading, as most do, and then reads its answer."""
    with probe.connect() as client:
        field = "Content-Length: 400000" if framing == "length" else "Transfer-Encoding: chunked"
        client.send(request("/fail?at=between-receives&kind=plain&id=upload", field, method="POST"))
        for _ in range(40):
            client.send(b"u" * 10_000 if framing == "length" else b"2710\r\n" + b"u" * 10_000 + b"\r\n")
        if framing == "chunked":
            client.send(b"0\r\n\r\n")
        response = client.response()
        assert response.status == 500
        if response.all("connection") != [b"close"]:
            assert client.get("/hello").status == 200


# --- clients that leave ----------------------------------------------------------------------------------------


def leave(client: Client, how: str) -> float:
    """Go, and say when."""
    client.reset() if how == "reset" else client.close()
    return time.monotonic()


@pytest.mark.uvloop
@pytest.mark.beyond_uvicorn("drops what is sent to a client that has gone")
@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("at", ["upload", "uploaded", "started", "chunk"])
@pytest.mark.behaviour(13, 19, 20)
def test_a_client_that_leaves_before_the_end(probe: Server, key: str, at: str, how: str) -> None:
    """receive says so within a second and for ever, send raises OSError, and `finally` runs."""
    client = probe.connect()
    client.send(request(f"/left?key={key}&at={at}", "Content-Length: 8", method="POST"))
    client.send(b"half" if at == "upload" else b"it is 8.")
    probe.note(key, "there")
    if at == "chunk":
        client.head()
        assert client.chunk() == b"part"
    left = leave(client, how)
    probe.note(key, "finally")
    notes = probe.notes(key)
    assert (notes["message"], notes["again"]) == ("http.disconnect", "http.disconnect")
    assert notes["at"] - left < 1.0  # type: ignore[operator]
    assert "OSError" in notes["raised"]  # type: ignore[operator]
    # After a FIN it takes a write to learn that nobody reads; after a reset the first send of any kind says so.
    assert how == "close" or "taken" not in notes


@pytest.mark.uvloop
@pytest.mark.behaviour(20)
def test_a_client_that_leaves_after_its_answer(probe: Server, key: str) -> None:
    client = probe.connect()
    client.send(request(f"/left?key={key}&at=complete", method="POST", body=b"body"))
    assert client.response().body == b"part"
    client.reset()
    probe.note(key, "finally")
    notes = probe.notes(key)
    assert (notes["message"], notes["again"]) == ("http.disconnect", "http.disconnect")
    if probe.target.server == "m0serve":
        assert "RuntimeError" in notes["raised"] or "OSError" in notes["raised"]  # type: ignore[operator]


@pytest.mark.uvloop
@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("at", ["before", "after"])
def test_a_client_that_leaves_unheard(probe: Server, key: str, at: str, how: str) -> None:
    """The application is neither cancelled nor blamed, whether it would have answered or has."""
    errors = probe.stderr.count("exception in the ASGI application")
    client = probe.connect()
    client.send(request(f"/left-unheard?key={key}&at={at}"))
    probe.note(key, "there")
    if at == "after":
        assert client.response().body == b"read this"
    leave(client, how)
    assert probe.get("/hello").status == 200
    probe.open_gate(key)
    if at == "after":
        assert probe.note(key, "message") == "http.disconnect"
        assert probe.note(key, "finished")
    assert probe.get("/hello").status == 200
    assert probe.stderr.count("exception in the ASGI application") == errors


@pytest.mark.uvloop
@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_client_that_has_left_before_the_application_is_called(probe: Server, key: str, how: str) -> None:
    """While another request keeps the loop: it is not called, or finds the client gone."""
    with probe.connect() as busy:
        probe_lines = probe.stderr.count("computing now")
        busy.send(request("/compute?s=0.2"))
        until(lambda: probe.stderr.count("computing now") > probe_lines, "the loop is kept")
        for _ in range(20):
            client = probe.connect()
            client.send(request(f"/left?key={key}&at=uploaded"))
            leave(client, how)
        assert busy.response().body == b"computed"
    assert probe.get("/hello").status == 200
    if "started" in probe.notes(key):
        probe.note(key, "finally")
        notes = probe.notes(key)
        assert notes.get("message") == "http.disconnect" or "ExpectedError" in notes["raised"]  # type: ignore[operator]


def test_a_client_that_leaves_within_its_head(probe: Server) -> None:
    before = probe.get("/count").json()
    for head in (b"G", b"GET /hello HTTP/1.1\r\n", request("/hello")[:-1]):
        for how in ("close", "reset"):
            client = probe.connect()
            client.send(head)
            leave(client, how)
    assert probe.get("/count").json() == before


@pytest.mark.uvloop
@pytest.mark.beyond_uvicorn("send() to a client that left returns, so that an endless sender goes on for ever")
@pytest.mark.parametrize("path", ["left-in-group", "left-wrapped", "left-wrapped/from", "generator"])
def test_what_an_application_makes_of_the_send_that_failed_is_no_error_of_its_own(
    probe: Server, key: str, path: str
) -> None:
    """The OSError of a send may leave in a group of errors, or as the cause or context of one, as from Starlette."""
    errors = probe.stderr.count("Traceback")
    client = probe.connect()
    client.send(request(f"/{path}?key={key}"))
    client.head()
    assert client.chunk() == b"chunk"
    client.reset()
    probe.note(key, "closed" if path == "generator" else "finally")
    assert path != "generator" or probe.notes(key)["generator"] == "GeneratorExit"
    assert probe.get("/hello").status == 200
    assert probe.stderr.count("Traceback") == errors, probe.stderr[-3000:]


@pytest.mark.beyond_uvicorn("send() to a client that left returns, so that an endless sender goes on for ever")
def test_an_error_of_its_own_is_reported_although_the_client_has_left(probe: Server, key: str) -> None:
    probe.expected_tracebacks.append("ClientDisconnected")  # its context
    client = probe.connect()
    client.send(request(f"/left-wrapped?key={key}&own={key}"))
    client.head()
    assert client.chunk() == b"chunk"
    client.reset()
    until(lambda: any(key in last for _, last in tracebacks(probe.stderr)), "its traceback")


# --- cancellations that are swallowed --------------------------------------------------------------------------


@pytest.mark.uvloop
def test_a_cancellation_that_is_swallowed_changes_nothing(probe: Server, key: str) -> None:
    with probe.connect() as client:
        assert client.get(f"/swallows?key={key}&self=1").body == b"all the same"
        assert client.get("/hello").status == 200
    assert probe.notes(key)["cancelled"]


@pytest.mark.uvloop
@pytest.mark.beyond_uvicorn("has no drain time-out by default")
@pytest.mark.behaviour(30)
def test_a_cancellation_at_the_end_of_the_drain_may_be_swallowed(start: Callable[..., Server], key: str) -> None:
    server = start("probe:app", "--drain-timeout", "0.2")
    with server.connect() as client:
        client.send(request(f"/swallows?key={key}"))
        server.note(key, "started")
        began = time.monotonic()
        server.signal(15)
        try:
            assert client.response().body == b"all the same"
        except WireError:
            assert client.to_end() == b""  # its time was over
        assert server.wait(5) == 0
    assert time.monotonic() - began < 2.0
    assert "abandoned: GET /swallows" in server.stderr
    assert "does not end when it is cancelled" not in server.stderr


@pytest.mark.uvloop
@pytest.mark.beyond_uvicorn("has no drain time-out by default")
@pytest.mark.behaviour(30, 31)
def test_an_error_in_place_of_a_cancellation_at_the_end_of_the_drain_is_printed_once(
    start: Callable[..., Server], key: str
) -> None:
    server = start("probe:app", "--drain-timeout", "0.2")
    with server.connect() as client:
        client.send(request(f"/swallows?key={key}&raises={key}"))
        server.note(key, "started")
        server.signal(15)
        client.to_end()
        assert server.wait(5) == 0
    assert [last.endswith(key) for _, last in tracebacks(server.stderr)] == [True], server.stderr
