"""An ASGI middleware that judges the server: every scope, every message in both directions, against ASGI 3.0.

What the application does wrong is passed on unchanged and is not counted; that the server takes it is. Nothing else
changes: the application's own coroutine is what the server gets, so that tasks and cancellation stay as they are, and
an awaitable of the server is driven through the same methods that its caller would have used.

A violation is one line on standard error, which fails the test that is running (see tests/conftest.py).
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

import scope_rules

#: Begins the line of a violation.
MARK = "ASGI VIOLATION"

#: Every rule, with what the specification says. Those of scopes are in scope_rules.
RULES = scope_rules.RULES | {
    "lifespan-once": "the lifespan is run once",
    "lifespan-message": "a lifespan message is a dict of its type alone",
    "lifespan-order": "startup comes first and once, shutdown once and after a start-up that was complete",
    "lifespan-requests": "requests come after the start-up and before the shutdown",
    "receive-awaitable": "receive() gives an awaitable",
    "receive-raised": "receive raises nothing of its own",
    "receive-message": "a message is a dict with the keys and types of the specification",
    "receive-order": "http.request up to the one without more_body, then http.disconnect for ever",
    "receive-late": "after the response only http.disconnect",
    "receive-length": "the body has the length that was declared, and none without a declaration",
    "receive-shared": "no message is given twice",
    "send-awaitable": "send() gives an awaitable",
    "send-result": "send gives None",
    "send-refused": "a message that is right is taken, unless the client has gone (OSError)",
    "send-accepted": "a message that is wrong is refused",
}

Report = Callable[[str, str], None]


def to_stderr(rule: str, detail: str) -> None:
    """One line, written at once and past whatever the application made of sys.stderr."""
    os.write(2, f"{MARK} [{rule}] {RULES[rule]}; {' '.join(detail.split())}\n".encode("utf-8", "replace"))


class Validator:
    """Around one application."""

    def __init__(self, app: Any, report: Report = to_stderr) -> None:
        self.app = app
        self.report = report
        self.lifespan: Lifespan | None = None
        #: The last of their kind, kept so that the next one cannot be the same object unnoticed.
        self.last_scope: dict[str, Any] = {}
        self.last_disconnect: Any = None

    def __call__(self, scope: Any, receive: Any, send: Any) -> Any:
        """Not a coroutine function, so that the awaitable is the application's own."""
        kind = scope.get("type") if isinstance(scope, dict) else None
        if kind == "lifespan":
            return self._lifespan(scope, receive, send)
        if kind == "http":
            name = f"{scope.get('method')} {scope.get('path')!r}"
            state = self.lifespan.scope.get("state") if self.lifespan else None
            for rule, detail in scope_rules.http(scope, state, self.last_scope):
                self.report(rule, f"{detail} ({name})")
            if self.lifespan and (why := self.lifespan.bars_requests()):
                self.report("lifespan-requests", f"{why} ({name})")
            self.last_scope = scope
            exchange = Exchange(self, scope, receive, send)
            exchange.running = self.app(scope, exchange.receive, exchange.send)
            return exchange.running
        if not isinstance(scope, dict):
            self.report("scope-type", f"{type(scope).__name__}")
        return self.app(scope, receive, send)

    def _lifespan(self, scope: dict[str, Any], receive: Any, send: Any) -> Any:
        for rule, detail in scope_rules.lifespan(scope):
            self.report(rule, detail)
        if self.lifespan is not None:
            self.report("lifespan-once", "a second time")
        self.lifespan = Lifespan(self.report, scope, receive, send)
        self.lifespan.running = self.app(scope, self.lifespan.receive, self.lifespan.send)
        return self.lifespan.running


