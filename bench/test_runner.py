"""Tests of the benchmark runner's own arithmetic and parsing, and of the server watcher on a real process."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import unittest
from unittest import mock

from harness import bars, load, processes, scenarios
from harness.arms import UVICORN, Arm
from harness.client import BROWSER, get, request
from harness.matrix import BACKENDS, MATRIX, Placement, placements
from harness.server import ServerError, serving

REPORT = """Running 1s test @ http://127.0.0.1:8000/
  1 threads and 16 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   635.12us  120.00us   2.50ms   90.00%
    Req/Sec    25.31k     1.20k   27.00k    80.00%
  Latency Distribution
     50%  601.00us
     75%  700.00us
     90%    1.10ms
     99%    1.43ms
  25313 requests in 1.10s, 3.62MB read
{extra}Requests/sec:  23011.82
Transfer/sec:      3.29MB
"""


class Parsing(unittest.TestCase):
    """What wrk prints."""

    def test_report(self) -> None:
        self.assertEqual(load.parse(REPORT.format(extra="")), (25313, 1.1, 601.0, 1430.0, 2500.0, 0))

    def test_errors_are_counted(self) -> None:
        extra = "  Socket errors: connect 1, read 2, write 3, timeout 4\n  Non-2xx or 3xx responses: 5\n"
        self.assertEqual(load.parse(REPORT.format(extra=extra))[5], 15)

    def test_no_report_is_an_error(self) -> None:
        with self.assertRaises(ValueError):
            load.parse("unable to connect to 127.0.0.1:8000 Connection refused")

    def test_the_request_has_ten_fields(self) -> None:
        head = request("/").decode().split("\r\n\r\n")[0]
        self.assertEqual(len(head.split("\r\n")) - 1, 10)
        self.assertEqual(len(BROWSER), 9)


def record(arm: str, number: int, per_core: float) -> scenarios.Record:
    """One measurement."""
    return {"arm": arm, "round": number, "connections": 16, "per_core": per_core}


class Platforms(unittest.TestCase):
    """What differs between Linux, macOS and the BSDs."""

    def test_times_of_ps(self) -> None:
        for text, seconds in (("0:01.25", 1.25), ("12:34.50", 754.5), ("1:00:02", 3602.0), ("1-02:03:04", 93784.0)):
            self.assertEqual(processes.seconds_of(text), seconds)

    def test_a_group_is_summed(self) -> None:
        self.assertEqual(processes.listed_seconds("   7 0:01.25\n  70 5:00.00\n   7 0:00.50\n\n", 7), 1.75)

    def test_a_group_without_proc_is_listed_by_ps(self) -> None:
        with mock.patch.object(processes, "PROC", False):
            self.assertGreaterEqual(processes.group_seconds(os.getpgid(0)), 0.0)

    def test_facts(self) -> None:
        facts = processes.facts()
        self.assertRegex(facts["platform"], r"^[a-z]+-\w+$")
        self.assertIn(facts["virtual"], (True, False, None))

    def test_the_client_has_a_cpu_of_its_own_where_there_is_one(self) -> None:
        alone = Placement("0", "1", 1, False)
        self.assertEqual(placements([0, 1], True), [alone, Placement("0,1", "1", 2, True)])
        self.assertEqual(placements([0, 1, 2, 3], True), [alone, Placement("0,1", "2", 2, False)])
        self.assertEqual(placements([4, 6], True)[1], Placement("4,6", "6", 2, True))
        with self.assertRaises(ValueError):
            placements([3], True)

    def test_without_pinning_the_server_has_all(self) -> None:
        self.assertEqual(placements([0, 1, 2], False), [Placement(None, None, 3, False)])
        self.assertTrue(placements([0, 1], False)[0].shared)
        self.assertEqual((processes.pin(None), processes.pin("3")), ([], ["taskset", "-c", "3"]))

    def test_each_backend_is_a_scenario(self) -> None:
        self.assertEqual(list(MATRIX), [f"matrix-{backend}" for backend in BACKENDS])


class Judging(unittest.TestCase):
    """Medians, ratios in the same round, and verdicts."""

    records = [
        *(record("uvicorn", number, value) for number, value in enumerate((10, 20, 40))),
        *(record("ours-a", number, value) for number, value in enumerate((30, 40, 120))),
        *(record("ours-b", number, value) for number, value in enumerate((10, 20, 40))),
    ]
    bar: scenarios.Record = {
        "text": "t", "scenario": "hello", "arms": ["ours-a", "ours-b"], "connections": 16, "metric": "per_core",
        "over": "uvicorn", "at_least": 2.5,
    }  # fmt: skip

    def test_the_ratio_is_taken_in_each_round(self) -> None:
        # Of the medians it would be 40/20 = 2.
        lines = {line["arm"]: line for line in scenarios.medians(self.records)}
        self.assertEqual(lines["ours-a"]["ratio"], 3.0)
        self.assertEqual(lines["uvicorn"]["ratio"], 1.0)

    def test_numbers_of_cpus_are_kept_apart(self) -> None:
        two = [
            entry | {"cpus": 2, "per_core": entry["per_core"] * (1 + (entry["arm"] == "ours-a"))}
            for entry in self.records
        ]
        one = [entry | {"cpus": 1} for entry in self.records]
        lines = scenarios.medians([*two, *one])
        self.assertEqual([line["cpus"] for line in lines], [1, 1, 1, 2, 2, 2])
        self.assertEqual({line["cpus"]: line["ratio"] for line in lines if line["arm"] == "ours-a"}, {1: 3.0, 2: 6.0})

    def test_the_best_arm_counts(self) -> None:
        judged = bars.judge(self.bar, {"hello": self.records})
        self.assertEqual((judged["verdict"], judged["arm"], judged["figure"]), ("met", "ours-a", 3.0))

    def test_or_the_worst_where_every_arm_must(self) -> None:
        judged = bars.judge(self.bar | {"every": True}, {"hello": self.records})
        self.assertEqual((judged["verdict"], judged["arm"]), ("missed", "ours-b"))

    def test_upper_bounds(self) -> None:
        bar = {key: value for key, value in self.bar.items() if key not in ("over", "at_least")} | {"at_most": 30}
        self.assertEqual(bars.judge(bar, {"hello": self.records})["figure"], 20)
        self.assertEqual(bars.judge(bar | {"every": True}, {"hello": self.records})["verdict"], "missed")

    def test_what_was_not_measured_is_not_met(self) -> None:
        self.assertEqual(bars.judge(self.bar, {})["verdict"], "not measured")

    def test_numbers_have_no_exponent(self) -> None:
        shown = [bars.number(value) for value in (0.0, 0.9457, 40.5, 353.4, 1200.0, 262144.0)]
        self.assertEqual(shown, ["0", "0.946", "40.5", "353", "1,200", "262,144"])

    def test_what_is_missed_is_loud_and_fails(self) -> None:
        judged = [
            bars.judge(self.bar | {"id": f"least-{least}", "at_least": least}, {"hello": self.records})
            for least in (2, 9)
        ]
        for bar_list, code, said in ((judged, 1, "MISSED 1 of 2 bars: least-9"), (judged[:1], 0, "")):
            text = io.StringIO()
            with contextlib.redirect_stdout(text):
                self.assertEqual(bars.report(bar_list, partial=False), code)
            self.assertEqual("MISSED" in text.getvalue(), code == 1)
            self.assertIn(said, text.getvalue())

    def test_a_bar_that_nobody_measures_fails_unless_arms_were_left_out(self) -> None:
        judged = [bars.judge(self.bar | {"id": "b", "connections": 17}, {"hello": self.records})]
        for partial, code in ((False, 1), (True, 0)):
            with contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(bars.report(judged, partial), code)

    def test_every_bar_can_be_missed(self) -> None:
        """A figure on the wrong side of its bound, in the scenario, arm and connections that the bar names."""
        for bar in bars.load():
            base = {"round": 0, "connections": bar["connections"]} | ({"cpus": bar["cpus"]} if "cpus" in bar else {})
            wrong = bar["at_least"] * 0.9 if "at_least" in bar else bar["at_most"] * 1.1 + 1
            records = [base | {"arm": arm, bar["metric"]: wrong} for arm in bar["arms"]]
            if "over" in bar:
                records.append(base | {"arm": bar["over"], bar["metric"]: 1.0})
            self.assertEqual(bars.judge(bar, {bar["scenario"]: records})["verdict"], "missed", bar["id"])

    def test_the_bars_name_scenarios_and_arms_that_exist(self) -> None:
        from harness.arms import ALL
        from harness.special import SPECIAL
        from harness.threaded import THREADED

        self.assertEqual(len({bar["id"] for bar in bars.load()}), len(bars.load()))
        arms = {arm.name for arm in ALL}
        for bar in bars.load():
            self.assertIn(bar["scenario"], {**scenarios.LOADS, **SPECIAL, **THREADED})
            self.assertLessEqual({*bar["arms"], bar.get("over", UVICORN.name)}, arms)
            self.assertTrue(("at_least" in bar) != ("at_most" in bar), bar["id"])


STAND_IN = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "2"); self.end_headers(); self.wfile.write(b"ok")
    def log_message(self, *args): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


class Watching(unittest.TestCase):
    """A server process is started, measured and stopped; pinned where there is a way to."""

    cpus = "0" if processes.PINNING else None

    def test_a_server_is_watched(self) -> None:
        arm = Arm("stand-in", ["-c", STAND_IN.replace("{", "{{").replace("}", "}}"), "{port}", "{app}"])
        with serving(arm, sys.executable, "none", "hello", self.cpus) as server:
            self.assertEqual(get(server.port, "/")[2], b"ok")
            self.assertGreater(server.cpu_seconds(), 0.0)
            if processes.PROC:
                self.assertGreater(server.rss(), 1 << 20)
                self.assertGreaterEqual(server.threads(), 1)
                self.assertGreater(server.descriptors(), 2)
            process = server.process
        self.assertIsNotNone(process.poll())

    def test_one_that_ends_is_an_error(self) -> None:
        arm = Arm("broken", ["-c", "print('no such thing'); raise SystemExit(3)", "{app}"])
        started = serving(arm, sys.executable, "none", "hello", self.cpus)
        with self.assertRaisesRegex(ServerError, "no such thing"), started:
            self.fail("it is not ready")


if __name__ == "__main__":
    unittest.main()
