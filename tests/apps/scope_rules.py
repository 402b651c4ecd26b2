"""What the validator asks of a scope: keys, exact types, and that they agree with one another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote_to_bytes

RULES = {
    "scope-type": "a scope is a dict",
    "scope-keys": "a scope has the keys of the specification and no others",
    "scope-asgi": "asgi is a dict of strings: version 3.0 and a spec_version",
    "scope-value": "http_version, scheme, method, root_path and query_string have their types and values",
    "scope-path": "path is raw_path percent-decoded, and raw_path is bytes without the query",
    "scope-headers": "headers are pairs of bytes with names in lower case",
    "scope-framing": "a request that was let through has one host and one framing",
    "scope-address": "client and server are pairs of str and int, or None",
    "scope-extensions": "extensions is a dict of dicts",
    "scope-state": "state is a shallow copy of the lifespan's",
    "scope-shared": "no object that can be changed is shared between requests",
}

REQUIRED = {
    "type",
    "asgi",
    "http_version",
    "method",
    "scheme",
    "path",
    "raw_path",
    "query_string",
    "root_path",
    "headers",
    "client",
    "server",
}
OPTIONAL = {"state", "extensions"}

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_QUERY = re.compile(rb"[!-\"$-~]*")
_RAW_PATH = re.compile(rb"/[!-\"$->@-~]*|\*")

Findings = Iterator[tuple[str, str]]


def is_field(name: Any, value: Any) -> bool:
    """Whether a header may stand on the wire as it is."""
    return bool(type(name) is bytes and type(value) is bytes and _TOKEN.fullmatch(name) and _VALUE.fullmatch(value))


def lifespan(scope: dict[str, Any]) -> Findings:
    """What is wrong with a lifespan's scope."""
    if type(scope) is not dict:
        yield "scope-type", type(scope).__name__
    if not {"type", "asgi"} <= set(scope) <= {"type", "asgi", "state", "extensions"}:
        yield "scope-keys", str(sorted(scope))
    yield from _asgi(scope.get("asgi"), ("1.0", "2.0"))
    if "state" in scope and (type(scope["state"]) is not dict or scope["state"]):
        yield "scope-state", f"{scope['state']!r:.100}"


def http(scope: dict[str, Any], state: Any, last: dict[str, Any]) -> Findings:
    """What is wrong with a request's scope, given the lifespan's state and the scope before."""
    if type(scope) is not dict:
        yield "scope-type", type(scope).__name__
    if not set(scope) >= REQUIRED or not set(scope) <= REQUIRED | OPTIONAL:
        yield "scope-keys", f"{sorted(set(scope) ^ REQUIRED)} are missing or too many"
        return
    yield from _asgi(scope["asgi"], ("2.4", "2.5"))
    yield from _values(scope)
    yield from _paths(scope)
    yield from _headers(scope)
    for key in ("client", "server"):
        if not _is_address(scope[key], port_may_be_none=key == "server"):
            yield "scope-address", f"{key}: {scope[key]!r:.100}"
    extensions = scope.get("extensions", {})
    if type(extensions) is not dict or not all(type(value) is dict for value in extensions.values()):
        yield "scope-extensions", f"{extensions!r:.100}"
    yield from _state(scope, state)
    before = {id(part) for part in _changeable(last)} | {id(state)}
    for part in _changeable(scope):
        if id(part) in before and part is not None:
            yield "scope-shared", f"{part!r:.100}"


def declared_length(scope: dict[str, Any]) -> int | None:
    """How long the request's body must be; None when only its end tells."""
    fields = _fields(scope)
    if any(name == b"transfer-encoding" for name, _ in fields):
        return None
    lengths = [value for name, value in fields if name == b"content-length"]
    return int(lengths[0]) if lengths and lengths[0].isdigit() else 0


def _fields(scope: dict[str, Any]) -> list[tuple[bytes, bytes]]:
    headers = scope.get("headers")
    pairs = headers if isinstance(headers, list | tuple) else []
    return [tuple(pair) for pair in pairs if isinstance(pair, list | tuple) and len(pair) == 2]  # type: ignore[misc]


