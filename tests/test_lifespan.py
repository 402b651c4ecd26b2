"""Lifespan: on, off and auto; start-ups that fail; state; order (promise 23)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.server import Server

Start = Callable[..., Server]


def events(log: Path) -> list[str]:
    return [json.loads(line)["event"] for line in log.read_text().splitlines()] if log.exists() else []


@pytest.mark.uvloop
@pytest.mark.parametrize("mode", ["auto", "on"])
@pytest.mark.behaviour(23)
def test_start_up_before_the_first_request_and_shutdown_once(start: Start, tmp_path: Path, mode: str) -> None:
    log = tmp_path / "log"
    server = start("probe:app", "--lifespan", mode, env={"LIFESPAN_LOG": str(log)})
    assert events(log) == ["lifespan.startup"]
    assert server.get("/state").json()["keys"] == ["made_at_startup"]
    assert server.stop() in (0, -15)
    assert events(log) == ["lifespan.startup", "lifespan.shutdown", "complete"]


@pytest.mark.behaviour(23)
def test_off_means_not_called(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = start("probe:app", "--lifespan", "off", env={"LIFESPAN_LOG": str(log)})
    assert server.get("/scope").json()["scope"].get("state", {}) == {}
    server.stop()
    assert events(log) == []


@pytest.mark.parametrize("kind", ["raises", "returns", "asserts"])
@pytest.mark.behaviour(23)
def test_an_application_without_lifespan_is_served_under_auto(start: Start, kind: str) -> None:
    server = start(f"lifespans:{kind}")
    assert server.get("/").body == b"served"
    assert server.stop() in (0, -15)
    assert "Traceback" not in server.stderr


@pytest.mark.behaviour(23)
def test_a_start_up_that_breaks_is_a_warning_under_auto_and_the_end_under_on(start: Start) -> None:
    """The specification wants the application served all the same, since it may only not know the lifespan."""
    server = start("lifespans:breaks")
    assert server.get("/").body == b"served"
    assert server.stop() in (0, -15)
    if server.target.server == "m0serve":
        assert len([line for line in server.stderr.splitlines() if "half-way" in line and "warning" in line]) == 1
    refused = start("lifespans:breaks", "--lifespan", "on", wait_ready=False)
    assert refused.wait() == (1 if refused.target.server == "m0serve" else 3)
    assert "in breaks" in refused.stderr


def test_an_application_without_lifespan_is_refused_under_on(start: Start) -> None:
    server = start("lifespans:raises", "--lifespan", "on", wait_ready=False)
    assert server.wait() == (1 if server.target.server == "m0serve" else 3)
    assert "ready" not in server.stderr


@pytest.mark.parametrize("mode", ["auto", "on"])
@pytest.mark.behaviour(23)
def test_a_start_up_that_fails_ends_the_server_with_its_message(start: Start, mode: str) -> None:
    server = start("lifespans:fails", "--lifespan", mode, wait_ready=False)
    assert server.wait() == (1 if server.target.server == "m0serve" else 3)
    assert "the database is not there" in server.stderr
    assert server.stderr.count("the database is not there") == 1
    assert " ready " not in server.stderr
    assert "Traceback" not in server.stderr


@pytest.mark.beyond_uvicorn("ends in a traceback")
def test_a_start_up_that_cancelled_all_tasks_ended_in_a_traceback_of_ours(start: Start) -> None:
    server = start("lifespans:cancels", wait_ready=False)
    assert server.wait() == 1
    assert "the application cancelled its own start-up" in server.stderr
    assert "Traceback" not in server.stderr


def test_a_starlette_lifespan_that_raises_ends_the_server_with_its_traceback(start: Start) -> None:
    server = start("lifespans:starlette_fails", wait_ready=False)
    assert server.wait() == (1 if server.target.server == "m0serve" else 3)
    assert "expected-by-the-test: no database" in server.stderr
    assert "in broken_lifespan" in server.stderr
    if server.target.server == "m0serve":
        assert "" not in server.stderr.splitlines(), "an empty line followed it"


def test_the_ready_line_comes_after_start_up(start: Start) -> None:
    server = start("lifespans:slow")
    text = server.stderr
    assert text.index("start-up is over") < text.index("ready" if server.target.server == "m0serve" else "running on")
    assert server.get("/").body == b"served"


@pytest.mark.beyond_uvicorn("exits as if nothing had happened")
def test_a_shutdown_that_fails_is_said(start: Start) -> None:
    server = start("lifespans:shutdown_fails")
    assert server.get("/").body == b"served"
    server.stop()
    assert "the farewell failed" in server.stderr
    assert "" not in server.stderr.splitlines()


@pytest.mark.behaviour(23)
def test_who_listens_on_after_the_shutdown_hears_it_once(start: Start) -> None:
    server = start("lifespans:listens")
    assert server.get("/").body == b"served"
    assert server.stop() in (0, -15)
    assert server.stderr.count("heard lifespan.startup") == 1
    assert server.stderr.count("heard lifespan.shutdown") == 1


@pytest.mark.uvloop
@pytest.mark.behaviour(30)
def test_what_requests_leave_behind_is_ended_with_the_server(start: Start) -> None:
    """As `asyncio.run` does it: tasks are cancelled, asynchronous generators closed."""
    server = start("probe:app")
    assert server.get("/loose-ends").status == 200
    assert server.stop() in (0, -15)
    for what in ("the task was cancelled", "the generator was closed"):
        assert server.stderr.count(what) == 1, server.stderr


def test_a_lifespan_that_ends_early_is_no_reason_to_stop(start: Start) -> None:
    server = start("lifespans:leaves")
    assert server.get("/").body == b"served"
    assert server.stop() in (0, -15)


def test_the_lifespan_runs_in_one_task(start: Start) -> None:
    """anyio's cancel scopes and contextvars of start-up are there at shutdown."""
    server = start("lifespans:scoped")
    assert server.get("/").body == b"served"
    assert server.stop() in (0, -15)
    assert "left the scope in the same task: True" in server.stderr
