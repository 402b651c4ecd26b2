"""Several tasks, time-outs and scopes around receive and send; a loop that is kept for a second (promises 20, 22)."""

from __future__ import annotations

import time

import pytest

from harness.client import Client, request
from harness.server import Server
from harness.waiting import settled, until

MIB = 1024 * 1024
CUTS = ["wait-for", "timeout", "scope", "group", "cancel"]

pytestmark = pytest.mark.uvloop


@pytest.mark.behaviour(20)
def test_two_receivers_share_the_body_and_both_hear_of_the_end(probe: Server, key: str) -> None:
    with probe.connect() as client:
        client.send(request(f"/two-receivers?key={key}", "Content-Length: 200000", method="POST"))
        probe.note(key, "waiting")
        for _ in range(200):
            client.send(b"u" * 1000)
        assert client.response().json() == {"bytes": 200_000, "right": True}
        assert probe.note(key, "ended") == ["http.disconnect", "http.disconnect"]
        assert client.get("/hello").status == 200


@pytest.mark.parametrize(("tasks", "each", "size"), [(50, 40, 20), (6, 6, 30_000)])
def test_sends_of_many_tasks_are_not_mixed(probe: Server, tasks: int, each: int, size: int) -> None:
    """Each message is whole on the wire, and those of one task in their order, also when none of them fits a buffer."""
    with probe.connect(timeout=30, rcvbuf=65536) as client:
        client.send(request(f"/many-senders?tasks={tasks}&each={each}&size={size}"))
        lines = client.response().body.splitlines()
    assert len(lines) == tasks * each
    seen = [0] * tasks
    for line in lines:
        name, number, filling = line.split(b" ")
        assert int(number) == seen[int(name)], "out of order"
        seen[int(name)] += 1
        wanted = size if int(number) % 3 else size * 7
        assert filling == b"%c" % (97 + int(name) % 26) * wanted, "mixed"


def test_receive_and_send_belong_to_whoever_has_them(probe: Server) -> None:
    with probe.connect() as client:
        assert client.get("/another-task", method="POST", body=b"through another task").body == b"through another task"
        assert client.get("/hello").status == 200


@pytest.mark.parametrize("by", CUTS)
@pytest.mark.behaviour(20, 22)
def test_a_receive_that_is_cut_off_loses_nothing(probe: Server, key: str, by: str) -> None:
    """From the first step on, by every means; no cancellation is left over."""
    with probe.connect() as client:
        client.send(request(f"/cut-receive?key={key}&by={by}", "Content-Length: 8", method="POST"))
        assert probe.note(key, "cuts") == [True, 0]
        client.send(b"the body")
        assert client.response().body == b"the body"
        assert client.get("/hello").status == 200


@pytest.mark.behaviour(20)
def test_receives_that_are_cancelled_while_the_body_arrives_lose_none_of_it(probe: Server) -> None:
    with probe.connect() as client:
        client.send(request("/cut-race", "Content-Length: 1500", method="POST"))
        for _ in range(1500):
            client.send(b"x")
        assert client.response().json() == [1500, True]
        assert client.get("/hello").status == 200


@pytest.mark.behaviour(20)
def test_receives_that_were_cancelled_leave_nothing_behind(probe: Server) -> None:
    assert probe.get("/polls").json() < 50


@pytest.mark.beyond_uvicorn("waits first and sends then")
@pytest.mark.parametrize("by", CUTS)
@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.behaviour(22)
def test_a_send_that_is_cut_off_stays_sent(probe: Server, key: str, by: str, framing: str) -> None:
    """Order and framing hold: what was waited for is not what was said."""
    with probe.connect(timeout=30, rcvbuf=65536) as client:
        client.send(request(f"/cut-send?key={key}&by={by}" + ("&length=1" if framing == "length" else "")))
        cuts = probe.note(key, "cuts")
        assert cuts.count(True) >= 2, cuts  # type: ignore[attr-defined]
        probe.open_gate(key)
        response = client.response()
        assert response.framing == framing
        assert response.body == b"".join(b"%d" % number * MIB for number in range(8)) + b"end"
        assert probe.note(key, "sent")
        assert client.get("/hello").status == 200


