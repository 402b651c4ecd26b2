"""Tests of the platform matrix: verdicts, artifacts, expectations, what is committed, and the workflow that runs it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from matrix import __main__ as command
from matrix import expect, gather, judge, read, table
from matrix.read import Cell, Place, Row

ROOT = Path(__file__).resolve().parent.parent
WORKFLOW = ROOT / ".github" / "workflows" / "matrix.yml"
EXPECTED = """
[[platform]]
name = "p"
measured = ["p-x/epoll", "p-x/io_uring"]
simulated = ["p/memory"]
cells = [
    { connections = 16, cpus = "one", sign = "inverted", band = [0.5, 0.9], from = "a" },
    { connections = 16, cpus = "more", sign = "pump", band = [1.2, 1.5], from = "b" },
    { connections = 16, cpus = "shared", sign = "inverted", band = [0.5, 1.0], from = "c" },
    { connections = 256, cpus = "one", sign = "even", band = [0.9, 1.1], from = "d" },
    { connections = 256, cpus = "more", sign = "pump", band = [1.2, 1.5], from = "e" },
]
"""


def record(model: str, number: int, rate: float, **more: Any) -> dict[str, Any]:
    """One measurement."""
    where = {"connections": 16, "cpus": 1, "shared": False, "p50": 1000 / rate, "errors": 0}
    return {"arm": f"m0serve-{model}-epoll", "round": number, "rate": rate} | where | more


def measured(records: list[dict[str, Any]], date: str = "2026-01-02", scenario: str = "matrix-epoll") -> dict[str, Any]:
    """An artifact of the benchmark runner."""
    return {"date": date, "machine": {"platform": "p-x"}, "rounds": {scenario: records}}


def simulated(pump: float, platform: str = "p") -> list[dict[str, Any]]:
    """What the simulator prints."""
    figures = {"connections": 16, "cpus": 1, "cores": 1.0, "p50_us": 7.0, "p99_us": 9.0}
    cells = [figures | {"model": model, "rate": rate} for model, rate in (("pump", pump), ("inverted", 100.0))]
    return [{"platform": platform, "kind": "simulated", "handoff": "memory", "cells": cells}]


class Folder(unittest.TestCase):
    """With a folder for artifacts."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def rows(self, **artifacts: Any) -> list[Row]:
        """What is read of artifacts, by their names."""
        for name, content in artifacts.items():
            (self.folder / f"{name}-matrix-x.json").write_text(json.dumps(content))
        return read.merged(row for path in read.artifacts_in(self.folder) for row in read.rows_of(path))

    def run_command(self, *argv: str) -> tuple[int, str]:
        """Exit code and what was printed, with the expectations above."""
        text = io.StringIO()
        with (
            mock.patch.object(expect, "load", return_value=expect.load(EXPECTED)),
            mock.patch.dict(os.environ, {"GITHUB_STEP_SUMMARY": str(self.folder / "summary.md")}),
            contextlib.redirect_stdout(text),
            contextlib.redirect_stderr(text),
        ):
            return command.main([str(self.folder), *argv]), text.getvalue()


