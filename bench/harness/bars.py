"""The bars of bench/bars.json against what was measured.

A bar names a scenario, arms (of several the best counts, with `every` the worst), a number of connections and a figure
(`metric`). It holds the figure itself, or its ratio to the same figure of the arm `over` in the same round, against
`at_least` or `at_most`; `cpus` picks the measurements with that many.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path

from .scenarios import Record

BARS = Path(__file__).resolve().parent.parent / "bars.json"


def load() -> list[Record]:
    """The bars as written."""
    bars: list[Record] = json.loads(BARS.read_text())
    return bars


def _rounds(records: list[Record], arm: str, bar: Record, cpus: int | None) -> dict[int, float]:
    return {
        record["round"]: record[bar["metric"]]
        for record in records
        if record["arm"] == arm
        and record.get("connections") == bar["connections"]
        and bar["metric"] in record
        and (cpus is None or record.get("cpus") == cpus)
    }


def _figure(records: list[Record], arm: str, bar: Record) -> float | None:
    """One arm's figure: a median over rounds, or the median of the rounds' ratios."""
    own = _rounds(records, arm, bar, bar.get("cpus"))
    if not own:
        return None
    if "over" not in bar:
        return statistics.median(own.values())
    other = _rounds(records, bar["over"], bar, bar.get("cpus"))
    ratios = [own[number] / other[number] for number in own if other.get(number)]
    return statistics.median(ratios) if ratios else None


def judge(bar: Record, scenarios: dict[str, list[Record]]) -> Record:
    """The bar with `figure`, `arm` and `verdict`: met, missed, or not measured."""
    records = scenarios.get(bar["scenario"], [])
    figures = {arm: figure for arm in bar["arms"] if (figure := _figure(records, arm, bar)) is not None}
    if not figures:
        return bar | {"verdict": "not measured"}
    upper = "at_most" in bar
    # `every` arm has to meet it: then the worst counts instead of the best.
    pick_low = upper != bar.get("every", False)
    arm = (min if pick_low else max)(figures, key=lambda name: figures[name])
    figure = figures[arm]
    met = figure <= bar["at_most"] if upper else figure >= bar["at_least"]
    return bar | {"figure": round(figure, 4), "arm": arm, "verdict": "met" if met else "missed"}


def number(value: float) -> str:
    """Three digits that count, and never an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def line(judged: Record) -> str:
    """One line for the terminal."""
    bound = f"<= {judged['at_most']}" if "at_most" in judged else f">= {judged['at_least']}"
    if judged["verdict"] == "not measured":
        return f"not measured  {judged['text']} (bar {bound})"
    verdict = "MISSED" if judged["verdict"] == "missed" else judged["verdict"]
    return f"{verdict:12}  {judged['text']}: {judged['figure']:g} (bar {bound}, {judged['arm']})"


def report(judged: list[Record], partial: bool) -> int:
    """Prints each verdict, then what was missed, and returns the exit code.

    A bar of a scenario that ran and whose figure is not there fails too, unless arms were left out: it names what
    nobody measures.
    """
    print("\nbars")
    for bar in judged:
        print("  " + line(bar))
    failing = ("missed",) if partial else ("missed", "not measured")
    failed = [bar["id"] for bar in judged if bar["verdict"] in failing]
    if failed:
        print(f"\nMISSED {len(failed)} of {len(judged)} bars: {', '.join(failed)}")
    return 1 if failed else 0
