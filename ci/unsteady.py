"""Runs a suite, and gives what failed beside others a second look, alone.

ci/unsteady.py pytest CACHE ARGUMENT...
ci/unsteady.py cargo ARGUMENT...   (those of `cargo test`)

The suites wait for conditions, but each wait has an end, and a machine that does nothing for seconds reaches it. So at
most two failed tests are run again, by themselves; one that then passes is named in a line that ci/tally.py repeats at
the end. More than two, or one that fails again, are failures.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

MOST = 2
CARGO_FAILED = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. FAILED$")


def second_look(code: int, names: list[str], alone: Callable[[list[str]], int]) -> int:
    """Runs `names`, which failed in a run that ended with `code`; returns the exit code of both runs."""
    if code == 0 or not 0 < len(names) <= MOST:
        return code
    print("\n== once more, alone:", *names, flush=True)
    if code := alone(names):
        return code
    for name in names:
        print(f"UNSTEADY: {name} failed beside others and passed alone", flush=True)
    return 0


def failed(cache: Path) -> list[str]:
    """What pytest's last run left as failed."""
    file = cache / "v" / "cache" / "lastfailed"
    return list(json.loads(file.read_text())) if file.exists() else []


def pytest(cache: Path, arguments: list[str]) -> int:
    """Returns pytest's exit code, or 0 when everything that failed passed in its second run."""
    command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}"]
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # every worker would compile every test again
    (cache / "v" / "cache" / "lastfailed").unlink(missing_ok=True)
    code = subprocess.call([*command, *arguments])
    names = failed(cache) if code == 1 else []  # other codes are of runs that were not made, or not to their end
    return second_look(code, names, lambda names: subprocess.call([*command, "-n", "0", *names]))


def cargo(arguments: list[str]) -> int:
    """Returns the exit code of `cargo test`, or 0 when everything that failed passed in its second run."""
    command = ["cargo", "test", *arguments]
    # To the end, so that one failure hides no other.
    with subprocess.Popen([*command, "--no-fail-fast"], stdout=subprocess.PIPE, text=True, errors="replace") as run:
        assert run.stdout
        names, unfinished = [], 0
        for line in run.stdout:
            print(line, end="", flush=True)
            unfinished += line.startswith("running ")
            unfinished -= line.startswith("test result: ")
            if match := CARGO_FAILED.match(line):
                names.append(match[1])
    if unfinished:
        return run.returncode or 1  # a program that did not come to its end, which no test alone would tell
    exact = ["--", "--test-threads=1", "--exact"]
    return second_look(run.returncode, names, lambda names: subprocess.call([*command, *exact, *names]))


def main(runner: str, *arguments: str) -> int:
    """Returns the exit code."""
    if runner == "pytest":
        return pytest(Path(arguments[0]).resolve(), list(arguments[1:]))
    if runner == "cargo":
        return cargo(list(arguments))
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
