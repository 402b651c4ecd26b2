"""Writes docs/benchmarks.md, and the figures in README.md, from artifacts in bench/results/.

`render.py [ARTIFACT]`: without one, the newest whose name ends in `-all.json`. No figure in those pages is written by
hand.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
START, END = "<!-- figures:", "<!-- /figures -->"

TITLES = {
    "hello": "Hello world, plain ASGI",
    "fastapi-json": "FastAPI, a JSON endpoint",
    "fastapi-def": "FastAPI, a `def` endpoint in worker threads",
    "wsgi-hello": "Hello world, plain WSGI",
    "wsgi-isolation": "A fast WSGI view beside four that sleep for two seconds",
    "wsgi-computing": "A fast WSGI view beside four clients of one that computes for ten milliseconds",
    "wsgi-convoy": "A WSGI view that computes for 0.3 ms, sixteen connections",
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
    ("kept", "throughput kept", "{:.2f}"),
    ("ratio", "× uvicorn", "{:.2f}"),
    ("threads", "threads", "{:.0f}"),
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
worker; uvicorn with uvloop and httptools, granian with uvloop.

The executor scenario times eight callers of `run_in_executor` from inside the application while `wrk` saturates
another endpoint; with two CPUs, `wrk` shares the second with the server. System calls are counted by `perf stat`.
Idle connections have each had one response. The growth scenario mixes plain, echoed and streamed responses and new
connections.
"""


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
    return (
        f"{result['date'][:10]}, {facts['cpu']}, {facts['cpus']} CPUs, Linux {facts['kernel']}, Python {python}, "
        f"commit {facts['commit']}{' with local changes' if facts.get('changed') else ''}; {others}; "
        f"{result['options']['rounds']} rounds of {result['options']['seconds']:g} s, "
        f"load average {facts.get('load_before', 0.0):.1f} before the start."
    )


def page(result: dict[str, Any], artifact: str) -> str:
    """The whole of docs/benchmarks.md."""
    parts = ["# Benchmarks", f"From [`{artifact}`](../{artifact}), by `bench/render.py`. {place(result)}", HOW.strip()]
    for name, rows in result["medians"].items():
        parts += [f"## {TITLES.get(name, name)}", markdown(rows)]
    if result["bars"]:
        parts.append("## Bars\n\nWhat this project asks of itself, in `bench/bars.json`.")
        lines = ["| bar | bound | figure | arm | verdict |", "|---|---:|---:|---|---|"]
        for bar in result["bars"]:
            bound = f"≤ {bar['at_most']:,}" if "at_most" in bar else f"≥ {bar['at_least']:,}"
            figure = f"{bar['figure']:,.3g}" if bar.get("figure", 0) < 1000 else f"{bar['figure']:,.0f}"
            figure = figure if "figure" in bar else ""
            lines.append(f"| {bar['text']} | {bound} | {figure} | {bar.get('arm', '')} | {bar['verdict']} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def readme(text: str, result: dict[str, Any], artifact: str) -> str:
    """README.md with its figures replaced.

    Raises:
        ValueError: the markers are not there.
    """
    before, mark, rest = text.partition(START)
    comment, _, rest = rest.partition("-->")
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError("README.md has no figures markers")
    keys = ["arm", "connections", "rate", "per_core", "p99", "ratio"]
    parts = []
    for name in ("hello", "fastapi-json"):
        if name in result["medians"]:
            parts.append(f"{TITLES[name]}, one server CPU ([`{Path(artifact).name}`]({artifact})):")
            parts.append(markdown(result["medians"][name], keys))
    return f"{before}{mark}{comment}-->\n" + "\n\n".join(parts) + f"\n{end}{after}"


def newest() -> Path:
    """The newest whole artifact."""
    found = sorted((BENCH / "results").glob("*-all.json"))
    if not found:
        raise SystemExit("error: there is no bench/results/*-all.json; run make bench first")
    return found[-1]


def main() -> None:
    """Writes both files."""
    path = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else newest()
    result = json.loads(path.read_text())
    artifact = str(path.relative_to(ROOT))
    (ROOT / "docs" / "benchmarks.md").write_text(page(result, artifact))
    front = ROOT / "README.md"
    front.write_text(readme(front.read_text(), result, artifact))
    print(f"docs/benchmarks.md and README.md show {artifact}")


if __name__ == "__main__":
    main()
