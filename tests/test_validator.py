"""The validator itself: a fake server that breaks one rule at a time is caught, and one that breaks none is not.

No server process is needed, but for the last tests, which show that a violation fails whoever runs.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from harness import server as harness
from harness.server import APPS, Process, Server

sys.path.insert(0, str(APPS))

from validator import RULES, Validator, to_stderr

Message = dict[str, Any]

GOOD: dict[str, Any] = {
    "type": "http",
    "asgi": {"version": "3.0", "spec_version": "2.5"},
    "http_version": "1.1",
    "method": "POST",
    "scheme": "http",
    "path": "/caf\xe9/x",
    "raw_path": b"/caf%C3%A9/x",
    "query_string": b"a=%20&b",
    "root_path": "",
    "headers": [(b"host", b"x"), (b"content-length", b"5"), (b"x-odd", b"a\tb \xff")],
    "client": ("127.0.0.1", 4711),
    "server": ("127.0.0.1", 80),
    "extensions": {"http.response.pathsend": {}},
}
LIFESPAN: dict[str, Any] = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}

START: Message = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
BODY: Message = {"type": "http.response.body", "body": b"ok"}
WHOLE: Message = {"type": "http.request", "body": b"12345", "more_body": False}
GONE: Message = {"type": "http.disconnect"}
UP: Message = {"type": "lifespan.startup"}
DOWN: Message = {"type": "lifespan.shutdown"}
UP_DONE: Message = {"type": "lifespan.startup.complete"}
DOWN_DONE: Message = {"type": "lifespan.shutdown.complete"}


class Fake:
    """A server with a script: what `receive` gives, and how `send` answers (an exception is raised, a value given)."""

    def __init__(self, *given: Any, answers: tuple[Any, ...] = ()) -> None:
        self.given = list(given)
        self.answers = list(answers)
        self.found: list[str] = []
        self.validator = Validator(self.app, lambda rule, detail: self.found.append(rule))
        #: What the application does: it sends the messages, and receives where there is None.
        self.says: list[Any] = []

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        """The application; it goes on whatever happens."""
        for message in self.says:
            try:
                await (receive() if message is None else send(message))
            except Exception:
                continue

    async def receive(self) -> Any:
        """The next of the script."""
        message = self.given.pop(0)
        if isinstance(message, BaseException):
            raise message
        return dict(message) if isinstance(message, dict) and message is not GONE else message

    async def send(self, message: Any) -> Any:
        """The next answer of the script; None when there is none."""
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def serve(self, scope: Any, *says: Any, receive: Any = None, send: Any = None) -> None:
        """Call the application."""
        self.says = list(says)
        await self.validator(scope, receive or self.receive, send or self.send)


def fresh(**changes: Any) -> dict[str, Any]:
    """A scope that is right, but for the changes; None takes a key out."""
    scope = GOOD | {"asgi": dict(GOOD["asgi"]), "headers": list(GOOD["headers"])}
    scope["extensions"] = {name: {} for name in GOOD["extensions"]}
    return {key: value for key, value in (scope | changes).items() if value is not ...}


Case = tuple[str, Callable[[], Coroutine[Any, Any, list[str]]]]
CASES: list[Case] = []


def add(rule: str, run: Callable[[Fake], Awaitable[None]], *given: Any, answers: tuple[Any, ...] = ()) -> None:
    """One case: a fake server with its script, and how it calls the application."""

    async def case() -> list[str]:
        fake = Fake(*given, answers=answers)
        await run(fake)
        return fake.found

    CASES.append((rule, case))


def scope_is(rule: str, **changes: Any) -> None:
    """A case of one request with a wrong scope."""
    add(rule, lambda fake: fake.serve(fresh(**changes)))


class _Scope(dict):  # type: ignore[type-arg]
    """Not exactly a dict."""


add("scope-type", lambda fake: fake.serve(_Scope(fresh())))
add("scope-type", lambda fake: fake.serve(None))
scope_is("scope-keys", raw_path=...)
scope_is("scope-keys", extra=1)
scope_is("scope-asgi", asgi={"version": "3.0"})
scope_is("scope-asgi", asgi={"version": "3.0", "spec_version": "2.3"})
scope_is("scope-asgi", asgi={"version": "2.0", "spec_version": "2.5"})
scope_is("scope-value", http_version="2")
scope_is("scope-value", http_version=b"1.1")
scope_is("scope-value", scheme="")
scope_is("scope-value", method="G T")
scope_is("scope-value", root_path=None)
scope_is("scope-value", query_string="a=b")
scope_is("scope-value", query_string=b"a b")
scope_is("scope-value", query_string=bytearray(b"a=b"))
scope_is("scope-path", path=b"/x")
scope_is("scope-path", raw_path="/x")
scope_is("scope-path", path="/caf%C3%A9/x")
scope_is("scope-path", path="/x?y", raw_path=b"/x?y")
scope_is("scope-path", path="x", raw_path=b"x")
scope_is("scope-path", root_path="/api")
scope_is("scope-headers", headers=None)
scope_is("scope-headers", headers=[(b"Host", b"x"), (b"host", b"x"), (b"content-length", b"5")])
scope_is("scope-headers", headers=[(b"host", b"x"), (b"x", "text")])
scope_is("scope-headers", headers=[(b"host", b"x"), (b"x", bytearray(b"y"))])
scope_is("scope-headers", headers=[(b"host", b"x"), (b"x", b"y", b"z")])
scope_is("scope-headers", headers=[(b"host", b"x"), (b"x", b" y")])
scope_is("scope-headers", headers=[(b"host", b"x"), (b"x", b"y\nz")])
scope_is("scope-headers", headers=[(b"host", b"x"), (b"x:", b"y")])
scope_is("scope-framing", headers=[(b"x", b"y")])
scope_is("scope-framing", headers=[(b"host", b"x"), (b"host", b"x")])
scope_is("scope-framing", headers=[(b"host", b"x"), (b"content-length", b"5"), (b"content-length", b"5")])
scope_is("scope-framing", headers=[(b"host", b"x"), (b"content-length", b"+5")])
scope_is("scope-framing", headers=[(b"host", b"x"), (b"content-length", b"5"), (b"transfer-encoding", b"chunked")])
scope_is("scope-framing", headers=[(b"host", b"x"), (b"transfer-encoding", b"chunked, x")])
scope_is("scope-framing", http_version="1.0", headers=[(b"transfer-encoding", b"chunked")])
scope_is("scope-address", client=("127.0.0.1", "80"))
scope_is("scope-address", client="127.0.0.1:80")
scope_is("scope-address", client=("127.0.0.1", None))
scope_is("scope-address", server=(b"127.0.0.1", 80))
scope_is("scope-address", server=("127.0.0.1", 65536))
scope_is("scope-extensions", extensions={"http.response.pathsend": None})
scope_is("scope-extensions", extensions=[])
scope_is("scope-state", state={"from": "nowhere"})
add("scope-keys", lambda fake: fake.serve(LIFESPAN | {"path": "/"}))
add("scope-asgi", lambda fake: fake.serve(LIFESPAN | {"asgi": {}}))
add("scope-state", lambda fake: fake.serve(LIFESPAN | {"state": None}))


async def two_scopes(fake: Fake, **shared: Any) -> None:
    await fake.serve(fresh(**shared))
    await fake.serve(fresh(**shared))


add("scope-shared", lambda fake: two_scopes(fake, headers=list(GOOD["headers"])))
add("scope-shared", lambda fake: two_scopes(fake, asgi=GOOD["asgi"]))
add("scope-shared", lambda fake: two_scopes(fake, extensions=GOOD["extensions"]))
add("scope-shared", lambda fake: two_scopes(fake, headers=[[b"host", b"x"], [b"content-length", b"5"]]))


async def the_same_scope(fake: Fake) -> None:
    scope = fresh()
    await fake.serve(scope)
    await fake.serve(scope)


add("scope-shared", the_same_scope)


async def after_start_up(fake: Fake, scope: dict[str, Any], *says: Any) -> None:
    """A lifespan with one thing in its state, and a request after its start-up."""
    lifespan = LIFESPAN | {"state": {}}
    lifespan["state"] = state = scope.pop("lifespan", {})
    serving = asyncio.ensure_future(fake.serve(lifespan, None, UP_DONE, None))
    for _ in range(3):
        await asyncio.sleep(0)
    state["pool"] = POOL
    scope.setdefault("state", state if scope.pop("own", False) else dict(state))
    await fake.serve(scope, *says)
    serving.cancel()


POOL = ["one object for all requests"]


class Waits(Fake):
    """Whose receive waits for ever when its script is at its end."""

    async def receive(self) -> Any:
        """See there."""
        return await super().receive() if self.given else await asyncio.Event().wait()


def add_waiting(rule: str, run: Callable[[Fake], Awaitable[None]], *given: Any) -> None:
    async def case() -> list[str]:
        fake = Waits(*given)
        await run(fake)
        return fake.found

    CASES.append((rule, case))


add_waiting("scope-state", lambda fake: after_start_up(fake, fresh(state={})), UP)
add_waiting("scope-state", lambda fake: after_start_up(fake, fresh(state={"pool": list(POOL)})), UP)
add_waiting("scope-state", lambda fake: after_start_up(fake, fresh(state={"pool": POOL, "left": 1})), UP)
add_waiting("scope-shared", lambda fake: after_start_up(fake, fresh(own=True)), UP)


async def request_beside(fake: Fake, *says: Any) -> None:
    """A request while the application is where its lifespan's script has brought it."""
    serving = asyncio.ensure_future(fake.serve(LIFESPAN | {"state": {}}, *says))
    for _ in range(len(says) + 1):
        await asyncio.sleep(0)
    await fake.serve(fresh(state={}))
    serving.cancel()


