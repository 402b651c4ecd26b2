"""Requests on the wire: split anywhere, refused where they must be (promises 6, 14)."""

from __future__ import annotations

import pytest

from harness.client import Client, chunked, request
from harness.server import Server
from harness.waiting import until

GET = request("/echo-headers", "X-First: 1", "X-Second:  two\t")
POST = request("/echo", "X-First: 1", method="POST", body=b"the body")
CHUNKED = (
    request("/echo", "Transfer-Encoding: chunked", "X-First: 1", method="POST")
    + b'3;ext=1;e="q;q"\r\nthe\r\n005\r\n body\r\n0;last\r\nX-Trailer: ignored\r\n\r\n'
)
ABSOLUTE = b"POST http://example.org/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"


def served(client: Client) -> None:
    """A round trip on another connection: by then the server has read what it was sent before on the first."""
    client.get("/hello")


@pytest.mark.parametrize("raw", [GET, POST, CHUNKED, ABSOLUTE], ids=["get", "post", "chunked", "absolute"])
@pytest.mark.behaviour(6)
def test_split_in_two_at_every_byte(probe: Server, raw: bytes) -> None:
    if probe.target.server == "uvicorn" and raw is ABSOLUTE:
        pytest.skip("uvicorn does not reduce it")
    with probe.connect() as client, probe.connect() as other:
        client.send(raw)
        whole = client.response()
        assert whole.status == 200
        for at in range(1, len(raw)):
            client.send(raw[:at])
            served(other)
            client.send(raw[at:])
            response = client.response()
            assert (response.status, response.body) == (200, whole.body), at
            assert response.all("x-first") == whole.all("x-first"), at
        assert client.waiting() == b""


@pytest.mark.uvloop
@pytest.mark.parametrize("raw", [GET, POST, CHUNKED], ids=["get", "post", "chunked"])
@pytest.mark.behaviour(6)
def test_one_byte_at_a_time(probe: Server, raw: bytes) -> None:
    with probe.connect() as client, probe.connect() as other:
        client.send(raw)
        whole = client.response()
        for at in range(len(raw)):
            client.send(raw[at : at + 1])
            served(other)
        response = client.response()
        assert (response.status, response.body) == (200, whole.body)
        assert response.all("x-first") == whole.all("x-first")
        assert client.waiting() == b""


@pytest.mark.behaviour(6)
def test_pipelined_requests_split_anywhere(probe: Server) -> None:
    raw = GET + POST + CHUNKED + GET
    with probe.connect() as client, probe.connect() as other:
        for at in range(1, len(raw), 5):
            client.send(raw[:at])
            served(other)
            client.send(raw[at:])
            assert [client.response().body for _ in range(4)] == [b"ok", b"the body", b"the body", b"ok"], at


def test_chunk_forms_that_are_fine(probe: Server) -> None:
    with probe.connect() as client:
        for raw, body in (
            (b"0\r\n\r\n", b""),
            (b"A\r\n0123456789\r\n0\r\n\r\n", b"0123456789"),
            (b"a\r\n0123456789\r\n000\r\n\r\n", b"0123456789"),
            (b"00000a;x\r\n0123456789\r\n0\r\nA: b\r\nC: d\r\n\r\n", b"0123456789"),
            (chunked(*[b"%d" % n for n in range(10)]), b"0123456789"),
        ):
            client.send(request("/echo", "Transfer-Encoding: chunked", method="POST") + raw)
            assert client.response().body == body
        client.send(request("/echo", "Transfer-Encoding: Chunked", method="POST") + b"0\r\n\r\n")
        assert client.response().status == 200


def head(*fields: bytes, line: bytes = b"POST /refused HTTP/1.1", host: bool = True) -> bytes:
    return b"\r\n".join([line, *([b"Host: a"] if host else []), *fields]) + b"\r\n\r\n"


