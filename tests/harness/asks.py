"""Requests that are put to two servers, or to a server and a test client, and answers that must be equal."""

from __future__ import annotations

import gzip
import re
from collections.abc import Sequence
from dataclasses import dataclass

from .client import Client, chunked, request

#: The server's own affair, or what a test client has no use for.
LEFT_OUT = {"date", "server", "connection", "transfer-encoding"}
MASKS = [
    (re.compile(r"expires=[^;]+", re.IGNORECASE), "expires=WHEN"),
    (re.compile(r"(boundary=|--)[0-9a-f]{26}"), r"\1BOUNDARY"),
    (re.compile(r"(session=)[\w.=-]+"), r"\1SESSION"),
]
ALWAYS = {"user-agent": "testclient", "accept": "*/*", "accept-encoding": "identity"}


Masks = Sequence[tuple[re.Pattern[str], str]]


def mask(text: str, masks: Masks = MASKS) -> str:
    """Text without what differs from answer to answer."""
    for pattern, instead in masks:
        text = pattern.sub(instead, text)
    return text


@dataclass
class Answer:
    """What must be equal."""

    status: int
    headers: dict[str, list[str]]
    body: str

    @classmethod
    def of(cls, status: int, headers: list[tuple[bytes, bytes]], body: bytes, masks: Masks = MASKS) -> Answer:
        """From what came."""
        kept: dict[str, list[str]] = {}
        for raw, value in headers:
            if (name := raw.decode("latin-1").lower()) not in LEFT_OUT:
                text = mask(value.decode("latin-1"), masks)
                # It is made from a set, whose order differs from process to process.
                kept.setdefault(name, []).append(", ".join(sorted(text.split(", "))) if name == "allow" else text)
        return cls(status, kept, mask(body.decode("utf-8", "surrogateescape"), masks))


@dataclass
class Ask:
    """One request."""

    target: str
    method: str = "GET"
    fields: tuple[str, ...] = ()
    body: bytes | None = None
    #: What is expected anyway, so that the two cannot agree on nonsense.
    status: int = 200
    #: The same, of the body: what stands in it.
    shows: str = ""
    #: GZipMiddleware lets a file pass that the server sends by itself.
    by_path: bool = False

    def headers(self) -> list[tuple[str, str]]:
        """The fields, with those that always come."""
        own = [(name, value.strip()) for name, _, value in (field.partition(":") for field in self.fields)]
        names = {name.lower() for name, _ in own}
        return own + [item for item in ALWAYS.items() if item[0] not in names]

    def live(self, client: Client, in_chunks: bool = False, masks: Masks = MASKS) -> Answer:
        """Put it to the server."""
        fields = [f"{name}: {value}" for name, value in self.headers()]
        if in_chunks and self.body is not None:
            head = request(self.target, *fields, "Transfer-Encoding: chunked", method=self.method)
            client.send(head + chunked(self.body[:1000], *([self.body[1000:]] if self.body[1000:] else [])))
        else:
            client.send(request(self.target, *fields, method=self.method, body=self.body))
        response = client.response(self.method)
        assert client.waiting() == b"", self
        body = response.body
        if response.all("content-encoding") == [b"gzip"] and body:
            body = gzip.decompress(body)
        return Answer.of(response.status, response.headers, body, masks)


def multipart(*parts: tuple[str, str | None, bytes]) -> bytes:
    """A form: field name, file name or None, contents."""
    body = b""
    for name, filename, data in parts:
        more = f'; filename="{filename}"\r\nContent-Type: application/octet-stream' if filename is not None else ""
        body += f'--limit\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + data + b"\r\n"
    return body + b"--limit--\r\n"


MULTIPART = "Content-Type: multipart/form-data; boundary=limit"
FORM = "Content-Type: application/x-www-form-urlencoded"
JSON = "Content-Type: application/json"
