"""Starlette's and FastAPI's documentation through a live server (promises 12, 17 to 21, 24, 30).

Every request is put to the live server and to the framework's own test client, which has no server at all: status,
headers and body must be the same. What only a server can show (streams that come as they are sent, clients that leave,
what happens behind a response) is asked below that.
"""

from __future__ import annotations

import importlib
import json
import sys
import uuid
import warnings
from collections.abc import Iterator

import pytest

from harness.asks import FORM, JSON, MULTIPART, Answer, Ask, multipart
from harness.client import request
from harness.server import APPS, Server, Servers
from harness.waiting import until

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it would like a successor of httpx
    from starlette.testclient import TestClient

GZIP = "Accept-Encoding: gzip"
BIG = b"".join(b"%08d" % number for number in range(400_000))
ORIGIN = "Origin: https://example.org"
PREFLIGHT = (ORIGIN, "Access-Control-Request-Method: DELETE", "Access-Control-Request-Headers: X-Token")

STARLETTE = [
    Ask("/about?x=1&y=%20#"[:-1]),
    Ask("/about", "POST", body=b""),
    Ask("/about", "HEAD"),
    Ask("/about", "PUT", status=405),
    Ask("/users/Gr%C3%BC%C3%9Fe/7?x"),
    Ask("/users/a/seven", status=404),
    Ask("/users/a%2Fb/7", status=404),
    Ask("/files/a/b%20c/d.txt"),
    Ask("/prices/9.75"),
    Ask("/ids/67e55044-10b1-426f-9247-bb680e5fe0c8"),
    Ask("/ids/67e55044", status=404),
    Ask("/hex/ff"),
    Ask("/reverse"),
    Ask("/query?a=1&a=2&b=&c=%26&d=%C3%A9+x&e"),
    Ask("/fields", fields=("x-one: first", "X-Many: a", "x-many: b")),
    Ask("/json", "POST", (JSON,), b'{"a": [1, 2.5, null, "\xc3\xa9"]}'),
    Ask("/json", "POST", (JSON,), b"{no", status=400),
    Ask("/form", "POST", (FORM,), b"a=1&b=two+words&b=%C3%A9"),
    Ask("/form", "POST", (MULTIPART,), multipart(("note", None, b"x"), ("f", "small.txt", b"small"))),
    Ask("/form", "POST", (MULTIPART,), multipart(("big", "b.bin", BIG), ("empty", "e.bin", b""), ("n", None, b"1"))),
    Ask("/form", "POST", (MULTIPART,), multipart(*[(f"f{n}", f"{n}.txt", b"x") for n in range(5)]), status=400),
    Ask("/cookies", fields=('Cookie: a=1; b="two words"; old=x',)),
    Ask("/html"),
    Ask("/html", "HEAD"),
    Ask("/nothing", status=204),
    Ask("/stream", "POST", (), BIG[:700_000], status=202),
    Ask("/events"),
    Ask("/download"),
    Ask("/download", "HEAD"),
    Ask("/download", fields=("Range: bytes=-5",), status=206),
    Ask("/download", fields=("Range: bytes=307199-",), status=206),
    Ask("/download", fields=("Range: bytes=0-9, 100000-200000",), status=206),
    Ask("/download", fields=("Range: bytes=400000-",), status=416),
    Ask("/download", fields=("Range: bytes=nonsense",), status=400),
    Ask("/download", fields=("Range: bytes=0-9", 'If-Range: "another"')),
    Ask("/state"),
    Ask("/refuse", status=402),
    Ask("/fail", status=410),
    Ask("/nowhere", status=404),
    Ask("/in-a-thread?x=y"),
    Ask("/thing"),
    Ask("/thing", "PUT", (), b"12345"),
    Ask("/thing", "PATCH", (), b"12345", status=405),
    Ask("/slash", status=307),
    Ask("/slash/"),
    Ask("/about", fields=("X-Stop: 1",), status=418),
    Ask("/", fields=("Host: api.example",)),
    Ask("/deep/3/about?x"),
    Ask("/zipped/text", fields=(GZIP,)),
    Ask("/zipped/text"),
    Ask("/zipped/text", "HEAD", (GZIP,)),
    Ask("/zipped/stream", fields=(GZIP,)),
    Ask("/zipped/file", fields=(GZIP,), by_path=True),
    Ask("/shared/", fields=(ORIGIN,)),
    Ask("/shared/", fields=("Origin: https://other.example",)),
    Ask("/shared/", "OPTIONS", PREFLIGHT),
    Ask("/shared/", "OPTIONS", ("Origin: https://other.example", *PREFLIGHT[1:]), status=400),
    Ask("/session/count"),
    Ask("/session/forget", "POST", (), b"", status=303),
    Ask("/guarded/"),
    Ask("/guarded/", fields=("Host: www.example",)),
    Ask("/guarded/", fields=("Host: evil.test",), status=400),
    Ask("/static/style.css"),
    Ask("/static/style.css", "HEAD"),
    Ask("/static/data.bin", fields=("Range: bytes=1000-1999",), status=206),
    Ask("/static/missing", status=404),
    Ask("/static", status=307),
]

