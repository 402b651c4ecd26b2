"""Tests of the style check and the tally: each finding is found, and what is fine passes."""

from __future__ import annotations

import contextlib
import io
import tempfile
import unittest
from pathlib import Path

import style
import tally

GOOD = """//! Owns nothing.

fn short() {
    // SAFETY: nothing is touched.
    unsafe { nothing() }
}
"""


class Style(unittest.TestCase):
    """ci/style.py."""

    def rust(self, text: str) -> list[str]:
        """Failures of a Rust file with this text."""
        return style.check_rust(style.ROOT / "x.rs", text)[0]

    def test_good_code_passes(self) -> None:
        self.assertEqual(style.check_rust(style.ROOT / "x.rs", GOOD), ([], []))

    def test_unsafe_needs_a_reason(self) -> None:
        self.assertEqual(len(self.rust(GOOD.replace("SAFETY:", "Safe since"))), 1)

    def test_examples_in_comments_would_not_be_tested(self) -> None:
        self.assertEqual(len(self.rust(GOOD + "\n/// ```\n/// assert!(false);\n/// ```\nfn b() {}\n")), 2)

    def test_modules_open_with_what_they_own(self) -> None:
        self.assertEqual(len(self.rust(GOOD.replace("//!", "//"))), 1)

    def test_long_functions_are_measured_to_their_own_brace(self) -> None:
        def function(lines: int) -> str:
            return "//! x\n\n    pub fn long(\n        a: u8,\n    ) {\n" + "        a();\n" * lines + "    }\n"

        self.assertEqual(style.functions(function(10).splitlines()), [("long", 3, 14)])
        self.assertEqual(self.rust(function(96)), [])
        self.assertEqual(len(self.rust(function(97))), 1)
        self.assertEqual(len(style.check_rust(style.ROOT / "x.rs", function(70))[1]), 1)

    def test_declarations_have_no_length(self) -> None:
        text = "//! x\ntrait T {\n    fn a(\n        &self,\n    );\n    fn b(&self);\n    fn c() {}\n}\n"
        self.assertEqual(style.functions(text.splitlines()), [])

    def test_the_core_takes_what_a_simulator_must_own_from_the_platform(self) -> None:
        inside, outside = style.ROOT / "src/engine/x.rs", style.ROOT / "src/log.rs"
        for line in (
            "use std::sync::atomic::AtomicBool;",
            "use std::sync::{Arc, Mutex};",
            "let (a, b) = std::sync::mpsc::channel();",
            "use std::net::{SocketAddr, TcpStream};",
            "use std::os::unix::net::UnixStream;",
        ):
            self.assertEqual(len(style.check_rust(inside, f"//! x\n{line}\n")[0]), 1, line)
            self.assertEqual(style.check_rust(outside, f"//! x\n{line}\n")[0], [], line)
        for line in ("use std::sync::{Arc, OnceLock};", "use std::net::SocketAddr;", "use m0_platform::sync::Mutex;"):
            self.assertEqual(style.check_rust(inside, f"//! x\n{line}\n")[0], [], line)

    def test_put_off_words(self) -> None:
        for word in ("todo!()", "unimplemented!()", "dbg!(x)", "// " + "TO" + "DO later"):
            self.assertTrue(style.PUT_OFF.search(word), word)
        self.assertFalse(style.PUT_OFF.search("a mastodon"))

    def test_python_needs_a_docstring(self) -> None:
        path = style.ROOT / "x.py"
        self.assertEqual(style.check_python(path, '"""Says."""\n'), [])
        self.assertEqual(style.check_python(path, ""), [])
        self.assertEqual(len(style.check_python(path, "import os\n")), 1)

    def test_files_that_documents_name_are_there(self) -> None:
        files = ["src/engine/conn.rs", "bench/results/cost.txt"]

        def missing(text: str) -> int:
            return len(style.check_page(style.ROOT / "x.md", text, files))

        self.assertEqual(missing("`conn.rs`, `engine/conn.rs`, `bench/results/cost.txt`, `results/DATE-all.json`"), 0)
        self.assertEqual(missing("`gone.rs`, `xconn.rs`\n`engine/gone.rs`, `src/conn.rs`, `results/gone.txt`"), 5)

    def test_dependencies_are_gathered_from_every_table(self) -> None:
        names = style.direct_dependencies()
        self.assertLessEqual({"libc", "loom", "io-uring", "bytes"}, names)
        self.assertFalse({"m0serve", "m0-platform"} & names)


class Tally(unittest.TestCase):
    """ci/tally.py."""

    def count(self, text: str) -> tuple[int, int, int]:
        """Passed, failed and skipped of a log."""
        counted = tally.count(text)
        return counted.passed, counted.failed, counted.skipped

    def test_cargo(self) -> None:
        line = "test result: ok. 7 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.16s\n"
        self.assertEqual(
            self.count(line + line.replace("ok. 7", "FAILED. 5").replace("0 failed", "2 failed")), (12, 2, 2)
        )

    def test_pytest(self) -> None:
        self.assertEqual(self.count("=== 3 failed, 120 passed, 4 skipped, 2 errors in 12.3s ===\n"), (120, 5, 4))
        self.assertEqual(self.count("120 passed, 1 warning in 12.3s\n"), (120, 0, 0))
        self.assertEqual(self.count("====== 1 passed in 75.01s (0:01:15) ======\n"), (1, 0, 0))

    def test_what_passed_alone_is_named_and_no_failure(self) -> None:
        first, second = "== 1 failed, 3 passed in 2.0s ==\n", "== 1 passed in 0.1s ==\n"
        self.assertEqual(self.count(f"{first}{second}UNSTEADY: a.py::b failed beside others\n"), (4, 0, 0))

    def test_unittest(self) -> None:
        self.assertEqual(self.count("Ran 9 tests in 0.1s\n\nFAILED (failures=1, errors=1, skipped=2)\n"), (5, 2, 2))
        self.assertEqual(self.count("Ran 9 tests in 0.1s\n\nOK\n"), (9, 0, 0))

    def test_simulated_worlds(self) -> None:
        self.assertEqual(self.count("fresh seeds:\nsimulated: 20 passed, 1 failed\n"), (20, 1, 0))

    def test_fuzzing(self) -> None:
        self.assertEqual(
            self.count("request: ok, 9 inputs in 1 s (9/s)\nconnection: FAILED, the log is x\n"), (1, 1, 0)
        )

    def outcome(self, files: dict[str, str]) -> int:
        """Exit code for a folder of logs."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                (Path(folder) / name).write_text(text)
            with contextlib.redirect_stdout(io.StringIO()):
                return tally.main(Path(folder))

    def test_exit_codes(self) -> None:
        good = "Ran 9 tests in 0.1s\n\nOK\n"
        self.assertEqual(self.outcome({"a.log": good}), 0)
        self.assertEqual(self.outcome({"a.log": good, "b.log": "error: could not compile\n", "b.failed": ""}), 1)
        self.assertEqual(self.outcome({"a.log": "nothing ran\n"}), 1)
        self.assertEqual(self.outcome({"a.log": good, "b.log": "SKIPPED: fuzzing: no compiler\n"}), 0)
        self.assertEqual(self.outcome({}), 1)


if __name__ == "__main__":
    unittest.main()
