"""Flask, Django and httpbin, as gunicorn's threads serve them (promises 25 to 28).

Every request is put to gunicorn and to us: status, headers (`date`, `server` and `connection` aside) and decoded bodies
must be equal, with what is random in them masked. How a body travels is each server's own: where one sends chunks and
the other a length, lengths are not compared. What each request must show anyway is written beside it.
"""

from __future__ import annotations

import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from harness.asks import FORM, JSON, MASKS, MULTIPART, Answer, Ask, multipart
from harness.client import Client, chunked, request
from harness.server import Process, Server, Servers, fork_server

pytestmark = pytest.mark.wsgi

#: What is drawn or timed anew for each answer.
RANDOM = [
    *MASKS,
    (re.compile(r"((?:sessionid|csrftoken|messages)=)[^;]+"), r"\1TOKEN"),
    (re.compile(r'(csrfmiddlewaretoken" value=")\w+'), r"\1TOKEN"),
    (re.compile(r'((?:nonce|opaque)=")\w+'), r"\1DRAWN"),
    (re.compile(r"\w{3}, \d\d \w{3} \d{4} [\d:]{8} GMT"), "WHEN"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"), "UUID"),
]
MIB = bytes(range(256)) * 4096
UPLOAD = multipart(("name", None, b"Ada"), ("file", "small.txt", b"small"))
BIG_UPLOAD = multipart(("name", None, "größe".encode()), ("file", "big.bin", MIB * 3), ("more", "e.bin", b""))
BASIC = "Authorization: Basic YWRhOmxvdmVsYWNl"

FLASK = [
    Ask("/flask/about/Gr%C3%BC%C3%9Fe/7?a=1&a=2&b=%26", shows='"args":{"a":["1","2"],"b":["&"]}'),
    Ask("/flask/about/a%2Fb/7", status=404),
    Ask("/flask/about/a/7", fields=("X-One: \xe9", "X-One: b"), shows=r"\u00e9,b"),
    Ask("/flask/about/a/7", "HEAD"),
    Ask("/flask/about/a/7", "OPTIONS"),
    Ask("/flask/about/a/7", "POST", body=b"", status=405),
    Ask("/flask/count", shows="seen 1 times"),
    Ask("/flask/forget", status=302, shows="/flask/flashed"),
    Ask("/flask/form", shows="a&#34;&lt;b"),
    Ask("/flask/form", "POST", (FORM,), b"a=1&b=two+words&b=%C3%A9", shows='"b":["two words","\\u00e9"]'),
    Ask("/flask/form", "POST", (MULTIPART,), UPLOAD, shows='"file":["small.txt",[5,'),
    Ask("/flask/form", "POST", (MULTIPART,), BIG_UPLOAD, shows='"file":["big.bin",[3145728,'),
    Ask("/flask/form", "POST", (MULTIPART,), UPLOAD[:60], shows='"form":{}'),
    Ask("/flask/hash", "PUT", (), MIB * 2, shows="[2097152,"),
    Ask("/flask/json", "POST", (JSON,), b'{"a": [1, null, "\xc3\xa9"]}', shows="null"),
    Ask("/flask/json", "POST", (JSON,), b"{no", status=400),
    Ask("/flask/json", "POST", (FORM,), b"a=b", status=415),
    Ask("/flask/echo", "POST", (), MIB),
    Ask("/flask/echo", "POST", (), b""),
    Ask("/flask/download"),
    Ask("/flask/download", "HEAD"),
    Ask("/flask/download", fields=("Range: bytes=-5",), status=206),
    Ask("/flask/download", fields=("Range: bytes=100-299999",), status=206),
    Ask("/flask/download", fields=("Range: bytes=0-1,4-5",), status=416),
    Ask("/flask/download", fields=("Range: bytes=400000-",), status=416),
    Ask("/flask/download", fields=("Range: bytes=0-9", 'If-Range: "another"')),
    Ask("/flask/memory"),
    Ask("/flask/memory", fields=('If-None-Match: "own"',), status=304),
    Ask("/flask/big"),
    Ask("/flask/big", "HEAD"),
    Ask("/flask/stream?name=x", shows="4 of x"),
    Ask("/flask/stream?name=x", "HEAD"),
    Ask("/flask/cookies", fields=('Cookie: a=1; b="two words"; old=x',), shows='"b":"two words"'),
    Ask("/flask/go/301", status=301),
    Ask("/flask/go/308", "HEAD", status=308),
    Ask("/flask/abort/418", status=418),
    Ask("/flask/abort/401", "HEAD", status=401),
    Ask("/flask/broken", status=500, shows="Internal Server Error"),
    Ask("/flask/handled", status=404, shows="of our own"),
    Ask("/flask/nothing", status=204),
    Ask("/flask/tagged", shows="tagged"),
    Ask("/flask/tagged", fields=("If-None-Match: *",), status=304),
    Ask("/flask/thing", status=308),
    Ask("/flask/thing/", "PATCH", body=b"x"),
    Ask("/flask/more/raw", status=299, shows="one two"),
    Ask("/flask/static/nothing.css", status=404),
    Ask("/flask//double", status=404),
]

DJANGO = [
    Ask("/django/about/Gr%C3%BC%C3%9Fe/7?a=1&a=2", shows='"a": ["1", "2"]'),
    Ask("/django/about/a/7", fields=("X-One: \xe9",)),
    Ask("/django/about/a/7", "HEAD"),
    Ask("/django/about/a/7", fields=("Host: evil.test",), status=400),
    Ask("/django/count", shows="seen 1 times"),
    Ask("/django/form", shows="csrfmiddlewaretoken"),
    Ask("/django/form", "POST", (FORM,), b"name=Ada", status=403),
    Ask("/django/hash", "POST", (), MIB * 2, shows="[2097152,"),
    Ask("/django/body", "POST", (), MIB),
    Ask("/django/body", "POST", (), b""),
    Ask("/django/download"),
    Ask("/django/download", "HEAD"),
    Ask("/django/stream?name=x", shows="4 of x"),
    Ask("/django/cookies", fields=("Cookie: a=1; b=2",), shows='"b": "2"'),
    Ask("/django/go/302", status=302),
    Ask("/django/fail/missing", status=404),
    Ask("/django/fail/denied", status=403),
    Ask("/django/fail/broken", status=500),
    Ask("/django/nothing", status=204),
    Ask("/django/big"),
    Ask("/django/slash", status=301),
    Ask("/django/admin/", status=302),
    Ask("/django/nowhere", status=404),
]

HTTPBIN = [
    Ask("/bin/get?a=1&a=2&b=x%20y", shows='"a": [\n      "1",\n      "2"'),
    Ask("/bin/get", "HEAD"),
    Ask("/bin/get", "OPTIONS", ("Origin: https://example.org", "Access-Control-Request-Headers: X-A")),
    Ask("/bin/get", "POST", body=b"", status=405),
    Ask("/bin/post", "POST", (FORM,), b"name=Ada&x=1", shows='"name": "Ada"'),
    Ask("/bin/post", "POST", (JSON,), b'{"a": 1}', shows='"a": 1'),
    Ask("/bin/post", "POST", (MULTIPART,), UPLOAD, shows='"file": "small"'),
    Ask("/bin/put", "PUT", (), b"\x00\xff\xfe", shows="data:application/octet-stream;base64,AP/+"),
    Ask("/bin/patch", "PATCH", (), b"text", shows='"data": "text"'),
    Ask("/bin/delete", "DELETE", shows='"args": {}'),
    Ask("/bin/anything/a/b?x=1", "PUT", (JSON,), b"[1]", shows='"method": "PUT"'),
    Ask("/bin/ip", shows='"origin": "127.0.0.1"'),
    Ask("/bin/uuid", shows="UUID"),
    Ask("/bin/headers", fields=("X-Many: a", "X-Many: b"), shows='"X-Many": "a,b"'),
    Ask("/bin/user-agent", shows='"user-agent": "testclient"'),
    Ask("/bin/html", shows="Herman Melville"),
    Ask("/bin/json", shows="Wake up to WonderWidgets!"),
    Ask("/bin/xml", shows="Overview"),
    Ask("/bin/robots.txt", shows="Disallow: /deny"),
    Ask("/bin/deny", shows="YOU SHOULDN'T BE HERE"),
    Ask("/bin/encoding/utf8", shows="STARGΛ̊TE"),
    Ask("/bin/gzip", shows='"gzipped": true'),
    Ask("/bin/deflate"),
    Ask("/bin/brotli"),
    Ask("/bin/redirect/2", status=302),
    Ask("/bin/absolute-redirect/1", status=302, shows="http://testserver/bin/get"),
    Ask("/bin/redirect-to?url=%2Fx&status_code=307", "POST", body=b"kept", status=307),
    Ask("/bin/stream/3", shows='"id": 2'),
    Ask("/bin/stream-bytes/70000?seed=1&chunk_size=1000"),
    Ask("/bin/bytes/1000?seed=7"),
    Ask("/bin/range/1000?chunk_size=100"),
    Ask("/bin/range/1000", fields=("Range: bytes=10-19",), status=206, shows="klmnopqrst"),
    Ask("/bin/range/1000", fields=("Range: bytes=2000-",), status=416),
    Ask("/bin/drip?duration=0&numbytes=5&code=203", status=203, shows="*****"),
    Ask("/bin/delay/0", shows='"url": "http://testserver/bin/delay/0"'),
    Ask("/bin/response-headers?X-A=1&X-A=2&Content-Type=text/plain", shows='"X-A"'),
    Ask("/bin/cookies", fields=("Cookie: a=1; b=2",), shows='"a": "1"'),
    Ask("/bin/cookies/set?k=v", status=302),
    Ask("/bin/cookies/delete?k", fields=("Cookie: k=v",), status=302),
    Ask("/bin/basic-auth/ada/lovelace", fields=(BASIC,), shows='"authenticated": true'),
    Ask("/bin/basic-auth/ada/other", fields=(BASIC,), status=401),
    Ask("/bin/hidden-basic-auth/ada/other", status=404),
    Ask("/bin/bearer", fields=("Authorization: Bearer abc",), shows='"token": "abc"'),
    Ask("/bin/bearer", status=401),
    Ask("/bin/digest-auth/auth/ada/lovelace", status=401),
    Ask("/bin/base64/SGVsbG8=", shows="Hello"),
    Ask("/bin/cache/60"),
    Ask("/bin/cache", fields=("If-None-Match: x",), status=304),
    Ask("/bin/etag/own", fields=('If-None-Match: "own"',), status=304),
    Ask("/bin/etag/own", fields=('If-Match: "other"',), status=412),
    Ask("/bin/links/3/0", shows="href='/bin/links/3/1'"),
    Ask("/bin/image", fields=("Accept: image/webp",)),
    Ask("/bin/image/png", "HEAD"),
    Ask("/bin/image/svg"),
    Ask("/bin/forms/post", shows="custname"),
    *(
        Ask(f"/bin/status/{status}", status=status)
        for status in (200, 204, 301, 304, 402, 404, 406, 418, 500, 503, 599)
    ),
    Ask("/bin/status/406", "PUT", (), b"body", status=406),
]

APPLICATIONS = {"flask": FLASK, "django": DJANGO, "httpbin": HTTPBIN}


class Gunicorn(Process):
    """What is compared with."""

    judged = False

    def __init__(self) -> None:
        options = ["--worker-class", "gthread", "--threads", "4", "--keep-alive", "60", "--bind", "127.0.0.1:0"]
        command = [sys.executable, "-m", "gunicorn", *options, "--no-control-socket", "wsgi_site:app"]
        super().__init__(command, forked=fork_server("wsgi_site:app"))
        match = self.line(r"Listening at: http://(?P<host>[\d.]+):(?P<port>\d+)")
        self.address = (match["host"], int(match["port"]))

    def connect(self) -> Client:
        """A new connection."""
        return Client(self.address, timeout=30)


@pytest.fixture(scope="session")
def gunicorn() -> Iterator[Gunicorn]:
    """One for all targets."""
    process = Gunicorn()
    yield process
    process.signal(signal.SIGTERM)
    process.wait()


@pytest.fixture
def server(servers: Servers) -> Server:
    return servers.get("wsgi_site:app", "--interface", "wsgi", "--blocking-threads", "4", validated=False)


def assert_alike(ours: Answer, theirs: Answer, about: str) -> None:
    assert ours.status == theirs.status, about
    if ("content-length" in ours.headers) != ("content-length" in theirs.headers):
        ours.headers.pop("content-length", None)
        theirs.headers.pop("content-length", None)
    if "TOKEN" in ours.body:  # made from the body as it was
        assert ours.headers.pop("etag", []) != [] or "etag" not in theirs.headers
        theirs.headers.pop("etag", None)
    assert ours.headers == theirs.headers, about
    assert ours.body == theirs.body, about


@pytest.mark.behaviour(25, 26, 27)
@pytest.mark.parametrize("name", APPLICATIONS)
def test_every_answer_is_the_one_that_gunicorn_gives(server: Server, gunicorn: Gunicorn, name: str) -> None:
    with server.connect(timeout=30) as ours, gunicorn.connect() as theirs:
        for ask in APPLICATIONS[name]:
            # Django takes a body without a length for none.
            for in_chunks in (False, True)[: 2 if ask.body and name != "django" else 1]:
                about = f"{ask.method} {ask.target} {ask.fields}{' in chunks' if in_chunks else ''}"
                expected = ask.live(theirs, in_chunks, RANDOM)
                assert expected.status == ask.status, about
                assert ask.shows in expected.body, about
                assert_alike(ask.live(ours, in_chunks, RANDOM), expected, about)


@pytest.mark.behaviour(25)
def test_phrases_are_the_applications(server: Server, gunicorn: Gunicorn) -> None:
    targets = {
        "/flask/more/raw": b"Odd Enough",
        "/flask/abort/418": b"I'M A TEAPOT",
        "/django/fail/denied": b"Not For You",
        "/bin/status/599": b"UNKNOWN",
    }
    with server.connect() as ours, gunicorn.connect() as theirs:
        for target, phrase in targets.items():
            assert ours.get(target).reason == theirs.get(target).reason == phrase


@pytest.mark.behaviour(1)
def test_files_that_have_not_changed(server: Server, gunicorn: Gunicorn) -> None:
    dates = set()
    for connect in (server.connect, gunicorn.connect):
        with connect() as client:
            first = client.get("/flask/download")
            tag, date = first.one("etag").decode(), first.one("last-modified").decode()
            dates.add(date)
            for field in (f"If-None-Match: {tag}", f"If-Modified-Since: {date}"):
                second = client.get("/flask/download", field)
                assert (second.status, second.body) == (304, b"")
            ranged = client.get("/flask/download", "Range: bytes=2-4", f"If-Range: {tag}")
            assert (ranged.status, ranged.body) == (206, first.body[2:5])
            assert ranged.one("content-range") == b"bytes 2-4/307200"
            tagged = client.get("/django/big").one("etag").decode()
            unchanged = client.get("/django/big", f"If-None-Match: {tagged}")
            assert (unchanged.status, unchanged.body) == (304, b"")
    assert len(dates) == 1


def test_sessions_over_several_requests(server: Server, gunicorn: Gunicorn) -> None:
    for connect in (server.connect, gunicorn.connect):
        for target in ("/flask/count", "/django/count"):
            cookie = ""
            with connect() as client:
                for count in (1, 2, 3):
                    response = client.get(target, *([f"Cookie: {cookie}"] if cookie else []))
                    assert response.body == b"seen %d times" % count
                    cookie = response.one("set-cookie").decode().partition(";")[0]


def visit_admin(base: str) -> list[Answer]:
    """Logs in to the admin, adds a group, fails to add it again, deletes it and logs out."""
    answers = []
    with httpx.Client(base_url=base, headers={"Host": "testserver"}, follow_redirects=False, trust_env=False) as client:

        def ask(method: str, path: str, **form: str) -> httpx.Response:
            if method == "POST":
                form["csrfmiddlewaretoken"] = client.cookies["csrftoken"]
            response = client.request(method, f"/django/admin/{path}", data=form or None)
            answers.append(Answer.of(response.status_code, response.headers.raw, response.content, RANDOM))
            return response

        assert ask("GET", "").headers["location"] == "/django/admin/login/?next=/django/admin/"
        assert "Username" in ask("GET", "login/").text
        assert "correct username and password" in ask("POST", "login/", username="ada", password="x").text
        login = ask("POST", "login/?next=/django/admin/auth/", username="ada", password="lovelace")
        assert (login.status_code, login.headers["location"]) == (302, "/django/admin/auth/")
        assert "Welcome" in ask("GET", "").text
        assert "ada@example.org" in ask("GET", "auth/user/").text
        assert ask("POST", "auth/group/add/", name="readers").status_code == 302
        assert "readers" in ask("GET", "auth/group/").text
        assert "already exists" in ask("POST", "auth/group/add/", name="readers").text
        number = re.search(r"/group/(\d+)/change", ask("GET", "auth/group/").text)
        assert number, "the group's link"
        assert ask("POST", f"auth/group/{number[1]}/delete/", post="yes").status_code == 302
        assert ask("POST", "logout/").status_code == 200
        assert ask("GET", "auth/user/").status_code == 302
    return answers


def test_a_visit_to_djangos_admin(server: Server, gunicorn: Gunicorn) -> None:
    assert isinstance(server.address, tuple)
    ours = visit_admin(f"http://127.0.0.1:{server.address[1]}")
    theirs = visit_admin(f"http://127.0.0.1:{gunicorn.address[1]}")
    # Gunicorn has been visited by other targets.
    history = re.compile(r'/group/\d+/|value="\d+"|<h3>My actions</h3>.*?</div>', re.DOTALL)
    for number, (our, their) in enumerate(zip(ours, theirs, strict=True)):
        our.body, their.body = history.sub("", our.body), history.sub("", their.body)
        our.headers.pop("content-length", None)
        their.headers.pop("content-length", None)
        assert_alike(our, their, f"step {number}")


@pytest.mark.behaviour(28)
def test_django_keeps_its_database_connections(start: Callable[..., Server]) -> None:
    """One for each thread that has run a view, made once; at low load that is one thread (tests/test_wsgi.py)."""
    server = start("wsgi_django:app", "--blocking-threads", "4", validated=False)
    threads = set()
    with server.connect() as client:
        for _ in range(40):
            seen = client.get("/users").json()
            threads.add(seen["thread"])
            time.sleep(0.002)
    assert seen["users"] == 1
    assert seen["connections"] == seen["from"] == len(threads)

    def visit() -> None:
        with server.connect() as client:
            for _ in range(20):
                client.get("/users")

    visitors = [threading.Thread(target=visit) for _ in range(8)]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join()
    seen = server.get("/users").json()
    assert seen["connections"] == seen["from"] <= 4


@pytest.mark.behaviour(26)
def test_an_upload_that_is_refused_before_it_is_read(server: Server) -> None:
    with server.connect() as client:
        client.send(request("/flask/form", MULTIPART, "Content-Length: 9000000", method="POST"), b"--limit")
        assert client.response().status == 413
        client.close()
    with server.connect() as client:
        client.send(request("/django/form", MULTIPART, "Transfer-Encoding: chunked", method="POST") + chunked(UPLOAD))
        assert client.response().status == 403
        assert client.get("/django/nothing").status == 204
