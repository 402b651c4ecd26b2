"""Runs the benchmark scenarios, prints tables of medians and the verdict on each bar, and keeps the figures as JSON.

Started by bench/run.sh, which makes the environment. See `--help`, and docs/benchmarks.md for what is measured how.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

from harness import bars
from harness.scenarios import LOADS, Record, Setting, medians, plain
from harness.special import SPECIAL
from harness.threaded import THREADED

BENCH = Path(__file__).resolve().parent
BUSY = 0.7
"""A load average above this means that something else wants the two CPUs."""
SPECIAL |= THREADED
NAMES = [*LOADS, *SPECIAL]
PACKAGES = [
    "m0serve-rs", "uvicorn", "uvloop", "httptools", "granian", "gunicorn", "fastpysgi", "fastapi", "pydantic",
    "starlette",
]  # fmt: skip


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scenario", default="hello", help=f"comma-separated, or all: {', '.join(NAMES)}")
    parser.add_argument("--arms", default="", help="comma-separated parts of arm names to keep (all by default)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each measurement")
    parser.add_argument("--quick", action="store_true", help="one round of one second: to try it, not to quote it")
    parser.add_argument(
        "--name", default="", help="names the artifact; without it nothing is kept by --quick or --arms"
    )
    parser.add_argument("--ceiling", action="store_true", help="measure the ceiling server beside the others in hello")
    parser.add_argument("--python", default=sys.executable, help="the environment's interpreter")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.rounds, chosen.seconds = 1, 1.0
    return chosen


def output(*command: str) -> str:
    """What a command prints, or nothing when it cannot be run."""
    try:
        return subprocess.run(command, cwd=BENCH, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def machine(python: str) -> Record:
    """What a reader has to know of where this was measured."""
    cpu = [
        line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    code = (
        "import importlib.metadata as m, json, sys\n"
        "def v(n):\n try: return m.version(n)\n except m.PackageNotFoundError: return None\n"
        f"print(json.dumps({{'python': sys.version.split()[0], **{{n: v(n) for n in {PACKAGES!r}}}}}))"
    )
    return {
        "cpu": cpu[0] if cpu else platform.machine(),
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "load_before": os.getloadavg()[0],
        "wrk": (output("dpkg-query", "-W", "-f", "${Version}", "wrk") or "?"),
        "versions": json.loads(output(python, "-c", code) or "{}"),
        "commit": output("git", "rev-parse", "--short", "HEAD"),
        "changed": bool(
            output("git", "status", "--porcelain", "--", "../src", "../platform", "../python", "../Cargo.toml")
        ),
    }


def table(name: str, lines: list[Record]) -> str:
    """A text table of medians."""
    columns = [
        ("arm", "{}", "arm"), ("conns", "{}", "connections"), ("cpus", "{:.0f}", "cpus"), ("req/s", "{:.0f}", "rate"),
        ("cores", "{:.2f}", "cores"), ("req/core", "{:.0f}", "per_core"), ("p50 µs", "{:.0f}", "p50"),
        ("p99 µs", "{:.0f}", "p99"), ("kept", "{:.2f}", "kept"),
        ("/uvicorn", "{:.2f}", "ratio"), ("threads", "{:.0f}", "threads"),
        ("calls/s", "{:.0f}", "calls"), ("call p99 ms", "{:.2f}", "call_p99"), ("syscalls/req", "{:.3f}", "syscalls"),
        ("bytes each", "{:.0f}", "bytes_each"), ("+rss", "{:.0f}", "grown_rss"),
        ("+fds", "{:.0f}", "grown_descriptors"), ("+threads", "{:.0f}", "grown_threads"),
        ("+objects", "{:.0f}", "grown_objects"), ("errors", "{:.0f}", "errors"),
    ]  # fmt: skip
    used = [column for column in columns if any(column[2] in line for line in lines)]
    rows = [[title for title, _, _ in used]]
    rows += [[form.format(line[key]) if key in line else "" for _, form, key in used] for line in lines]
    widths = [max(len(row[column]) for row in rows) for column in range(len(used))]
    text = [f"\n{name} (medians)"]
    for row in rows:
        cells = [
            cell.ljust(width) if not column else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        text.append("  " + "  ".join(cells).rstrip())
    return "\n".join(text)


def summarise(name: str, records: list[Record]) -> list[Record]:
    """Medians; the executor scenario's are taken for each number of CPUs."""
    if name != "executor":
        return medians(records)
    return [line for cpus in (1, 2) for line in medians([record for record in records if record["cpus"] == cpus])]


def keep(chosen: argparse.Namespace, result: Record) -> None:
    """Writes the artifact, unless this was a trial without a name."""
    partial = chosen.quick or chosen.arms
    if partial and not chosen.name:
        print("\nnothing kept: a trial without --name")
        return
    name = chosen.name or ("all" if chosen.scenario == "all" else chosen.scenario.replace(",", "-"))
    path = BENCH / "results" / f"{result['date'][:10]}-{name}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"\nkept as {path.relative_to(BENCH.parent)}")


def main() -> int:
    """Exit code 1 when a bar that was measured is missed."""
    chosen = options()
    names = NAMES if chosen.scenario == "all" else chosen.scenario.split(",")
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"error: no such scenario: {', '.join(unknown)}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    keep_arms = [part for part in chosen.arms.split(",") if part]
    setting = Setting(chosen.python, chosen.rounds, chosen.seconds, keep_arms, chosen.ceiling)
    facts, scenarios, summaries = machine(chosen.python), {}, {}
    print(f"{facts['cpu']}, {facts['cpus']} CPUs, Linux {facts['kernel']}, Python {facts['versions'].get('python')}")
    if facts["load_before"] > BUSY:
        print(f"note: the machine is busy (load {facts['load_before']:.1f}): these figures are not for quoting")
    for name in names:
        print(f"\n{name}")
        scenarios[name] = SPECIAL[name](setting) if name in SPECIAL else plain(setting, name)
        summaries[name] = summarise(name, scenarios[name])
        print(table(name, summaries[name]))
    judged = [bars.judge(bar, scenarios) for bar in bars.load() if bar["scenario"] in names]
    print("\nbars")
    for bar in judged:
        print("  " + bars.line(bar))
    result = {
        "schema": 1,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": facts,
        "options": {"rounds": chosen.rounds, "seconds": chosen.seconds, "arms": setting.arms},
        "medians": summaries,
        "bars": judged,
        "rounds": scenarios,
    }
    keep(chosen, result)
    return 1 if any(bar["verdict"] == "missed" for bar in judged) else 0


if __name__ == "__main__":
    sys.exit(main())
