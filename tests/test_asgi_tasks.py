"""Tasks, cancellation scopes, libraries and loops as an application finds them in its first step (promise 22)."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from harness.client import request
from harness.server import Server, Servers

CHECKS: dict[str, Any] = {
    "current-task": [True, True, True, True],
    "loop": [True, True, True],
    "timeout": ["in time", "timed out", 0],
    "wait-for": ["in time", "timed out"],
    "task-group": [0, 1, 2, "failed", True],
    "anyio-scopes": [True, "cancelling", "timed out"],
    "anyio-current": [True, True, True],
    "sniff": ["asyncio", "asyncio"],
    "cancel-self": ["cancelled", 0],
    "from-thread": "from the loop",
    "subprocess": ["HELLO", 7],
    "socket-stream": "OVER THE APPLICATION'S OWN SOCKET\n",
    "many-timers": [[0, True], [10, True], [20, True], [30, True], [40, True]],
    "async-generator": "closed",
}


@pytest.mark.uvloop
@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.behaviour(22)
def test_from_the_first_step_on(probe: Server, check: str) -> None:
    with probe.connect() as client:
        for _ in range(3):
            response = client.get(f"/task?check={check}")
            assert response.status == 200, probe.stderr[-3000:]
            assert response.json() == CHECKS[check]


@pytest.mark.uvloop
@pytest.mark.behaviour(22)
def test_concurrent_requests_are_different_tasks(probe: Server, key: str) -> None:
    with probe.connect() as one, probe.connect() as two:
        one.send(request(f"/task-identity?key={key}&name=one"))
        two.send(request(f"/task-identity?key={key}&name=two"))
        first, second = probe.note(key, "one"), probe.note(key, "two")
        assert first != second
        probe.open_gate(key)
        assert one.response().status == two.response().status == 200
    notes = probe.notes(key)
    assert (notes["one later"], notes["two later"]) == (first, second)


def test_pipelined_concurrent_load_keeps_tasks_apart(probe: Server) -> None:
    clients = [probe.connect() for _ in range(20)]
    try:
        for client in clients:
            client.send(request("/task?check=anyio-scopes") * 3)
        for client in clients:
            for _ in range(3):
                assert client.response().json() == CHECKS["anyio-scopes"]
    finally:
        for client in clients:
            client.close()


@pytest.mark.uvloop
def test_a_task_left_behind_runs_on(probe: Server, key: str) -> None:
    assert probe.get(f"/stray-task?key={key}").status == 200
    probe.open_gate(key)
    assert probe.note(key, "ran") is True


def test_a_task_factory_of_the_application_is_used(servers: Servers) -> None:
    server = servers.get("factory_app:app")
    with server.connect() as client:
        first = client.get("/").json()
        second = client.get("/").json()
    assert first["made_by_factory"]
    assert second["made_by_factory"]
    assert second["count"] > first["count"]


@pytest.mark.parametrize("kind", ["awaitable", "future", "task", "generator"])
def test_an_awaitable_that_is_no_coroutine(servers: Servers, kind: str) -> None:
    asgi = "asgi3" if servers.target.server == "uvicorn" else "asgi"
    server = servers.get("awaitable_app:app", "--interface", asgi, "--lifespan", "off")
    with server.connect() as client:
        for _ in range(2):
            assert client.get(f"/{kind}").body == kind.encode()


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="nest_asyncio does not know 3.14")
def test_a_nested_run_until_complete(servers: Servers) -> None:
    server = servers.get("nested_app:app")
    with server.connect() as outer, server.connect() as other:
        for _ in range(3):
            outer.send(request("/nested"))
            assert other.get("/plain").body == b"plain"
            assert outer.response().body == b"nested"
        # The nested run waits for what only another request can bring.
        outer.send(request("/nested-wait"))
        until_served = other.get("/release").body
        assert (until_served, outer.response().body) == (b"released", b"was released")
        assert outer.get("/nested").body == b"nested"


def test_debug_mode(servers: Servers) -> None:
    server = servers.get("probe:app", env={"PYTHONASYNCIODEBUG": "1"})
    with server.connect() as client:
        for check in ("current-task", "task-group", "anyio-scopes"):
            assert client.get(f"/task?check={check}").json() == CHECKS[check]