def _asgi(asgi: Any, versions: tuple[str, ...]) -> Findings:
    fits = type(asgi) is dict and asgi.keys() == {"version", "spec_version"}
    if not fits or asgi["version"] != "3.0" or asgi["spec_version"] not in versions:
        yield "scope-asgi", f"{asgi!r:.100}"


def _values(scope: dict[str, Any]) -> Findings:
    right = {
        "http_version": type(scope["http_version"]) is str and scope["http_version"] in ("1.0", "1.1"),
        "scheme": type(scope["scheme"]) is str and scope["scheme"] in ("http", "https"),
        "method": type(scope["method"]) is str and bool(_TOKEN.fullmatch(scope["method"].encode("utf-8", "replace"))),
        "root_path": type(scope["root_path"]) is str,
        "query_string": type(scope["query_string"]) is bytes and bool(_QUERY.fullmatch(scope["query_string"])),
    }
    for name, fits in right.items():
        if not fits:
            yield "scope-value", f"{name}: {scope[name]!r:.100}"


def _paths(scope: dict[str, Any]) -> Findings:
    path, raw, root = scope["path"], scope["raw_path"], scope["root_path"]
    if type(path) is not str or type(raw) is not bytes:
        yield "scope-path", f"{path!r:.100}, {raw!r:.100}"
    elif unquote_to_bytes(raw).decode("utf-8", "replace") != path:
        yield "scope-path", f"{path!r:.100} is not {raw!r:.100}"
    elif type(root) is str and not path.startswith(root):
        yield "scope-path", f"{path!r:.100} is not under {root!r:.100}"
    elif not _RAW_PATH.fullmatch(raw):
        yield "scope-path", f"{raw!r:.100}"


def _headers(scope: dict[str, Any]) -> Findings:
    headers = scope["headers"]
    if not isinstance(headers, list | tuple):
        yield "scope-headers", type(headers).__name__
        return
    for pair in headers:
        fits = isinstance(pair, list | tuple) and len(pair) == 2 and is_field(*pair)
        if not fits or pair[0] != pair[0].lower() or pair[1] != pair[1].strip(b" \t"):
            yield "scope-headers", f"{pair!r:.100}"
    fields = _fields(scope)
    hosts = [value for name, value in fields if name == b"host"]
    lengths = [value for name, value in fields if name == b"content-length"]
    codings = [value for name, value in fields if name == b"transfer-encoding"]
    if len(hosts) > 1 or (not hosts and scope["http_version"] != "1.0"):
        yield "scope-framing", f"host: {hosts}"
    if len(lengths) > 1 or not all(re.fullmatch(rb"[0-9]+", value) for value in lengths):
        yield "scope-framing", f"content-length: {lengths}"
    if codings and (lengths or scope["http_version"] == "1.0" or b",".join(codings).strip().lower() != b"chunked"):
        yield "scope-framing", f"transfer-encoding: {codings}, content-length: {lengths}, {scope['http_version']}"


def _is_address(value: Any, *, port_may_be_none: bool) -> bool:
    if value is None:
        return True
    if not isinstance(value, list | tuple) or len(value) != 2 or type(value[0]) is not str:
        return False
    port = value[1]
    return (type(port) is int and 0 <= port <= 65535) or (port is None and port_may_be_none)


def _state(scope: dict[str, Any], state: Any) -> Findings:
    mine = scope.get("state")
    if state is None:
        if mine:
            yield "scope-state", f"{mine!r:.100} where the lifespan has none"
    elif type(mine) is not dict or mine.keys() != state.keys() or any(mine[key] is not state[key] for key in state):
        yield "scope-state", f"{mine!r:.100} is not {state!r:.100}"


def _changeable(scope: dict[str, Any]) -> list[Any]:
    """The objects in a scope, and itself, that an application may change."""
    extensions = scope.get("extensions")
    inner = list(extensions.values()) if isinstance(extensions, dict) else []
    pairs = [pair for pair in scope.get("headers") or () if isinstance(pair, list)]
    parts = [scope.get("headers"), scope.get("asgi"), scope.get("state"), extensions, *inner, *pairs]
    return [scope, *(part for part in parts if isinstance(part, dict | list))]
