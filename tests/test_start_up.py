"""The command line: what starts, what does not and with which words (promises 31, 34).

None of this depends on the model or the backend, so it runs once.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.client import Client
from harness.server import APPS, Server, Target, environment

pytestmark = pytest.mark.own_process

HERE = Target(backend="epoll")


STARTED: list[Server] = []


def serve(app: str, *options: str, address: str | None = None, validated: bool = True) -> Server:
    """Start a server; it is ended with the test."""
    STARTED.append(Server(HERE, app, *options, address=address, validated=validated))
    return STARTED[-1]


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    yield
    while STARTED:
        server = STARTED.pop()
        server.kill()
        assert server.bad_output() == []


@pytest.fixture(autouse=True)
def _only_m0serve(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--against") != "m0serve":
        pytest.skip("about m0serve's own command line")


def m0serve(
    *arguments: str, cwd: Path = APPS, pass_fds: tuple[int, ...] = (), **env: str
) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(
        [sys.executable, "-m", "m0serve", *arguments],
        check=False,
        cwd=cwd,
        env=environment(**env),
        pass_fds=pass_fds,
        capture_output=True,
        text=True,
        timeout=20,
    )


def first_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.stderr, "nothing was said"
    return done.stderr.splitlines()[0]


def assert_one_sentence(done: subprocess.CompletedProcess[str], code: int, *parts: str) -> None:
    assert done.returncode == code, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    for part in parts:
        assert part in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


# --- applications that cannot be served ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("app", "parts"),
    [
        ("no_such_module:app", ["no_such_module"]),
        ("no_such_package.inner:app", ["no_such_package"]),
        ("probe.no_such_part:app", ["probe.no_such_part"]),
        ("probe:missing", ["probe", "missing"]),
        ("probe:app.inner", ["inner"]),
        ("awkward_app", ["awkward_app"]),
        ("awkward_app:number", ["awkward_app:number", "int"]),
        ("awkward_app:nothing", ["awkward_app:nothing", "NoneType"]),
        ("awkward_app:make", ["--factory"]),
        ("awkward_app:unclear", ["awkward_app:unclear", "--interface wsgi", "(environ, start_response)"]),
    ],
)
def test_an_app_that_cannot_be_found_is_one_sentence(app: str, parts: list[str]) -> None:
    assert_one_sentence(m0serve("--port", "0", app), 1, *parts)


def test_an_inverted_wsgi_server_on_io_uring_is_refused_with_a_way_out() -> None:
    done = m0serve("--port", "0", "--model", "inverted", "--backend", "io_uring", "awkward_app:wsgi")
    assert_one_sentence(done, 78, "--model pump")


def assert_own_traceback(done: subprocess.CompletedProcess[str], error: str, frame: str) -> None:
    assert done.returncode == 1
    assert "Traceback" not in first_line(done)
    assert done.stderr.count("Traceback (most recent call last)") == 1
    assert done.stderr.rstrip().splitlines()[-1].startswith(error), done.stderr
    assert frame in done.stderr
    assert not re.search(r'File "[^"]*/m0serve/', done.stderr), done.stderr
    assert "importlib" not in done.stderr


@pytest.mark.behaviour(31)
def test_an_app_that_raises_on_import_shows_its_own_traceback() -> None:
    assert_own_traceback(m0serve("--port", "0", "broken.raises:app"), "ValueError: the app is broken", "in compute")


def test_an_app_whose_own_import_fails_shows_its_own_traceback() -> None:
    done = m0serve("--port", "0", "broken.imports:app")
    assert_own_traceback(done, "ModuleNotFoundError: No module named 'not_installed'", "broken/imports.py")


def test_an_app_with_a_syntax_error_shows_where(tmp_path: Path) -> None:
    (tmp_path / "unreadable.py").write_text("def broken(:\n    pass\n")
    done = m0serve("--port", "0", "--app-dir", str(tmp_path), "unreadable:app")
    assert done.returncode == 1
    assert "unreadable.py" in done.stderr
    assert "SyntaxError" in done.stderr
    assert not re.search(r'File "[^"]*/m0serve/', done.stderr)


def test_a_factory_that_raises_shows_its_own_traceback() -> None:
    assert_own_traceback(m0serve("--port", "0", "--factory", "broken.raises_later:make"), "KeyError", "in make")


@pytest.mark.parametrize("app", ["broken.exits:app"])
def test_an_app_that_exits_on_import(app: str) -> None:
    done = m0serve("--port", "0", app)
    assert done.returncode == 4
    assert not re.search(r'File "[^"]*/m0serve/', done.stderr)


# --- usage -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--no-such-flag", "probe:app"], ["--no-such-flag"]),
        (["--port", "70000", "probe:app"], ["--port"]),
        (["--port", "http", "probe:app"], ["--port"]),
        (["--model", "sideways", "probe:app"], ["--model"]),
        (["--max-head", "much", "probe:app"], ["--max-head"]),
        (["--idle-timeout=-1", "probe:app"], ["--idle-timeout"]),
        (["--header-timeout", "inf", "probe:app"], ["--header-timeout"]),
        (["probe:app", "probe:app"], ["probe:app"]),
        (["--port", "1", "--uds", "/tmp/x", "probe:app"], ["--uds"]),
        (["--forwarded-allow-ips", "not-an-address", "probe:app"], ["--forwarded-allow-ips"]),
        (["probe.py:app"], ["probe"]),
        (["./probe.py:app"], ["give probe:app\n"]),
        (["../elsewhere/probe.py"], ["give probe:app --app-dir ../elsewhere"]),
        (["probe:make()"], ["give probe:make --factory"]),
        (["probe:"], ["probe"]),
        ([":app"], ["app"]),
        (["--root-path", "/\udcff", "probe:app"], ["UTF-8"]),
    ],
)
def test_wrong_usage_exits_2(arguments: list[str], parts: list[str]) -> None:
    assert_one_sentence(m0serve(*arguments), 2, *parts)


def test_a_wrong_variable_is_named_by_its_own_name() -> None:
    assert_one_sentence(m0serve("probe:app", M0_PORT="http"), 2, "M0_PORT")
    assert_one_sentence(m0serve("probe:app", M0_HOST="\udcff"), 2, "M0_HOST")


def test_a_variable_that_nobody_reads_is_named_at_the_start() -> None:
    done = m0serve("--port", "0", "probe:missing", M0_MAXBODY="1m", M0_EMPTY="")
    assert done.returncode == 1
    said = "m0serve: warning: M0_MAXBODY is no variable of m0serve and says nothing; did you mean M0_MAX_BODY?"
    assert done.stderr.splitlines()[0] == said, done.stderr
    assert len(done.stderr.splitlines()) == 2
    shown = json.loads(m0serve("--doctor", "probe:app", M0_MODLE="pump").stdout)
    assert ["M0_MODEL?" in sentence for sentence in shown["strays"]] == [True]
    quiet = m0serve("--log-level", "error", "probe:missing", M0_MAXBODY="1m")
    assert_one_sentence(quiet, 1, "missing")


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_help_and_version_go_to_stdout(flag: str) -> None:
    done = m0serve(flag)
    assert (done.returncode, done.stderr) == (0, "")
    assert "m0serve" in done.stdout


@pytest.mark.parametrize("flag", ["--help", "--doctor"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_had_enough_was_shown_a_traceback(flag: str, unbuffered: str) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "m0serve", flag, "probe:app"]
    env = environment(PYTHONUNBUFFERED=unbuffered)
    done = subprocess.run(command, check=False, cwd=APPS, env=env, stdout=write, stderr=subprocess.PIPE, timeout=20)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.fixture
def elsewhere() -> str:
    """A backend that this machine, or this wheel, does not have."""
    shown = json.loads(m0serve("--doctor", "probe:app").stdout)
    unusable = [backend["name"] for backend in shown["backends"] if not backend["usable"]]
    if not unusable:
        pytest.skip("NOT TESTED HERE: refusals of a backend: the wheel emulates kqueue, the machine has the others")
    return str(unusable[-1])


def test_what_this_machine_cannot_run_exits_78(elsewhere: str) -> None:
    done = m0serve("--backend", elsewhere, "--port", "0", "probe:app")
    assert_one_sentence(done, 78, elsewhere, "emulated-kqueue" if elsewhere == "kqueue" else "--backend auto")


# --- doctor, variables, the two ways to start ------------------------------------------------------------------


def test_doctor_prints_json_and_starts_nothing() -> None:
    done = m0serve("--doctor", "--backend", "epoll", "--model", "pump", "probe:app", M0_MAX_BODY="5m")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    text = json.dumps(shown)
    assert shown["resolved"]["backend"] == "epoll"
    assert shown["resolved"]["model"] == "pump"
    assert "M0_MAX_BODY" in text
    assert str(5 * 1024 * 1024) in text


def test_doctor_exits_as_the_server_would(elsewhere: str) -> None:
    done = m0serve("--doctor", "probe:missing")
    assert done.returncode == 1
    json.loads(done.stdout)
    assert m0serve("--doctor", "--backend", elsewhere, "probe:app").returncode == 78


def test_a_flag_beats_a_variable_and_a_variable_the_default() -> None:
    shown = json.loads(m0serve("--doctor", "--port", "0", "probe:app", M0_PORT="1", M0_MODEL="pump").stdout)
    assert shown["options"]["port"]["value"] == 0
    assert shown["resolved"]["model"] == "pump"
    assert json.loads(m0serve("--doctor", "probe:app", M0_INVERTED="0").stdout)["resolved"]["model"] == "pump"


def test_the_console_script_is_the_module() -> None:
    script = Path(sys.executable).with_name("m0serve")
    assert script.exists()
    done = subprocess.run([script, "--version"], check=True, capture_output=True, text=True, timeout=20)
    assert done.stdout == m0serve("--version").stdout


def test_app_dir(tmp_path: Path) -> None:
    shutil.copy(APPS / "atexit_app.py", tmp_path / "only_here.py")
    assert m0serve("--doctor", "only_here:app").returncode == 1
    assert m0serve("--doctor", "only_here:app", "--app-dir", str(tmp_path)).returncode == 0
    assert m0serve("--doctor", "only_here:app", cwd=tmp_path).returncode == 0


def test_a_factory_and_a_default_attribute() -> None:
    for arguments in (["--factory", "awkward_app:make"], ["probe"]):
        server = serve(arguments[-1], *arguments[:-1], validated=False)
        assert server.get("/hello").status == 200
        assert server.stop() == 0


def test_the_demo_is_served_without_an_app() -> None:
    server = serve("--log-level=info")
    page = server.get("/")
    assert page.status == 200
    assert b"<html" in page.body
    assert server.get("/json").json()
    assert server.get("/echo", method="POST", body=b"hello").body == b"hello"
    assert server.get("/slow?ms=10").status == 200
    assert server.get("/stream").framing == "chunked"
    assert server.stop() == 0


@pytest.mark.parametrize("model", ["inverted", "pump"])
def test_rloop_runs_the_application(model: str) -> None:
    STARTED.append(Server(Target(model=model, backend="epoll", loop="rloop"), "probe:app"))
    server = STARTED[-1]
    server.line("loop rloop")
    body = bytes(range(256)) * 1024
    with server.connect() as client:
        for _ in range(20):
            assert client.get("/hello").body == b"Hello, World!"
            assert client.get("/echo", method="POST", body=body).body == body
    assert server.stop() == 0


def test_a_loop_that_is_not_installed_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "rloop.py").write_text("raise ImportError('no rloop here')\n")
    done = m0serve("--loop", "rloop", "--port", "0", "probe:app", PYTHONPATH=str(tmp_path))
    assert_one_sentence(done, 78, "pip install rloop", "--loop asyncio")


# --- where it listens ------------------------------------------------------------------------------------------


@pytest.mark.behaviour(34)
def test_a_port_in_use_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert_one_sentence(m0serve("--port", str(port), "probe:app"), 1, str(port), "in use")
        assert_one_sentence(m0serve("--port", str(port), "probe:"), 2, "MODULE:ATTR")  # before anything is bound


def test_an_address_that_is_not_ours_is_one_sentence() -> None:
    assert_one_sentence(m0serve("--host", "192.0.2.1", "--port", "0", "probe:app"), 1, "192.0.2.1")


@pytest.mark.behaviour(34)
def test_ipv6() -> None:
    if not Path("/proc/net/if_inet6").read_text():
        pytest.skip("this machine has no IPv6")
    server = serve("probe:app", "--host", "::1")
    assert isinstance(server.address, tuple)
    assert server.address[0] == "::1"
    with server.connect() as client:
        scope = client.get("/scope").json()["scope"]
        assert scope["client"]["tuple"] == list(client.sock.getsockname()[:2])
        assert scope["server"]["tuple"] == list(server.address)
    assert server.stop() == 0


@pytest.mark.behaviour(33, 34)
def test_all_addresses() -> None:
    server = serve("probe:app", "--host", "::")
    assert isinstance(server.address, tuple)
    for host in ("::1", "127.0.0.1"):
        with Client((host, server.address[1])) as client:
            scope = client.get("/scope").json()["scope"]
            assert scope["client"]["tuple"][0] == host
            forwarded = client.get("/scope", "X-Forwarded-For: 192.0.2.7").json()["scope"]["client"]
            assert forwarded == {"tuple": ["192.0.2.7", 0]}
    assert server.stop() == 0


def test_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    server = serve("probe:app", "--uds", str(path), address=str(path))
    assert server.get("/hello").status == 200
    scope = server.get("/scope").json()["scope"]
    assert scope["server"] in ({"tuple": [str(path), None]}, None)
    # Whoever may open the socket is not believed unless --forwarded-allow-ips says so.
    scope = server.get("/scope", "X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: https").json()["scope"]
    assert (scope["client"], scope["scheme"]) == (None, "http")
    # A second server must not take it over while the first one lives.
    assert_one_sentence(m0serve("--uds", str(path), "probe:app"), 1, str(path))
    assert server.get("/hello").status == 200
    assert server.stop() == 0
    assert not path.exists()


@pytest.mark.behaviour(34)
def test_a_stale_unix_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    server = serve("probe:app", "--uds", str(path), address=str(path))
    assert server.get("/hello").status == 200
    assert server.stop() == 0


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("precious")
    assert_one_sentence(m0serve("--uds", str(path), "probe:app"), 1, str(path))
    assert path.read_text() == "precious"


def test_an_inherited_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        os.set_inheritable(listener.fileno(), True)
        command = [*HERE.command(), "--fd", str(listener.fileno()), "probe:app"]
        process = subprocess.Popen(
            command, cwd=APPS, env=environment(), pass_fds=[listener.fileno()], stderr=subprocess.DEVNULL
        )
        try:
            with Client(listener.getsockname()) as client:
                assert client.get("/hello").status == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
        finally:
            process.kill()


def test_a_socket_that_cannot_listen_was_a_traceback_of_ours_and_nothing_was_shut_down() -> None:
    """So was a port on which another began to listen while the application started: that is found out as late."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        done = m0serve("--fd", str(ours.fileno()), "lifespans:scoped", pass_fds=(ours.fileno(),))
    assert done.returncode == 1, done.stderr
    sentence, farewell = done.stderr.splitlines()
    assert sentence.startswith("m0serve: cannot listen on ")
    assert "--fd" in sentence
    assert farewell == "left the scope in the same task: True"


@pytest.mark.parametrize(
    ("family", "kind", "why"),
    [
        (socket.AF_UNIX, socket.SOCK_SEQPACKET, "it is no stream socket"),
        (socket.AF_INET, socket.SOCK_DGRAM, "it is no stream socket"),
        (socket.AF_INET, socket.SOCK_STREAM, "it is not bound"),
    ],
    ids=["packets", "datagrams", "unbound"],
)
def test_a_descriptor_that_is_no_bound_stream_socket_was_served(family: int, kind: int, why: str) -> None:
    """Packets can be listened for, and an unbound socket listens on any port of every address."""
    with socket.socket(family, kind) as given:
        if kind == socket.SOCK_SEQPACKET:
            given.bind("")  # Linux finds a name for it
            given.listen()
        done = m0serve("--fd", str(given.fileno()), "probe:app", pass_fds=(given.fileno(),))
    assert_one_sentence(done, 1, "cannot listen on the inherited descriptor", why, "--fd")