add_waiting("lifespan-requests", lambda fake: request_beside(fake, None, None), UP)
add_waiting("lifespan-requests", lambda fake: request_beside(fake, None, UP_DONE, None, None), UP, DOWN)


async def two_lifespans(fake: Fake) -> None:
    for _ in range(2):
        await fake.serve(LIFESPAN | {"state": {}}, None, UP_DONE)


add("lifespan-once", two_lifespans, UP, UP)


def lifespan_is(rule: str, *given: Any, says: tuple[Any, ...], answers: tuple[Any, ...] = ()) -> None:
    add(rule, lambda fake: fake.serve(LIFESPAN | {"state": {}}, *says), *given, answers=answers)


lifespan_is("lifespan-message", {"type": "lifespan.startup", "more": 1}, says=(None,))
lifespan_is("lifespan-message", None, says=(None,))
lifespan_is("lifespan-order", DOWN, says=(None,))
lifespan_is("lifespan-order", UP, UP, says=(None, None))
lifespan_is("lifespan-order", UP, DOWN, says=(None, None))
lifespan_is("lifespan-order", UP, DOWN, DOWN, says=(None, UP_DONE, None, None))
lifespan_is("lifespan-order", {"type": "http.disconnect"}, says=(None,))
lifespan_is("send-refused", UP, says=(None, UP_DONE), answers=(RuntimeError(),))
lifespan_is("send-accepted", UP, says=(None, DOWN_DONE))
lifespan_is("send-accepted", UP, says=(None, UP_DONE, UP_DONE))