class Reading(Folder):
    """Artifacts as rows."""

    def test_a_ratio_is_the_median_of_the_rounds_ratios(self) -> None:
        # Of the medians it would be 40/20 = 2.
        pump = [record("pump", number, rate) for number, rate in enumerate((10.0, 40.0, 90.0))]
        inverted = [record("inverted", number, rate) for number, rate in enumerate((10.0, 40.0, 20.0))]
        (row,) = self.rows(a=measured([*pump, *inverted]))
        self.assertEqual(row.name, ("measured", "p-x", "epoll"))
        self.assertEqual(row.cells, {Place(16, 1): Cell(1.0, 25.0, 50.0)})

    def test_a_round_that_has_one_model_only_does_not_count(self) -> None:
        (row,) = self.rows(a=measured([record("pump", 0, 30.0), record("pump", 1, 10.0), record("inverted", 1, 20.0)]))
        self.assertEqual(row.cells[Place(16, 1)].ratio, 0.5)

    def test_scenarios_of_other_names_are_no_rows(self) -> None:
        self.assertEqual(self.rows(a=measured([record("pump", 0, 30.0)], scenario="hello")), [])

    def test_the_simulators_rows_have_the_same_shape(self) -> None:
        (row,) = self.rows(s=simulated(150.0))
        self.assertEqual(row.name, ("simulated", "p", "memory"))
        self.assertEqual(row.cells, {Place(16, 1): Cell(1.5, 7.0, 7.0)})

    def test_the_latest_measurement_counts(self) -> None:
        old = [record("pump", 0, 10.0), record("inverted", 0, 10.0)]
        new = [record("pump", 0, 20.0), record("inverted", 0, 10.0)]
        for first, second in (("a", "b"), ("b", "a")):
            (row,) = self.rows(**{first: measured(old), second: measured(new, "2026-02-03")})
            self.assertEqual(row.cells[Place(16, 1)].ratio, 2.0)

    def test_simulations_of_two_machines_must_be_equal(self) -> None:
        self.assertEqual(len(self.rows(a=simulated(150.0), b=simulated(150.0))), 1)
        with self.assertRaisesRegex(read.ArtifactError, "other figures"):
            self.rows(b=simulated(151.0))

    def test_a_round_in_which_requests_failed_is_left_out_and_said(self) -> None:
        good = [record("pump", 1, 10.0), record("inverted", 1, 20.0)]
        (row,) = self.rows(a=measured([record("pump", 0, 90.0, errors=3), record("inverted", 0, 20.0), *good]))
        self.assertEqual(row.cells[Place(16, 1)].ratio, 0.5)
        self.assertIn("epoll, measured: requests failed in 1 of its rounds", self.run_command()[1])

    def test_other_files_are_refused(self) -> None:
        for content in ({"date": "x"}, [1], [{"kind": "measured"}]):
            with self.assertRaises(read.ArtifactError):
                self.rows(a=content)


class Judging(Folder):
    """Rows against expectations."""

    def verdict(self, place: Place, ratio: float, shared: bool = False) -> str:
        """Of one cell."""
        row = Row("measured", "p-x", "epoll", {place: Cell(ratio, 1.0, 1.0, shared)})
        return judge.compare(expect.load(EXPECTED), [row])[0].cells[place].verdict

    def test_verdicts(self) -> None:
        one, more, even = Place(16, 1), Place(16, 4), Place(256, 1)
        for place, ratio, verdict in (
            (one, 0.7, judge.MET),
            (one, 0.4, judge.OUTSIDE),
            (one, 1.04, judge.OUTSIDE),
            (one, 1.06, judge.WRONG),
            (more, 1.3, judge.MET),
            (more, 1.6, judge.OUTSIDE),
            (more, 0.96, judge.OUTSIDE),
            (more, 0.94, judge.WRONG),
            (even, 1.0, judge.MET),
            (even, 1.5, judge.OUTSIDE),
            (even, 0.5, judge.OUTSIDE),
        ):
            with self.subTest(place=place, ratio=ratio):
                self.assertEqual(self.verdict(place, ratio), verdict)

    def test_a_cell_whose_client_shares_a_cpu_has_an_expectation_of_its_own(self) -> None:
        self.assertEqual(self.verdict(Place(16, 2), 0.8), judge.WRONG)
        self.assertEqual(self.verdict(Place(16, 2), 0.8, shared=True), judge.MET)
        self.assertEqual(self.verdict(Place(256, 2), 0.8, shared=True), judge.UNKNOWN)

    def test_what_was_not_run_and_what_is_not_expected_have_lines(self) -> None:
        lines = judge.compare(
            expect.load(EXPECTED), [Row("measured", "q", "epoll", {Place(16, 1): Cell(1.0, 1.0, 1.0)})]
        )
        self.assertEqual([line.name[1] for line in lines], ["p-x", "p-x", "p", "q"])
        self.assertEqual([len(line.cells) for line in lines], [0, 0, 0, 1])
        self.assertEqual(lines[-1].cells[Place(16, 1)].verdict, judge.UNKNOWN)

    def test_the_table_and_the_exit_code(self) -> None:
        for pump, code, shown, told in (
            (70.0, 0, "0.70 (14, 10), met", "1 cells: 1 met."),
            (
                40.0,
                0,
                "0.40 (25, 10), outside",
                "- outside: p-x, epoll, measured, 16 connections, one CPU: 0.40; expected",
            ),
            (120.0, 1, "1.20 (8, 10), **wrong sign**", "the inversion ahead, 0.50 to 0.90 (a)"),
        ):
            self.rows(a=measured([record("pump", 0, pump), record("inverted", 0, 100.0)]))
            found, text = self.run_command()
            self.assertEqual(found, code, text)
            row = f"| p-x | epoll | measured | {shown} |" + " not run |" * 5
            self.assertIn(row, text)
            self.assertIn("| p-x | io_uring | measured |" + " not run |" * 6, text)
            self.assertIn(told, text)
            self.assertIn(row, (self.folder / "summary.md").read_text(), "the job's summary has the table too")

    def test_a_shared_cell_is_marked_and_many_cpus_stand_together(self) -> None:
        cells = {Place(16, 2): Cell(0.8, 1.0, 1.0, shared=True), Place(256, 6): Cell(1.3, 1.0, 1.0)}
        text = table.table(judge.compare(expect.load(EXPECTED), [Row("measured", "p-x", "epoll", cells)]))
        self.assertIn("| not run | 0.80* (1, 1), met | not run | not run | not run | 1.30 (1, 1), met |", text)

    def test_a_folder_without_artifacts_is_an_error(self) -> None:
        code, text = self.run_command()
        self.assertEqual((code, "no artifact of the matrix" in text), (2, True), text)

    def test_an_artifact_that_cannot_be_read_is_an_error_of_its_own(self) -> None:
        (self.folder / "x-matrix-y.json").write_text("{")
        code, text = self.run_command()
        self.assertEqual((code, "x-matrix-y.json" in text), (2, True), text)


