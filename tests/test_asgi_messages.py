"""Messages that are unusual and allowed, messages of extensions, and files (promises 19, 21; 12 for headers)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from harness.client import request
from harness.server import Server
from harness.waiting import until

MIB = 1024 * 1024

pytestmark = pytest.mark.uvloop


@pytest.mark.parametrize("size", [10, 300_000])
def test_what_is_changed_after_it_was_sent_is_not_seen(probe: Server, size: int) -> None:
    with probe.connect() as client:
        response = client.get(f"/mutated?size={size}")
        assert response.status == 200
        assert response.one("x-right") == b"yes"
        assert not response.all("x-wrong")
        assert response.body == b"r" * 2 * size


@pytest.mark.parametrize(("count", "size"), [(1000, 10), (3, 100_000)])
@pytest.mark.behaviour(12)
def test_many_and_long_response_headers(probe: Server, count: int, size: int) -> None:
    with probe.connect() as client:
        response = client.get(f"/headers-in-number?count={count}&size={size}")
        assert response.body == b"ok"
        ours = [(name, value) for name, value in response.headers if name.startswith(b"x-")]
        assert ours == [(b"x-%d" % number, b"v" * size) for number in range(count)]
        assert client.get("/hello").status == 200


@pytest.mark.beyond_uvicorn("sends them")
@pytest.mark.behaviour(19)
def test_statuses_that_no_final_response_has(probe: Server, key: str) -> None:
    with probe.connect() as client:
        client.send(request(f"/bad-statuses?key={key}", "Connection: close"))
        raw = client.to_end()
        assert raw.startswith(b"HTTP/1.1 799 \r\n")
        assert raw.endswith(b"\r\n\r\nfine")
        assert b"\r\ncontent-length: 4\r\n" in raw
    notes = probe.notes(key)
    assert len(notes) == 13
    for name, kinds in notes.items():
        assert "Exception" in kinds, (name, kinds)  # type: ignore[operator]


@pytest.mark.beyond_uvicorn("its transport knows no view with gaps")
@pytest.mark.parametrize("size", [1, 100_000])
def test_classes_of_ones_own_views_of_buffers_and_keys_that_mean_nothing(probe: Server, size: int) -> None:
    with probe.connect() as client:
        response = client.get(f"/odd-but-right?size={size}")
        assert (response.status, response.one("x-tuple")) == (202, b"1")
        assert response.body == b"a" * size + b"b" * size + b"c" * 8 * size + b"d"


def test_a_message_that_was_a_mapping_but_no_dict_was_refused(probe: Server, key: str) -> None:
    response = probe.get(f"/mappings?key={key}")
    assert (response.status, response.body) == (200, b"fine")
    assert "TypeError" in probe.notes(key)["pairs"]  # type: ignore[operator]


@pytest.mark.behaviour(19)
def test_messages_of_extensions_that_were_not_offered_are_refused(probe: Server, key: str) -> None:
    with probe.connect() as client:
        response = client.get(f"/not-offered?key={key}")
        assert (response.status, response.body) == (200, b"fine")
        assert client.get("/hello").status == 200
    notes = probe.notes(key)
    assert len(notes) == 14
    for name, kinds in notes.items():
        assert "RuntimeError" in kinds, (name, kinds)  # type: ignore[operator]


def test_trailers_that_are_only_announced_are_not_waited_for(probe: Server, key: str) -> None:
    with probe.connect() as client:
        assert client.get(f"/trailers?key={key}").body == b"body"
        assert probe.note(key, "message") == "http.disconnect"
        assert client.get("/hello").status == 200


@pytest.mark.beyond_uvicorn("does not wake it")
def test_a_receive_that_waits_is_woken_by_a_body_that_does_not_fit(probe: Server, key: str) -> None:
    with probe.connect() as client:
        client.send(request(f"/unfit?key={key}"))
        assert client.to_end().endswith(b"\r\n\r\n12")
    assert probe.note(key, "message") == "http.disconnect"
    assert "RuntimeError" in probe.notes(key)["unfit"]  # type: ignore[operator]


# --- files -----------------------------------------------------------------------------------------------------

no_files = pytest.mark.beyond_uvicorn("does not know pathsend")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of 100,000 bytes."""
    path = tmp_path / "file"
    path.write_bytes(bytes(range(250)) * 400)
    return path


