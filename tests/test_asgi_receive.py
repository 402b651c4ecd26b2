"""receive and send over the life of a request and after it (promises 19, 20, 21, 13)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from harness.client import chunked, request
from harness.server import Server
from harness.waiting import settled

pytestmark = pytest.mark.uvloop


@pytest.mark.behaviour(20)
def test_after_the_response_receive_gives_disconnect(probe: Server, key: str) -> None:
    with probe.connect() as client:
        client.send(request(f"/receive-after-response?key={key}", method="POST", body=b"body"))
        assert client.response().body == b"fine"
        assert probe.note(key, "messages") == ["http.disconnect", "http.disconnect"]
        assert client.get("/hello").status == 200


def test_after_a_response_that_left_the_body_unread(probe: Server, key: str) -> None:
    with probe.connect() as client:
        assert client.get(f"/receive-unread?key={key}", method="POST", body=b"body").body == b"fine"
        assert probe.note(key, "message") == "http.disconnect"
        assert client.get("/hello").status == 200


@pytest.mark.behaviour(20)
def test_a_receive_that_waits_is_woken_by_the_response(probe: Server, key: str) -> None:
    with probe.connect() as client:
        assert client.get(f"/receive-pending?key={key}").body == b"fine"
        assert probe.note(key, "message") == "http.disconnect"
    assert probe.notes(key)["early"] is False


def test_receive_as_a_task(probe: Server) -> None:
    response = probe.get("/receive-task", method="POST", body=b"body")
    assert response.json() == ["http.request", "body", False]
    assert probe.get("/receive-task").json() == ["http.request", "", False]


@pytest.mark.behaviour(20)
def test_a_cancelled_receive_raises_and_loses_nothing(probe: Server, key: str) -> None:
    with probe.connect() as client:
        client.send(request(f"/receive-cancelled?key={key}", "Content-Length: 9", method="POST"))
        probe.note(key, "timed out")
        client.send(b"late", b" body")
        assert client.response().body == b"late body"
    notes = probe.notes(key)
    assert notes["waiting"]
    assert notes["cancelled"]
    assert notes["timed out"]


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_messages_have_all_their_fields(probe: Server, framing: str) -> None:
    data = b"z" * 300_000
    with probe.connect() as client:
        if framing == "length":
            client.send(request("/receive-all", method="POST", body=data))
        else:
            client.send(request("/receive-all", "Transfer-Encoding: chunked", method="POST"))
            client.send(chunked(*[data[at : at + 7001] for at in range(0, len(data), 7001)]))
        shown = client.response().json()
    assert shown == {"total": len(data), "shapes": [["http.request", "body", "more_body"]]}


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.behaviour(13, 20)
def test_receive_reports_a_client_that_left(probe: Server, key: str, how: str) -> None:
    client = probe.connect()
    client.send(request(f"/wait-disconnect?key={key}", method="POST", body=b"x"))
    probe.note(key, "reading")
    left = time.monotonic()
    client.reset() if how == "reset" else client.close()
    assert probe.note(key, "message") == "http.disconnect"
    assert probe.note(key, "at") - left < 1.0  # type: ignore[operator]
    assert probe.note(key, "again") == "http.disconnect"


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_client_that_leaves_within_its_body(probe: Server, key: str, how: str, framing: str) -> None:
    client = probe.connect()
    header = "Content-Length: 10" if framing == "length" else "Transfer-Encoding: chunked"
    client.send(request(f"/read-slowly?key={key}", header, method="POST"), b"4\r\nab")
    probe.note(key, "started")
    probe.open_gate(key)
    probe.note(key, "bytes")
    left = time.monotonic()
    client.reset() if how == "reset" else client.close()
    assert probe.note(key, "disconnected") - left < 1.0  # type: ignore[operator]
    assert "complete" not in probe.notes(key)


@pytest.mark.beyond_uvicorn("drops what is sent to a client that has gone")
@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.behaviour(19)
def test_sends_to_a_client_that_left_raise_oserror_and_finally_runs(probe: Server, key: str, how: str) -> None:
    client = probe.connect()
    client.send(request(f"/endless?key={key}&size=100&pause=0.01"))
    client.head()
    assert client.chunk()
    left = time.monotonic()
    client.reset() if how == "reset" else client.close()
    assert probe.note(key, "finally") - left < 1.0  # type: ignore[operator]
    assert probe.notes(key)["raised"] == "OSError"


@pytest.mark.beyond_uvicorn("drops what is sent to a client that has gone")
@pytest.mark.behaviour(9, 19)
def test_a_send_that_waits_for_the_client_raises_when_it_leaves(probe: Server, key: str) -> None:
    client = probe.connect(rcvbuf=65536)
    client.send(request(f"/endless?key={key}&size=65536"))
    settled(lambda: int(probe.notes(key).get("chunks", 0)))  # type: ignore[call-overload]
    left = time.monotonic()
    client.reset()
    assert probe.note(key, "finally") - left < 1.0  # type: ignore[operator]
    assert probe.notes(key)["raised"] == "OSError"


@pytest.mark.beyond_uvicorn("drops what is sent to a client that has gone")
@pytest.mark.behaviour(19)
def test_the_send_itself_raises_that_waited_when_the_client_left(probe: Server, key: str) -> None:
    """Not only the next one: an application may have no more to say."""
    client = probe.connect(rcvbuf=65536)
    client.send(request(f"/endless?key={key}&size={16 * 1024 * 1024}"))
    client.head()
    client.reset()
    probe.note(key, "finally")
    assert probe.notes(key)["raised"] == "OSError"
    assert "chunks" not in probe.notes(key)


def test_a_request_is_not_cancelled_when_its_client_leaves(probe: Server, key: str) -> None:
    client = probe.connect()
    client.send(request(f"/outlive?key={key}"))
    probe.note(key, "started")
    client.reset()
    assert probe.get("/hello").status == 200
    probe.open_gate(key)
    assert probe.note(key, "finished") is True
    if probe.target.server == "m0serve":
        assert probe.notes(key)["raised"] == "OSError"


@pytest.mark.beyond_uvicorn("closes at the client's FIN")
@pytest.mark.behaviour(13)
def test_after_the_clients_fin_the_answer_is_still_written(probe: Server, key: str) -> None:
    with probe.connect() as client:
        client.send(request(f"/gated-stream?key={key}"))
        client.head()
        assert client.chunk() == b"before "
        client.finish()
        assert probe.get("/hello").status == 200
        probe.open_gate(key)
        assert client.chunk() == b"after"
        assert client.chunk() is None
        client.expect_end()


@pytest.mark.beyond_uvicorn("closes at the client's FIN")
def test_a_request_and_a_fin_in_one_go(probe: Server, key: str) -> None:
    with probe.connect() as client:
        client.send(request("/slow?s=0.05", method="POST", body=b"data") + request("/hello"))
        client.finish()
        assert client.response().body == b"slept"
        assert client.response().body == b"Hello, World!"
        client.expect_end()


@pytest.mark.behaviour(13)
def test_receive_reports_a_fin_once_the_body_is_complete(probe: Server, key: str) -> None:
    with probe.connect() as client:
        client.send(request(f"/wait-disconnect?key={key}", method="POST", body=b"all of it"))
        client.finish()
        probe.note(key, "reading")
        assert probe.note(key, "message", 2.0) == "http.disconnect"


@pytest.mark.parametrize("shape", ["list", "tuple", "lists", "generator", "items", "map", "custom"])
@pytest.mark.behaviour(21)
def test_headers_may_be_any_iterable(probe: Server, shape: str) -> None:
    response = probe.get(f"/headers-of?shape={shape}")
    assert (response.one("x-one"), response.one("x-two"), response.body) == (b"1", b"2", b"ok")


def test_bytes_like_bodies_and_defaults(probe: Server) -> None:
    assert probe.get("/odd-body").body == b"one two three"


@pytest.mark.beyond_uvicorn("does not know pathsend")
@pytest.mark.parametrize("size", [0, 1, 100_000, 48 * 1024 * 1024])
@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.behaviour(21)
def test_path_send(probe: Server, key: str, tmp_path: Path, size: int, declared: bool) -> None:
    file = tmp_path / "file"
    data = bytes(range(251)) * (size // 251 + 1)
    file.write_bytes(data[:size])
    before = probe.usage()
    with probe.connect(timeout=30) as client:
        response = client.get(f"/path-send?key={key}&path={file}" + (f"&size={size}" if declared else ""))
        assert response.status == 200
        assert response.body == data[:size]
        assert client.get("/hello").status == 200
    probe.note(key, "sent")
    assert probe.usage().rss - before.rss < 16 * 1024 * 1024


@pytest.mark.beyond_uvicorn("does not know pathsend")
def test_path_send_of_a_head_request_sends_no_body(probe: Server, key: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"contents")
    with probe.connect() as client:
        response = client.get(f"/path-send?key={key}&path={file}&size=8", method="HEAD")
        assert (response.one("content-length"), response.body) == (b"8", b"")
        assert client.get("/hello").status == 200


@pytest.mark.beyond_uvicorn("does not know pathsend")
def test_path_send_of_a_missing_file_raises(probe: Server, key: str, tmp_path: Path) -> None:
    probe.expected_tracebacks.append("FileNotFoundError")
    with probe.connect() as client:
        client.send(request(f"/path-send?key={key}&path={tmp_path}/missing&size=8"))
        raw = client.to_end()
    assert raw.count(b"HTTP/1.1") <= 1
    assert "sent" not in probe.notes(key)
    assert probe.get("/hello").status == 200