REFUSED: dict[str, bytes] = {
    "two lengths that conflict": head(b"Content-Length: 3", b"Content-Length: 4") + b"abcd",
    "two lengths that agree": head(b"Content-Length: 3", b"Content-Length: 3") + b"abc",
    "a list of lengths": head(b"Content-Length: 3, 3") + b"abc",
    "a signed length": head(b"Content-Length: +3") + b"abc",
    "a negative length": head(b"Content-Length: -3"),
    "a length in hex": head(b"Content-Length: 0x3") + b"abc",
    "an empty length": head(b"Content-Length:"),
    "a length that overflows": head(b"Content-Length: 18446744073709551616"),
    "a length with a space": head(b"Content-Length: 1 2"),
    "length with chunked": head(b"Content-Length: 3", b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "chunked with length": head(b"Transfer-Encoding: chunked", b"Content-Length: 3") + b"0\r\n\r\n",
    "an unknown coding": head(b"Transfer-Encoding: gzip"),
    "chunked not last": head(b"Transfer-Encoding: chunked, gzip"),
    "chunked twice": head(b"Transfer-Encoding: chunked, chunked") + b"0\r\n\r\n",
    "chunked twice in two fields": head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "identity": head(b"Transfer-Encoding: identity"),
    "identity behind chunked": head(b"Transfer-Encoding: chunked, identity") + b"0\r\n\r\n",
    "identity as a coding before chunked": head(b"Transfer-Encoding: identity, chunked") + b"0\r\n\r\n",
    "an empty element before chunked": head(b"Transfer-Encoding: , chunked") + b"0\r\n\r\n",
    "an empty coding": head(b"Transfer-Encoding:"),
    "a coding that looks like chunked": head(b"Transfer-Encoding: xchunked"),
    "a coding with vertical tab": head(b"Transfer-Encoding: \x0bchunked"),
    "chunked on HTTP/1.0": head(b"Transfer-Encoding: chunked", line=b"POST /refused HTTP/1.0") + b"0\r\n\r\n",
    "a space before the colon": head(b"X-A : b"),
    "a tab before the colon": head(b"X-A\t: b"),
    "a length with a space before the colon": head(b"Content-Length : 3") + b"abc",
    "a folded line": head(b"X-A: b", b" folded"),
    "a folded first line": b"POST /refused HTTP/1.1\r\n Host: a\r\n\r\n",
    "no colon": head(b"X-A"),
    "an empty name": head(b": b"),
    "a name with a space": head(b"X A: b"),
    "a name with bytes over 0x7f": head(b"X-\xe9: b"),
    "a name with a bracket": head(b"X(A): b"),
    "a NUL in a value": head(b"X-A: a\0b"),
    "a CR in a value": head(b"X-A: a\rb"),
    "a control byte in a value": head(b"X-A: a\x07b"),
    "a bare LF after a field": b"POST /refused HTTP/1.1\r\nHost: a\nX-A: b\r\n\r\n",
    "a bare LF after the request line": b"POST /refused HTTP/1.1\nHost: a\r\n\r\n",
    "bare LFs only": b"POST /refused HTTP/1.1\nHost: a\n\n",
    "a bare LF at the end": b"POST /refused HTTP/1.1\r\nHost: a\r\n\n",
    "a bare CR after a field": b"POST /refused HTTP/1.1\r\nHost: a\rX-A: b\r\n\r\n",
    "no host": head(host=False),
    "two hosts": head(b"Host: b"),
    "two hosts that agree": head(b"Host: a"),
    "a host with a space": b"POST /refused HTTP/1.1\r\nHost: a b\r\n\r\n",
    "a NUL in the target": head(line=b"POST /refused\0 HTTP/1.1"),
    "a control byte in the target": head(line=b"POST /refused\x01 HTTP/1.1"),
    "bytes over 0x7f in the target": head(line=b"POST /refused\xc3\xa9 HTTP/1.1"),
    "DEL in the target": head(line=b"POST /refused\x7f HTTP/1.1"),
    "a tab in the target": head(line=b"POST /refused\tx HTTP/1.1"),
    "a space in the target": head(line=b"POST /refused x HTTP/1.1"),
    "a target without a slash": head(line=b"POST refused HTTP/1.1"),
    "no target": head(line=b"POST  HTTP/1.1"),
    "an asterisk with POST": head(line=b"POST * HTTP/1.1"),
    "a fragment": head(line=b"POST /refused#x HTTP/1.1"),
    "two spaces": head(line=b"POST  /refused HTTP/1.1"),
    "a space at the end": head(line=b"POST /refused HTTP/1.1 "),
    "a space at the start": head(line=b" POST /refused HTTP/1.1"),
    "a bad method": head(line=b"PO(ST /refused HTTP/1.1"),
    "no method": head(line=b"/refused HTTP/1.1"),
    "no version": head(line=b"POST /refused"),
    "version 0.9": head(line=b"POST /refused HTTP/0.9"),
    "version 9.9": head(line=b"POST /refused HTTP/9.9"),
    "a lower-case version": head(line=b"POST /refused http/1.1"),
    "a version with a letter": head(line=b"POST /refused HTTP/1.x"),
    "a long version": head(line=b"POST /refused HTTP/1.10"),
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a TLS client": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(64)) + b"\r\n\r\n",
    "garbage": b"\xff\xfe\xfd\r\n\r\n",
}


@pytest.mark.beyond_uvicorn("httptools is lenient")
@pytest.mark.parametrize("which", REFUSED)
@pytest.mark.behaviour(14)
def test_refused_with_400_and_nothing_dispatched(probe: Server, which: str) -> None:
    count = probe.get("/count").json()
    with probe.connect() as client:
        client.send(request("/hello") + REFUSED[which] + request("/hello"))
        assert client.response().body == b"Hello, World!"
        response = client.response()
        # RFC 9112, 6.1 and RFC 9110, 15.6: these two have statuses of their own, which a server may use.
        allowed = {400}
        if "version" in which or "HTTP/2" in which:
            allowed.add(505)
        if "coding" in which:
            allowed.add(501)
        assert response.status in allowed, response
        assert response.one("connection").lower() == b"close"
        client.expect_end()
    assert probe.get("/count").json() == count + 1


BAD_CHUNKS: dict[str, bytes] = {
    "a signed size": b"+3\r\nabc\r\n0\r\n\r\n",
    "a negative size": b"-3\r\nabc\r\n0\r\n\r\n",
    "a size with 0x": b"0x3\r\nabc\r\n0\r\n\r\n",
    "an empty size": b"\r\nabc\r\n0\r\n\r\n",
    "a size that is no number": b"xyz\r\nabc\r\n0\r\n\r\n",
    "a size that overflows": b"10000000000000003\r\nabc\r\n0\r\n\r\n",
    "a size that overflows by far": b"f" * 40 + b"\r\nabc\r\n0\r\n\r\n",
    "an overlong size": b"0" * 5000 + b"3\r\nabc\r\n0\r\n\r\n",
    "a space before the size": b" 3\r\nabc\r\n0\r\n\r\n",
    "a bare LF after the size": b"3\nabc\r\n0\r\n\r\n",
    "a bare CR in an extension": b"3;a\rb\r\nabc\r\n0\r\n\r\n",
    "a bare LF in an extension": b"3;a\nabc\r\n0\r\n\r\n",
    "a NUL in an extension": b"3;a\0b\r\nabc\r\n0\r\n\r\n",
    "no terminator": b"3\r\nabc0\r\n\r\n",
    "a bare LF as terminator": b"3\r\nabc\n0\r\n\r\n",
    "a bare CR as terminator": b"3\r\nabc\r0\r\n\r\n",
    "data longer than its size": b"3\r\nabcd\r\n0\r\n\r\n",
    "a bad trailer": b"3\r\nabc\r\n0\r\nno colon\r\n\r\n",
    "a trailer with a bare LF": b"3\r\nabc\r\n0\r\nA: b\n\r\n",
}


@pytest.mark.beyond_uvicorn("httptools is lenient")
@pytest.mark.parametrize("which", BAD_CHUNKS)
@pytest.mark.behaviour(14)
def test_a_bad_chunk_is_refused_and_never_looks_complete(probe: Server, key: str, which: str) -> None:
    with probe.connect() as client:
        raw = request(f"/read-slowly?key={key}", "Transfer-Encoding: chunked", method="POST")
        client.send(raw)
        probe.note(key, "started")
        client.send(b"2\r\nok\r\n" + BAD_CHUNKS[which] + request("/hello"))
        probe.open_gate(key)
        reply = client.to_end()
    assert reply == b"" or reply.startswith(b"HTTP/1.1 400 "), reply
    assert reply.count(b"HTTP/1.1") <= 1
    assert probe.note(key, "disconnected")
    assert "complete" not in probe.notes(key)


@pytest.mark.beyond_uvicorn("closes without a word")
@pytest.mark.parametrize("which", ["a signed size", "a size that overflows", "no terminator"])
def test_a_bad_chunk_is_answered_400_while_nothing_else_was(probe: Server, key: str, which: str) -> None:
    with probe.connect() as client:
        client.send(request("/upload", "Transfer-Encoding: chunked", method="POST") + BAD_CHUNKS[which])
        response = client.response()
        assert response.status == 400
        assert response.one("connection").lower() == b"close"
        client.expect_end()


@pytest.mark.parametrize("cut", [b"", b"5", b"5\r\n", b"5\r\nabc", b"5\r\nabcde\r\n", b"5\r\nabcde\r\n0\r\n"])
@pytest.mark.behaviour(14)
def test_a_chunked_body_cut_by_a_half_close_never_looks_complete(probe: Server, key: str, cut: bytes) -> None:
    with probe.connect() as client:
        client.send(request(f"/read-slowly?key={key}", "Transfer-Encoding: chunked", method="POST"), cut)
        probe.note(key, "started")
        client.finish()
        probe.open_gate(key)
        assert probe.note(key, "disconnected")
        reply = client.to_end()
    assert not reply.startswith(b"HTTP/1.1 2")
    assert "complete" not in probe.notes(key)


@pytest.mark.behaviour(14)
def test_a_head_cut_by_a_half_close_is_not_dispatched(probe: Server) -> None:
    count = probe.get("/count").json()
    with probe.connect() as client:
        client.send(b"GET /hello HTTP/1.1\r\nHost: a\r\n")
        client.finish()
        reply = client.to_end()
    assert reply == b"" or reply.startswith(b"HTTP/1.1 4")
    assert until(lambda: probe.get("/count").json() == count, "no request")


def test_leading_blank_line(probe: Server) -> None:
    """RFC 9112, 2.2: a server should ignore at least one empty line before the request line."""
    with probe.connect() as client:
        client.send(b"\r\n" + request("/hello", "Connection: close"))
        response = client.response()
        assert response.status == 200 or probe.target.server != "m0serve"
        client.expect_end()


@pytest.mark.beyond_uvicorn("does not take it")
def test_options_asterisk(probe: Server) -> None:
    with probe.connect() as client:
        response = client.get("*", method="OPTIONS")
        assert response.status == 404  # the probe has no such path
        assert client.get("/hello").status == 200


@pytest.mark.beyond_uvicorn("answers HEAD with a body")
@pytest.mark.parametrize(
    "rest",
    [
        b" /refused HTTP/1.1\r\n\r\n",
        b" /refused HTTP/1.1\nHost: a\r\n",
        b" * HTTP/1.1\r\nHost: a\r\n\r\n",
        b" /refused HTTP/3.0\r\n",
        b" /refused HTTP/1.1\r\nHost: a\r\nA : b\r\n\r\n",
        b" /refused HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
    ],
)
def test_a_refused_head_request_gets_no_body(probe: Server, rest: bytes) -> None:
    with probe.connect() as client:
        client.send(b"HEAD" + rest)
        assert client.response("HEAD").status in (400, 505)
        client.expect_end()
