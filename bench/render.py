"""Writes docs/benchmarks.md, and the figures in README.md, docs/notes/ and docs/platforms.md, from bench/results/.

`render.py [ARTIFACT...]`: without one, the newest whose name ends in `-all.json` and the newest of `-wsgi.json`. A
scenario that several of them have is shown from the latest. The matrix of docs/platforms.md is what ci/matrix makes of
all its artifacts. No figure in those pages is written by hand.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import verdict
from harness import bars

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
sys.path.append(str(ROOT / "ci"))

from matrix import expect, judge, read, table  # noqa: E402

START, END = "<!-- figures:", "<!-- /figures -->"

TITLES = {
    "hello": "Hello world, plain ASGI",
    "fastapi-json": "FastAPI, a JSON endpoint",
    "fastapi-def": "FastAPI, a `def` endpoint in worker threads",
    "wsgi-hello": "Hello world, plain WSGI",
    "wsgi-two-cpus": "Hello world, plain WSGI, the server on both CPUs",
    "wsgi-waiting": "A WSGI view that waits for 2 ms, sixteen connections",
    "wsgi-isolation": "A fast WSGI view beside four that sleep for two seconds",
    "wsgi-computing": "A fast WSGI view beside four clients of one that computes for ten milliseconds",
    "wsgi-convoy": "A WSGI view that computes for 0.3 ms, sixteen connections",
    "wsgi-holding": "A fast WSGI view beside one that holds the GIL for a tenth of a second at a time",
    "wsgi-memory": "Resident memory of a WSGI server",
    "mounts-isolation": "A FastAPI endpoint at /api beside four Django views at / that sleep for two seconds",
    "executor": "Eight `run_in_executor` callers beside a saturated async endpoint",
    "syscalls": "System calls a request",
    "idle": "10,000 idle keep-alive connections",
    "growth": "20,000 requests after 20,000",
}
COLUMNS = [
    ("arm", "arm", "{}"),
    ("connections", "connections", "{:,}"),
    ("cpus", "CPUs", "{:.0f}"),
    ("rate", "requests/s", "{:,.0f}"),
    ("cores", "cores used", "{:.2f}"),
    ("per_core", "requests/core", "{:,.0f}"),
    ("p50", "p50 µs", "{:,.0f}"),
    ("p99", "p99 µs", "{:,.0f}"),
    ("alone_p99", "p99 µs without them", "{:,.0f}"),
    ("kept", "throughput kept", "{:.2f}"),
    ("longest", "longest ms", "{:,.0f}"),
    ("held", "held ms", "{:,.0f}"),
    ("refused_p50", "refusal p50 ms", "{:,.2f}"),
    ("refused_p99", "refusal p99 ms", "{:,.2f}"),
    ("ratio", "× uvicorn", "{:.2f}"),
    ("threads", "threads", "{:.0f}"),
    ("rss_idle", "MiB idle", "{:.1f}"),
    ("rss_loaded", "MiB after load", "{:.1f}"),
    ("calls", "calls/s", "{:,.0f}"),
    ("call_p50", "call p50 ms", "{:.2f}"),
    ("call_p99", "call p99 ms", "{:.2f}"),
    ("syscalls", "system calls/request", "{:.3f}"),
    ("bytes_each", "bytes each", "{:,.0f}"),
    ("grown_rss", "bytes grown", "{:,.0f}"),
    ("grown_descriptors", "descriptors grown", "{:.0f}"),
    ("grown_threads", "threads grown", "{:.0f}"),
    ("grown_objects", "objects grown", "{:.0f}"),
]
HOW = """
`make bench` starts each server in turn, first asks each for the same thing and asserts that status, content type and
body are equal, then loads it with `wrk -t1` and a browser-like request of ten header fields. The server is pinned to
CPU 0 and `wrk` to CPU 1. Rounds alternate the order of the servers; each measurement follows a second of warm-up; the
figures are medians over rounds, and a ratio is the median of the ratios within each round. *Cores used* is the CPU
time of the server's whole process group over the time of the run, and *requests/core* are requests over that CPU
time: where the load generator is the bound, it is the figure to compare. Every server runs one process with one
worker; uvicorn with uvloop and httptools, granian with uvloop. `granian-wsgi-8` has eight blocking threads, as have
gunicorn and the WSGI arms of m0serve (those whose names end in `-alone` none); `granian-wsgi-1` has its default of one.

