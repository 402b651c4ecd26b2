"""Replays the requests of gunicorn's corpus, at once, in two halves at each offset, and one byte at a time. What is
valid is seen by the application exactly as it was meant; what is not is refused, and nothing of it is dispatched.

Long cases (more than 500 bytes, most of them one long field) are cut only within two bytes of whatever structures them
(CR, LF, colon, space; in the body only CR and LF of its first and last 64 bytes) and at each 97th byte.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from harness import corpus
from harness.batch import Call, Outcome, play
from harness.corpus import Case, Expected
from harness.corpus_choices import CHOICES, WITHOUT_HOST, Choice
from harness.server import Server, Servers

PAGE = Path(__file__).resolve().parent.parent / "docs" / "conformance.md"
LONG = 500
REFUSALS = (400, 501, 505)
#: Errors of gunicorn that mean: the connection ended too early. There is nothing wrong with the bytes that did come.
CUT = ("NoMoreData", "ChunkMissingTerminator")

pytestmark = pytest.mark.beyond_uvicorn("its parsers are lenient")


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    """The corpus."""
    try:
        return corpus.cases()
    except corpus.Unavailable as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"NOT TESTED HERE: gunicorn's corpus could not be fetched: {error}")


@pytest.fixture
def server(servers: Servers) -> Server:
    """With the application that notes what was framed."""
    return servers.get("framing_app:app")


# --- what is expected -------------------------------------------------------------------------------------------------


@dataclass
class Want:
    """What should come of these bytes."""

    name: str
    data: bytes
    #: Requests that the application sees whole, in order.
    requests: list[Expected]
    #: Whether the connection ends with a refusal, and with which one (0: any).
    refused: bool = False
    status: int = 0
    #: The request that is refused may have been dispatched before its body turned out to be wrong or cut off.
    in_body: bool = False
    #: It ends because the client ended it.
    cut: bool = False

    def check(self, outcome: Outcome) -> str:
        """What is wrong with an outcome, or nothing."""
        whole = [call for call in outcome.calls if call.complete]
        broken = [call for call in outcome.calls if not call.complete]
        if len(whole) != len(self.requests):
            return f"{len(whole)} complete requests dispatched, not {len(self.requests)}: {outcome}"
        for call, request in zip(whole, self.requests, strict=True):
            if difference := differs(call, request):
                return difference
        answered = len(self.requests)
        if outcome.statuses[:answered] != [200] * answered:
            return f"answered {outcome.statuses}"
        rest = outcome.statuses[answered:]
        if broken and not self.in_body:
            return f"dispatched although its head is wrong: {broken}"
        if not self.refused:
            return f"answered {outcome.statuses}, which is too much" if rest else ""
        if self.cut:
            return "" if rest in ([], [500]) else f"answered {outcome.statuses}"
        right = [self.status] if self.status else REFUSALS
        return "" if len(rest) == 1 and rest[0] in right else f"answered {outcome.statuses}"


def differs(call: Call, request: Expected) -> str:
    """How what the application saw is not what was sent."""
    path, _, query = reduced(request.target).partition("?")
    for what, saw, sent in (
        ("method", call.method, request.method),
        ("path", call.path, path),
        ("query", call.query, query),
        ("headers", [tuple(header) for header in call.headers], request.headers),
        ("body", call.body, request.body),
    ):
        if saw != sent:
            return f"{what}: the application saw {saw!r}, sent was {sent!r}"
    return ""


def reduced(target: str) -> str:
    """An absolute-form target as an origin server sees it (RFC 9112, section 3.2.2)."""
    return re.sub(r"^https?://[^/?]*", "", target)


def wanted(case: Case) -> Iterator[Want]:
    """A case as it is and, if that is not the same, with the Host that it lacks."""
    if case.valid:
        data, requests, first = with_hosts(case)
        if first is None:
            yield chosen(case, case.data, case.requests)
            return
        assert case.name in WITHOUT_HOST, f"{case.name} has no Host"
        yield Want(case.name, case.data, case.requests[:first], refused=True)
        yield chosen(case, data, requests)
        return
    line = re.match(rb"(\r\n)?[^\r\n]* HTTP/1\.1\r\n", case.data)
    if line is None or re.search(rb"\nhost:", case.data.partition(b"\r\n\r\n")[0], re.IGNORECASE):
        yield chosen(case, case.data, [])
        return
    yield Want(case.name, case.data, [], refused=True)
    host = b"Host: testserver\r\n"
    data = case.data[: line.end()] + host + case.data[line.end() :]
    yield chosen(case, data, [], [("host", "testserver")])


def with_hosts(case: Case) -> tuple[bytes, list[Expected], int | None]:
    """A valid case with a Host in each request that must have one, and the first request that had none."""
    data, requests, first, at = case.data, [], None, 0
    for index, request in enumerate(case.requests):
        line = f"{request.method} {request.target} HTTP/1.1\r\n".encode("latin-1")
        found = data.lower().find(line.lower(), at)
        if found >= 0 and "host" not in dict(request.headers):
            first = index if first is None else first
            end = found + len(line)
            data = data[:end] + b"Host: testserver\r\n" + data[end:]
            request = replace(request, headers=[("host", "testserver"), *request.headers])
        at = found + len(line) if found >= 0 else at
        requests.append(request)
    return data, requests, first


def chosen(case: Case, data: bytes, requests: list[Expected], added: Sequence[tuple[str, str]] = ()) -> Want:
    """What the corpus wants, unless we chose otherwise."""
    choice = CHOICES.get(case.name)
    if choice is None:
        in_body = "Chunk" in case.error or "trailer" in case.name
        return Want(
            case.name,
            data,
            requests,
            refused=not case.valid,
            in_body=in_body,
            cut=case.error in CUT,
        )
    if choice.status != 200:
        cut = choice.status == 500
        return Want(case.name, data, [], refused=True, status=choice.status, in_body=cut, cut=cut)
    if case.valid:
        method, headers = choice.method or requests[0].method, list(choice.headers) or requests[0].headers
        return Want(case.name, data, [replace(requests[0], method=method, headers=headers)])
    return Want(case.name, data, [as_sent(data, choice, added)])


def as_sent(data: bytes, choice: Choice, added: Sequence[tuple[str, str]]) -> Expected:
    """An invalid case that we accept: what its head says, each line for itself."""
    line, *lines = data.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    method, target, _ = line.split(" ")
    headers = [(name.lower(), value.strip(" \t")) for name, _, value in (line.partition(":") for line in lines)]
    assert list(added) == headers[: len(added)]
    assert not choice.headers or list(choice.headers) == headers
    return Expected(method, target, headers, choice.body)


# --- cutting it up ----------------------------------------------------------------------------------------------------


def offsets(data: bytes) -> list[int]:
    """Where to cut: everywhere, unless it is long."""
    if len(data) <= LONG:
        return list(range(1, len(data)))
    head = data.find(b"\r\n\r\n") + 4
    sharp = [at for at in range(head) if data[at] in b"\r\n: "]
    sharp += [at for at in (*range(head, head + 64), *range(len(data) - 64, len(data))) if data[at : at + 1] in b"\r\n"]
    near = {at + step for at in sharp for step in (-2, -1, 0, 1, 2)} | set(range(0, len(data), 97))
    return sorted(at for at in near if 0 < at < len(data))


def in_pieces(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """Cut at each of these offsets."""
    return [data[start:end] for start, end in zip((0, *cuts), (*cuts, len(data)), strict=True)]


# --- the tests --------------------------------------------------------------------------------------------------------


def judge(server: Server, wants: list[Want], scripts: list[list[bytes]]) -> None:
    """Play them all; name every case that went wrong, with the first way in which it did."""
    wrong: dict[str, str] = {}
    for want, script, outcome in zip(wants, scripts, play(server, scripts), strict=True):
        if fault := want.check(outcome):
            pieces = [len(piece) for piece in script[:4]]
            wrong.setdefault(want.name, f"{want.name}, in pieces of {pieces}...: {fault}")
    assert not wrong, "\n".join(wrong.values())


@pytest.fixture(scope="module")
def wants(cases: list[Case]) -> list[Want]:
    """What is expected of each."""
    return [want for case in cases for want in wanted(case)]


@pytest.mark.behaviour(14)
def test_at_once(server: Server, wants: list[Want]) -> None:
    judge(server, wants, [[want.data] for want in wants])


@pytest.mark.behaviour(6)
def test_one_byte_at_a_time(server: Server, wants: list[Want]) -> None:
    judge(server, wants, [in_pieces(want.data, offsets(want.data)) for want in wants])


@pytest.mark.behaviour(6)
def test_in_two_halves_at_each_offset(server: Server, wants: list[Want]) -> None:
    both = [(want, in_pieces(want.data, [at])) for want in wants for at in offsets(want.data)]
    judge(server, [want for want, _ in both], [halves for _, halves in both])


def test_every_choice_is_in_the_documents(cases: list[Case]) -> None:
    """The page lists exactly the cases in which we do otherwise, each with its section."""
    listed: dict[str, str] = {}
    for line in PAGE.read_text().splitlines():
        for name in re.findall(r"`((?:in)?valid/[^`]+)`", line):
            sections = re.findall(r"RFC \d+, [\d.]+(?: and [\d.]+)?", line)
            assert len(sections) == 1, f"one section a line: {line}"
            assert name not in listed or name in WITHOUT_HOST, f"{name} is listed twice"
            if sections[0] != "RFC 9112, 3.2":
                listed[name] = sections[0]
            else:
                assert name in WITHOUT_HOST, name
                listed.setdefault(name, "")
    assert {name: choice.section for name, choice in CHOICES.items()} == {k: v for k, v in listed.items() if v}
    assert listed.keys() == CHOICES.keys() | WITHOUT_HOST
    names = {case.name for case in cases}
    assert listed.keys() <= names
    assert {case.name for case in cases if case.valid and with_hosts(case)[2] is not None} == WITHOUT_HOST