class Expecting(unittest.TestCase):
    """expectations.toml."""

    def test_what_contradicts_itself_is_refused(self) -> None:
        for old, new, said in (
            ("[0.5, 0.9]", "[0.5, 1.2]", "another sign"),
            ('sign = "pump", band = [1.2', 'sign = "pump", band = [0.8', "another sign"),
            ("[0.5, 0.9]", "[0.9, 0.5]", "from low to high"),
            ('from = "a"', 'from = " "', "where it is from"),
            ('sign = "even"', 'sign = "odd"', "a sign of"),
            ('16, cpus = "more"', '16, cpus = "one"', "twice"),
            ('16, cpus = "more"', '17, cpus = "more"', "no cell"),
            ('256, cpus = "more"', '256, cpus = "shared"', "nothing is expected of"),
            ('"p-x/io_uring"', '"p-x/epoll"', "two platforms"),
        ):
            with self.subTest(new=new), self.assertRaisesRegex(expect.ExpectationError, said):
                expect.load(EXPECTED.replace(old, new, 1))
        self.assertEqual(len(expect.load(EXPECTED)), 1)

    def test_the_file_has_every_platform_of_the_workflow(self) -> None:
        rows = {row for platform in expect.load() for row in platform.rows}
        linux = {
            ("measured", f"linux-{cpu}", kind)
            for cpu in ("x86_64", "aarch64")
            for kind in ("io_uring", "epoll", "kqueue")
        }
        self.assertLessEqual(linux | {("measured", "macos-aarch64", "kqueue")}, rows)


class Committed(unittest.TestCase):
    """What lies in bench/results/ is as expected."""

    def setUp(self) -> None:
        paths = read.artifacts_in(gather.RESULTS)
        self.lines = judge.compare(expect.load(), read.merged(row for path in paths for row in read.rows_of(path)))

    def test_no_sign_is_wrong_and_everything_has_an_expectation(self) -> None:
        self.assertLessEqual(set(judge.count(self.lines)), {judge.MET, judge.OUTSIDE}, table.summary(self.lines))

    def test_this_kind_of_machine_and_the_profiles_were_run(self) -> None:
        run = {line.name for line in self.lines if line.cells}
        self.assertLessEqual({("measured", "linux-x86_64", kind) for kind in ("io_uring", "epoll", "kqueue")}, run)
        self.assertLessEqual({row for platform in expect.load() for row in platform.rows if row[0] == "simulated"}, run)


