"""h11 and the server read the same streams: they agree on what is accepted, on what was framed, and on what follows.

Where they part by intent is written down in harness/choices.py, by its name and section; anything else fails. Streams
come over real sockets, many at a time. `M0_EXAMPLES` asks for more of them than the suite can afford, and `M0_SEED`
repeats a run that failed.
"""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from harness.batch import AT_ONCE, Batch, Call, Connection, Outcome
from harness.choices import ACCEPTED, BODIES, HEADS
from harness.client import WireError
from harness.reference import Reference, met, reference
from harness.server import Server, Servers
from harness.streams import AFTER, families, oddities

PAGE = Path(__file__).resolve().parent.parent / "docs" / "conformance.md"
EXAMPLES = int(os.environ.get("M0_EXAMPLES", "80"))
SEED = int(os.environ.get("M0_SEED") or int.from_bytes(os.urandom(4)))
COMMON = {
    "max_examples": EXAMPLES,
    "deadline": None,
    "database": None,
    # Streams are short, and one that fails may wait for what never comes: nothing is gained by shrinking it.
    "phases": (Phase.generate,),
    "suppress_health_check": list(HealthCheck),
}

pytestmark = pytest.mark.beyond_uvicorn("its choices are others")


@pytest.fixture
def server(servers: Servers) -> Server:
    """With the application that notes what was framed."""
    return servers.get("framing_app:app")


def compare(server: Server, streams: list[bytes]) -> None:
    """Sends each stream on a connection of its own and holds what came of it against the reference."""
    wanted = [reference(stream) for stream in streams]
    with Batch(server, len(streams)) as batch:
        # In two halves, cut anywhere: how it arrives makes no difference.
        cuts = [zlib.crc32(stream) % (len(stream) + 1) for stream in streams]
        for connection, stream, cut in zip(batch.connections, streams, cuts, strict=True):
            connection.send(stream[:cut])
        batch.fence()
        for connection, stream, cut in zip(batch.connections, streams, cuts, strict=True):
            connection.send(stream[cut:])
        for connection, stream, want in zip(batch.connections, streams, wanted, strict=True):
            try:
                follow(connection, want)
            except WireError as error:
                raise AssertionError(f"{error}\nsent:     {stream!r}\nexpected: {want}") from None
        batch.fence()
        open_ = [connection.is_quiet() for connection in batch.connections]
        for connection in batch.connections:
            connection.finish()
            connection.read_to_end()
        outcomes = batch.outcomes()
    for stream, want, outcome, quiet in zip(streams, wanted, outcomes, open_, strict=True):
        if fault := differs(want, outcome, quiet):
            raise AssertionError(f"{fault}\nsent:     {stream!r}\nexpected: {want}\nseen:     {outcome}")


def follow(connection: Connection, want: Reference) -> None:
    """Reads what must come, and no further: so it can be seen whether more does."""
    if want.unjudged:
        return
    if want.closes:
        connection.read_to_end()
    else:
        connection.read(want.complete)


def differs(want: Reference, outcome: Outcome, quiet: bool) -> str:
    """How what came of a stream is not what should have."""
    for expected, seen in zip(want.calls, outcome.calls, strict=False):
        if fault := call_differs(expected, seen, want.in_body):
            return fault
    if want.unjudged:
        return "" if len(outcome.calls) >= len(want.calls) else "a request was not dispatched"
    missing = len(want.calls) - len(outcome.calls)
    if missing and not (missing == 1 and want.in_body):
        return f"{len(outcome.calls)} requests dispatched, not {len(want.calls)}"
    answered, rest = outcome.statuses[: want.complete], outcome.statuses[want.complete :]
    if answered != [200] * want.complete:
        return f"answered {outcome.statuses}"
    if want.closes is quiet:
        return "the connection " + ("should have ended" if quiet else "ended")
    if want.refusals:
        return "" if len(rest) == 1 and rest[0] in want.refusals else f"{rest} instead of a refusal"
    # A body that the client's FIN cut off is answered by nobody, or, as the application just returns, with 500.
    cut = bool(want.calls) and not want.calls[-1].complete
    return "" if rest == [] or (cut and rest == [500]) else f"{rest} after the last request"


def call_differs(expected: Call, seen: Call, in_body: bool) -> str:
    """How a request is not what was sent. h11 turns the name of the coding into lower case."""
    for name in ("method", "path", "query", "version", "complete"):
        if getattr(expected, name) != getattr(seen, name):
            return f"{name}: {getattr(seen, name)!r}, sent was {getattr(expected, name)!r}"
    headers = [[name, value.lower() if name == "transfer-encoding" else value] for name, value in seen.headers]
    if headers != expected.headers:
        return f"headers: {headers}, sent was {expected.headers}"
    if seen.body != expected.body and (seen.complete or not in_body):
        return f"body: {seen.body!r}, sent was {expected.body!r}"
    return ""


# --- the tests --------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour(14)
def test_the_same_streams_every_time(server: Server) -> None:
    @settings(derandomize=True, **COMMON)
    @given(families())
    def check(streams: list[bytes]) -> None:
        compare(server, streams)

    check()


def test_other_streams_every_time(server: Server) -> None:
    print(f"repeat this with M0_SEED={SEED} M0_EXAMPLES={EXAMPLES}")

    @seed(SEED)
    @settings(**COMMON)
    @given(families())
    def check(streams: list[bytes]) -> None:
        compare(server, streams)

    check()


def test_every_oddity_alone(server: Server) -> None:
    streams = list(oddities())
    for at in range(0, len(streams), AT_ONCE):
        compare(server, streams[at : at + AT_ONCE])


def examples() -> dict[str, bytes]:
    """A stream for each choice, by its name."""
    found = {choice.name: choice.example for choice in HEADS}
    found |= {name: example for name, (_, example) in (BODIES | ACCEPTED).items()}
    return found


def test_every_choice_decides_something(server: Server) -> None:
    """Each choice is the only one that makes a difference for its example, and the server goes by it."""
    for name, example in examples().items():
        met.clear()
        want = reference(example)
        assert met == {name: met[name]}, (name, met, want)
        assert want.unjudged or bool(want.refusals) == (name not in ACCEPTED)
    compare(server, list(examples().values()))


def test_what_h11_refuses_and_we_accept(server: Server) -> None:
    """Where h11 cannot say how it goes on, this does: what was meant is seen whole, and the connection goes on."""
    bodies = {"white space before a chunk extension": "a", "a Content-Length with many leading zeros": "x"}
    with Batch(server, len(ACCEPTED)) as batch:
        for connection, (_, example) in zip(batch.connections, ACCEPTED.values(), strict=True):
            connection.send(example + AFTER)
            connection.read(1 + example.count(b" HTTP/"))
        for name, outcome in zip(ACCEPTED, batch.outcomes(), strict=True):
            assert outcome.statuses == [200] * len(outcome.calls)
            assert outcome.calls[0].complete
            assert outcome.calls[0].body == bodies.get(name, "")
            assert outcome.calls[-1].path == "/after"


def test_every_choice_is_in_the_documents() -> None:
    """The page lists exactly the choices in the code, each with its section."""
    page = PAGE.read_text().partition("## Against h11")[2].partition("\n## ")[0]
    listed = dict(re.findall(r"^\| ([^|]+) \| (RFC [^|]+) \|", page, re.MULTILINE))
    sections = {choice.name: choice.section for choice in HEADS}
    sections |= {name: section for name, (section, _) in (BODIES | ACCEPTED).items()}
    assert listed == sections