def request_is(rule: str, *given: Any, says: tuple[Any, ...], answers: tuple[Any, ...] = (), **changes: Any) -> None:
    """A case of one request whose receive or send is wrong."""
    add(rule, lambda fake: fake.serve(fresh(**changes), *says), *given, answers=answers)


def give(value: Any) -> Any:
    return lambda *_: value


CHUNKED = [(b"host", b"x"), (b"transfer-encoding", b"chunked")]
PART: Message = {"type": "http.request", "body": b"123", "more_body": True}

add("receive-awaitable", lambda fake: fake.serve(fresh(), None, receive=give(WHOLE)))
request_is("receive-raised", RuntimeError(), says=(None,))
request_is("receive-raised", ConnectionResetError(), says=(None,))
request_is("receive-message", None, says=(None,))
request_is("receive-message", {"type": "http.request", "body": b"12345"}, says=(None,))
request_is("receive-message", WHOLE | {"body": bytearray(b"12345")}, says=(None,))
request_is("receive-message", WHOLE | {"more_body": 0}, says=(None,))
request_is("receive-message", WHOLE | {"extra": 0}, says=(None,))
request_is("receive-message", {"type": "http.disconnect", "code": 1}, says=(None,))
request_is("receive-message", {"type": "http.nonsense"}, says=(None,))
request_is("receive-order", WHOLE, WHOLE, says=(None, None))
request_is("receive-order", {"type": "http.disconnect"}, WHOLE, says=(None, None))
request_is("receive-late", WHOLE, says=(START, BODY, None))
request_is("receive-length", WHOLE | {"body": b"1234"}, says=(None,))
request_is("receive-length", PART, PART, says=(None, None))
request_is("receive-length", WHOLE, says=(None,), headers=[(b"host", b"x")])
request_is("receive-shared", GONE, GONE, says=(None, None))


async def one_message_twice(fake: Fake) -> None:
    part = dict(PART)

    async def receive() -> Any:
        return part

    await fake.serve(fresh(headers=CHUNKED), None, None, receive=receive)


