"""Where h11 and we part: every class of requests that one takes and the other refuses, with the section we follow.

docs/conformance.md lists the same names; test_differential.py compares the two. A disagreement that is in no class here
is a defect of one of the two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

#: Our limits (RFC 9112, section 7.1): digits of a chunk size, bytes of a chunk's extension.
MAX_DIGITS = 16
MAX_EXTENSION = 1024


@dataclass
class Head:
    """A request's head as h11 framed it."""

    #: Its bytes, from the request line to the empty line.
    raw: bytes
    method: str
    target: str
    version: str
    #: Names in lower case.
    fields: list[tuple[str, str]]

    def all(self, name: str) -> list[str]:
        """Every value of a field."""
        return [value for key, value in self.fields if key == name]

    def names(self, field: str) -> list[str]:
        """The elements of a comma-separated field, in lower case."""
        return [element.strip(" \t").lower() for value in self.all(field) for element in value.split(",")]


@dataclass(frozen=True)
class Choice:
    """A class of requests that h11 accepts and we refuse."""

    name: str
    section: str
    status: int
    applies: Callable[[Head], bool]
    #: A request of this class.
    example: bytes


def bare_lf(head: Head) -> bool:
    """A line ends in LF alone."""
    return has_bare_lf(head.raw)


def has_bare_lf(raw: bytes) -> bool:
    """Whether there is an LF without CR."""
    return re.search(rb"(?<!\r)\n", raw) is not None


def folded(head: Head) -> bool:
    """A line begins with white space."""
    return re.search(rb"\n[ \t]", head.raw) is not None


def control_byte(head: Head) -> bool:
    """A value has a control byte that is no tab."""
    return any(re.search(r"[\x00-\x08\x0a-\x1f\x7f]", value) for _, value in head.fields)


def other_version(head: Head) -> bool:
    """Neither 1.0 nor 1.1."""
    return head.version not in ("1.0", "1.1")


def connect(head: Head) -> bool:
    """CONNECT, whatever the target."""
    return head.method == "CONNECT"


def bad_target(head: Head) -> bool:
    """Neither origin-form, nor `*` with OPTIONS, nor absolute-form with a host."""
    if head.method == "CONNECT" or (head.method == "OPTIONS" and head.target == "*"):
        return False
    match = ABSOLUTE.match(head.target)
    if "#" in head.target or not (match or head.target.startswith("/")):
        return True
    return bool(match) and (not is_authority(match[1]) or match[1].partition(":")[0] == "")


ABSOLUTE = re.compile(r"https?://([^/?#]*)", re.IGNORECASE)
_HOST = re.compile(r"(?:\[[\w.~!$&'()*+,;=%:-]+\]|[\w.~!$&'()*+,;=%-]*)(?::[0-9]*)?", re.ASCII)


def is_authority(text: str) -> bool:
    """Whether it is a host with an optional port (RFC 3986, section 3.2); it may be empty."""
    return bool(_HOST.fullmatch(text)) and not re.search("%(?![0-9A-Fa-f]{2})", text)


def bad_host(head: Head) -> bool:
    """Host is no host with an optional port."""
    return not all(map(is_authority, head.all("host")))


def more_than_one_length(head: Head) -> bool:
    """Content-Length, equal but repeated or a list."""
    lengths = lines(head.raw, "content-length")
    return len(lengths) > 1 or any("," in length for length in lengths)


def length_too_large(head: Head) -> bool:
    """Content-Length beyond 64 bits."""
    return any(length.isdigit() and int(length) >= 1 << 64 for length in head.all("content-length"))


def length_and_encoding(head: Head) -> bool:
    """Content-Length beside Transfer-Encoding."""
    return bool(head.all("content-length") and head.all("transfer-encoding"))


def encoding_on_http10(head: Head) -> bool:
    """Transfer-Encoding on HTTP/1.0."""
    return head.version == "1.0" and bool(head.all("transfer-encoding"))


def websocket(head: Head) -> bool:
    """A WebSocket handshake."""
    body = head.all("transfer-encoding") or any(int(value) for value in head.all("content-length") if value.isdigit())
    asked = "websocket" in head.names("upgrade") and "upgrade" in head.names("connection")
    return head.version == "1.1" and head.method == "GET" and asked and not body


def lines(raw: bytes, name: str) -> list[str]:
    """The values of a field as its lines have them: h11 joins equal lengths."""
    pattern = rf"(?:^|\n){name}:[ \t]*([^\r\n]*)".encode()
    return [match.decode("latin-1") for match in re.findall(pattern, raw, re.IGNORECASE)]


def _get(line: str = "GET / HTTP/1.1", *fields: str, end: str = "\r\n") -> bytes:
    return end.join((line, "Host: h", *fields, "", "")).encode("latin-1")


