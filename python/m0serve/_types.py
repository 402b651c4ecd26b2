"""The types that applications and callers see."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, Literal, TypeAlias, TypedDict

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApplication: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
# Without the types of typeshed: an application may name its arguments as it likes.
WSGIApplication: TypeAlias = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
Application: TypeAlias = ASGIApplication | WSGIApplication


class Options(TypedDict, total=False):
    """The options of :func:`m0serve.run`: those of the command line, with underscores.

    An option that is left out, or is None, comes from its ``M0_*`` variable, and then from the default. Sizes may be
    strings such as ``"64k"``; times are seconds. ``mounts`` has an application or an import string for each prefix.
    """

    mounts: Mapping[str, str | Application] | None
    host: str | None
    port: int | None
    uds: str | os.PathLike[str] | None
    fd: int | None
    interface: Literal["auto", "asgi", "wsgi"] | None
    factory: bool | None
    app_dir: str | os.PathLike[str] | None
    lifespan: Literal["auto", "on", "off"] | None
    root_path: str | None
    backend: Literal["auto", "io_uring", "epoll", "kqueue"] | None
    model: Literal["pump", "inverted"] | None
    loop: Literal["auto", "asyncio", "uvloop", "rloop"] | None
    proxy_headers: bool | None
    forwarded_allow_ips: str | None
    max_body: int | str | None
    max_head: int | str | None
    max_target: int | str | None
    max_fields: int | None
    header_timeout: float | None
    body_timeout: float | None
    idle_timeout: float | None
    drain_timeout: float | None
    blocking_threads: int | None
    max_connections: int | None
    max_keepalive_requests: int | None
    access_log: bool | None
    log_level: Literal["error", "warn", "info", "debug"] | None
    date_header: bool | None
    server_header: bool | None
