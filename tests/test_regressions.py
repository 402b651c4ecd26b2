"""What broke once, found by hostile clients and applications. Each test is named for what broke."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.client import request
from harness.server import Server, Servers, Target, environment
from harness.waiting import until
from m0serve import Server as Embedded
from m0serve import run
from m0serve._signals import Watchdog

MIB = 1024 * 1024


class Armed(Watchdog):
    """Notes what it is armed with, and ends nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.codes: list[int] = []

    def arm(self, seconds: float, code: int) -> None:
        self.codes.append(code)


@pytest.fixture
def server(servers: Servers) -> Server:
    return servers.get("regressions_app:app")


@pytest.mark.uvloop
def test_bodies_waited_for_the_timer_of_a_loop_that_is_not_ours(server: Server) -> None:
    """What a handler did outside a turn was looked at once a second, or never."""
    with server.connect() as client:
        times = []
        for _ in range(5):
            began = time.monotonic()
            assert len(client.get("/download?count=10").body) == 10 * MIB
            times.append(time.monotonic() - began)
        assert min(times) < 3.0, times  # a window a second would take minutes
        body = client.get("/upload", method="POST", body=bytes(20 * MIB)).body
        assert int(body.split()[0]) == 20 * MIB


@pytest.mark.beyond_uvicorn("has no such time-outs")
@pytest.mark.parametrize("part", ["head", "body"])
def test_a_busy_application_let_requests_time_out_that_had_arrived(start: Callable[..., Server], part: str) -> None:
    server = start("regressions_app:app", "--header-timeout", "1", "--body-timeout", "1")
    if part == "head":
        first, second = b"GET /upload HTTP/1.1\r\nHo", b"st: x\r\n\r\n"
    else:
        first = b"POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n" + bytes(1000)
        second = bytes(199_000)
    clients = [server.connect() for _ in range(100)]
    for client in clients:
        client.send(first)
    with server.connect() as busy:
        busy.send(request("/block?seconds=2.5"))
        time.sleep(0.2)  # until it blocks; what comes before that is served as well
        for client in clients:
            client.send(second)
        assert [client.response().status for client in clients] == [200] * 100
        assert busy.response().body == b"blocked"
    for client in clients:
        client.close()


@pytest.mark.uvloop
def test_a_stream_of_events_held_the_drain_up_for_all_of_its_time(start: Callable[..., Server]) -> None:
    """sse-starlette ends its streams when uvicorn stops, and did not know that the server did."""
    server = start("regressions_app:app")
    with server.connect() as client:
        client.send(request("/until_exit"))
        server.signal(signal.SIGTERM)
        assert client.response().body == b"xover"
    assert server.wait() == 0
    assert "abandoned" not in server.stderr


@pytest.mark.uvloop
@pytest.mark.parametrize("by", ["asyncio", "asgiref"])
def test_a_thread_could_not_make_what_the_loop_was_to_await(server: Server, by: str) -> None:
    """So asgiref's WsgiToAsgi, which Flask's documentation shows, answered nothing but 500."""
    assert server.get(f"/from_thread?by={by}").body == b"".join(b"%d" % number * 100_000 for number in range(5))


