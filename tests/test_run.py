"""Servers that are not started by the command in a shell: by a script, and as a container's process 1 (promise 35)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.client import Client, request
from harness.server import Process, Target, under_validation
from harness.targets import missing
from harness.waiting import until
from m0serve import Exit, Server

pytestmark = [pytest.mark.own_process, pytest.mark.beyond_uvicorn("is started by a script of its own")]

Script = Callable[..., Process]


@pytest.fixture
def script() -> Iterator[Script]:
    """Runs a script of apps/ that serves by itself."""
    started: list[Process] = []

    def run(name: str, *arguments: str) -> Process:
        started.append(Process([sys.executable, f"{name}.py", *arguments]))
        return started[-1]

    yield run
    for process in started:
        process.kill()


@pytest.mark.behaviour(35)
def test_run_from_python(script: Script) -> None:
    process = script("runs_itself", "run")
    port = int(process.line(r"ready on http://127\.0\.0\.1:(\d+)")[1])
    with Client(("127.0.0.1", port)) as client:
        assert client.get("/hello").status == 200
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
    assert "after run" in process.stdout


def test_run_from_python_with_an_import_string_and_a_wrong_option(script: Script) -> None:
    process = script("runs_itself", "wrong")
    assert process.wait() == 2
    assert "max_body" in process.stderr or "--max-body" in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize("option", [{"port": 1 << 70}, {"root_path": "/\udcff"}], ids=["number", "text"])
def test_a_value_that_no_option_can_hold_is_a_wrong_option(option: Any) -> None:
    with pytest.raises(Exit, match=r"does not fit|is no UTF-8 text"):
        Server("probe:app", **option)


@pytest.mark.parametrize("what", ["in-views", "before-views"])
@pytest.mark.behaviour(35)
def test_the_end_of_a_script_whose_threads_were_in_views_was_a_crash(script: Script, what: str) -> None:
    process = script("runs_itself", what)
    assert process.wait(20) == 0, process.stderr
    assert "stopping: 4 requests in flight" in process.stderr


@pytest.mark.parametrize("where", ["task", "call", "headers"])
@pytest.mark.behaviour(35)
def test_the_end_of_a_script_whose_loop_was_blocked_was_a_crash(script: Script, where: str) -> None:
    process = script("runs_itself", "blocks-loop", where)
    assert process.wait(20) == 0, process.stderr
    assert "ends while the loop is blocked" in process.stdout


@pytest.mark.behaviour(29)
def test_an_application_that_kept_the_gil_kept_the_process_for_ever(script: Script) -> None:
    """What was to end it after the drain time-out needed the GIL as well."""
    process = script("runs_itself", "keeps-gil")
    port = int(process.line(r"ready on http://127\.0\.0\.1:(\d+)")[1])
    with Client(("127.0.0.1", port)) as client:
        client.send(request("/"))
        process.line("backtracking")
        process.signal(signal.SIGTERM)
        assert process.wait(10) == 0
    assert "native code that keeps the GIL does not end" in process.stderr


@pytest.mark.parametrize("model", ["pump", "inverted"])
@pytest.mark.parametrize("backend", ["io_uring", "epoll"])
@pytest.mark.behaviour(35)
def test_two_servers_off_the_main_thread_stopped_from_code(script: Script, model: str, backend: str) -> None:
    if why := missing(Target(model=model, backend=backend)):
        pytest.skip(why)
    process = script("runs_itself", "threads", model, backend)
    assert process.wait(20) == 0, process.stderr
    assert process.stdout.splitlines()[-1] == "both stopped: [0, 0]"


def test_an_address_is_known_before_the_first_request(script: Script) -> None:
    process = script("runs_itself", "stop-early")
    assert process.wait(20) == 0, process.stderr
    assert "stopped before it began: 0" in process.stdout


@pytest.mark.behaviour(35)
def test_as_process_1_it_ends_on_sigterm_and_reaps() -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-pf", "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("NOT TESTED HERE: a PID namespace cannot be made on this machine")
    app, env = under_validation("probe:app")
    process = Process([unshare, "-pf", "--kill-child", *Target(backend="epoll").command(), "--port", "0", app], env=env)
    try:
        port = int(process.line(r"ready on http://127\.0\.0\.1:(\d+)")[1])
        with Client(("127.0.0.1", port)) as client:
            assert client.get("/hello").status == 200
            assert client.get("/orphan").status == 200
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        (inner,) = map(int, children)

        def children_of_1() -> list[str]:
            """The server, where process 1 is a parent of it, and the orphan until it is reaped."""
            states = []
            for entry in Path("/proc").glob("[0-9]*/stat"):
                try:
                    fields = entry.read_text().rsplit(")", 1)[1].split()
                except OSError:
                    continue
                if int(fields[1]) == inner:
                    states.append(fields[0])
            return states

        until(lambda: children_of_1() in (["S"], []), "its orphan is reaped")
        os.kill(inner, signal.SIGTERM)
        assert process.wait() == 0
    finally:
        process.kill()
