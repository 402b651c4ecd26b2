"""Every test that asks for `target`, `servers` or `probe` runs once for each model on each backend.

python -m pytest tests                             all of them
python -m pytest tests --only inverted-epoll       one (repeatable)
python -m pytest tests --only inverted-kqueue --only pump-kqueue
                                                   the whole suite over kqueue, which on Linux is emulated; without it
                                                   only what is marked `kqueue` runs over that
python -m pytest tests --behaviour 7               those that show a line of docs/conformance.md (repeatable)
python -m pytest tests --against uvicorn           the same tests against uvicorn: what fails there and is not
                                                   marked `beyond_uvicorn` is an error of the test
"""

from __future__ import annotations

import gc
import signal
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from harness.server import Server, Servers, Target, close_fork_servers, violations
from harness.targets import BASE, KQUEUE, KQUEUE_UVLOOP, UVICORN, UVLOOP, missing, serves_wsgi


def pytest_addoption(parser: pytest.Parser) -> None:
    """The switches above."""
    parser.addoption("--against", default="m0serve", choices=["m0serve", "uvicorn"])
    parser.addoption("--only", action="append", default=[], metavar="TARGET")
    parser.addoption("--behaviour", action="append", default=[], metavar="NUMBER", type=int)


def pytest_configure(config: pytest.Config) -> None:
    """Our markers."""
    config.addinivalue_line("markers", "uvloop: also runs with --loop uvloop")
    config.addinivalue_line("markers", "kqueue: also runs over the emulated kqueue, where the wheel has it")
    config.addinivalue_line("markers", "own_process: its servers are started by their command, and not forked")
    config.addinivalue_line("markers", "beyond_uvicorn(why): uvicorn does not do this")
    config.addinivalue_line("markers", "wsgi: serves a WSGI application")
    config.addinivalue_line("markers", "behaviour(number, ...): what it shows, by its number in docs/conformance.md")
    # With several workers a file's tests of one target stay on one worker, so that they share their servers.
    if getattr(config.option, "dist", "no") == "load":
        config.option.dist = "loadgroup"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The matrix."""
    if "target" not in metafunc.fixturenames:
        return
    marked = metafunc.definition.get_closest_marker
    only = metafunc.config.getoption("--only")
    targets = [*BASE, *(UVLOOP if marked("uvloop") else [])]
    emulated = [*KQUEUE, *(KQUEUE_UVLOOP if marked("uvloop") else [])]
    targets += [target for target in emulated if marked("kqueue") or target.label in only]
    if marked("wsgi"):
        targets = [target for target in targets if serves_wsgi(target)]
    if metafunc.config.getoption("--against") == "uvicorn":
        targets = list(UVICORN)
    if only:
        targets = [target for target in targets if target.label in only]
    metafunc.parametrize("target", targets, ids=[target.label for target in targets], indirect=True, scope="session")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Which tests run, and which of them belong together on a worker."""
    if wanted := set(config.getoption("--behaviour")):

        def shows(item: pytest.Item) -> bool:
            return any(number in wanted for mark in item.iter_markers("behaviour") for number in mark.args)

        config.hook.pytest_deselected(items=[item for item in items if not shows(item)])
        items[:] = filter(shows, items)
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        callspec = getattr(item, "callspec", None)
        # With --only there may be no target left for a test; pytest then skips it, with a parameter of its own.
        of = getattr(callspec.params.get("target"), "label", "all") if callspec else "all"
        item.add_marker(pytest.mark.xdist_group(f"{item.path.stem}-{of}"))


def pytest_collection_finish() -> None:
    """Thousands of tests are no garbage: each full collection would look at them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _time_limit() -> Iterator[None]:
    """No test takes longer than a minute, whatever the server does."""

    def over(*_: object) -> None:
        raise TimeoutError("the test took longer than a minute")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def _no_violations() -> Iterator[None]:
    """What the validator says fails the test that is running; what comes later fails its server's last look."""
    violations.clear()
    yield
    if violations:
        pytest.fail("".join(violations), pytrace=False)


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest) -> Target:
    """The model, backend and loop under test."""
    chosen: Target = request.param
    if why := missing(chosen):
        pytest.skip(f"NOT TESTED HERE: {why}")
    return chosen


@pytest.fixture(autouse=True)
def _uvicorn_is_not_enough(request: pytest.FixtureRequest) -> None:
    marker = request.node.get_closest_marker("beyond_uvicorn")
    if marker and request.config.getoption("--against") == "uvicorn":
        pytest.skip(f"uvicorn: {marker.args[0]}")


@pytest.fixture(scope="session")
def servers(target: Target) -> Iterator[Servers]:
    """The servers that the tests of one target share; how they lived is judged at the end."""
    shared = Servers(target)
    yield shared
    if faults := shared.close():
        pytest.fail("\n\n".join(faults), pytrace=False)


@pytest.fixture
def probe(servers: Servers) -> Server:
    """A shared server with the probe application."""
    return servers.get("probe:app")


@pytest.fixture
def start(target: Target, request: pytest.FixtureRequest) -> Iterator[Callable[..., Server]]:
    """Start a server that belongs to this test alone; it is killed at the end if it still runs."""
    started: list[Server] = []
    own_process = request.node.get_closest_marker("own_process") is not None

    def starter(app: str = "probe:app", *options: str, **keywords: object) -> Server:
        started.append(Server(target, app, *options, **{"own_process": own_process} | keywords))  # type: ignore[arg-type]
        return started[-1]

    yield starter
    faults = []
    for server in started:
        if server.process.poll() is None:
            server.kill()
        else:
            server.wait()
        faults += server.bad_output()
    if faults:
        pytest.fail("\n\n".join(faults), pytrace=False)


@pytest.fixture
def key() -> str:
    """A name under which the probe application keeps what it notes for this test."""
    return uuid.uuid4().hex


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """What servers were forked from ends with the tests, and after what they shared, which -x tears down late."""
    close_fork_servers()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly what this machine could not test."""
    reasons = {report.longrepr[2] for report in terminalreporter.stats.get("skipped", [])}
    for reason in sorted(reason.removeprefix("Skipped: ") for reason in reasons):
        if reason.startswith("NOT TESTED HERE"):
            terminalreporter.write_line(reason, yellow=True, bold=True)