@pytest.mark.beyond_uvicorn("has no pathsend")
@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "nothing"])
def test_pathsend_of_a_pipe_stopped_the_server(server: Server, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "it"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path = Path("/dev/zero")
    server.expected_tracebacks += ["is not a regular file", "No such file or directory"]
    assert server.get(f"/path?path={path}").status == 500
    assert server.get("/upload").status == 200


def test_a_cut_upload_was_reported_as_the_applications_fault(start: Callable[..., Server]) -> None:
    server = start("regressions_app:app")
    with server.connect() as client:
        client.send(b"POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
        client.finish()
        client.to_end()
    assert server.get("/upload").status == 200
    assert "returned without" not in server.stderr


@pytest.mark.beyond_uvicorn("never ends such a request either")
def test_a_request_whose_error_could_not_be_looked_into_was_never_over(start: Callable[..., Server]) -> None:
    server = start("regressions_app:app")
    with server.connect() as client:
        client.send(request("/raise_opaque"))
        server.line("waiting")
        client.reset()
    server.line("Opaque, of which no more can be shown: ValueError: opaque")
    assert server.stop() == 0
    server.line("stopping: nothing in flight")


@pytest.mark.beyond_uvicorn("prints a traceback")
def test_a_request_that_was_cancelled_left_no_word(start: Callable[..., Server]) -> None:
    server = start("regressions_app:app")
    assert server.get("/cancel_itself").status == 500
    server.line("task was cancelled before its response was complete. .GET /cancel_itself")


def test_a_slow_reader_was_given_each_packet_alone(probe: Server, key: str) -> None:
    with probe.connect() as client:
        client.send(request(f"/read-slowly?key={key}", "Content-Length: 10000", method="POST"))
        probe.note(key, "started")
        for _ in range(100):
            client.send(bytes(100))
            time.sleep(0.002)  # a packet of its own
        probe.open_gate(key)
        assert client.response().body == b"read"
    assert probe.notes(key)["bytes"] == 10_000
    assert int(probe.notes(key)["messages"]) < 10  # type: ignore[call-overload]


@pytest.mark.parametrize(("how", "code"), [("exit", b"5"), ("return", b"1")])
@pytest.mark.beyond_uvicorn("its children write to their parent's connections")
def test_a_forked_child_answered_its_parents_client(start: Callable[..., Server], how: str, code: bytes) -> None:
    server = start("regressions_app:app")
    with server.connect() as other, server.connect() as client:
        assert other.get("/upload").status == 200
        assert client.get(f"/fork?how={how}").body == code
        assert other.get("/upload").status == 200
    assert server.stop() == 0


@pytest.mark.beyond_uvicorn("its clients wait, and it cannot be started again")
def test_a_forked_child_listened_on_in_its_parents_place(start: Callable[..., Server]) -> None:
    """Clients were taken and never answered, and the address was in use, for as long as the child lived."""
    server = start("regressions_app:app")
    child = int(server.get("/leave_a_child").body)
    try:
        assert server.get("/upload").body == b"0 1"
        assert server.stop() == 0
        with pytest.raises(ConnectionRefusedError):
            server.connect()
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.beyond_uvicorn("the child goes on")
def test_a_signal_to_a_forked_child_was_taken_by_the_server(start: Callable[..., Server]) -> None:
    """multiprocessing ends its children by SIGTERM: they went on, and on Python 3.11 their parent stopped."""
    server = start("regressions_app:app")
    with server.connect() as client:
        assert client.get("/fork?how=wait").body == b"-15"
        assert client.get("/upload").body == b"0 1"
    assert "stopping" not in server.stderr


@pytest.mark.beyond_uvicorn("its clients never hear of it")
def test_closing_waited_for_a_child_that_had_the_connection(start: Callable[..., Server]) -> None:
    """Who asked again on a connection that had been idle for too long had no answer as long as the child lived."""
    server = start("regressions_app:app", "--idle-timeout", "1")
    with server.connect() as idle, server.connect() as stopped:
        child = int(idle.get("/leave_a_child").body)
        try:
            idle.expect_end()
            assert stopped.get("/upload").status == 200
            assert server.stop() == 0
            stopped.expect_end()
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.beyond_uvicorn("prints its own traceback")
def test_stopping_the_loop_ended_in_a_traceback(start: Callable[..., Server]) -> None:
    server = start("regressions_app:app")
    assert server.get("/stop_loop").body == b"stopped"
    assert server.wait() == 1
    assert "the application stopped the event loop" in server.stderr


@pytest.mark.beyond_uvicorn("prints its own traceback")
def test_cancelling_all_tasks_ended_in_a_traceback(start: Callable[..., Server]) -> None:
    server = start("regressions_app:app")
    assert server.get("/cancel_all").body == b"cancelled"
    assert server.wait() == 0
    assert "cancelled the server's task" in server.stderr


@pytest.mark.beyond_uvicorn("waits on")
def test_no_signal_ended_a_server_whose_application_was_in_a_system_call(start: Callable[..., Server]) -> None:
    """The kernel began the call anew, and no handler of Python's ever ran, not even for the second signal."""
    server = start("regressions_app:app")
    with server.connect() as client:
        client.send(request("/read_nothing"))
        server.line("reading")
        until(lambda: Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S", "it sleeps")
        server.signal(signal.SIGTERM)
        server.signal(signal.SIGINT)
        assert server.wait(5) in (130, 143)


@pytest.mark.beyond_uvicorn("looks for a signal ten times a second")
def test_a_signal_went_unseen_once_another_loop_had_been_closed(start: Callable[..., Server]) -> None:
    """Until the drain time-out and more was over; then what was in flight was cut off."""
    server = start("regressions_app:app")
    began = time.monotonic()
    with server.connect() as client:
        # A signal that comes on the loop's way into its wait is seen when that ends: by this timer.
        client.send(request("/late?after=0.5"))
        assert server.get("/other_loop").body == b"closed"
        server.signal(signal.SIGTERM)
        assert client.response().status == 200
    assert server.wait() == 0
    assert time.monotonic() - began < 5
    assert "does not end" not in server.stderr


@pytest.mark.beyond_uvicorn("prints its own traceback")
def test_a_signal_handler_that_raised_ended_the_server_without_a_drain(start: Callable[..., Server]) -> None:
    """Requests were cut off, no lifespan was shut down, and what was pending was destroyed and said so."""
    server = start("regressions_app:app")
    with server.connect() as client:
        client.send(request("/late?after=0.3"))
        assert server.get("/alarm").body == b"set"
        assert client.response().status == 200
    assert server.wait() == 1
    assert "an exception broke off the event loop" in server.stderr
    assert server.stderr.count("Traceback") == 1
    assert "destroyed" not in server.stderr


@pytest.mark.beyond_uvicorn("has no watchdog")
def test_a_signal_was_an_error_of_the_applications_where_no_thread_could_be_started(
    start: Callable[..., Server],
) -> None:
    """The thread that ends the server after the drain time-out; the error was raised wherever the signal came."""
    server = start("few_threads:app", own_process=True)
    assert server.get("/").body == b"hello"
    assert server.stop() == 0
    assert server.stderr.count("no thread could be started") == 1
    assert "the application stopped" not in server.stderr


@pytest.mark.skipif(sys.version_info < (3, 12, 5), reason="without eager tasks asyncio runs them all in one iteration")
@pytest.mark.beyond_uvicorn("serves what is queued, and is not ended")
def test_requests_that_compute_kept_a_turn_for_eight_of_them(start: Callable[..., Server]) -> None:
    """A timer of the application had to wait until all of them were through."""
    server = start("regressions_app:app")
    clients = [server.connect() for _ in range(7)]
    with server.connect() as busy:
        busy.send(request("/block?seconds=0.3"))
        time.sleep(0.1)  # until it blocks; the others are one turn's jobs then
        clients[0].send(request("/late?after=0.1"))
        time.sleep(0.05)
        for client in clients[1:]:
            client.send(request("/block?seconds=0.3"))
        assert float(clients[0].response().body) < 1.4
        assert busy.response().status == 200
    for client in clients[1:]:
        assert client.response().status == 200
        client.close()
    clients[0].close()


@pytest.mark.beyond_uvicorn("send() to a client that left returns")
def test_an_endless_answer_to_head_went_on_without_its_client(start: Callable[..., Server]) -> None:
    server = start("regressions_app:app")
    with server.connect() as client:
        client.send(request("/endless", method="HEAD"))
        assert client.head().status == 200
    server.line("the endless response has ended")
    assert server.stop() == 0
    assert "exception" not in server.stderr


@pytest.mark.beyond_uvicorn("drops what is pipelined behind a FIN")
def test_requests_behind_one_of_head_were_lost_when_their_client_had_finished(server: Server) -> None:
    """Its `send` raises, since nothing is left to write; the connection closed as after an answer that breaks off."""
    behind = request("/block?seconds=0") * 2
    with server.connect() as client:
        client.send(request("/endless", method="HEAD") + behind)
        client.finish()
        assert client.response(method="HEAD").status == 200
        assert [client.response().body for _ in range(2)] == [b"blocked"] * 2
        assert client.to_end() == b""


def test_each_of_many_sends_at_once_was_woken_for_all_the_others(server: Server) -> None:
    """3,000 of them took seconds: room for one woke all, and all but a few waited again."""
    lines = server.get("/crowd?tasks=500").body.split(b"\n")
    order = [tuple(map(int, line.split()[:2])) for line in lines[:-1]]
    assert sorted(order) == [(number, turn) for number in range(500) for turn in range(2)]
    assert [number for number, turn in order if turn == 0] == list(range(500)), "in the order of the calls"
    if server.target.server == "m0serve":
        assert int(lines[-1]) == 1


@pytest.mark.beyond_uvicorn("has another drain")
def test_what_was_said_after_the_loop_had_ended_was_to_be_taken_by_it(start: Callable[..., Server]) -> None:
    """The process turned for ever, and its watchdog never got the GIL."""
    server = start("regressions_app:app", "--drain-timeout", "0.1", validated=False)
    clients = [server.connect() for _ in range(6)]
    for client in clients:
        client.send(request("/last_words"))
        assert client.head().status == 200
    assert server.stop(seconds=4) == 0
    assert "abandoned: GET /last_words" in server.stderr
    for client in clients:
        client.close()


@pytest.mark.parametrize(("error", "code"), [(None, 0), (SystemExit(3), 1)])
def test_a_server_that_broke_down_and_hung_ended_as_if_nothing_had_happened(
    error: SystemExit | None, code: int
) -> None:
    """Its exit code was 0: nobody started it again."""
    server = Embedded("probe:app")
    server._watchdog = Armed()
    if error is None:
        server._begin_stop()
    else:
        server._fail(error)
    assert server._watchdog.codes == [code]


def test_run_inside_a_running_loop_wrote_the_same_line_for_ever() -> None:
    """The loop that could not run was taken for one that the application had stopped, again and again."""

    async def main() -> None:
        server = Embedded("probe:app", port=0)
        for serve in (server.run, lambda: run("probe:app", port=0)):
            with pytest.raises(RuntimeError, match="run a Server in a thread of its own"):
                serve()
        assert server.address == ""

    asyncio.run(main())


@pytest.mark.parametrize("model", ["inverted", "pump"])
@pytest.mark.parametrize("interface", ["asgi", "wsgi"])
def test_servers_whose_applications_knew_them_were_never_freed(interface: str, model: Any) -> None:
    """Nor were their descriptors, ten of each that served WSGI: a test suite that made a hundred had none left."""

    class Asgi:
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            self.last = scope, receive, send
            await send({"type": "http.response.start", "status": 204})
            await send({"type": "http.response.body"})

    class Wsgi:
        def __call__(self, environ: Any, start_response: Any) -> list[bytes]:
            self.last = environ, start_response
            start_response("204 No Content", [])
            return []

    def serve() -> weakref.ref[Any]:
        app: Any = Asgi() if interface == "asgi" else Wsgi()
        app.server = Embedded(app, port=0, model=model, lifespan="off", log_level="error")
        thread = threading.Thread(target=app.server.run)
        thread.start()
        assert app.server.started.wait(10)
        with urllib.request.urlopen(app.server.address, timeout=10) as response:
            assert response.status == 204
        app.server.stop()
        thread.join()
        return weakref.ref(app)

    serve()
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    ended = serve()
    gc.collect()
    assert ended() is None
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_current_folder_that_is_gone_was_a_traceback_of_ours(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    in_it = f"rmdir {gone}; exec {sys.executable} -m m0serve --port 0 probe:app"
    done = subprocess.run(["sh", "-c", in_it], check=False, cwd=gone, env=environment(), capture_output=True, text=True)
    assert done.returncode == 1
    assert "the current folder is gone" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_took_the_unix_socket_of_its_successor_along(tmp_path: Path) -> None:
    """Started during the drain of the first, the second could not be reached any more once that had ended."""
    path, here = tmp_path / "socket", Target(backend="epoll")
    first = Server(here, "regressions_app:app", "--uds", str(path), address=str(path), validated=False)
    with first.connect() as client:
        client.send(b"POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
        first.signal(signal.SIGTERM)
        first.line("stopping: ")
        second = Server(here, "regressions_app:app", "--uds", str(path), address=str(path), validated=False)
        assert first.process.poll() is None
    assert first.wait() == 0
    assert second.get("/block?seconds=0").status == 200
    assert second.stop() == 0
    assert not path.exists()


def test_a_unix_socket_of_another_type_was_taken_for_one_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as busy:
        busy.bind(str(path))
        command = [sys.executable, "-m", "m0serve", "--uds", str(path)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        assert ended.returncode == 1
        assert "the address is in use" in ended.stderr
        assert path.exists()
