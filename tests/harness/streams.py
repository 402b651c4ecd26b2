"""Streams of requests, right ones and wrong ones, for hypothesis to draw and to shrink."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from hypothesis import strategies as st

#: What follows a stream shows where the server thinks that its last request has ended.
AFTER = b"GET /after HTTP/1.1\r\nHost: after\r\n\r\n"

#: Bytes that mean something to a parser of HTTP, and some that should mean nothing.
SHARP = [bytes([byte]) for byte in b'\r\n\0 \t:,;/?#*@%0159afAFGhH.-+="[]\x01\x0b\x0c\x7f\x80\x85\xa0\xff']
SNIPPETS = [b"\r\n", b"\n\n", b"\r\n\r\n", b" \r\n", b"\r\n ", b"chunked", b"0\r\n\r\n", b", ", b": ", b"HTTP/1.0"]

#: For each aspect of a request what is right, and what is odd: of a request at most one aspect is odd, so that most
#: streams go on for a while and what is refused is refused for one reason.
_METHODS = (
    ["GET", "GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS"],
    ["get", "M-SEARCH", "CONNECT", "!", "G,", "(", ""],
)
_TARGETS = (
    ["/", "/a", "/a/b?c=d", "/?a?b", "http://h:80/a?b"],
    [
        *("/?", "//", "/%41%zz", "/a;b=c", '/"<>\\^`{|}', "*", "/*", "/a#b", "h:80", "a", "?", "", " /", "/ ", "/\xe9"),
        *("http://h", "http://h?q", "HTTP://h/", "https://[::1]:80/", "http://", "http://u@h/", "ftp://h/"),
        *("http://:80/", "http://h:x/", "http://a,b/", "http:///"),
    ],
)
_VERSIONS = ["HTTP/1.1"], ["HTTP/1.2", "HTTP/2.0", "HTTP/0.9", "http/1.1", "HTTP/1.10", "HTTP/01.1", "HTTP/1.1 ", ""]
_HOSTS = (
    [["h"]],
    [
        *([], ["h", "h"], ["a", "b"], [""], ["[::1]:80"], ["a,b"], ["h_1"], ["a b"], ["h:x"], ["h:"], ["u@h"]),
        *(["[::1"], ["%41"], ["%4"], [":80"], ["a/b"], ["\xe9"], ["h:80:80"]),
    ],
)
_CONNECTIONS = (
    [[], [], [], ["keep-alive"]],
    [
        *(["close"], ["Keep-Alive"], ["close, keep-alive"], ["x, CLOSE"], ["closed"], [""], [",,close"]),
        *(["keep-alive", "close"], ["x,keep-alive"]),
    ],
)
_EXPECTS = (
    [[], [], [], ["100-continue"]],
    [["100-Continue"], ["x"], ["100-continue, x"], ["100-continue", "100-continue"]],
)
_UPGRADES = [[]], [["websocket"], ["h2c"], ["h2c, WebSocket"], ["websockets"], [""]]
_NAMES = (
    ["A", "X-B", "Accept", "Cookie", "!#$%&'*+-.^_`|~9z"],
    ["x_y", "Content_Length", "Transfer_Encoding", "TE", "Trailer", "A ", " A", "", "(", "\xe9", "A\0"],
)
_VALUES = (
    ["", " b", " b c", "\tb\tc ", ' "b, c"', " \x80\xff", "b:c", ";,=", "x" * 40],
    ["\x01", " b\0", "\x7f", "\x0b", "\r", "b\rc", "b\nc", "b\r\n c", "\r\n\tb"],
)
_FRAMINGS = ["none", "none", "length", "length", "chunked", "chunked"], ["both", "twice"]
_LENGTHS = (
    [" {}"],
    ["\t{} ", "+{}", "0{}", "{}, {}", "{} {}", "0x{}", "-{}", "{}.0", "{:025}", "", "18446744073709551616", "{}\xa0"],
)
_CODINGS = (
    ["chunked"],
    [
        *("Chunked", "CHUNKED ", "\tchunked", "chunked,", ",chunked", "gzip, chunked", "chunked, chunked", "identity"),
        *("gzip", "chunked;a=b", '"chunked"', "xchunked", "\x0bchunked", "", "chunked\r\nTransfer-Encoding: chunked"),
    ],
)
_SIZES = ["{:x}"], ["{:X}", "{:04x}", "{:016x}", "{:017x}", "+{:x}", " {:x}", "0x{:x}", "-{:x}", "{:x}_0", "g{:x}", ""]
_EXTENSIONS = (
    ["", "", ";a", '; a=b;c="d e"'],
    [" ;a", "\t;", ";", " ", "\t", ";\x80", ";\x01", "\x00", ";\r", ";\n", "a", ",a", ";a\rb", ' ;a="\n"'],
)
_TRAILERS = (
    [[], [], ["A: b"], ["X-Y: \x80\t", "A:"]],
    [
        *(["Content-Length: 1"], ["HOST: h"], ["transfer-encoding: x"], ["A : b"], [" A: b"], ["A: b", " c"], ["A"]),
        *([": b"], ["A: b\n"], ["A: \x01"], ["A: b\rc"], ["\n"], [" "], ["A: b\nHost: h"]),
    ],
)
_BODIES = [b"x", b"ab", b"\r\n", b"0\r\n\r\n", b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", bytes(range(256)), b""]
_ODD = [
    *("method", "target", "version", "host", "connection", "expect", "upgrade", "name", "value", "framing", "length"),
    *("coding", "size", "extension", "trailer", "line end", "before"),
]

#: How a request must be framed so that an aspect of it can be odd.
_NEEDS = {"length": "length"} | dict.fromkeys(("coding", "size", "extension", "trailer"), "chunked")

T = TypeVar("T")


class _Request:
    """Composes one request out of what `pick` picks; `odd` is the aspect that is not right, if any."""

    def __init__(self, pick: Callable[[list[Any]], Any], odd: str) -> None:
        self.pick = pick
        self.odd = odd

    def one(self, aspect: str, choice: tuple[list[T], list[T]]) -> T:
        """Something right, or something odd where this is the aspect that is."""
        right, odd = choice
        options = odd if aspect == self.odd else right
        return options[0] if len(options) == 1 else self.odd_one(odd) if options is odd else self.pick(right)

    def odd_one(self, odd: list[T]) -> T:
        """One of the odd ones."""
        return self.pick(odd)

    def chunked(self) -> bytes:
        """A chunked body."""
        out = ""
        for _ in range(self.pick([1, 0, 2, 3])):
            data = self.pick(_BODIES[:-1])
            size = self.one("size", _SIZES).format(len(data))
            out += f"{size}{self.one('extension', _EXTENSIONS)}\r\n{data.decode('latin-1')}\r\n"
        lines = [f"0{self.one('extension', _EXTENSIONS)}", *self.one("trailer", _TRAILERS), "", ""]
        return (out + "\r\n".join(lines)).encode("latin-1")

    def framed(self) -> tuple[list[str], bytes]:
        """The fields that frame a body, and a body."""
        kind = _NEEDS.get(self.odd) or self.one("framing", _FRAMINGS)
        if kind == "none":
            return [], b""
        body = self.pick(_BODIES)
        fields = []
        if kind in ("length", "both", "twice"):
            fields.append("Content-Length:" + self.one("length", _LENGTHS).format(len(body), len(body)))
        if kind == "twice":
            fields.append(f"content-length: {len(body) + self.pick([0, 1])}")
        if kind in ("chunked", "both"):
            fields.append("Transfer-Encoding: " + self.one("coding", _CODINGS))
            body = self.chunked()
        return (fields if self.pick([True, False]) else fields[::-1]), body

    def bytes(self) -> bytes:
        """The request."""
        framing, body = self.framed()
        version = self.one("version", _VERSIONS)
        chunked = any(field.startswith("Transfer-Encoding") for field in framing)
        if version == "HTTP/1.1" and self.pick([False] * 5 + [True]) and (not chunked or self.odd):
            version = "HTTP/1.0"
        fields = [f"Host: {host}" for host in self.one("host", _HOSTS)]
        if self.odd in ("name", "value") or self.pick([False, True]):
            fields.append(f"{self.one('name', _NAMES)}:{self.one('value', _VALUES)}")
        fields += [f"Connection: {value}" for value in self.one("connection", _CONNECTIONS)]
        fields += [f"Expect: {value}" for value in self.one("expect", _EXPECTS)]
        if upgrades := self.one("upgrade", _UPGRADES):
            fields += [f"Upgrade: {upgrades[0]}", "Connection: upgrade"]
        line = f"{self.one('method', _METHODS)} {self.one('target', _TARGETS)} {version}"
        end = "\n" if self.odd == "line end" else "\r\n"
        before = self.one("before", (["", "", "", "", "\r\n"], ["\r\n\r\n", "\n", "\r", " ", "\r\n\n"]))
        return (before + end.join((line, *fields, *framing, "", ""))).encode("latin-1") + body


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """One request."""

    def pick(options: list[Any]) -> Any:
        return draw(st.sampled_from(options))

    return _Request(pick, pick(["", "", "", *_ODD])).bytes()


def oddities() -> Iterator[bytes]:
    """Each odd thing on HTTP/1.1 and on HTTP/1.0, in a request that is right otherwise and has another behind it."""

    class Odd(_Request):
        which, more = 0, True

        def odd_one(self, odd: list[T]) -> T:
            self.more = self.which + 1 < len(odd)
            return odd[self.which]

    for aspect in _ODD:
        for old in (False, True):
            which, more = 0, True
            while more:
                request = Odd(lambda options, old=old: old if options[0] is False else options[0], aspect)
                request.which, request.more = which, False
                yield request.bytes() + AFTER
                which, more = which + 1, request.more


_KINDS = ["replace", "replace", "insert", "insert", "remove", "cut", "repeat line", "drop line", "number"]


def spoiled(stream: bytes, way: int) -> bytes:
    """A stream after one mutation, which the number `way` stands for."""
    way = way * 0x9E3779B97F4A7C15 % (1 << 64)  # hypothesis prefers small numbers
    kind = _KINDS[way % len(_KINDS)]
    new = (SHARP + SNIPPETS)[(way >> 16) % len(SHARP + SNIPPETS)]
    where = way >> 32
    at = where % (len(stream) or 1)
    if kind == "replace":
        return stream[:at] + new + stream[at + len(new) :]
    if kind == "insert":
        return stream[:at] + new + stream[at:]
    if kind == "remove":
        return stream[:at] + stream[at + 1 :]
    if kind == "cut":
        return stream[:at]
    if kind == "number":
        digits = [index for index, byte in enumerate(stream) if chr(byte).isdigit()] or [at]
        at = digits[where % len(digits)]
        return stream[:at] + b"%d" % (where % 23) + stream[at + 1 :]
    lines = stream.splitlines(keepends=True) or [b""]
    at = where % len(lines)
    lines[at : at + 1] = [lines[at]] * 2 if kind == "repeat line" else []
    return b"".join(lines)


@st.composite
def families(draw: st.DrawFn) -> list[bytes]:
    """A stream of one to four requests; the same, spoiled in different ways, half of the ways in its last request."""
    *first, last = draw(st.lists(requests(), min_size=1, max_size=4))
    before = b"".join(first)
    family = [before + last]
    for way in draw(st.lists(st.integers(0, (1 << 32) - 1), min_size=4, max_size=16)):
        once = spoiled(last, way)
        family += [spoiled(before + last, way), before + once, before + spoiled(once, way + 1)]
    return [stream + AFTER for stream in family] + family[:4]