@no_files
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_file_for_http_1_0_ends_with_the_connection(probe: Server, key: str, file: Path, method: str) -> None:
    with probe.connect() as client:
        client.send(f"{method} /file?key={key}&path={file} HTTP/1.0\r\n\r\n".encode())
        response = client.response(method)
        assert response.body == (file.read_bytes() if method == "GET" else b"")
        assert not response.all("transfer-encoding")
        client.expect_end()


@no_files
def test_a_file_may_follow_other_bytes_and_be_unlinked(probe: Server, key: str, file: Path) -> None:
    data = file.read_bytes()
    with probe.connect() as client:
        response = client.get(f"/file?key={key}&path={file}&before=head&pathlike=1&unlink=1&gone-on=1&listen=1")
        assert response.body == b"head" + data
        assert client.get("/hello").status == 200
    notes = probe.notes(key)
    assert not file.exists()
    assert notes["file"] == []
    assert "RuntimeError" in notes["after"]  # type: ignore[operator]


@no_files
def test_a_receive_that_waits_is_woken_by_a_file(probe: Server, key: str, file: Path) -> None:
    """As by a last body: the response is complete for the application."""
    with probe.connect() as client:
        client.send(request(f"/file?key={key}&path={file}&listen=1"))
        assert client.response().body == file.read_bytes()
        assert probe.note(key, "message") == "http.disconnect"


@no_files
@pytest.mark.parametrize("size", [99_999, 100_001])
@pytest.mark.behaviour(5, 21)
def test_a_file_that_does_not_fit_its_length_closes(probe: Server, key: str, file: Path, size: int) -> None:
    with probe.connect() as client:
        client.send(request(f"/file?key={key}&path={file}&size={size}") + request("/hello"))
        raw = client.to_end()
    assert raw.count(b"HTTP/1.1") <= 1
    assert b"Hello, World!" not in raw
    assert len(raw.partition(b"\r\n\r\n")[2]) <= size
    assert "RuntimeError" in probe.note(key, "file")  # type: ignore[operator]


@no_files
def test_a_file_that_is_cut_while_it_is_sent_closes(probe: Server, key: str, tmp_path: Path) -> None:
    """It was announced with its length, or as chunks: nothing is made up, and the response does not look complete."""
    for more in ("", f"&size={64 * MIB}"):
        path = tmp_path / f"file{len(more)}"
        with path.open("wb") as sparse:
            sparse.truncate(64 * MIB)
        with probe.connect(timeout=20, rcvbuf=65536) as client:
            client.send(request(f"/file?key={key}&path={path}" + more))
            client.head()
            client.some(MIB)
            os.truncate(path, 2 * MIB)
            rest = client.to_end()
        assert len(rest) < 63 * MIB
        assert not rest.endswith(b"\r\n0\r\n\r\n")
        assert rest.strip(b"\0") in (b"", b"\r\n") or more == ""
    assert probe.get("/hello").status == 200


@no_files
@pytest.mark.behaviour(21)
def test_a_file_of_more_than_4_gib(probe: Server, key: str, tmp_path: Path) -> None:
    size = 5 * 1024 * MIB + 7
    path = tmp_path / "file"
    with path.open("wb") as sparse:
        sparse.truncate(size)
    before = probe.usage()
    for number, declared in enumerate(("", f"&size={size}")):
        with probe.connect(timeout=20) as client:
            client.send(request(f"/file?key={key}{number}&path={path}" + declared))
            assert client.head().status == 200
            assert client.some(8 * MIB).strip(b"\0\r\n0123456789abcdef") == b""
            probe.note(f"{key}{number}", "over")
            client.reset()
    until(lambda: probe.usage().fds <= before.fds, "the file is closed")
    assert probe.usage().rss - before.rss < 16 * MIB


@no_files
def test_a_file_that_is_refused_leaves_the_response_as_it_was(probe: Server, key: str, tmp_path: Path) -> None:
    with probe.connect() as client:
        response = client.get(f"/file-refused?key={key}&path={tmp_path}/missing")
        assert (response.status, response.body) == (200, b"fine")
        assert client.get("/hello").status == 200
    notes: dict[str, Any] = dict(probe.notes(key))
    assert "RuntimeError" in notes["early"]
    assert "FileNotFoundError" in notes["missing"]
    assert "Exception" in notes["no path"]
    assert "TypeError" in notes["number"]


@no_files
def test_files_in_a_pipeline(probe: Server, key: str, file: Path) -> None:
    data = file.read_bytes()
    with probe.connect() as client:
        client.send((request(f"/file?key={key}&path={file}") + request("/hello")) * 5)
        for _ in range(5):
            assert client.response().body == data
            assert client.response().body == b"Hello, World!"
