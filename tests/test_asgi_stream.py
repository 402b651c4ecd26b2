"""Streaming: when chunks leave, and what holds when one side does not keep up (promises 9, 24)."""

from __future__ import annotations

import time

import pytest

from harness.client import request
from harness.server import Server
from harness.waiting import settled, until

MIB = 1024 * 1024

pytestmark = [pytest.mark.uvloop, pytest.mark.kqueue]


@pytest.mark.behaviour(24)
def test_a_chunk_leaves_while_the_application_computes(probe: Server) -> None:
    with probe.connect() as client:
        for _ in range(2):
            client.send(request("/compute-between"))
            assert client.head().status == 200
            assert client.chunk() == b"first"
            arrived = time.monotonic()
            computed = float(client.chunk() or b"")
            assert client.chunk() is None
            assert arrived < computed - 0.1, f"the chunk came {arrived - computed:.3f} s from the end of the computing"


@pytest.mark.behaviour(24)
def test_a_background_task_that_computes_does_not_hold_its_response_back(probe: Server, key: str) -> None:
    with probe.connect() as client:
        assert client.get(f"/compute-behind?key={key}").body == b"done"
        arrived = time.monotonic()
        computed = probe.note(key, "computed")
        assert arrived < computed - 0.1  # type: ignore[operator]


def test_a_background_task_does_not_hold_its_connection_back(probe: Server, key: str) -> None:
    with probe.connect() as client:
        assert client.get(f"/background?key={key}").body == b"done"
        assert probe.note(key, "running") is True
        assert client.get("/hello").body == b"Hello, World!"
        assert "finished" not in probe.notes(key)
        probe.open_gate(key)
        assert probe.note(key, "finished") is True


def test_the_head_and_chunks_are_there_before_the_end(probe: Server, key: str) -> None:
    with probe.connect() as client:
        client.send(request(f"/gated-stream?key={key}"))
        assert client.head().all("transfer-encoding") == [b"chunked"]
        assert client.chunk() == b"before "
        assert client.waiting() == b""
        probe.open_gate(key)
        assert client.chunk() == b"after"
        assert client.chunk() is None


def test_an_empty_chunk_sends_the_head(probe: Server, key: str) -> None:
    with probe.connect() as client:
        client.send(request(f"/head-first?key={key}"))
        assert client.head().status == 200
        assert client.waiting() == b""
        probe.open_gate(key)
        assert client.chunk() == b"after"
        assert client.chunk() is None


def test_many_chunks_keep_order_and_sizes(probe: Server) -> None:
    with probe.connect() as client:
        response = client.get("/stream?count=3000&size=7")
        assert response.body == b"x" * 21_000
        assert client.get("/stream?count=20&size=100000").body == b"x" * 2_000_000
        assert client.get("/hello").status == 200


@pytest.mark.beyond_uvicorn("send() to a client that left returns, so that an endless sender starves the loop")
@pytest.mark.parametrize("size", [65536, 500])
@pytest.mark.behaviour(9)
def test_a_client_that_stops_reading_stops_the_application(probe: Server, key: str, size: int) -> None:
    before = probe.usage().rss
    client = probe.connect(rcvbuf=65536)
    client.send(request(f"/endless?key={key}&size={size}"))
    stopped = settled(lambda: int(probe.notes(key).get("chunks", 0)))  # type: ignore[call-overload]
    assert stopped * size < 16 * MIB
    assert probe.usage().rss - before < 24 * MIB
    assert probe.get("/hello").status == 200
    # It goes on when the client does.
    client.head()
    read = 0
    while read < stopped * size:
        read += len(client.chunk() or b"")
    until(lambda: int(probe.notes(key)["chunks"]) > stopped, "more chunks")  # type: ignore[call-overload]
    client.reset()
    probe.note(key, "finally")


@pytest.mark.beyond_uvicorn("send() to a client that left returns, so that an endless sender starves the loop")
@pytest.mark.behaviour(24)
def test_a_stream_without_end_has_flat_memory(probe: Server, key: str) -> None:
    client = probe.connect(timeout=30)
    client.send(request(f"/endless?key={key}&size=65536&pause=0"))
    client.head()

    def read(total: int) -> None:
        while total > 0:
            total -= len(client.chunk() or b"")

    read(32 * MIB)
    before = probe.usage().rss
    read(160 * MIB)
    assert probe.usage().rss - before < 8 * MIB
    client.reset()


@pytest.mark.behaviour(9)
def test_an_upload_is_not_read_ahead_of_the_application(probe: Server, key: str) -> None:
    before = probe.usage().rss
    total = 192 * MIB
    with probe.connect(timeout=30) as client:
        client.send(request(f"/read-slowly?key={key}", f"Content-Length: {total}", method="POST"))
        probe.note(key, "started")
        piece = b"u" * MIB
        sent = client.send_until_blocked(piece, total)
        # What the kernel takes on both sides, and a window; not all of it.
        assert sent < 64 * MIB
        assert probe.usage().rss - before < 16 * MIB
        assert probe.get("/hello").status == 200
        probe.open_gate(key)
        most = 0
        while sent < total:
            client.send(piece[: min(MIB, total - sent)])
            sent += min(MIB, total - sent)
            most = max(most, probe.usage().rss - before)
        assert client.response().body == b"read"
    assert probe.notes(key)["bytes"] == total
    # A client that is faster than the application fills the kernel's buffers, not ours.
    assert most < 24 * MIB, f"{most // MIB} MiB more while the application was reading"


def test_both_directions_at_once(probe: Server) -> None:
    data = bytes(range(256)) * 4096
    with probe.connect(timeout=30) as client:
        client.send(request("/echo-stream", f"Content-Length: {len(data)}", method="POST"), data[:1])
        assert client.head().status == 200
        got = b""
        for at in range(0, len(data), 65536):
            client.send(data[max(at, 1) : at + 65536])
            while len(got) < at + 65536:
                got += client.chunk() or b""
        assert client.chunk() is None
    assert got == data
