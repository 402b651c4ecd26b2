"""Tests of what is kept of a run: pieces that become one artifact, exit codes, and the pages that show it."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import socketserver
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

import render
import run
import verdict
from harness import artifact, paced
from harness.scenarios import Record

ROOT = Path(__file__).resolve().parent.parent
HELLO = {"arm": "uvicorn", "connections": 16, "rate": 1234.5, "per_core": 1300.0, "ratio": 1.0}
RESULT: Record = {
    "date": "2026-01-02T03:04:05+00:00",
    "machine": {
        "cpu": "c", "cpus": 2, "kernel": "k", "commit": "abc", "changed": False, "wheel": "w", "wrk": "4",
        "load_before": 0.1, "versions": {"python": "3.13.0", "uvicorn": "1"},
    },
    "options": {"rounds": 1, "seconds": 1.0, "arms": []},
    "medians": {"hello": [HELLO]},
    "bars": [{"id": "h", "scenario": "hello", "verdict": "missed"}],
    "rounds": {"hello": [HELLO | {"round": 0, "foreign": 0.25}]},
}  # fmt: skip


def other(name: str, **changed: object) -> Record:
    """A later run of another scenario."""
    result = copy.deepcopy(RESULT)
    for key in ("medians", "rounds"):
        result[key] = {name: result[key]["hello"]}
    result["bars"] = [{"id": name, "scenario": name, "verdict": "met"}]
    result["date"] = "2026-01-03T00:00:00+00:00"
    result["machine"] |= changed
    return result


class Pieces(unittest.TestCase):
    """Runs of the same code, scenario by scenario, in one artifact."""

    def read(self, later: Record) -> Record:
        """What `--add` finds on the disk."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.json"
            artifact.write(path, RESULT)
            self.assertEqual([found.name for found in Path(folder).iterdir()], ["x.json"])
            return artifact.read(path, later)

    def test_scenarios_are_added_in_the_order_of_a_whole_run(self) -> None:
        merged = artifact.merge(RESULT, other("wsgi-hello", commit="def", load_before=1.5), ["wsgi-hello", "hello"])
        self.assertEqual(list(merged["medians"]), ["wsgi-hello", "hello"])
        self.assertEqual([bar["id"] for bar in merged["bars"]], ["wsgi-hello", "h"])
        self.assertEqual((merged["date"], merged["machine"]), (RESULT["date"], RESULT["machine"]))
        self.assertEqual([piece["commit"] for piece in merged["pieces"]], ["abc", "def"])
        third = artifact.merge(merged, other("idle"), ["hello", "wsgi-hello", "idle"])
        self.assertEqual([piece["scenarios"] for piece in third["pieces"]], [["hello"], ["wsgi-hello"], ["idle"]])

    def test_what_is_measured_again_replaces_what_was_there(self) -> None:
        again = other("hello")
        again["rounds"]["hello"] = []
        merged = artifact.merge(RESULT, again, ["hello"])
        self.assertEqual((merged["rounds"], merged["bars"]), ({"hello": []}, again["bars"]))

    def test_other_code_machines_and_options_are_refused(self) -> None:
        self.assertEqual(self.read(other("idle", commit="documents only")), RESULT)
        options = other("idle")
        options["options"] = {"rounds": 3}
        for later in (other("idle", wheel="another"), other("idle", kernel="another"), options):
            with self.assertRaisesRegex(ValueError, "another --name"):
                self.read(later)


