"""Serves from Python: `run`, a wrong option, servers on threads, one that is stopped before it runs, one that is left
running, one whose application keeps the loop, and one whose application never gives up the GIL."""

from __future__ import annotations

import re
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import probe
from validator import Validator

import m0serve


def on_threads(model: str, backend: str) -> None:
    """Two servers in one process, neither on the main thread, stopped from code."""
    servers = [m0serve.Server(Validator(probe.app), port=0, model=model, backend=backend) for _ in range(2)]
    codes: list[int] = []
    threads = [threading.Thread(target=lambda server=server: codes.append(server.run())) for server in servers]
    for thread in threads:
        thread.start()
    for server in servers:
        assert server.started.wait(10)
        assert server.address.startswith("http://127.0.0.1:"), server.address
        for _ in range(3):
            with urllib.request.urlopen(f"{server.address}/hello", timeout=5) as response:
                assert response.read() == b"Hello, World!"
        assert server.resolved()["model"] == model
    for server, thread in zip(servers, threads, strict=True):
        server.stop()
        thread.join(10)
        assert not thread.is_alive()
    print(f"both stopped: {codes}", flush=True)


def in_views(*, stop: bool) -> None:
    """Ends while a thread serves, or has ended without its views: four that want the interpreter again and again."""
    entered = threading.Barrier(5)

    def view(environ: dict[str, Any], start_response: Callable[..., object]) -> list[bytes]:
        entered.wait(10)
        for _ in range(5000 if stop else 50):
            time.sleep(0.002)
        start_response("204 No Content", [])
        return []

    server = m0serve.Server(view, port=0, blocking_threads=4, drain_timeout=0.1 if stop else 8)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert server.started.wait(10)
    for _ in range(4):
        threading.Thread(target=urllib.request.urlopen, args=(server.address,), daemon=True).start()
    entered.wait(10)
    if stop:
        server.stop()
        thread.join()


def blocks_loop(where: str) -> None:
    """Ends while an application keeps the event loop of a daemon thread, and wants the interpreter again and again."""
    entered = threading.Event()

    def block() -> None:
        entered.set()
        for _ in range(5000):
            time.sleep(0.002)

    def headers() -> Iterator[tuple[bytes, bytes]]:
        block()
        yield b"x", b"y"

    async def respond(scope: dict[str, Any], receive: Any, send: Any) -> None:
        assert scope["type"] == "http", "no lifespan"
        if where == "task":
            block()
        await send({"type": "http.response.start", "status": 200, "headers": headers()})

    def app(scope: dict[str, Any], receive: Any, send: Any) -> Any:
        if where == "call" and scope["type"] == "http":
            block()
        return respond(scope, receive, send)

    server = m0serve.Server(app, interface="asgi", port=0, drain_timeout=0.1)
    threading.Thread(target=server.run, daemon=True).start()
    assert server.started.wait(10)
    threading.Thread(target=urllib.request.urlopen, args=(server.address,), daemon=True).start()
    assert entered.wait(10)
    print("ends while the loop is blocked", flush=True)


async def backtrack(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Would end in some years, and lets only signals in until then."""
    assert scope["type"] == "http", "no lifespan"
    print("backtracking", file=sys.stderr, flush=True)
    re.match(r"(a+)+$", "a" * 60 + "b")


def main() -> None:
    """What the first argument names."""
    what = sys.argv[1]
    if what == "run":
        m0serve.run(Validator(probe.app), port=0)
        print("after run", flush=True)
    elif what == "wrong":
        m0serve.run("probe:app", port=0, max_body="much")  # type: ignore[arg-type]
    elif what == "threads":
        on_threads(sys.argv[2], sys.argv[3])
    elif what in ("in-views", "before-views"):
        in_views(stop=what == "before-views")
    elif what == "blocks-loop":
        blocks_loop(sys.argv[2])
    elif what == "keeps-gil":
        m0serve.run(backtrack, port=0, drain_timeout=0.1)
    elif what == "stop-early":
        server = m0serve.Server("probe:app", port=0)
        server.stop()
        print(f"stopped before it began: {server.run()}", flush=True)


main()
