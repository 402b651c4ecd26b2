"""Runs the benchmark scenarios, prints tables of medians and the verdict on each bar, and keeps the figures as JSON.

Started by bench/run.sh, which makes the environment. See `--help`, and docs/benchmarks.md for what is measured how.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from harness import artifact, bars, processes
from harness.matrix import MATRIX
from harness.processes import output
from harness.scenarios import LOADS, Record, Setting, medians, plain
from harness.special import SPECIAL
from harness.threaded import THREADED

BENCH = Path(__file__).resolve().parent
BUSY = 0.7
"""A load average above this means that something else wants the two CPUs."""
COMPARED = [*LOADS, *SPECIAL, *THREADED]
"""With other servers: the whole of docs/benchmarks.md. The matrix compares platforms (docs/platforms.md)."""
SPECIAL |= THREADED | MATRIX
NAMES = [*LOADS, *SPECIAL]
GROUPS = {
    "all": COMPARED,
    "wsgi": [name for name in COMPARED if name.startswith(("wsgi-", "mounts-"))],
    "matrix": [*MATRIX],
}
"""Names that stand for several scenarios."""
PACKAGES = [
    "m0serve-rs", "uvicorn", "uvloop", "httptools", "granian", "gunicorn", "fastpysgi", "fastapi", "pydantic",
    "starlette", "Django",
]  # fmt: skip


def options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scenario", default="hello", help=f"comma-separated, of {', '.join([*GROUPS, *NAMES])}")
    parser.add_argument("--arms", default="", help="comma-separated parts of arm names to keep (all by default)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each measurement")
    parser.add_argument("--quick", action="store_true", help="one round of one second: to try it, not to quote it")
    parser.add_argument(
        "--name", default="", help="names the artifact; without it nothing is kept by --quick or --arms"
    )
    parser.add_argument(
        "--add", action="store_true", help="to the artifact of that name, when it was measured from the same code"
    )
    parser.add_argument("--ceiling", action="store_true", help="measure the ceiling server beside the others in hello")
    parser.add_argument("--python", default=sys.executable, help="the environment's interpreter")
    chosen = parser.parse_args(argv)
    if chosen.add and not chosen.name:
        parser.error("--add needs the --name of the artifact")
    if chosen.quick:
        chosen.rounds, chosen.seconds = 1, 1.0
    return chosen


def scenarios_of(text: str) -> list[str]:
    """The scenarios that `--scenario` names, each once, in the order of a whole run.

    Raises:
        ValueError: one is not known.
    """
    wanted = [name for part in text.split(",") for name in GROUPS.get(part, [part])]
    unknown = [name for name in wanted if name not in NAMES]
    if unknown:
        raise ValueError(f"no such scenario: {', '.join(unknown)}; there are {', '.join([*GROUPS, *NAMES])}")
    return [name for name in NAMES if name in wanted]


def machine(python: str) -> Record:
    """What a reader has to know of where this was measured, and of what."""
    code = (
        "import importlib.metadata as m, json, sys\n"
        "def v(n):\n try: return m.version(n)\n except m.PackageNotFoundError: return None\n"
        f"print(json.dumps({{'python': sys.version.split()[0], **{{n: v(n) for n in {PACKAGES!r}}}}}))"
    )
    sources = ["../src", "../platform", "../python", "../Cargo.toml"]
    changed = output("git", "status", "--porcelain", "--", *sources, cwd=BENCH)
    return processes.facts() | {
        "versions": json.loads(output(python, "-c", code) or "{}"),
        "commit": output("git", "rev-parse", "--short", "HEAD", cwd=BENCH),
        "changed": bool(changed),
        "wheel": _wheel(python),
    }


def _wheel(python: str) -> str | None:
    """The hash of the sources that the installed wheel was built from (`wheel` in ci/common.sh)."""
    stamp = Path(python).parent.parent / ".wheel"
    return stamp.read_text().split()[0] if stamp.exists() else None


def table(name: str, lines: list[Record]) -> str:
    """A text table of medians."""
    columns = [
        ("arm", "{}", "arm"), ("conns", "{}", "connections"), ("cpus", "{:.0f}", "cpus"), ("req/s", "{:.0f}", "rate"),
        ("cores", "{:.2f}", "cores"), ("req/core", "{:.0f}", "per_core"), ("p50 µs", "{:.0f}", "p50"),
        ("p99 µs", "{:.0f}", "p99"), ("alone p99", "{:.0f}", "alone_p99"), ("kept", "{:.2f}", "kept"),
        ("longest ms", "{:.0f}", "longest"), ("held ms", "{:.0f}", "held"),
        ("refused p50 ms", "{:.2f}", "refused_p50"), ("refused p99 ms", "{:.2f}", "refused_p99"),
        ("/uvicorn", "{:.2f}", "ratio"), ("threads", "{:.0f}", "threads"),
        ("calls/s", "{:.0f}", "calls"), ("call p99 ms", "{:.2f}", "call_p99"), ("syscalls/req", "{:.3f}", "syscalls"),
        ("bytes each", "{:.0f}", "bytes_each"), ("+rss", "{:.0f}", "grown_rss"),
        ("+fds", "{:.0f}", "grown_descriptors"), ("+threads", "{:.0f}", "grown_threads"),
        ("+objects", "{:.0f}", "grown_objects"), ("idle MiB", "{:.1f}", "rss_idle"),
        ("loaded MiB", "{:.1f}", "rss_loaded"), ("errors", "{:.0f}", "errors"),
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


def artifact_of(chosen: argparse.Namespace, date: str) -> Path | None:
    """Where the figures are kept; nowhere when this is a trial without a name."""
    if (chosen.quick or chosen.arms) and not chosen.name:
        return None
    name = chosen.name or (chosen.scenario if chosen.scenario in GROUPS else chosen.scenario.replace(",", "-"))
    folder = BENCH / "results"
    if chosen.add and (found := sorted(folder.glob(f"????-??-??-{name}.json"))):
        return found[-1]
    return folder / f"{date[:10]}-{name}.json"


def measure(setting: Setting, names: list[str]) -> tuple[dict[str, list[Record]], dict[str, list[Record]]]:
    """Runs the scenarios: all rounds, and their medians."""
    rounds, summaries = {}, {}
    for name in names:
        print(f"\n{name}")
        rounds[name] = SPECIAL[name](setting) if name in SPECIAL else plain(setting, name)
        summaries[name] = medians(rounds[name])
        print(table(name, summaries[name]))
    return rounds, summaries


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 when a bar is missed, or one that should have been measured was not; 2 for usage."""
    chosen = options(argv)
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    kept_arms = [part for part in chosen.arms.split(",") if part]
    setting = Setting(chosen.python, chosen.rounds, chosen.seconds, kept_arms, chosen.ceiling)
    result: Record = {
        "schema": 1,
        "date": date,
        "machine": machine(chosen.python),
        "options": {"rounds": chosen.rounds, "seconds": chosen.seconds, "arms": setting.arms},
    }
    path = artifact_of(chosen, date)
    try:
        names = scenarios_of(chosen.scenario)
        earlier = artifact.read(path, result) if chosen.add and path and path.exists() else None
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    facts = result["machine"]
    system, interpreter = f"{facts['system']} {facts['kernel']}", facts["versions"].get("python")
    print(f"{facts['cpu']}, {facts['cpus']} CPUs, {system}, Python {interpreter}")
    if facts["load_before"] > BUSY:
        print(f"note: the machine is busy (load {facts['load_before']:.1f}): these figures are not for quoting")
    result["rounds"], result["medians"] = measure(setting, names)
    result["bars"] = [bars.judge(bar, result["rounds"]) for bar in bars.load() if bar["scenario"] in names]
    if path:
        artifact.write(path, artifact.merge(earlier, result, NAMES) if earlier else result)
        print(f"\nkept as {path.relative_to(BENCH.parent)}")
    else:
        print("\nnothing kept: a trial without --name")
    return bars.report(result["bars"], partial=bool(setting.arms))


if __name__ == "__main__":
    sys.exit(main())