class Watched:
    """An awaitable of the server, driven by its own methods; says what came out of it, once."""

    __slots__ = ("_done", "_driver", "_failed", "_over", "_thrown")

    def __init__(self, inner: Any, done: Callable[[Any], None], failed: Callable[[BaseException], None]) -> None:
        self._driver = inner if hasattr(inner, "send") else inner.__await__()
        self._done = done
        self._failed = failed
        self._over = False
        self._thrown = False

    def __await__(self) -> Watched:
        return self

    def __iter__(self) -> Watched:
        return self

    def __next__(self) -> Any:
        if hasattr(self._driver, "__next__"):
            return self._step(self._driver.__next__)
        return self._step(self._driver.send, None)

    def send(self, value: Any) -> Any:
        """As a coroutine's."""
        if hasattr(self._driver, "send"):
            return self._step(self._driver.send, value)
        return self._step(self._driver.__next__)

    def throw(self, *error: Any) -> Any:
        """As a coroutine's. What comes back out is not the server's."""
        self._thrown = True
        return self._step(self._driver.throw, *error)

    def close(self) -> None:
        """As a coroutine's."""
        self._over = True
        self._driver.close()

    def _step(self, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except StopIteration as end:
            if not self._over:
                self._over = True
                self._done(end.value)
            raise
        except BaseException as error:
            if not self._over:
                self._over = True
                if not self._thrown:
                    self._failed(error)
            raise


class _Conversation:
    """What a lifespan and a request have in common: receive and send, watched."""

    def __init__(self, report: Report, name: str, receive: Any, send: Any) -> None:
        self._report = report
        self._name = name
        self._receive = receive
        self._send = send
        self._thread = threading.get_ident()
        #: What the application's call gave.
        self.running: Any = None

    def has_ended(self) -> bool:
        """Whether the application has, as far as that can be seen. (It calls receive and send in its call, perhaps.)"""
        if inspect.iscoroutine(self.running):
            return self.running.cr_frame is None
        return self.running is not None

    def complain(self, rule: str, detail: str) -> None:
        """Report, with what it is about."""
        self._report(rule, f"{detail} ({self._name})")

    def watch(self, rule: str, inner: Any, done: Callable[[Any], None], failed: Callable[[BaseException], None]) -> Any:
        """The awaitable to give instead of `inner`."""
        if not inspect.isawaitable(inner):
            self.complain(rule, f"{type(inner).__name__}")
            return inner
        return Watched(inner, done, failed)

    def receive_failed(self, error: BaseException) -> None:
        """A receive raised by itself. (On another thread it may: the application must not call it there.)"""
        if threading.get_ident() == self._thread and type(error).__name__ != "CancelledError":
            self.complain("receive-raised", repr(error))

    def call_receive(self, done: Callable[[Any], None]) -> Any:
        """Call the server's receive."""
        try:
            inner = self._receive()
        except BaseException as error:
            self.receive_failed(error)
            raise
        return self.watch("receive-awaitable", inner, done, self.receive_failed)

    def call_send(self, message: Any, wrong: str, right: bool, taken: Callable[[], None]) -> Any:
        """Call the server's send with a message that must be refused (`wrong`: why), that must be taken (`right`), or
        that is left to the server."""

        def shown() -> str:
            return f"{message!r:.200}"  # only for a complaint: it takes longer than serving a large body does

        def failed(error: BaseException) -> None:
            if threading.get_ident() != self._thread or wrong:
                return
            if right and not isinstance(error, OSError) and type(error).__name__ != "CancelledError":
                self.complain("send-refused", f"{shown()}: {error!r}")
            self.refused()

        def done(value: Any) -> None:
            if value is not None:
                self.complain("send-result", f"{value!r:.100}")
            if wrong:
                self.complain("send-accepted", f"{wrong}: {shown()}")
            elif not here:
                taken()

        # On another thread a message is not taken by the call, but where the loop awaits what that gave.
        here = threading.get_ident() == self._thread
        try:
            inner = self._send(message)
        except BaseException as error:
            failed(error)
            raise
        if here and not wrong:
            taken()
        return self.watch("send-awaitable", inner, done, failed)

    def refused(self) -> None:
        """The server refused what was not plainly wrong: how far the response is is not known any more."""


class Lifespan(_Conversation):
    """The one lifespan."""

    def __init__(self, report: Report, scope: dict[str, Any], receive: Any, send: Any) -> None:
        super().__init__(report, "lifespan", receive, send)
        self.scope = scope
        self._given: list[str] = []
        self._said: list[str] = []

    def bars_requests(self) -> str:
        """Why no request may come now; empty when it may."""
        if "lifespan.shutdown" in self._given:
            return "it comes after the shutdown"
        if not self.has_ended() and "lifespan.startup.complete" not in self._said:
            return "it comes before the start-up is complete"
        return ""

    def receive(self) -> Any:
        """The server's receive."""
        return self.call_receive(self._received)

    def _received(self, message: Any) -> None:
        if type(message) is not dict or set(message) != {"type"}:
            self.complain("lifespan-message", f"{message!r:.200}")
            return
        kind = message["type"]
        fits = {
            "lifespan.startup": not self._given,
            "lifespan.shutdown": self._given == ["lifespan.startup"] and self._said == ["lifespan.startup.complete"],
        }
        if not fits.get(kind, False):
            self.complain("lifespan-order", f"{kind!r} after {self._given + self._said}")
        self._given.append(kind)

    def send(self, message: Any) -> Any:
        """The server's send."""
        kind = message.get("type") if isinstance(message, dict) else None
        expected = {
            0: ("lifespan.startup.complete", "lifespan.startup.failed"),
            1: ("lifespan.shutdown.complete", "lifespan.shutdown.failed"),
        }.get(len(self._said), ())
        asked = len(self._given) > len(self._said)
        wrong = "" if kind in expected and (asked or not self._said) else f"after {self._given + self._said}"
        return self.call_send(message, wrong, not wrong and asked, lambda: self._said.append(str(kind)))


class Exchange(_Conversation):
    """One request and its response."""

    def __init__(self, validator: Validator, scope: dict[str, Any], receive: Any, send: Any) -> None:
        name = f"{scope.get('method')} {scope.get('path')!r:.100}"
        super().__init__(validator.report, name, receive, send)
        self._validator = validator
        self._declared = scope_rules.declared_length(scope)
        self._is_head = scope.get("method") == "HEAD"
        self._offered = tuple(scope.get("extensions") or ())
        self._total = 0
        self._body_over = False
        self._disconnected = False
        self._last_request: Any = None
        self._stage = "waiting"
        #: Bytes that the response must still have; None when that is not known.
        self._left: int | None = None
        #: Whether a refusal made it unknown how far the response is.
        self._lost = False

    # --- receive ---------------------------------------------------------------------------------------------

    def receive(self) -> Any:
        """The server's receive."""
        late = self._stage == "complete"
        return self.call_receive(lambda message: self._received(message, late))

    def _received(self, message: Any, late: bool) -> None:
        kind = message.get("type") if type(message) is dict else None
        if kind == "http.disconnect":
            if len(message) != 1:
                self.complain("receive-message", f"{message!r:.200}")
            if message is self._validator.last_disconnect:
                self.complain("receive-shared", kind)
            self._validator.last_disconnect = message
            self._disconnected = True
            return
        if kind != "http.request" or set(message) != {"type", "body", "more_body"}:
            self.complain("receive-message", f"{message!r:.200}")
            return
        if type(message["body"]) is not bytes or type(message["more_body"]) is not bool:
            self.complain("receive-message", f"{message!r:.200}")
            return
        if message is self._last_request:
            self.complain("receive-shared", kind)
        self._last_request = message
        if late:
            self.complain("receive-late", f"{message!r:.200}")
        if self._body_over or self._disconnected:
            what = "the last http.request" if self._body_over else "http.disconnect"
            self.complain("receive-order", f"{message!r:.200} after {what}")
            return
        self._total += len(message["body"])
        self._body_over = not message["more_body"]
        if self._declared is not None:
            right = self._total == self._declared if self._body_over else self._total <= self._declared
            if not right:
                self.complain("receive-length", f"{self._total} bytes of {self._declared}")

    # --- send ------------------------------------------------------------------------------------------------

    def send(self, message: Any) -> Any:
        """The server's send."""
        wrong = "" if self._lost else self._wrong(message)
        # What tasks say that it left behind, when it returned in the middle of its response, need not be taken.
        right = not wrong and not self._lost and not self.has_ended() and self._right(message)
        return self.call_send(message, wrong, right, lambda: self._taken(message))

    def refused(self) -> None:
        """See there."""
        self._lost = True

    def _wrong(self, message: Any) -> str:
        """Why a server must not take this message; empty when it may."""
        if not isinstance(message, Mapping):
            return "no mapping"
        kind = message.get("type")
        if kind not in ("http.response.start", "http.response.body"):
            # An extension that was offered has rules of its own; one that was not has no message.
            offered = isinstance(kind, str) and kind in self._offered
            return "" if offered and self._stage == "started" else "not one of its messages now"
        fits = {"waiting": "http.response.start", "started": "http.response.body"}.get(self._stage)
        if kind != fits:
            return f"the response is {self._stage}"
        if kind == "http.response.start":
            return _wrong_start(message)
        return (
            "" if isinstance(message.get("body", b""), bytes | bytearray | memoryview) else "a body that is not bytes"
        )

    def _right(self, message: dict[str, Any]) -> bool:
        """Whether a server must take this message. What the specification leaves open is left to the server."""
        if message["type"] == "http.response.start":
            status, headers = message["status"], message.get("headers", [])
            return (
                200 <= status <= 599
                and isinstance(headers, list | tuple)
                and all(scope_rules.is_field(name, value) for name, value in headers)
                and not any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in headers[1:])
                and "trailers" not in message
            )
        if message["type"] != "http.response.body":
            return False
        if type(message.get("more_body", False)) is not bool:
            return False
        size, more = len(message.get("body", b"")), message.get("more_body", False)
        return self._left is None or (size <= self._left if more else size == self._left)

    def _taken(self, message: dict[str, Any]) -> None:
        if self._lost:
            return
        if message["type"] == "http.response.start":
            self._stage = "started"
            headers = message.get("headers", [])
            bodiless = self._is_head or message["status"] in (204, 304)
            if not bodiless and isinstance(headers, list | tuple):
                lengths = [value for name, value in headers if name.lower() == b"content-length"]
                self._left = int(lengths[0]) if lengths and lengths[0].isdigit() else None
        elif message["type"] != "http.response.body":
            self._stage = "complete"
        else:
            if self._left is not None:
                self._left -= len(message.get("body", b""))
            if not message.get("more_body", False):
                self._stage = "complete"


def _wrong_start(message: dict[str, Any]) -> str:
    if not isinstance(message.get("status"), int):
        return "no status that is a number"
    headers = message.get("headers", [])
    if not isinstance(headers, list | tuple):
        return ""  # an iterable, perhaps for once: looking into it would change it
    for pair in headers:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not all(isinstance(item, bytes) for item in pair):
            return "a header that is no pair of bytes"
    return ""
