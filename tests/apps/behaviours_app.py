"""Small applications for single behaviours that uvicorn's own tests ask for."""

from __future__ import annotations

import asyncio
import contextvars
import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

#: Set while the module is imported: whoever is called later sees it.
OUTER: contextvars.ContextVar[str] = contextvars.ContextVar("outer", default="missing")
OUTER.set("set at import")

# A module may: no loop runs yet that it could see.
asyncio.run(asyncio.sleep(0))

DATA = Path(__file__).parent / "static" / "style.css"


def say(text: str) -> None:
    """A line for the test."""
    print(text, file=sys.stderr, flush=True)


async def start(send: Any, status: int = 200, *headers: tuple[bytes, bytes]) -> None:
    """Begin a response."""
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def respond(send: Any, value: Any) -> None:
    """A whole response of JSON."""
    data = json.dumps(value).encode()
    await start(send, 200, (b"content-length", b"%d" % len(data)))
    await send({"type": "http.response.body", "body": data})


async def returns(scope: Any, receive: Any, send: Any) -> Any:
    """A response, and a value that nobody wants."""
    await respond(send, "fine")
    return 123


async def outer(scope: Any, receive: Any, send: Any) -> None:
    """The variable that was set at import; set to something that the next request must not see."""
    await respond(send, OUTER.get())
    OUTER.set("set by a request")


async def two_servers(scope: Any, receive: Any, send: Any) -> None:
    """Two fields of a name that the server would send by itself."""
    await start(send, 200, (b"Server", b"one"), (b"server", b"two"), (b"content-length", b"0"))
    await send({"type": "http.response.body"})


async def mixed(scope: Any, receive: Any, send: Any) -> None:
    """A piece of a body, and then a file."""
    await start(send, 200, (b"content-length", b"%d" % (2 + DATA.stat().st_size)))
    await send({"type": "http.response.body", "body": b"a ", "more_body": True})
    await send({"type": "http.response.pathsend", "path": str(DATA)})


async def partial(scope: Any, receive: Any, send: Any) -> None:
    """A start and nothing else."""
    await start(send)


async def state(scope: Any, receive: Any, send: Any) -> None:
    """The state's keys."""
    await respond(send, sorted(scope["state"]))


async def status(scope: Any, receive: Any, send: Any) -> None:
    """A status by number."""
    await start(send, int(scope["query_string"]), (b"content-length", b"0"))
    await send({"type": "http.response.body"})


HANDLERS = {function.__name__: function for function in (returns, outer, two_servers, mixed, partial, state, status)}


async def lifespan(scope: Any, receive: Any, send: Any) -> None:
    """Says its scope; adds to the state before and after start-up is complete."""
    say(f"lifespan scope: {json.dumps(scope, sort_keys=True)}")
    assert (await receive())["type"] == "lifespan.startup"
    scope["state"]["before"] = 1
    await send({"type": "lifespan.startup.complete"})
    scope["state"]["after"] = 1
    say("start-up is complete")
    assert (await receive())["type"] == "lifespan.shutdown"
    await send({"type": "lifespan.shutdown.complete"})
    say("shutdown is complete")


async def app(scope: Any, receive: Any, send: Any) -> Any:
    """Does what the path says."""
    if scope["type"] == "lifespan":
        return await lifespan(scope, receive, send)
    return await HANDLERS[unquote(scope["path"][1:])](scope, receive, send)


async def slow(scope: Any, receive: Any, send: Any) -> Any:
    """The same with a start-up that takes its time."""
    if scope["type"] == "lifespan":
        say("start-up has begun")
        await asyncio.sleep(0.3)
    return await app(scope, receive, send)


async def frozen(scope: Any, receive: Any, send: Any) -> None:
    """A start-up that does not end."""
    await receive()
    say("start-up has begun")
    await asyncio.sleep(3600)


async def raises_after_failing(scope: Any, receive: Any, send: Any) -> None:
    """Start-up fails with a message, and then with an exception."""
    await receive()
    await send({"type": "lifespan.startup.failed", "message": "the lifespan event failed"})
    raise RuntimeError("expected-by-the-test")
