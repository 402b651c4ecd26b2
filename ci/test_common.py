"""Tests of what the scripts share, ci/common.sh."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable
from pathlib import Path

CI = Path(__file__).resolve().parent

#: Stands for python3: notes how it was called. An environment that it makes can do nothing, and is ready at a sign.
PYTHON = f"""#!/bin/sh
echo "$2" >>"$NOTES"
if [ "$1" = -c ]; then exec "{sys.executable}" "$@"; fi
mkdir -p "$3/bin" && printf '#!/bin/sh\\n' >"$3/bin/python" && chmod +x "$3/bin/python"
while [ -e "$NOTES" ] && [ ! -e "$NOTES.go" ]; do sleep 0.01; done
"""


def until(condition: Callable[[], bool]) -> None:
    """Waits for it, for ten seconds."""
    end = time.monotonic() + 10
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.01)


class Tools(unittest.TestCase):
    """The environment with pip and maturin."""

    def test_two_that_need_it_at_once_made_it_both(self) -> None:
        """One removed what the other was installing into."""
        with tempfile.TemporaryDirectory() as folder:
            python, notes = Path(folder) / "python3", Path(folder) / "notes"
            python.write_text(PYTHON)
            python.chmod(0o755)
            notes.touch()
            script = f'set -euo pipefail; . "{CI}/common.sh"; build="{folder}/build"; python_tool maturin --version'
            env = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "NOTES": str(notes)}

            def asks(called: Callable[[list[str]], bool]) -> subprocess.Popen[bytes]:
                started = subprocess.Popen(["bash", "-c", script], env=env)
                self.addCleanup(started.wait)
                self.addCleanup(started.kill)
                until(lambda: called(notes.read_text().splitlines()))
                return started

            first = asks(lambda calls: "venv" in calls)
            before = len(notes.read_text().splitlines())
            second = asks(lambda calls: len(calls) > before)
            Path(f"{notes}.go").touch()
            self.assertEqual((first.wait(10), second.wait(10)), (0, 0))
            self.assertEqual(notes.read_text().splitlines().count("venv"), 1)