class Running(unittest.TestCase):
    """The command, with scenarios that measure nothing."""

    def main(self, *argv: str, per_core: float = 300.0) -> tuple[int, str]:
        """Exit code and what was printed, with uvicorn at 100."""

        def plain(setting: object, name: str) -> list[Record]:
            arms = {"uvicorn": 100.0, "fastpysgi": 100.0, "m0serve-inverted-io_uring": per_core}
            arms |= {"m0serve-inverted-epoll": per_core, "m0serve-pump-epoll": per_core}
            return [
                {"arm": arm, "round": 0, "connections": count, "per_core": figure}
                for arm, figure in arms.items()
                for count in (16, 256)
            ]

        text = io.StringIO()
        with (
            mock.patch.object(run, "plain", plain),
            contextlib.redirect_stdout(text),
            contextlib.redirect_stderr(text),
        ):
            return run.main(argv), text.getvalue()

    def test_the_exit_code_says_whether_a_bar_was_missed(self) -> None:
        code, text = self.main("--quick")
        self.assertEqual((code, "MISSED" in text), (0, False), text)
        code, text = self.main("--quick", per_core=120.0)
        self.assertEqual(code, 1)
        self.assertRegex(text, r"MISSED +inverted, best backend, over uvicorn at 16 connections, per core: 1\.2 ")
        self.assertIn("nothing kept", text)

    def test_pieces_go_into_the_artifact_of_their_name(self) -> None:
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(run, "BENCH", Path(folder)):
            (Path(folder) / "results").mkdir()
            first = RESULT | {"machine": run.machine("python3"), "options": {"rounds": 1, "seconds": 1.0, "arms": []}}
            first |= {key: {"idle": RESULT[key]["hello"]} for key in ("rounds", "medians")}
            path = Path(folder) / "results" / "2026-01-02-x.json"
            path.write_text(json.dumps(first))
            self.assertEqual(self.main("--quick", "--name", "x", "--add", "--python", "python3")[0], 0)
            self.assertEqual(list(json.loads(path.read_text())["rounds"]), ["hello", "idle"])
            code, text = self.main("--rounds", "2", "--name", "x", "--add", "--python", "python3")
            self.assertEqual(code, 2)
            self.assertIn("another --name", text)
            self.assertEqual(len(list((Path(folder) / "results").iterdir())), 1)

    def test_groups_of_scenarios(self) -> None:
        self.assertEqual(run.scenarios_of("all"), run.COMPARED)
        self.assertEqual(set(run.scenarios_of("matrix")), set(run.NAMES) - set(run.COMPARED))
        self.assertEqual(run.scenarios_of("growth,hello,hello"), ["hello", "growth"])
        self.assertIn("mounts-isolation", run.scenarios_of("wsgi"))
        self.assertEqual(self.main("--scenario", "no-such")[0], 2)
        self.assertLessEqual(set(run.COMPARED), set(render.TITLES))


class Slow(socketserver.StreamRequestHandler):
    """Answers a twentieth of a second late, and refuses at once."""

    def handle(self) -> None:
        while line := self.rfile.readline():
            if not line.startswith(b"GET"):
                self.wfile.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                return
            while self.rfile.readline() != b"\r\n":
                pass
            time.sleep(0.05)
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


class Pacing(unittest.TestCase):
    """Waits that are counted from when a request was due."""

    def test_what_is_asked_for_and_what_is_refused_are_measured_apart(self) -> None:
        with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Slow) as server:
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, args=(0.01,)).start()
            measured = paced.measure(server.server_address[1], 3, 0.1)
            server.shutdown()
        self.assertGreater(measured["p50"], 50_000)
        self.assertGreaterEqual(measured["longest"] * 1000, measured["p99"])
        self.assertGreaterEqual(measured["refused_p99"], measured["refused_p50"])
        self.assertLess(measured["refused_p50"] * 1000, measured["p50"])

    def test_one_late_answer_is_late_for_every_request_that_was_due(self) -> None:
        taken: list[float] = []
        clock = iter([paced.PERIOD * 3, *([0.0] * 9)])
        now = [0.0]

        def sleep(seconds: float) -> None:
            now[0] += seconds

        with (
            mock.patch.object(paced.time, "perf_counter", lambda: now[0]),
            mock.patch.object(paced.time, "sleep", sleep),
        ):
            paced._pace(lambda: sleep(next(clock)), 0.0, paced.PERIOD * 5, taken)
        self.assertEqual([round(wait / paced.PERIOD) for wait in taken], [3, 2, 1, 0, 0])

    def test_quantiles(self) -> None:
        ordered = [float(number) for number in range(100)]
        self.assertEqual((paced.quantile(ordered, 0.5), paced.quantile(ordered, 0.99)), (50.0, 99.0))
        with self.assertRaises(ValueError):
            paced.quantile([], 0.5)