ITEM = {"name": "thing", "price": 2.5, "tags": ["b", "a", "a"], "makers": [{"name": "m", "founded": "2001-02-03"}]}
KEY = "67e55044-10b1-426f-9247-bb680e5fe0c8"


def json_of(value: object) -> bytes:
    return json.dumps(value).encode()


FASTAPI = [
    Ask("/users/me"),
    Ask("/users/7"),
    Ask("/users/7?item-query=a&item-query=bc&size=large&short=yes&since=2020-01-02T03:04:05Z"),
    Ask("/users/0", status=422),
    Ask("/users/x?size=huge&short=perhaps&since=then", status=422),
    Ask("/users/7?item-query=a&item-query=b&item-query=c&item-query=d", status=422),
    Ask("/files/a/b/c.txt"),
    Ask("/items", "POST", (JSON,), json_of(ITEM), status=201),
    Ask("/items", "POST", (JSON,), json_of(ITEM | {"name": "has spaces", "price": -1}), status=422),
    Ask("/items", "POST", (JSON,), b'{"name": ', status=422),
    Ask("/items", "POST", (JSON,), b"", status=422),
    Ask("/items", "POST", (FORM,), b"name=thing", status=422),
    Ask(f"/items/{KEY}?q=x", "PUT", (JSON,), json_of({"item": ITEM, "importance": 3})),
    Ask("/items/no-uuid", "PUT", (JSON,), json_of({"item": ITEM}), status=422),
    Ask("/items/gone", "DELETE", status=204),
    Ask("/items/kept", "DELETE", status=409),
    Ask("/items", "DELETE", status=405),
    Ask("/login", "POST", (FORM,), b"user=ada&password=lovelace"),
    Ask("/login", "POST", (FORM,), b"user=ada&password=x", status=422),
    Ask(
        "/upload",
        "POST",
        (MULTIPART,),
        multipart(
            ("big", "big.bin", BIG + BIG),
            ("parts", "one", b"1"),
            ("parts", "zw\xf6lf", b"2" * 100),
            ("note", None, "größe".encode()),
            ("small", "s", b"123"),
        ),
    ),
    Ask("/upload", "POST", (MULTIPART,), multipart(("note", None, b"x")), status=422),
    Ask("/headers", fields=("User-Agent: me", "X-Token: a", "X-Token: b", "Cookie: ads=no; other=1")),
    Ask("/headers"),
    Ask("/basic", fields=("Authorization: Basic YWRhOmxvdmVsYWNl",)),
    Ask("/basic", status=401),
    Ask("/bearer", fields=("Authorization: Bearer abc",)),
    Ask("/bearer", status=401),
    Ask("/key", fields=("X-Key: k",)),
    Ask("/html"),
    Ask("/go", status=302),
    Ask("/video"),
    Ask("/file", by_path=True),
    Ask("/file", fields=("Range: bytes=5-9",), status=206, by_path=True),
    Ask("/ticks"),
    Ask("/state"),
    Ask("/long"),
    Ask("/long", fields=(GZIP,)),
    Ask("/routed/a%20b"),
    Ask("/below/where?x=1"),
    Ask("/below/docs"),
    Ask("/static/style.css", fields=(ORIGIN,), by_path=True),
    Ask("/users/me", "OPTIONS", PREFLIGHT),
    Ask("/depends?key=alike"),
    Ask("/depends-fails?key=alike", status=418),
    Ask("/openapi.json"),
    Ask("/nowhere", status=404),
    Ask("/users/me", "HEAD", status=405),
]