class Gathering(unittest.TestCase):
    """What is run on a machine."""

    report = {
        "platform": "linux x86_64",
        "backends": [
            {"name": "io_uring", "usable": False, "reason": "EPERM"},
            {"name": "epoll", "usable": True, "reason": None},
            {"name": "kqueue", "usable": True, "reason": None},
        ],
    }

    def pieces(self, wanted: list[str], add: bool = False) -> list[list[str]]:
        """The command lines that would run."""
        done = mock.Mock(returncode=0)
        with (
            mock.patch.object(gather, "doctor", return_value=self.report),
            mock.patch.object(gather.subprocess, "run", return_value=done) as run,
            contextlib.redirect_stdout(io.StringIO()),
        ):
            gather.measure("python", wanted, 3, 2.0, add)
        return [call.args[0] for call in run.call_args_list]

    def test_each_backend_that_works_is_a_piece_of_one_artifact(self) -> None:
        first, second = self.pieces([])
        self.assertEqual(first[2:6], ["--scenario", "matrix-epoll", "--name", "matrix-linux-x86_64"])
        self.assertIn("matrix-kqueue", second)
        self.assertEqual(["--add" in first, "--add" in second], [False, True])
        (only,) = self.pieces(["kqueue"], add=True)
        self.assertEqual(("matrix-kqueue" in only, "--add" in only), (True, True))

    def test_a_machine_that_runs_none_of_them_is_an_error(self) -> None:
        with self.assertRaisesRegex(gather.GatherError, "none of io_uring"):
            self.pieces(["io_uring"])


class Workflow(unittest.TestCase):
    """.github/workflows/matrix.yml calls what there is, on the machines of the expectations."""

    def setUp(self) -> None:
        self.text = WORKFLOW.read_text()

    def test_the_commands_exist(self) -> None:
        commands = re.findall(r"^ +- run: (.+)$", self.text, re.M)
        self.assertIn("make matrix", commands)
        self.assertRegex(
            (ROOT / "Makefile").read_text(), r"(?m)^matrix: .*\n\t@\$\(ROOT\)/ci/matrix/run\.sh \$\(ARGS\)$"
        )
        scripts = [line.split()[0] for line in commands if line.startswith("ci/")]
        self.assertEqual(scripts, ["ci/matrix/run.sh"])
        for script in scripts:
            self.assertTrue(os.access(ROOT / script, os.X_OK), script)

    def test_what_is_uploaded_is_what_is_made_and_read(self) -> None:
        (pattern,) = re.findall(r"^ +path: (bench/results/\S+)$", self.text, re.M)
        names = [gather.SIMULATED.name, "2026-01-02-matrix-linux-x86_64.json"]
        with tempfile.TemporaryDirectory() as folder:
            for name in [*names, "2026-01-02-all.json"]:
                (Path(folder) / name).touch()
            found = [path.name for path in Path(folder).glob(Path(pattern).name)]
            self.assertEqual(sorted(found), sorted(names))
            self.assertEqual(sorted(path.name for path in read.artifacts_in(Path(folder))), sorted(names))

    def test_it_is_well_formed(self) -> None:
        """As far as that is seen without a parser of YAML: indentation by two, no tab, jobs that are needed exist."""
        lines = self.text.splitlines()
        self.assertFalse([line for line in lines if "\t" in line or (len(line) - len(line.lstrip())) % 2])
        jobs = re.findall(r"^  (\w+):$", self.text.split("\njobs:\n")[1], re.M)
        self.assertEqual(jobs, ["run", "table"])
        self.assertLessEqual(set(re.findall(r"^    needs: (\w+)$", self.text, re.M)), set(jobs))


if __name__ == "__main__":
    unittest.main()