add("receive-shared", one_message_twice)
add("send-awaitable", lambda fake: fake.serve(fresh(), START, send=give(None)))
request_is("send-result", says=(START,), answers=(1,))
request_is("send-refused", says=(START,), answers=(RuntimeError(),))
request_is("send-refused", says=(START, BODY), answers=(None, ValueError()))
request_is("send-refused", says=(START, {"type": "http.response.body"}), answers=(None, RuntimeError()), method="HEAD")
request_is("send-accepted", says=(BODY,))
request_is("send-accepted", says=(START, START))
request_is("send-accepted", says=(START, BODY, BODY))
request_is("send-accepted", says=(START, BODY, START))
request_is("send-accepted", says=({"type": "http.response.nonsense"},))
request_is("send-accepted", says=(START, {"type": "http.response.trailers", "headers": []}))
request_is("send-accepted", says=({"type": "http.response.pathsend", "path": "/x"},))
request_is("send-accepted", says=(7,))
request_is("send-accepted", says=({"type": "http.response.start"},))
request_is("send-accepted", says=(START | {"headers": [("a", "b")]},))
request_is("send-accepted", says=(START, {"type": "http.response.body", "body": "text"}))


@pytest.mark.parametrize(("rule", "case"), CASES, ids=[f"{rule}-{number}" for number, (rule, _) in enumerate(CASES)])
def test_each_violation_is_caught(rule: str, case: Callable[[], Coroutine[Any, Any, list[str]]]) -> None:
    assert set(asyncio.run(case())) == {rule}


def test_every_rule_has_a_case() -> None:
    assert {rule for rule, _ in CASES} == set(RULES)


FILE: Message = {"type": "http.response.pathsend", "path": "/x"}
BARE: Message = {"type": "http.response.start", "status": 200}
RIGHT: list[tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...], dict[str, Any]]] = [
    # given, said, answered, in the scope
    ((WHOLE, {"type": "http.disconnect"}, {"type": "http.disconnect"}), (None, START, BODY, None, None), (), {}),
    ((PART, WHOLE | {"body": b"45"}), (None, None), (), {}),
    ((PART, {"type": "http.disconnect"}), (None, None), (), {"headers": CHUNKED}),
    ((), (START, BODY), (None, OSError()), {}),
    ((), (START, BODY, START, BODY), (None, None, RuntimeError(), RuntimeError()), {}),
    ((), (START, BODY | {"body": b"too long"}, BODY), (None, RuntimeError(), RuntimeError()), {}),
    ((), (START, FILE, BODY), (None, None, RuntimeError()), {}),
    ((), (START, FILE), (None, FileNotFoundError()), {}),
    ((), (BARE | {"headers": iter([(b"a", b"b")])}, BODY), (), {}),
    ((), (BARE, BODY | {"more_body": True}, BODY), (), {}),
    ((), (BARE | {"headers": [(b"a", b"b\n")]}, START, BODY), (ValueError(),), {}),
    ((), (), (), {"client": None, "server": ("/run/x.sock", None), "raw_path": b"*", "path": "*"}),
    ((), (), (), {"http_version": "1.0", "headers": [], "extensions": ..., "path": "/\ufffd", "raw_path": b"/%ff"}),
    ((), (), (), {"root_path": "/caf\xe9"}),
]


@pytest.mark.parametrize(("given", "said", "answers", "changes"), RIGHT)
def test_a_right_server_is_not_blamed(
    given: tuple[Any, ...], said: tuple[Any, ...], answers: tuple[Any, ...], changes: dict[str, Any]
) -> None:
    fake = Fake(*given, answers=answers)
    asyncio.run(fake.serve(fresh(**changes), *said))
    assert fake.found == []


def test_a_right_lifespan_is_not_blamed() -> None:
    async def run() -> list[str]:
        fake, other = Waits(UP), Waits(UP, DOWN)
        await after_start_up(fake, fresh(), START, BODY)
        await other.serve(LIFESPAN | {"state": {}}, None, UP_DONE, None, DOWN_DONE)
        return fake.found + other.found

    assert asyncio.run(run()) == []


def test_a_cancelled_receive_is_nobodys_fault_and_the_awaitable_is_a_coroutine_for_asyncio() -> None:
    async def run() -> list[str]:
        fake = Waits()
        shown: list[Any] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            task = asyncio.create_task(receive())
            await asyncio.sleep(0)
            task.cancel()
            shown.append(await asyncio.gather(task, return_exceptions=True))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(receive(), 0.001)
            receive().close()

        fake.validator.app = app
        await fake.serve(fresh())
        assert isinstance(shown[0][0], asyncio.CancelledError)
        return fake.found

    assert asyncio.run(run()) == []


def test_what_it_says_fails_the_test_that_runs() -> None:
    code = "import validator; validator.to_stderr('receive-late', 'x\\ny')"
    process = Process([sys.executable, "-c", code])
    process.wait()
    assert harness.violations == [f"{harness.VIOLATION} [receive-late] {RULES['receive-late']}; x y\n"]
    harness.violations.clear()
    assert to_stderr in Validator(None).__dict__.values()


def test_it_is_around_the_applications(probe: Server) -> None:
    assert probe.get("/callables").json() == ["Exchange.receive", "Exchange.send", "validator"]