#: What h11 accepts and we refuse, in a head.
HEADS = (
    Choice("bare LF in a head", "RFC 9112, 2.2", 400, bare_lf, _get(end="\n")),
    Choice("a folded line", "RFC 9112, 5.2", 400, folded, _get("GET / HTTP/1.1", "A: b", " c")),
    Choice("a control byte in a value", "RFC 9110, 5.5", 400, control_byte, _get("GET / HTTP/1.1", "A: b\x01")),
    Choice("another version", "RFC 9110, 2.5", 505, other_version, _get("GET / HTTP/1.2")),
    Choice("CONNECT", "RFC 9110, 9.3.6", 501, connect, _get("CONNECT h:80 HTTP/1.1")),
    Choice("a target that names no resource of ours", "RFC 9112, 3.2", 400, bad_target, _get("GET * HTTP/1.1")),
    Choice("a Host that is no host and port", "RFC 9112, 3.2", 400, bad_host, b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
    Choice(
        "equal Content-Lengths",
        "RFC 9112, 6.3",
        400,
        more_than_one_length,
        _get("POST / HTTP/1.1", "Content-Length: 1", "Content-Length: 1") + b"x",
    ),
    Choice(
        "a Content-Length beyond 64 bits",
        "RFC 9110, 8.6",
        400,
        length_too_large,
        _get("POST / HTTP/1.1", f"Content-Length: {1 << 64}"),
    ),
    Choice(
        "Content-Length with Transfer-Encoding",
        "RFC 9112, 6.1",
        400,
        length_and_encoding,
        _get("POST / HTTP/1.1", "Content-Length: 1", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
    ),
    Choice(
        "Transfer-Encoding on HTTP/1.0",
        "RFC 9112, 6.1",
        400,
        encoding_on_http10,
        _get("POST / HTTP/1.0", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
    ),
    Choice(
        "a WebSocket handshake",
        "RFC 9110, 7.8",
        501,
        websocket,
        _get("GET / HTTP/1.1", "Connection: upgrade", "Upgrade: websocket"),
    ),
)


def _chunked(body: bytes) -> bytes:
    return _get("POST / HTTP/1.1", "Transfer-Encoding: chunked") + body


#: What h11 accepts and we refuse in a chunked body, by what is wrong with it. All are answered 400.
BODIES = {
    "white space after a chunk size": ("RFC 9112, 7.1", _chunked(b"1 \r\na\r\n0\r\n\r\n")),
    "a long chunk size": ("RFC 9112, 7.1", _chunked(b"%017x\r\na\r\n0\r\n\r\n" % 1)),
    "a control byte in a chunk extension": ("RFC 9112, 7.1.1", _chunked(b"1;\x01\r\na\r\n0\r\n\r\n")),
    "bare LF in trailers": ("RFC 9112, 2.2", _chunked(b"0\r\nA: b\n\r\n")),
    "a folded line in trailers": ("RFC 9112, 5.2", _chunked(b"0\r\nA: b\r\n c\r\n\r\n")),
    "a control byte in a trailer": ("RFC 9110, 5.5", _chunked(b"0\r\nA: \x01\r\n\r\n")),
    "a trailer that frames or routes": ("RFC 9110, 6.5.1", _chunked(b"0\r\nHost: h\r\n\r\n")),
}

#: What h11 refuses, or ends the connection after, and we go on with.
ACCEPTED = {
    "one empty line before a request line": ("RFC 9112, 2.2", b"\r\n" + _get()),
    "white space before a chunk extension": ("RFC 9112, 7.1.1", _chunked(b"1 ;a\r\na\r\n0\r\n\r\n")),
    "a Content-Length with many leading zeros": (
        "RFC 9110, 8.6",
        _get("POST / HTTP/1.1", f"Content-Length: {1:025}") + b"x",
    ),
    "HTTP/1.0 with keep-alive": ("RFC 9112, 9.3", _get("GET / HTTP/1.0", "Connection: keep-alive") * 2),
}


class Chunks:
    """A chunked body by the letter of RFC 9112, section 7.1, as far as it has come."""

    def __init__(self, raw: bytes) -> None:
        #: An extension has white space before it.
        self.spaced = False
        #: Why it is refused: one of `BODIES`, or what h11 refuses as well; empty while nothing is wrong.
        self.wrong = next(self._walk(raw), "")

    def _walk(self, raw: bytes) -> Iterator[str]:
        at = 0
        while True:
            line, end, _ = raw[at:].partition(b"\r\n")
            if wrong := self._size_line(line, bool(end)):
                yield wrong
            if not end:
                return
            at += len(line) + 2
            size = int(re.match(b"[0-9A-Fa-f]+", line)[0], 16)  # type: ignore[index]
            if size == 0:
                yield from self._trailers(raw[at:])
                return
            at += size
            ends = raw[at : at + 2]
            if ends != b"\r\n"[: len(ends)]:
                yield "no CRLF after a chunk"
            if len(ends) < 2:
                return
            at += 2

    def _size_line(self, line: bytes, whole: bool) -> str:
        if not whole and line.endswith(b"\r"):
            line, whole = line[:-1], True
        match = re.match(rb"([0-9A-Fa-f]*)([ \t]*)(;?)", line)
        assert match is not None
        digits, space, semicolon = match.groups()
        rest = line[match.end() :]
        if len(digits) > MAX_DIGITS:
            return "a long chunk size"
        if (not digits and (line or whole)) or (rest and not semicolon):
            return "no chunk size"
        if whole and space and not semicolon:
            return "white space after a chunk size"
        self.spaced |= bool(space)
        if re.search(rb"[\x00-\x08\x0a-\x1f\x7f]", rest) or len(rest) > MAX_EXTENSION:
            return "a control byte in a chunk extension"
        return ""

    @staticmethod
    def _trailers(raw: bytes) -> Iterator[str]:
        while raw:
            line, end, raw = raw.partition(b"\r\n")
            if end and not line:
                return
            if b"\n" in line:
                yield "bare LF in trailers"
            if not end and line.endswith(b"\r"):
                if line == b"\r":
                    return
                line, end = line[:-1], b"\r"
            name, colon, value = line.partition(b":")
            if name[:1] in (b" ", b"\t"):
                yield "a folded line in trailers"
            if not re.fullmatch(rb"[!#$%&'*+.^_`|~0-9a-zA-Z-]*", name) or ((end or colon) and not (name and colon)):
                yield "no trailer"
            if colon and name.lower() in (b"content-length", b"transfer-encoding", b"host"):
                yield "a trailer that frames or routes"
            if re.search(rb"[\x00-\x08\x0a-\x1f\x7f]", value):
                yield "a control byte in a trailer"
