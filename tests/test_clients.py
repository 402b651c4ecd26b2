"""HTTP clients that people use, against a live server (promises 1 to 4, 7 to 10): httpx, aiohttp, curl, urllib.

Each of them has habits of its own on the wire: aiohttp sends small bodies with the head and large ones in pieces, curl
asks before it uploads and tries to upgrade, httpx pipes a generator into chunks. What they have in common is asked of
each: connections are used again, uploads and downloads of any kind arrive whole, and nobody waits for nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import itertools
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest

from harness.server import APPS, Server, Servers

BIG = bytes(itertools.islice(itertools.cycle(range(251)), 3_000_000))
DATA = (APPS / "static" / "data.bin").read_bytes()


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def in_pieces(data: bytes, size: int = 40_000) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def in_pieces_async(data: bytes, size: int = 40_000) -> AsyncIterator[bytes]:
    for piece in in_pieces(data, size):
        yield piece
        await asyncio.sleep(0)


@pytest.fixture
def server(servers: Servers) -> Server:
    """The application that shows what came."""
    return servers.get("clients_app:app")


@pytest.fixture
def url(server: Server) -> str:
    """Where it is."""
    return f"http://{server.address[0]}:{server.address[1]}"


# --- httpx -----------------------------------------------------------------------------------------------------


def test_httpx_uses_its_connection_again(url: str) -> None:
    with httpx.Client(base_url=url, timeout=10) as client:
        shown = [client.request(method, "/show").json() for method in ("GET", "DELETE", "OPTIONS", "PURGE")]
        shown.append(client.post("/show", content=b"some").json())
        assert client.head("/file").headers["content-length"] == str(len(DATA))
        assert client.get("/stream?count=3&size=5").content == b"AAAAABBBBBCCCCC"
        shown.append(client.put("/show", json={"a": 1}).json())
        assert len({one["port"] for one in shown}) == 1, "a connection for each"
        assert client.get("/close").headers["connection"] == "close"
        assert client.get("/show").json()["port"] != shown[0]["port"]


def test_httpx_streams_up_and_down(url: str) -> None:
    with httpx.Client(base_url=url, timeout=10) as client:
        shown = client.post("/show", content=in_pieces(BIG)).json()
        assert (shown["size"], shown["sha"]) == (len(BIG), sha(BIG))
        assert shown["headers"]["transfer-encoding"] == "chunked"
        with client.stream("POST", "/echo", content=in_pieces(BIG)) as response:
            assert sha(b"".join(response.iter_bytes())) == sha(BIG)
        with client.stream("GET", "/stream?count=100000&size=100&pause=0.001") as response:
            assert next(response.iter_raw(100)) == b"A" * 100
        # The rest was not wanted: that connection is gone, and the next is good.
        assert client.get("/show").status_code == 200
        files = {"a": ("a.bin", BIG), "b": ("b.txt", b"text", "text/plain")}
        assert client.post("/form", files=files, data={"note": "größe"}).json() == [
            ["note", "größe"],
            ["a", "a.bin", len(BIG), sha(BIG)],
            ["b", "b.txt", 4, sha(b"text")],
        ]


def test_httpx_times_out_and_goes_on(url: str) -> None:
    with httpx.Client(base_url=url, timeout=httpx.Timeout(10, read=0.05)) as client:
        with pytest.raises(httpx.ReadTimeout):
            client.get("/slow?s=1")
        assert client.get("/slow?s=0").text == "at last"


def test_httpx_keeps_cookies_and_follows_redirects(url: str) -> None:
    with httpx.Client(base_url=url, timeout=10, follow_redirects=True) as client:
        assert [client.get("/cookie").json() for _ in range(3)] == [{}, {"seen": "1"}, {"seen": "2"}]
        shown = client.post("/redirect", content=b"carried along").json()
        assert (shown["query"], shown["sha"]) == ("redirected=yes", sha(b"carried along"))
        assert client.get("/compressed").headers["content-encoding"] == "gzip"
        assert client.get("/compressed").json()[-1] == {"number": 1999}


def test_httpx_many_at_once(url: str) -> None:
    async def main() -> None:
        # A client that a busy machine leaves alone for seconds would by default open new connections.
        limits = httpx.Limits(max_connections=20, max_keepalive_connections=20, keepalive_expiry=60)
        async with httpx.AsyncClient(base_url=url, timeout=30, limits=limits) as client:

            async def one(number: int) -> Any:
                body = b"%d " % number * 300
                response = await client.post(f"/show/{number}", content=body)
                shown = response.json()
                assert (shown["path"], shown["sha"]) == (f"/show/{number}", sha(body))
                return shown["port"]

            ports = await asyncio.gather(*[one(number) for number in range(300)])
            assert len(set(ports)) <= 20
            async with client.stream("POST", "/echo", content=in_pieces_async(BIG)) as response:
                assert sha(b"".join([piece async for piece in response.aiter_bytes()])) == sha(BIG)

    asyncio.run(main())


# --- aiohttp ---------------------------------------------------------------------------------------------------


def with_aiohttp(url: str, work: Callable[[aiohttp.ClientSession], Awaitable[None]]) -> None:
    """Run something with a session of at most twenty connections."""

    async def main() -> None:
        connector = aiohttp.TCPConnector(limit=20)
        async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(30), connector=connector) as session:
            await work(session)

    asyncio.run(main())


async def shown_by(session: aiohttp.ClientSession, method: str, target: str, **options: Any) -> Any:
    """What the application says of a request."""
    async with session.request(method, target, **options) as response:
        assert response.status == 200, response
        return await response.json()


def test_aiohttp_bodies_of_all_kinds_on_one_connection(url: str) -> None:
    async def work(session: aiohttp.ClientSession) -> None:
        ports = []
        small, chunked = {"data": b"small"}, {"data": in_pieces_async(BIG)}
        for options, body in (
            ({}, b""),
            (small, b"small"),
            ({"data": BIG}, BIG),
            (chunked, BIG),
            ({"json": {"a": 1}}, b'{"a": 1}'),
            ({"data": BIG, "expect100": True}, BIG),
            ({"data": in_pieces_async(BIG), "expect100": True}, BIG),
        ):
            shown = await shown_by(session, "POST", "/show", **options)
            assert (shown["size"], shown["sha"]) == (len(body), sha(body)), options.keys()
            assert ("expect" in shown["headers"]) == ("expect100" in options)
            ports.append(shown["port"])
        compressed = await shown_by(session, "POST", "/show", data=BIG, compress="deflate")
        assert compressed["headers"]["content-encoding"] == "deflate"
        assert 0 < compressed["size"] < len(BIG)
        assert set(ports) == {compressed["port"]}, "a connection for each"
        form = aiohttp.FormData({"note": "größe"})
        form.add_field("file", BIG, filename="f.bin")
        shown = await shown_by(session, "POST", "/form", data=form)
        assert shown == [["note", "größe"], ["file", "f.bin", len(BIG), sha(BIG)]]

    with_aiohttp(url, work)


@pytest.mark.behaviour(8)
def test_aiohttp_is_refused_before_it_has_sent_its_body(url: str) -> None:
    async def work(session: aiohttp.ClientSession) -> None:
        for options in ({"data": b"s" * 200_000}, {"data": in_pieces_async(BIG), "expect100": True}):
            async with session.post("/reject", **options) as response:
                assert (response.status, await response.text()) == (413, "too much for me")
        assert (await shown_by(session, "GET", "/show"))["path"] == "/show"

    with_aiohttp(url, work)


def test_aiohttp_downloads(url: str) -> None:
    async def work(session: aiohttp.ClientSession) -> None:
        async with session.get("/file") as response:
            assert await response.read() == DATA
        async with session.head("/file") as response:
            assert (response.content_length, await response.read()) == (len(DATA), b"")
        async with session.get("/compressed") as response:
            assert response.headers["content-encoding"] == "gzip"
            assert (await response.json())[-1] == {"number": 1999}
        async with session.get("/stream?count=300&size=1000") as response:
            sizes = [len(chunk) async for chunk, _ in response.content.iter_chunks()]
            assert sum(sizes) == 300_000
        async with session.get("/stream?count=100000&size=100&pause=0.001") as response:
            assert await response.content.readexactly(100) == b"A" * 100
        with pytest.raises(TimeoutError):
            await session.get("/slow?s=1", timeout=aiohttp.ClientTimeout(0.05))
        assert (await shown_by(session, "POST", "/redirect", data=b"again"))["sha"] == sha(b"again")

    with_aiohttp(url, work)


def test_aiohttp_many_at_once(url: str) -> None:
    async def work(session: aiohttp.ClientSession) -> None:
        async def one(number: int) -> Any:
            body = b"%d" % number
            data = body if number % 2 else in_pieces_async(body, 1)
            shown = await shown_by(session, "PUT", f"/show/{number}?n={number}", data=data)
            assert (shown["path"], shown["query"], shown["sha"]) == (f"/show/{number}", f"n={number}", sha(body))
            return shown["port"]

        ports = await asyncio.gather(*[one(number) for number in range(300)])
        assert len(set(ports)) <= 20

    with_aiohttp(url, work)


# --- curl ------------------------------------------------------------------------------------------------------

CURL = shutil.which("curl")
needs_curl = pytest.mark.skipif(CURL is None, reason="NOT TESTED HERE: there is no curl on this machine")


def curl(*arguments: str, stdin: bytes | None = None) -> tuple[bytes, str]:
    """Run it; what it wrote, and what it told of the exchange."""
    command = [
        CURL or "curl",
        "--silent",
        "--show-error",
        "--verbose",
        "--max-time",
        "20",
        "--noproxy",
        "*",
        *arguments,
    ]
    done = subprocess.run(command, check=False, input=stdin or b"", capture_output=True, timeout=30)
    told = done.stderr.decode("latin-1")
    assert done.returncode == 0, told
    return done.stdout, told


@pytest.fixture
def big_file(tmp_path: Path) -> str:
    """A file to be uploaded."""
    path = tmp_path / "big.bin"
    path.write_bytes(BIG)
    return str(path)


@needs_curl
def test_curl_methods(url: str) -> None:
    for method in ("GET", "DELETE", "OPTIONS", "PURGE"):
        shown = json.loads(curl("-X", method, f"{url}/show/a%20b?q=1")[0])
        assert (shown["method"], shown["path"], shown["query"]) == (method, "/show/a b", "q=1")
    out, told = curl("--head", f"{url}/file")
    assert out.startswith(b"HTTP/1.1 200 OK\r\n")
    assert f"content-length: {len(DATA)}\r\n".encode() in out
    assert "left intact" in told
    out, _ = curl("--data", "a=1", "--data-urlencode", "b=x &y", f"{url}/echo")
    assert urllib.parse.parse_qs(out.decode()) == {"a": ["1"], "b": ["x &y"]}


@needs_curl
@pytest.mark.behaviour(7)
def test_curl_uploads(url: str, big_file: str) -> None:
    for more, header in (
        ((), "content-length"),
        (("--header", "Transfer-Encoding: chunked"), "transfer-encoding"),
        (("--header", "Expect: 100-continue"), "content-length"),
        (("--header", "Expect:"), "content-length"),
    ):
        began = time.monotonic()
        out, told = curl("--expect100-timeout", "15", *more, "--upload-file", big_file, f"{url}/show")
        shown = json.loads(out)
        assert (shown["method"], shown["size"], shown["sha"]) == ("PUT", len(BIG), sha(BIG)), more
        assert header in shown["headers"]
        assert told.count("HTTP/1.1 100 Continue") == ("expect" in shown["headers"]), told
        assert time.monotonic() - began < 10, "it waited for a 100 that did not come"
    out, _ = curl("--header", "Transfer-Encoding: chunked", "--upload-file", "-", f"{url}/show", stdin=BIG)
    assert json.loads(out)["sha"] == sha(BIG)
    out, _ = curl("--form", "note=größe", "--form", f"file=@{big_file};filename=f.bin", f"{url}/form")
    assert json.loads(out) == [["note", "größe"], ["file", "f.bin", len(BIG), sha(BIG)]]


@needs_curl
@pytest.mark.behaviour(8)
def test_curl_is_refused_before_it_uploads(url: str, big_file: str) -> None:
    out, told = curl("--header", "Expect: 100-continue", "--upload-file", big_file, f"{url}/reject")
    assert out == b"too much for me"
    assert "HTTP/1.1 413 " in told
    assert "100 Continue" not in told


@needs_curl
def test_curl_downloads(url: str) -> None:
    assert curl(f"{url}/file")[0] == DATA
    out, told = curl("--range", "1000-1999", f"{url}/file")
    assert out == DATA[1000:2000]
    assert "HTTP/1.1 206 " in told
    assert curl("--range", "-7", f"{url}/file")[0] == DATA[-7:]
    out, told = curl("--compressed", f"{url}/compressed")
    assert json.loads(out)[-1] == {"number": 1999}
    assert "content-encoding: gzip" in told.lower()
    out, told = curl("--location", "--data", "carried", f"{url}/redirect")
    assert json.loads(out)["sha"] == sha(b"carried")


@needs_curl
@pytest.mark.beyond_uvicorn("sends chunks to HTTP/1.0")
@pytest.mark.behaviour(4)
def test_curl_speaks_http_1_0(url: str) -> None:
    out, told = curl("--http1.0", f"{url}/show")
    assert json.loads(out)["version"] == "1.0"
    out, told = curl("--http1.0", f"{url}/stream?count=3&size=4")
    assert out == b"AAAABBBBCCCC"
    assert "transfer-encoding" not in told.lower()
    assert curl("--http1.0", "--data", "x=y", f"{url}/echo")[0] == b"x=y"


@needs_curl
@pytest.mark.beyond_uvicorn("loses the body of a request that asks for an upgrade")
@pytest.mark.behaviour(10)
def test_curl_asks_for_http_2_and_is_served_over_1_1(url: str) -> None:
    out, told = curl("--http2", "--data", "body=kept", f"{url}/show", "--next", "--http2", f"{url}/show")
    assert "Upgrade: h2c" in told
    assert "101 Switching" not in told
    assert out.count(b'"version":"1.1"') == 2
    assert sha(b"body=kept").encode() in out


@needs_curl
def test_curl_takes_several_things_over_one_connection(url: str) -> None:
    urls = [f"{url}/show", f"{url}/stream?count=3&size=2", f"{url}/file", f"{url}/show", f"{url}/compressed"]
    out, told = curl(*urls)
    assert DATA in out
    assert told.count("Re-using existing connection") == len(urls) - 1, told
    assert told.count("Connected to") == 1
    _, told = curl(f"{url}/close", f"{url}/show")
    assert "Closing connection" in told
    assert told.count("Connected to") == 2


# --- the standard library --------------------------------------------------------------------------------------


def test_http_client_over_one_connection(server: Server) -> None:
    connection = http.client.HTTPConnection(*server.address, timeout=10)  # type: ignore[misc]
    sock = None
    for method, target, body in (
        ("GET", "/show", None),
        ("POST", "/show", b"bytes"),
        ("PUT", "/show", in_pieces(BIG)),
        ("HEAD", "/file", None),
        ("GET", "/stream?count=2&size=3", None),
        ("GET", "/file", None),
    ):
        connection.request(method, target, body)
        sock = sock or connection.sock
        assert connection.sock is sock, "a connection for each"
        response = connection.getresponse()
        data = response.read()
        assert response.status == 200
        if method == "PUT":
            assert json.loads(data)["sha"] == sha(BIG)
        elif target == "/file":
            assert data == (b"" if method == "HEAD" else DATA)
    connection.request("GET", "/close")
    assert connection.getresponse().read() == b"closing"
    assert connection.sock is None
    connection.close()


def test_urllib(url: str) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{url}/show?a=b", data=b"posted", timeout=10) as response:
        shown = json.loads(response.read())
        assert response.headers["connection"] == "close"
    assert (shown["method"], shown["query"], shown["sha"]) == ("POST", "a=b", sha(b"posted"))
    assert shown["headers"]["connection"] == "close"
    with opener.open(f"{url}/stream?count=200&size=1000", timeout=10) as response:
        assert len(response.read()) == 200_000
    with pytest.raises(urllib.error.HTTPError) as caught:
        opener.open(f"{url}/nowhere", timeout=10)
    assert (caught.value.code, caught.value.read()) == (404, b"Not Found")
    caught.value.close()
