"""The table behind docs/notes/which-model-for-wsgi.md: each figure that speaks for a model, and for which it speaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.bars import number

ALIKE = 0.05
"""Models whose figures are within this of each other are called alike."""
SERVERS = {
    "inverted": ["m0serve-wsgi-inverted-epoll"],
    "pump, io_uring": ["m0serve-wsgi-pump-io_uring"],
    "pump, epoll": ["m0serve-wsgi-pump-epoll"],
    "granian": ["granian-wsgi-1", "granian-wsgi-8"],
    "gunicorn": ["gunicorn-gthread"],
    "fastpysgi": ["fastpysgi-wsgi"],
}
"""Columns, and the arms that stand in them."""
MODELS = {"inverted": ["inverted"], "pump": ["pump, io_uring", "pump, epoll"]}


@dataclass(frozen=True)
class Figure:
    """One row."""

    text: str
    scenario: str
    key: str
    form: str = "{:,.0f}"
    connections: int = 16
    more_is_better: bool = False


FIGURES = [
    *(
        Figure(f"hello, {count} connections: {text}", "wsgi-hello", key, connections=count, more_is_better=more)
        for count in (16, 256)
        for text, key, more in (("requests/core", "per_core", True), ("p50 µs", "p50", False), ("p99 µs", "p99", False))
    ),
    *(
        Figure(f"the same on both CPUs, {count}: {text}", "wsgi-two-cpus", key, connections=count, more_is_better=more)
        for count in (16, 256)
        for text, key, more in (("requests/s", "rate", True), ("p99 µs", "p99", False))
    ),
    Figure("views that wait 2 ms: requests/s", "wsgi-waiting", "rate", more_is_better=True),
    Figure("views that wait 2 ms: p99 µs", "wsgi-waiting", "p99"),
    Figure("beside four sleeping views: throughput kept", "wsgi-isolation", "kept", "{:.2f}", more_is_better=True),
    Figure("beside four sleeping views: p99 µs", "wsgi-isolation", "p99"),
    Figure("beside four computing views: requests/s", "wsgi-computing", "rate", more_is_better=True),
    Figure("beside four computing views: p50 µs", "wsgi-computing", "p50"),
    Figure("beside four computing views: p99 µs", "wsgi-computing", "p99"),
    Figure("views of 0.3 ms: requests/s", "wsgi-convoy", "rate", more_is_better=True),
    Figure("views of 0.3 ms: p99 µs", "wsgi-convoy", "p99"),
    Figure("beside a held GIL: p50 µs", "wsgi-holding", "p50"),
    Figure("beside a held GIL: p99 µs", "wsgi-holding", "p99"),
    Figure("beside a held GIL: refusal p99 ms", "wsgi-holding", "refused_p99", "{:,.1f}"),
    Figure("memory idle, MiB", "wsgi-memory", "rss_idle", "{:.1f}", 256),
    Figure("memory after load, MiB", "wsgi-memory", "rss_loaded", "{:.1f}", 256),
]
SCENARIOS = {figure.scenario for figure in FIGURES}


def values(figure: Figure, medians: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    """The figure of each server that was measured."""
    found = {}
    for server, arms in SERVERS.items():
        for line in medians.get(figure.scenario, []):
            if line["arm"] in arms and line["connections"] == figure.connections and figure.key in line:
                found[server] = float(line[figure.key])
    return found


def better(figure: Figure, found: dict[str, float]) -> str:
    """The model that the figure speaks for; the pump is taken at its better backend."""
    best = max if figure.more_is_better else min
    models = {}
    for model, columns in MODELS.items():
        if measured := [found[column] for column in columns if column in found]:
            models[model] = best(measured)
    if len(models) < len(MODELS):
        return ""
    low, high = sorted(models.values())
    if high - low <= ALIKE * high:
        return "alike"
    wanted = best(low, high)
    return next(model for model, value in models.items() if value == wanted)


def held(judged: list[dict[str, Any]]) -> str:
    """A sentence a model: which of its bars it misses."""
    lines = []
    for model in MODELS:
        own = [bar for bar in judged if f"-{model}-" in bar["id"] and bar["scenario"] in SCENARIOS]
        own = [bar for bar in own if bar["verdict"] != "not measured"]
        missed = [f"`{bar['id']}` ({number(bar['figure'])})" for bar in own if bar["verdict"] == "missed"]
        if own:
            told = f", and misses {', '.join(missed)}" if missed else ""
            lines.append(f"Of its bars the {model} model meets {len(own) - len(missed)} of {len(own)}{told}.")
    return "\n".join(lines)


def table(medians: dict[str, list[dict[str, Any]]]) -> str:
    """The table, and a sentence that counts."""
    rows, counts = [], dict.fromkeys([*MODELS, "alike"], 0)
    for figure in FIGURES:
        found = values(figure, medians)
        if not found:
            continue
        says = better(figure, found)
        counts[says] = counts.get(says, 0) + 1
        cells = [figure.form.format(found[server]) if server in found else "" for server in SERVERS]
        rows.append("| " + " | ".join([figure.text, *cells, says]) + " |")
    head = ["| figure | " + " | ".join(SERVERS) + " | better |", "|---|" + "---:|" * len(SERVERS) + "---|"]
    said = (
        f"Of these, {counts['inverted']} speak for the inverted model, {counts['pump']} for the pump (at its better "
        f"backend), and in {counts['alike']} the two are within {ALIKE:.0%} of each other."
    )
    return "\n".join([*head, *rows]) + f"\n\n{said}"
