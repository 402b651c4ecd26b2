"""Serves a WSGI application from Python: `run` on the main thread, or two servers on threads of their own."""

from __future__ import annotations

import sys
import threading
import urllib.request
from typing import Any

import wsgi_flask
import wsgi_strict_app

import m0serve


def on_threads(options: dict[str, Any]) -> None:
    servers = [m0serve.Server(app, port=0, **options) for app in (wsgi_flask.app, wsgi_strict_app.app)]
    codes: list[int] = []
    threads = [threading.Thread(target=lambda server=server: codes.append(server.run())) for server in servers]
    for thread in threads:
        thread.start()
    for server, path in zip(servers, ("/count", "/hello"), strict=True):
        assert server.started.wait(10)
        for _ in range(3):
            with urllib.request.urlopen(server.address + path, timeout=5) as response:
                assert response.read() in (b"seen 1 times", b"hello")
        resolved = server.resolved()
        assert (resolved["interface"], resolved["model"], resolved["loop"]) == ("wsgi", options["model"], "")
        assert server.stats()["responses"] >= 2
    for server, thread in zip(servers, threads, strict=True):
        server.stop()
        thread.join(10)
        assert not thread.is_alive()
    left = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    print(f"both stopped: {codes} {left}", flush=True)


options: dict[str, Any] = {"model": sys.argv[2], "backend": sys.argv[3], "blocking_threads": 3}
if sys.argv[1] == "threads":
    on_threads(options)
else:
    m0serve.run(wsgi_flask.app, port=0, **options)
    print("after run", flush=True)