APPLICATIONS = {"starlette_examples": STARLETTE, "fastapi_examples": FASTAPI}


@pytest.fixture(scope="module", params=list(APPLICATIONS))
def name(request: pytest.FixtureRequest) -> str:
    """Which application."""
    return str(request.param)


@pytest.fixture(scope="module")
def tester(name: str) -> Iterator[TestClient]:
    """The application without a server."""
    sys.path.insert(0, str(APPS))
    try:
        module = importlib.import_module(name)
    finally:
        sys.path.remove(str(APPS))
    with TestClient(module.app, raise_server_exceptions=False) as client:
        yield client


def without_a_server(ask: Ask, client: TestClient) -> Answer:
    """Put it to the test client."""
    client.cookies.clear()
    headers = [(name.encode(), value.encode("latin-1")) for name, value in ask.headers()]
    got = client.request(ask.method, ask.target, headers=headers, content=ask.body, follow_redirects=False)
    return Answer.of(got.status_code, got.headers.raw, got.content)


def serve(servers: Servers, name: str) -> Server:
    return servers.get(f"{name}:app")


def test_every_answer_is_the_frameworks_own(servers: Servers, tester: TestClient, name: str) -> None:
    with serve(servers, name).connect(timeout=30) as client:
        for ask in APPLICATIONS[name]:
            expected = without_a_server(ask, tester)
            assert expected.status == ask.status, (ask.target, expected)
            answers = [ask.live(client)]
            if ask.body:
                answers.append(ask.live(client, in_chunks=True))
            for answer in answers:
                about = f"{ask.method} {ask.target} {ask.fields}"
                assert answer.status == expected.status, about
                for field in ("vary", "content-encoding", "content-length") if ask.by_path else ():
                    answer.headers.pop(field, None)
                    expected.headers.pop(field, None)
                assert answer.headers == expected.headers, about
                assert answer.body == expected.body, about


@pytest.mark.behaviour(1)
def test_files_that_have_not_changed(servers: Servers) -> None:
    """Validators of a first answer make a 304 of the second, without a body, and the connection goes on."""
    with serve(servers, "starlette_examples").connect() as client:
        first = client.get("/static/style.css")
        tag, date = first.one("etag").decode(), first.one("last-modified").decode()
        for field in (f"If-None-Match: {tag}", f"If-Modified-Since: {date}"):
            second = client.get("/static/style.css", field)
            assert (second.status, second.body, second.framing) == (304, b"", "none")
            assert second.one("etag").decode() == tag
        whole = client.get("/download")
        ranged = client.get("/download", "Range: bytes=2-4", f"If-Range: {whole.one('etag').decode()}")
        assert (ranged.status, ranged.body) == (206, whole.body[2:5])
        assert ranged.one("content-range") == b"bytes 2-4/307200"
        parts = client.get("/download", "Range: bytes=0-1,5-6")
        assert parts.one("content-type").startswith(b"multipart/byteranges")
        assert int(parts.one("content-length")) == len(parts.body)


def test_a_session_over_several_requests(servers: Servers) -> None:
    cookie = ""
    with serve(servers, "starlette_examples").connect() as client:
        for count in (1, 2, 3, 1):
            response = client.get("/session/count", *([f"Cookie: {cookie}"] if cookie else []))
            assert response.json() == {"count": count}
            cookie = response.one("set-cookie").decode().partition(";")[0]
            if count == 3:
                gone = client.get("/session/forget", f"Cookie: {cookie}", method="POST", body=b"")
                assert (gone.status, gone.one("location")) == (303, b"http://testserver/session/count")
                cookie = gone.one("set-cookie").decode().partition(";")[0]