The executor scenario times eight callers of `run_in_executor` from inside the application while `wrk` saturates
another endpoint; with two CPUs, `wrk` shares the second with the server. So it does where a WSGI server has both CPUs:
compare the servers with each other there, not with what they do on one. System calls are counted by `perf stat`.
Idle connections have each had one response. The growth scenario mixes plain, echoed and streamed responses and new
connections.

Where views sleep or compute, their clients ask for the next one as soon as they are answered, while `wrk` loads the
fast view. Where one holds the GIL (in a call of `sum`, which gives it to nobody until it ends), sixteen clients ask for
the fast view at fixed times instead, five times a second each, and an answer's wait begins when its request was due:
`wrk` asks again when it was answered, and what stands still for a tenth of a second would not show in its quantiles.
*Refusal* is the time from the opening of a new connection to the answer to a first line that is no request: it needs no
Python, and shows whether the server accepts, reads and writes meanwhile. Memory is that of the whole process group,
after one request and after 256 connections and eight sleeping views at once.
"""
Source = tuple[dict[str, Any], str]
"""An artifact and its path from the root of the repository."""


def markdown(rows: list[dict[str, Any]], keys: list[str] | None = None) -> str:
    """A table with the columns that occur (or those named)."""
    columns = [c for c in COLUMNS if (keys is None or c[0] in keys) and any(c[0] in row for row in rows)]
    lines = ["| " + " | ".join(title for _, title, _ in columns) + " |"]
    lines.append("|" + "|".join("---" if key == "arm" else "---:" for key, _, _ in columns) + "|")
    for row in rows:
        cells = [form.format(row[key]) if key in row else "" for key, _, form in columns]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def place(result: dict[str, Any]) -> str:
    """Where and with what it was measured, as one sentence."""
    facts, versions = result["machine"], dict(result["machine"]["versions"])
    python = versions.pop("python", "?")
    others = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    pieces = f" in {len(result['pieces'])} pieces" if "pieces" in result else ""
    rounds = result["options"]["rounds"]
    records = [record for lot in result.get("rounds", {}).values() for record in lot if "foreign" in record]
    foreign = sorted(record["foreign"] for record in records)
    quiet = (
        f", others took {foreign[len(foreign) // 2]:.2f} cores meanwhile (median; at most {foreign[-1]:.2f})"
        if foreign
        else ""
    )
    system = f"{facts.get('system', 'Linux')} {facts['kernel']}"
    return (
        f"{result['date'][:10]}, {facts['cpu']}, {facts['cpus']} CPUs, {system}, Python {python}, "
        f"commit {facts['commit']}{' with local changes' if facts.get('changed') else ''}; {others}; "
        f"{rounds} round{'s' if rounds > 1 else ''} of {result['options']['seconds']:g} s{pieces}, "
        f"load average {facts.get('load_before', 0.0):.1f} before the start{quiet}."
    )


def shown(sources: list[Source]) -> dict[str, Source]:
    """Which artifact each scenario is shown from: the latest that has it."""
    latest: dict[str, Source] = {}
    for source in sorted(sources, key=lambda source: source[0]["date"]):
        latest |= dict.fromkeys(source[0]["medians"], source)
    return {name: latest[name] for name in TITLES if name in latest}


def judged(sources: list[Source]) -> list[dict[str, Any]]:
    """Every bar of today, of what is shown."""
    rounds = {name: result["rounds"][name] for name, (result, _) in shown(sources).items() if "rounds" in result}
    return [bars.judge(bar, rounds) for bar in bars.load() if bar["scenario"] in rounds]


def page(sources: list[Source]) -> str:
    """The whole of docs/benchmarks.md."""
    parts = ["# Benchmarks", "By `bench/render.py`; each table says which artifact it shows.", HOW.strip()]
    for result, artifact in sources:
        parts.append(f"[`{Path(artifact).name}`](../{artifact}): {place(result)}")
    for name, (result, artifact) in shown(sources).items():
        parts += [f"## {TITLES[name]}", markdown(result["medians"][name])]
        if len(sources) > 1:
            parts.append(f"From [`{Path(artifact).name}`](../{artifact}).")
    if found := judged(sources):
        parts.append("## Bars\n\nWhat this project asks of itself, in `bench/bars.json`.")
        lines = ["| bar | bound | figure | arm | verdict |", "|---|---:|---:|---|---|"]
        for bar in found:
            bound = f"≤ {bar['at_most']:,}" if "at_most" in bar else f"≥ {bar['at_least']:,}"
            figure = bars.number(bar["figure"]) if "figure" in bar else ""
            said = "**missed**" if bar["verdict"] == "missed" else bar["verdict"]
            lines.append(f"| {bar['text']} | {bound} | {figure} | {bar.get('arm', '')} | {said} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def between(text: str, new: str, where: str, start: str = START) -> str:
    """A page with what stands between its markers replaced.

    Raises:
        ValueError: the markers are not there.
    """
    before, mark, rest = text.partition(start)
    comment, _, rest = rest.partition("-->")
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"{where} has no figures markers")
    return f"{before}{start}{comment}-->\n{new}\n{end}{after}"


def readme(text: str, sources: list[Source]) -> str:
    """README.md with its figures replaced."""
    keys = ["arm", "connections", "rate", "per_core", "p99", "ratio"]
    parts, found = [], shown(sources)
    for name in ("hello", "fastapi-json", "wsgi-hello"):
        if name in found:
            result, artifact = found[name]
            parts.append(f"{TITLES[name]}, one server CPU ([`{Path(artifact).name}`]({artifact})):")
            parts.append(markdown(result["medians"][name], keys))
    return between(text, "\n\n".join(parts), "README.md")


def note(text: str, sources: list[Source]) -> str:
    """docs/notes/which-model-for-wsgi.md with its table replaced, where WSGI was measured at all."""
    found = shown(sources)
    artifacts = {artifact: result for name, (result, artifact) in found.items() if name in verdict.SCENARIOS}
    if not artifacts:
        return text
    parts = [verdict.table({name: result["medians"][name] for name, (result, _) in found.items()})]
    parts += [line for line in [verdict.held(judged(sources))] if line]
    parts += [f"From [`{Path(path).name}`](../../{path}): {place(result)}" for path, result in artifacts.items()]
    return between(text, "\n\n".join(parts), "the note")


def platforms(text: str, folder: Path = BENCH / "results") -> str:
    """docs/platforms.md with its matrix replaced: the table, where and when it was measured, and what was expected."""
    paths = read.artifacts_in(folder)
    rows = read.merged(row for path in paths for row in read.rows_of(path))
    expected = expect.load()
    parts = [table.report(judge.compare(expected, rows))]
    for path in paths:
        if path.name in {row.source for row in rows if row.kind == "measured"}:
            parts.append(f"[`{path.name}`](../bench/results/{path.name}): {place(json.loads(path.read_text()))}")
    parts += ["What is expected (`ci/matrix/expectations.toml`):", table.expectations(expected)]
    return between(text, "\n\n".join(parts), "docs/platforms.md", f"{START} matrix,")


def newest() -> list[Path]:
    """The newest whole artifact, and the newest of WSGI.

    Raises:
        SystemExit: there is none.
    """
    found = [sorted((BENCH / "results").glob(f"????-??-??-{name}.json"))[-1:] for name in ("all", "wsgi")]
    paths = [path for group in found for path in group]
    if not paths:
        raise SystemExit("error: there is no bench/results/*-all.json; run make bench first")
    return paths


def main() -> None:
    """Writes the pages."""
    paths = [Path(argument).resolve() for argument in sys.argv[1:]] or newest()
    sources = [(json.loads(path.read_text()), str(path.relative_to(ROOT))) for path in paths]
    (ROOT / "docs" / "benchmarks.md").write_text(page(sources))
    for path, write in ((ROOT / "README.md", readme), (ROOT / "docs/notes/which-model-for-wsgi.md", note)):
        path.write_text(write(path.read_text(), sources))
    path = ROOT / "docs" / "platforms.md"
    path.write_text(platforms(path.read_text()))
    shown_from = ", ".join(artifact for _, artifact in sources)
    print(f"docs/benchmarks.md, README.md and docs/notes/ show {shown_from}; docs/platforms.md the matrix")


if __name__ == "__main__":
    main()