def test_a_stream_ends_the_task_that_listens_for_the_client(probe: Server, key: str) -> None:
    with probe.connect() as client:
        for number in range(3):
            assert len(client.get(f"/listener?key={key}{number}&count=30").body) == 300_000
            assert probe.note(f"{key}{number}", "over")
            assert "streamed" in probe.notes(f"{key}{number}")
        assert client.get("/hello").status == 200


@pytest.mark.beyond_uvicorn("send() to a client that left returns, so that an endless sender starves the loop")
@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.behaviour(9, 20)
def test_a_task_that_listens_for_the_client_ends_a_stream_that_is_stuck(probe: Server, key: str, how: str) -> None:
    client = probe.connect(rcvbuf=65536)
    client.send(request(f"/listener?key={key}&count=-1"))
    client.head()
    settled(lambda: int(probe.notes(key).get("sent", 0)), quiet=0.1)  # type: ignore[call-overload]
    left = time.monotonic()
    client.reset() if how == "reset" else client.close()
    probe.note(key, "over", 2.0)
    assert time.monotonic() - left < 2.0
    assert "streamed" not in probe.notes(key)


@pytest.mark.beyond_uvicorn("leaves the task waiting")
def test_what_a_request_leaves_behind_is_told_that_it_is_over(probe: Server, key: str) -> None:
    """A receive that waits when the application returns gives http.disconnect; a send raises and reaches nobody."""
    with probe.connect() as client:
        client.send(request(f"/left-behind?key={key}", "Content-Length: 4", method="POST"))
        raw = client.to_end()
    assert not raw.endswith(b"0\r\n\r\n")
    assert b"more" not in raw
    probe.note(key, "over")
    notes = probe.notes(key)
    assert (notes["message"], notes["again"]) == ("http.disconnect", "http.disconnect")
    assert "RuntimeError" in notes["raised"] or "OSError" in notes["raised"]  # type: ignore[operator]


@pytest.mark.beyond_uvicorn("does not notice")
def test_receive_and_send_are_refused_on_another_thread(probe: Server) -> None:
    with probe.connect() as client:
        assert client.get("/from-thread").json() == ["RuntimeError", "RuntimeError"]
        assert client.get("/hello").status == 200


def test_a_thread_receives_and_sends_by_way_of_the_loop(probe: Server) -> None:
    with probe.connect() as client:
        for _ in range(3):
            assert client.get("/through-thread", method="POST", body=b"body").body == b"0 1 2 body"


def keep_the_loop(probe: Server, busy: Client, seconds: float) -> None:
    """A handler computes for so long; returns when it has begun."""
    before = probe.stderr.count("computing now")
    busy.send(request(f"/compute?s={seconds}"))
    until(lambda: probe.stderr.count("computing now") > before, "the loop is kept")


def test_a_handler_that_keeps_the_loop_for_a_second_loses_nothing(probe: Server, key: str) -> None:
    """What arrives meanwhile is answered afterwards: new connections, pipelines, uploads, streams, half requests."""
    data = bytes(range(256)) * 1024
    with probe.connect(timeout=20) as busy:
        stream, upload, half = (probe.connect(timeout=20) for _ in range(3))
        stream.send(request(f"/gated-stream?key={key}"))
        stream.head()
        assert stream.chunk() == b"before "
        upload.send(request("/echo", f"Content-Length: {len(data)}", method="POST"), data[:1000])
        half.send(request("/hello")[:30])
        gone = probe.connect()
        gone.send(request(f"/left?key={key}-gone&at=uploaded"))
        probe.note(f"{key}-gone", "there")
        keep_the_loop(probe, busy, 1.0)
        gone.reset()
        late = [probe.connect(timeout=20) for _ in range(20)]
        for client in late:
            client.send(request("/hello") * 5)
        half.send(request("/hello")[30:] + request(f"/open?key={key}"))
        upload.send(data[1000:200_000])
        upload.send(data[200_000:])
        assert busy.response().body == b"computed"
        for client in late:
            for _ in range(5):
                assert client.response().body == b"Hello, World!"
            client.close()
        assert upload.response().body == data
        assert (half.response().body, half.response().body) == (b"Hello, World!", b"open")
        assert stream.chunk() == b"after"
        assert stream.chunk() is None
        assert probe.note(f"{key}-gone", "message") == "http.disconnect"
        for client in (stream, upload, half, busy):
            assert client.get("/hello").status == 200
            client.close()