def noted(server: Server, key: str, value: str) -> None:
    until(lambda: server.get(f"/done?key={key}").json() == value, f"{value} under {key}")


def test_what_runs_behind_a_response(servers: Servers, key: str) -> None:
    server = serve(servers, "starlette_examples")
    assert server.get(f"/work?key={key}", method="POST").status == 202
    noted(server, key, "worked")
    assert server.get(f"/download?key={key}").status == 200
    noted(server, key, "downloaded")


@pytest.mark.behaviour(24)
def test_server_sent_events_come_one_by_one_and_end_with_their_client(servers: Servers, key: str) -> None:
    server = serve(servers, "starlette_examples")
    client = server.connect()
    client.send(request(f"/events?endless&key={key}", "Accept: text/event-stream", "Last-Event-ID: 0"))
    head = client.head()
    assert head.one("content-type") == b"text/event-stream; charset=utf-8"
    assert not head.all("content-length")
    for number in range(1, 6):
        assert client.chunk() == b'id: %d\nevent: tick\ndata: {"number": %d}\n\n' % (number, number)
    assert server.get(f"/done?key={key}").json() is None
    client.reset()
    noted(server, key, "closed")


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.behaviour(20)
def test_a_request_that_asks_for_its_client(servers: Servers, key: str, method: str) -> None:
    server = serve(servers, "starlette_examples")
    client = server.connect()
    client.send(request(f"/watch?key={key}", method=method, body=b"x" if method == "POST" else None))
    noted(server, key, "watching")
    client.close()
    noted(server, key, "gone")


@pytest.mark.behaviour(20)
def test_a_client_that_leaves_within_its_body(servers: Servers, key: str) -> None:
    server = serve(servers, "starlette_examples")
    client = server.connect()
    client.send(request(f"/interrupted?key={key}", "Content-Length: 10", method="POST") + b"half")
    noted(server, key, "reading")
    client.close()
    noted(server, key, "gone")


@pytest.mark.behaviour(31)
def test_an_error_behind_middlewares_is_answered_and_printed_once(servers: Servers) -> None:
    server = serve(servers, "starlette_examples")
    before = server.stderr.count("RuntimeError: expected-by-the-test")
    response = server.get("/broken")
    assert (response.status, response.body) == (500, b"something went wrong")
    until(lambda: server.stderr.count("RuntimeError: expected-by-the-test") == before + 1, "its traceback")
    assert server.get("/about").status == 200


def test_dependencies_are_closed_in_order(servers: Servers) -> None:
    server = serve(servers, "fastapi_examples")
    key = uuid.uuid4().hex
    assert server.get(f"/depends?key={key}").json() == {"got": "outer, inner"}
    # Since 0.106 they are closed before the tasks; what counts is that a server changes nothing about it.
    expected = ["outer opens", "endpoint", "inner closes", "outer closes", "task"]
    until(lambda: sorted(server.get(f"/order?key={key}").json()) == sorted(expected), "all of it")
    order = server.get(f"/order?key={key}").json()
    assert order.index("inner closes") < order.index("outer closes")
    failed = uuid.uuid4().hex
    assert server.get(f"/depends-fails?key={failed}").status == 418
    assert server.get(f"/order?key={failed}").json() == ["outer opens", "inner saw it", "inner closes", "outer closes"]


@pytest.mark.behaviour(32)
def test_sixteen_plain_functions_at_once(servers: Servers) -> None:
    """They run in threads, and their streams from threads."""
    server = serve(servers, "fastapi_examples")
    clients = [server.connect(timeout=30) for _ in range(16)]
    for client in clients:
        client.send(request("/video") + request("/html"))
    for client in clients:
        assert len(client.response().body) == 307_200
        assert client.response().body == b"<p>page</p>"
        client.close()
