"""Real applications answer under m0serve as they do under uvicorn: status, headers, bodies.

The same bytes are sent to both. `date` and `server` are left out, random tokens are masked; the order of headers of
one name counts, the order of names does not.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from harness.client import Client, Response, chunked, request
from harness.server import Server, Servers, Target
from harness.waiting import until

Seen = tuple[int, dict[str, list[str]], Any]

LEFT_OUT = {"date", "server"}
MASKS = [
    (re.compile(r"(csrfmiddlewaretoken\W+value=\W)[\w-]+"), r"\1TOKEN"),
    (re.compile(r"(csrftoken=)[\w-]+"), r"\1TOKEN"),
    (re.compile(r"(sessionid=)[\w:.-]+"), r"\1SESSION"),
    (re.compile(r"expires=[^;]+", re.IGNORECASE), "expires=WHEN"),
    (re.compile(r"(boundary=|--)[0-9a-f]{26}"), r"\1BOUNDARY"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
]


def mask(text: str) -> str:
    for pattern, instead in MASKS:
        text = pattern.sub(instead, text)
    return text


def seen(response: Response) -> Seen:
    """What must be equal."""
    headers: dict[str, list[str]] = {}
    for name, value in response.headers:
        key = name.decode().lower()
        if key not in LEFT_OUT:
            headers.setdefault(key, []).append(mask(value.decode("latin-1")))
    body = response.body
    if headers.get("content-encoding") == ["gzip"]:
        body = gzip.decompress(body)
        headers.pop("content-length", None)
    return response.status, headers, mask(body.decode("utf-8", "surrogateescape"))


@dataclass
class Step:
    """One request."""

    target: str
    method: str = "GET"
    headers: tuple[str, ...] = ()
    body: bytes | None = None
    chunks: tuple[bytes, ...] = ()

    def run(self, client: Client, *more: str) -> Response:
        """Send it, read the answer."""
        if self.chunks:
            head = request(self.target, *self.headers, *more, "Transfer-Encoding: chunked", method=self.method)
            client.send(head + chunked(*self.chunks))
        else:
            client.send(request(self.target, *self.headers, *more, method=self.method, body=self.body))
        return client.response(self.method)


JSON = ("Content-Type: application/json",)
FORM = "Content-Type: application/x-www-form-urlencoded"
MULTIPART = (
    b'--limit\r\nContent-Disposition: form-data; name="note"\r\n\r\na note\r\n'
    b'--limit\r\nContent-Disposition: form-data; name="file"; filename="f.txt"\r\nContent-Type: text/plain\r\n\r\n'
    + b"contents " * 20_000
    + b"\r\n--limit--\r\n"
)

FASTAPI = [
    Step("/items", "POST", (*JSON, "X-Token: me"), json.dumps({"name": "n", "price": 2.5, "tags": ["a"]}).encode()),
    Step("/items", "POST", JSON, b'{"name": "", "price": "much"}'),
    Step("/items", "POST", JSON, b"{broken"),
    Step("/items", "POST", JSON, None, (b'{"name": "chu', b'nked", "pri', b'ce": 1}')),
    Step("/items/7?q=a&q=b"),
    Step("/items/seven"),
    Step("/items/404"),
    Step("/items/9", "DELETE"),
    Step("/items/9", "PATCH"),
    Step("/sync"),
    Step("/stream"),
    Step("/stream", "HEAD"),
    Step("/stream-sync"),
    Step("/background?name=one", "POST"),
    Step("/timeout"),
    Step("/itself"),
    Step("/upload", "POST", ("Content-Type: multipart/form-data; boundary=limit",), MULTIPART),
    Step("/state"),
    Step("/headers", headers=("X-Many: 1", "X-Many: 2", "Cookie: a=b; c=d", "X-Latin: \xe9")),
    Step("/redirect"),
    Step("/plain"),
    Step("/openapi.json"),
    Step("/docs"),
    Step("/nowhere"),
    Step("/items/caf%C3%A9"),
    Step("/subprocess"),
]

STARLETTE = [
    Step("/?a=1&b=%20"),
    Step("/forbidden"),
    Step("/nowhere"),
    Step("/echo", "POST", ("Content-Type: text/plain",), b"hello"),
    Step("/echo", "PUT", ("Content-Type: text/plain",), None, (b"one", b"two")),
    Step("/echo", "GET"),
    Step("/stream", "POST", (), b"x" * 200_000),
    Step("/stream", "POST", (), None, (b"a" * 1000, b"b" * 70_000)),
    Step("/zip/big"),
    Step("/zip/big", headers=("Accept-Encoding: gzip",)),
    Step("/background"),
    Step("/file"),
    Step("/file", "HEAD"),
    Step("/file", headers=("Range: bytes=10-19",)),
    Step("/file", headers=("Range: bytes=0-1,5-6",)),
    Step("/file", headers=("Range: bytes=999999999-",)),
    Step("/static/style.css"),
    Step("/static/style.css", "HEAD"),
    Step("/static/data.bin"),
    Step("/static/missing.css"),
    Step("/static/../starlette_app.py"),
    Step("/static/style.css", "POST"),
]

DJANGO = [
    Step("/async?x=1"),
    Step("/stream"),
    Step("/stream-async"),
    Step("/meta?q=%C3%A9&x", headers=("X-Many: 1", "X-Many: 2", "Cookie: z=1", "Referer: http://x/")),
    Step("/meta", "GET", ("X_Underscore: 1",)),
    Step("/body", "POST", ("Content-Type: application/octet-stream",), b"b" * 400_000),
    Step("/body", "POST", ("Content-Type: application/octet-stream",), None, (b"c" * 50_000, b"d" * 50_000)),
    Step("/file"),
    Step("/nowhere"),
    Step("/form", "POST", (FORM,), b"name=x"),
    Step("/form", "HEAD"),
    Step("/form/", headers=("Host: evil.example",)),
]


@pytest.fixture(scope="session")
def uvicorn() -> Iterator[Servers]:
    """Reference servers."""
    servers = Servers(Target(server="uvicorn"))
    yield servers
    servers.close()


def serve(servers: Servers, app: str) -> Server:
    """The server of an application, with the same order of sets everywhere."""
    return servers.get(app, env={"PYTHONHASHSEED": "0"})


def both(servers: Servers, uvicorn: Servers, app: str, play: Callable[[Server], list[Seen]]) -> None:
    """Play on both servers and compare, step by step."""
    server = serve(servers, app)
    server.expected_tracebacks.append("DisallowedHost")
    expected, got = play(serve(uvicorn, app)), play(server)
    assert len(expected) == len(got)
    for number, (want, have) in enumerate(zip(expected, got, strict=True)):
        for part in (0, 1, 2):
            assert have[part] == want[part], f"step {number}"


@pytest.mark.uvloop
@pytest.mark.parametrize(
    ("app", "steps"),
    [("fastapi_app:app", FASTAPI), ("starlette_app:app", STARLETTE), ("django_app:application", DJANGO)],
    ids=["fastapi", "starlette", "django"],
)
def test_every_answer_is_the_same(servers: Servers, uvicorn: Servers, app: str, steps: list[Step]) -> None:
    def play(server: Server) -> list[Seen]:
        found = []
        with server.connect() as client:
            for step in steps:
                found.append(seen(step.run(client)))
                assert client.waiting() == b"", step
        return found

    both(servers, uvicorn, app, play)


def test_steps_do_something(uvicorn: Servers) -> None:
    """The lists would prove nothing if everything in them failed alike."""
    lists = {"fastapi_app:app": FASTAPI, "starlette_app:app": STARLETTE, "django_app:application": DJANGO}
    for app, steps in lists.items():
        with serve(uvicorn, app).connect() as client:
            statuses = [step.run(client).status for step in steps]
        assert statuses.count(200) > len(steps) / 2, statuses
        assert 500 not in statuses


def test_a_django_session_with_a_form(servers: Servers, uvicorn: Servers) -> None:
    def play(server: Server) -> list[Seen]:
        found: list[Seen] = []
        jar: dict[str, str] = {}
        with server.connect() as client:

            def step(step: Step) -> Response:
                cookie = [f"Cookie: {'; '.join(f'{name}={value}' for name, value in jar.items())}"] if jar else []
                response = step.run(client, *cookie)
                for line in response.all("set-cookie"):
                    name, _, rest = line.decode().partition("=")
                    jar[name] = rest.partition(";")[0]
                found.append(seen(response))
                return response

            page = step(Step("/form")).body.decode()
            token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
            assert token
            assert step(Step("/form", "POST", (FORM,), b"name=x")).status == 403
            good = f"name=Ada+L.&csrfmiddlewaretoken={token[1]}".encode()
            answer = step(Step("/form", "POST", (FORM,), good))
            assert (answer.status, answer.one("location")) == (302, b"/form")
            assert b"<p>Ada L.</p>" in step(Step("/form")).body
            for count in (1, 2, 3):
                assert step(Step("/counter")).json() == {"count": count}
        return found

    both(servers, uvicorn, "django_app:application", play)


@pytest.mark.parametrize("app", ["fastapi_app:app", "starlette_app:app", "django_app:application"])
def test_an_error_of_the_application(servers: Servers, uvicorn: Servers, app: str) -> None:
    def play(server: Server) -> list[Seen]:
        with server.connect() as client:
            client.send(request("/broken"))
            status, headers, body = seen(client.response())
            # Whether the connection goes on is the server's affair.
            headers.pop("connection", None)
            return [(status, headers, body)]

    both(servers, uvicorn, app, play)


def test_a_stream_that_breaks_off(servers: Servers) -> None:
    with serve(servers, "fastapi_app:app").connect() as client:
        client.send(request("/broken-stream"))
        assert client.head().status == 200
        raw = client.to_end()
    assert b"one\n" in raw
    assert not raw.endswith(b"0\r\n\r\n")


def test_background_tasks_and_dependencies_are_run(servers: Servers, key: str) -> None:
    server = serve(servers, "fastapi_app:app")
    server.get(f"/background?name={key}", method="POST")
    server.get("/items", *JSON, method="POST", body=b'{"name": "n", "price": 1}')

    def ran() -> bool:
        shown = server.get("/background").json()
        return key in shown["done"] and shown["closed"] == ["token"]

    until(ran, "the background task and the end of the dependency")
    other = serve(servers, "starlette_app:app")
    other.get("/background")
    until(lambda: other.get("/seen").json(), "the background task behind the middlewares")
