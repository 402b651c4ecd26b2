"""Small applications for one process, which start at once: `api` and `second` are ASGI; for WSGI there is wsgi_app.

MOUNTS_LOG names a file that the lifespans write to.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import wsgi_app
from validator import Validator

#: Keys of requests that have begun to wait.
begun: list[str] = []


def note(event: str) -> None:
    """Adds a line to the log of the lifespans."""
    if name := os.environ.get("MOUNTS_LOG"):
        with open(name, "a", encoding="utf-8") as log:
            log.write(f"{event}\n")


class Named:
    """An ASGI application that tells its name, its root path and path, and how long the request's body is."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for phase in ("startup", "shutdown"):
                await receive()
                note(f"{self.name} {phase}")
                await send({"type": f"lifespan.{phase}.complete"})
            return
        length, more = 0, True
        while more:
            message = await receive()
            length += len(message.get("body", b""))
            more = message.get("more_body", False)
        if scope["path"].endswith("/hangs"):
            begun.append(self.name)
            await asyncio.Event().wait()
        told = {"name": self.name, "length": length, "begun": begun, "root_path": scope["root_path"]}
        body = json.dumps(told | {"path": scope["path"]}).encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})


api = Validator(Named("api"))
second = Validator(Named("second"))


async def fails(scope: Any, receive: Any, send: Any) -> None:
    """A start-up that fails."""
    await receive()
    note("fails startup")
    await send({"type": "lifespan.startup.failed", "message": "the cache is not there"})


def run(**options: Any) -> None:
    """Serves from Python: objects, and an import string."""
    import m0serve

    mounts: Any = {"/api": api, "/more/": "mounts_plain:second"}
    m0serve.run(wsgi_app.plain, mounts=mounts, port=0, **options)
