"""Tests of the second look, with a `cargo` that says what a test wants it to say."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).with_name("unsteady.py")
PASSED = "running 1 test\ntest other ... ok\n\ntest result: ok. 1 passed; 0 failed\n"


def of(*names: str) -> str:
    """What a test program prints in which these fail."""
    lines = "".join(f"test {name} ... FAILED\n" for name in names)
    return f"running {len(names)} tests\n{lines}\ntest result: FAILED. 0 passed; {len(names)} failed\n"


class Cargo(unittest.TestCase):
    """`ci/unsteady.py cargo`."""

    def setUp(self) -> None:
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))

    def run_with(self, *runs: tuple[str, int]) -> tuple[int, str, list[str]]:
        """The exit code, what was printed, and the command lines of each run, when cargo prints and ends as given."""
        for number, (text, code) in enumerate(runs, 1):
            (self.folder / f"{number}.txt").write_text(text)
            (self.folder / f"{number}.code").write_text(str(code))
        cargo = self.folder / "cargo"
        cargo.write_text(
            f'#!/bin/sh\ncd {self.folder}\necho "$*" >>calls\nn=$(grep -c . calls)\ncat $n.txt\nexit $(cat $n.code)\n'
        )
        cargo.chmod(0o755)
        result = subprocess.run(
            [sys.executable, SCRIPT, "cargo", "--workspace"],
            env={**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        return result.returncode, result.stdout, (self.folder / "calls").read_text().splitlines()

    def test_what_passes_is_run_once(self) -> None:
        code, _, calls = self.run_with((PASSED, 0))
        self.assertEqual((code, calls), (0, ["test --workspace --no-fail-fast"]))

    def test_one_that_passes_alone_is_named(self) -> None:
        code, text, calls = self.run_with((PASSED + of("a::b", "contract::c::epoll"), 101), (PASSED, 0))
        self.assertEqual((code, calls[1]), (0, "test --workspace -- --test-threads=1 --exact a::b contract::c::epoll"))
        self.assertIn("UNSTEADY: a::b failed beside others and passed alone\nUNSTEADY: contract::c::epoll ", text)

    def test_one_that_fails_again_is_a_failure(self) -> None:
        code, text, _ = self.run_with((of("a"), 101), (of("a"), 101))
        self.assertEqual((code, "UNSTEADY" in text), (101, False))

    def test_three_are_failures(self) -> None:
        code, _, calls = self.run_with((of("a", "b", "c"), 101))
        self.assertEqual((code, len(calls)), (101, 1))

    def test_a_program_that_ended_early_is_a_failure_whatever_passes_alone(self) -> None:
        code, _, calls = self.run_with((of("a") + "running 3 tests\ntest b ... ok\n", 101))
        self.assertEqual((code, len(calls)), (101, 1))

    def test_what_was_not_built_is_a_failure(self) -> None:
        code, _, calls = self.run_with(("", 101))
        self.assertEqual((code, len(calls)), (101, 1))


if __name__ == "__main__":
    unittest.main()