class Rendering(unittest.TestCase):
    """Pages from artifacts."""

    sources = [(RESULT, "bench/results/x.json")]

    def test_page(self) -> None:
        page = render.page(self.sources)
        self.assertIn("| uvicorn | 16 | 1,234 | 1,300 | 1.00 |", page)
        self.assertIn("others took 0.25 cores", page)
        self.assertIn(
            "| inverted, best backend, over uvicorn at 16 connections, per core | ≥ 2.5 |  |  | not measured |", page
        )

    def test_a_scenario_is_shown_from_the_latest_artifact_that_has_it(self) -> None:
        again = other("hello")
        again["medians"]["hello"] = [HELLO | {"rate": 99.0}]
        page = render.page([(again, "bench/results/new.json"), *self.sources])
        self.assertIn("| uvicorn | 16 | 99 |", page)
        self.assertNotIn("1,234", page)
        self.assertEqual(page.count("## Hello world, plain ASGI"), 1)

    def test_what_is_around_figures_stays(self) -> None:
        text = "before\n<!-- figures: note -->\nold\n<!-- /figures -->\nafter\n"
        new = render.readme(text, self.sources)
        self.assertTrue(
            new.startswith("before\n<!-- figures: note -->\n") and new.endswith("<!-- /figures -->\nafter\n")
        )
        self.assertNotIn("old", new)
        self.assertEqual(render.readme(new, self.sources), new)

    def test_the_pages_have_their_markers(self) -> None:
        self.assertIn("1,234", render.readme((ROOT / "README.md").read_text(), self.sources))
        note = (ROOT / "docs/notes/which-model-for-wsgi.md").read_text()
        self.assertEqual(render.note(note, self.sources), note, "nothing of WSGI was measured")
        new = render.note(note, [(other("wsgi-memory"), "bench/results/y.json")])
        self.assertIn("| figure | inverted |", new)
        self.assertIn("(../../bench/results/y.json)", new)

    def test_the_matrix_in_the_docs_is_what_the_artifacts_and_expectations_make(self) -> None:
        text = (ROOT / "docs/platforms.md").read_text()
        self.assertEqual(render.platforms(text), text, "call python3 bench/render.py")

    def test_the_matrix_names_each_artifact_that_it_shows(self) -> None:
        records = [
            {"arm": f"m0serve-{model}-epoll", "connections": 16, "cpus": 1, "round": 0, "rate": rate, "p50": 5.0}
            | {"shared": False, "errors": 0}
            for model, rate in (("inverted", 100.0), ("pump", 90.0))
        ]
        with tempfile.TemporaryDirectory() as folder:
            for date, kept in (("2026-01-01", records), ("2026-01-02", records)):
                result = RESULT | {"date": date, "rounds": {"matrix-epoll": kept}}
                result["machine"] = RESULT["machine"] | {"platform": "linux-x86_64"}
                artifact.write(Path(folder) / f"{date}-matrix-x.json", result)
            text = render.platforms("a\n<!-- figures: matrix, x -->\n<!-- /figures -->\nb", Path(folder))
        self.assertIn("| linux-x86_64 | epoll | measured | 0.90 (5, 5), met |", text)
        self.assertIn("[`2026-01-02-matrix-x.json`](../bench/results/2026-01-02-matrix-x.json): 2026-01-02, c,", text)
        self.assertNotIn("2026-01-01", text, "a later one has taken its place")

    def test_which_model_a_figure_speaks_for(self) -> None:
        def medians(inverted: float, uring: float, epoll: float) -> dict[str, list[Record]]:
            arms = {"inverted-epoll": inverted, "pump-io_uring": uring, "pump-epoll": epoll}
            lines = [{"arm": f"m0serve-wsgi-{arm}", "connections": 16, "p99": value} for arm, value in arms.items()]
            return {"wsgi-convoy": [*lines, {"arm": "granian-wsgi-8", "connections": 16, "p99": 7.0}]}

        row = "| views of 0.3 ms: p99 µs | {} | {} | {} | 7 |  |  | {} |"
        self.assertIn(row.format(5, 9, 8, "inverted"), verdict.table(medians(5.0, 9.0, 8.0)))
        self.assertIn(row.format(9, 9, 8, "pump"), verdict.table(medians(9.0, 9.0, 8.0)))
        self.assertIn(row.format(100, 300, 96, "alike"), verdict.table(medians(100.0, 300.0, 96.0)))
        self.assertIn("1 speak for the inverted model, 0 for the pump", verdict.table(medians(5.0, 9.0, 8.0)))

    def test_which_bars_a_model_misses(self) -> None:
        bar = {"scenario": "wsgi-computing", "verdict": "met", "figure": 0.5}
        bars = [bar | {"id": "wsgi-inverted-a"}, bar | {"id": "wsgi-inverted-b", "verdict": "missed", "figure": 1.25}]
        bars += [bar | {"id": "wsgi-pump-a"}, bar | {"id": "inverted-b", "scenario": "hello"}]
        bars.append({"id": "wsgi-pump-b", "scenario": "wsgi-computing", "verdict": "not measured"})
        self.assertEqual(
            verdict.held(bars),
            "Of its bars the inverted model meets 1 of 2, and misses `wsgi-inverted-b` (1.25).\n"
            "Of its bars the pump model meets 1 of 1.",
        )

    def test_the_decisions_figures_are_measured(self) -> None:
        from harness.arms import ALL

        self.assertLessEqual(verdict.SCENARIOS, set(run.NAMES))
        self.assertLessEqual({name for arms in verdict.SERVERS.values() for name in arms}, {arm.name for arm in ALL})


if __name__ == "__main__":
    unittest.main()
