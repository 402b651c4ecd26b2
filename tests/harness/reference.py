"""What should come of a stream of requests: h11 as the server, held to the choices of `choices.py`."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

import h11

from .batch import Call
from .choices import ABSOLUTE, BODIES, HEADS, Chunks, Head, has_bare_lf

#: How often each choice decided something.
met: Counter[str] = Counter()

_ZEROS = re.compile(rb"\ncontent-length:[ \t]*0+[0-9]{1,19}[ \t]*\r", re.IGNORECASE)
_TOKEN = rb"[!#$%&'*+.^_`|~0-9a-zA-Z-]"


@dataclass
class Reference:
    """What a server should make of a stream."""

    #: Requests that the application sees, in order; the last one may be incomplete.
    calls: list[Call] = field(default_factory=list)
    #: The refusals that can answer what follows them; empty: none does.
    refusals: set[int] = field(default_factory=set)
    #: The connection ends by itself, after the last answer.
    closes: bool = False
    #: The last request was refused within its body: it may have been dispatched before.
    in_body: bool = False
    #: h11 cannot say how it goes on, because it refuses what we accept.
    unjudged: bool = False
    #: What has not been looked at yet.
    rest: bytes = b""

    @property
    def complete(self) -> int:
        """Requests that are answered by the application."""
        return sum(call.complete for call in self.calls)

    def refuse(self, *statuses: int, in_body: bool = False) -> Reference:
        """It ends here."""
        self.refusals, self.closes, self.in_body = set(statuses), True, in_body
        return self


#: Statuses of a refusal that both agree on, for reasons that h11 does not tell apart.
ANY = (400, 501, 505)


def reference(data: bytes) -> Reference:
    """What should come of `data`, with no end of the stream after it."""
    result = Reference(rest=data)
    while _one(result.rest, result):
        pass
    return result


def _one(data: bytes, result: Reference) -> bool:
    """The next request. Whether another may follow, which then begins `result.rest`."""
    if data[:2] == b"\r\n":
        met["one empty line before a request line"] += 1
        data = data[2:]
    elif data == b"\r":
        return False  # the first half of an empty line
    if not data:
        return False
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    connection.receive_data(data)
    try:
        event = connection.next_event()
    except h11.RemoteProtocolError as error:
        if zeros(data, error):
            met["a Content-Length with many leading zeros"] += 1
            result.unjudged = True
        else:
            result.refuse(*ANY)
        return False
    if event is h11.NEED_DATA:
        if early := refused_early(data):
            result.refuse(*early)
        return False
    assert isinstance(event, h11.Request)
    size = len(data) - len(connection.trailing_data[0])
    head = Head(
        data[:size],
        event.method.decode(),
        event.target.decode(),
        event.http_version.decode(),
        [(name.decode(), value.decode("latin-1")) for name, value in event.headers],
    )
    if reasons := [choice for choice in HEADS if choice.applies(head)]:
        met.update(choice.name for choice in reasons)
        result.refuse(*(choice.status for choice in reasons))
        return False
    return _body(connection, head, data, result)


def _body(connection: h11.Connection, head: Head, data: bytes, result: Reference) -> bool:
    body, broken = b"", False
    try:
        while isinstance(event := connection.next_event(), h11.Data):
            body += event.data
    except h11.RemoteProtocolError:
        broken = True
    done = not broken and isinstance(event, h11.EndOfMessage)
    chunks = Chunks(data[len(head.raw) :] if head.all("transfer-encoding") else b"")
    if chunks.wrong:
        # h11 may be waiting for the end of the line that is wrong.
        assert chunks.wrong in BODIES or not done, f"{chunks.wrong}: h11 accepts {data!r}"
        met[chunks.wrong] += 1
        result.calls.append(call(head, body, complete=False))
        result.refuse(400, in_body=True)
        return False
    if chunks.spaced:
        met["white space before a chunk extension"] += 1
        result.unjudged = True
        return False
    assert not broken, f"h11 alone refuses {data!r}"
    result.calls.append(call(head, body, complete=done))
    return done and _next(connection, head, connection.trailing_data[0], result)


def _next(connection: h11.Connection, head: Head, rest: bytes, result: Reference) -> bool:
    """Answers, and finds out whether the connection goes on."""
    connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
    connection.send(h11.EndOfMessage())
    result.closes = connection.our_state is not h11.DONE
    if head.version == "1.0" and "keep-alive" in head.names("connection") and "close" not in head.names("connection"):
        met["HTTP/1.0 with keep-alive"] += 1
        result.closes = False
    result.rest = rest
    return not result.closes


def zeros(data: bytes, error: h11.RemoteProtocolError) -> bool:
    """Whether h11 refuses a Content-Length for its leading zeros alone."""
    return "bad Content-Length" in str(error) and _ZEROS.search(data) is not None


def refused_early(data: bytes) -> set[int]:
    """The refusals that an incomplete head gets at once, where h11 waits for its end."""
    found = set()
    if not re.match(_TOKEN, data):
        found.add(400)
    if has_bare_lf(data):
        met["bare LF in a head"] += 1
        found.add(400)
    line, end, _ = data.partition(b"\r\n")
    if end and not re.search(rb" HTTP/1\.[01]$", line):
        found |= {505, 400} if re.search(rb" HTTP/[0-9]\.[0-9]$", line) else {400}
    return found


def call(head: Head, body: bytes, complete: bool) -> Call:
    """What the application sees of a request."""
    target, fields = head.target, list(head.fields)
    if match := ABSOLUTE.match(target):
        target = target[match.end() :]
        target = target if target.startswith("/") else "/" + target
        if not head.all("host"):
            fields.append(("host", match[1]))
        fields = [(name, match[1] if name == "host" else value) for name, value in fields]
    path, _, query = target.partition("?")
    return Call(
        method=head.method,
        path=path,
        query=query,
        version=head.version,
        headers=[list(pair) for pair in fields],
        body=body.decode("latin-1"),
        complete=complete,
    )
