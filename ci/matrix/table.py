"""The table and what it needs beside it, in Markdown that can be read as it is."""

from __future__ import annotations

from .expect import CONNECTIONS, Expected, Platform
from .judge import MET, NOT_RUN, OUTSIDE, UNKNOWN, WRONG, Judged, Line, count, cpus_of
from .read import Place

COLUMNS = {1: "1 CPU", 2: "2 CPUs", 3: "3 or more"}
"""Numbers of CPUs; the last stands for all above."""
CPUS = {"one": "one CPU", "more": "more CPUs", "shared": "two CPUs, one of them the client's too"}


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _what(name: tuple[str, str, str]) -> list[str]:
    """Platform, backend and kind of a row, for people."""
    kind, platform, backend = name
    if kind == "simulated":
        backend = {"memory": "handoff in memory", "datagrams": "handoff by datagrams"}.get(backend, backend)
    elif backend == "kqueue" and platform.startswith("linux"):
        backend = "kqueue, emulated"
    return [platform, backend, kind]


def cell(judged: Judged | None) -> str:
    """Ratio, p50 of pump and inversion in microseconds, verdict; an asterisk where the client shares a CPU."""
    if judged is None or judged.cell is None:
        return NOT_RUN
    ratio = f"{judged.cell.ratio:.2f}{'*' if judged.cell.shared else ''}"
    verdict = f"**{WRONG}**" if judged.verdict == WRONG else judged.verdict
    return f"{ratio} ({judged.cell.pump:,.0f}, {judged.cell.inverted:,.0f}), {verdict}"


def table(lines: list[Line]) -> str:
    """Rows of platforms, columns of cells."""
    places = [(count, cpus) for count in CONNECTIONS for cpus in COLUMNS]
    head = ["platform", "backend", "kind", *(f"{count}, {COLUMNS[cpus]}" for count, cpus in places)]
    rows = [_row(head), "|---" * len(head) + "|"]
    for line in lines:
        found = {(place.connections, min(place.cpus, max(COLUMNS))): judged for place, judged in line.cells.items()}
        rows.append(_row([*_what(line.name), *(cell(found.get(place)) for place in places)]))
    return "\n".join(rows)


def band(expected: Expected) -> str:
    """A sign and a size."""
    ahead = {"pump": "the pump ahead", "inverted": "the inversion ahead", "even": "about even"}[expected.sign]
    return f"{ahead}, {expected.low:.2f} to {expected.high:.2f}"


def _astray(line: Line, place: Place, judged: Judged) -> str:
    """One line for a cell that is not as expected."""
    assert judged.cell is not None and judged.expected is not None
    cpus = cpus_of(place, judged.cell.shared)
    where = f"{place.connections} connections, {f'{place.cpus} CPUs' if cpus == 'more' else CPUS[cpus]}"
    return (
        f"- {judged.verdict}: {', '.join(_what(line.name))}, {where}: {judged.cell.ratio:.2f}; "
        f"expected: {band(judged.expected)} ({judged.expected.source})"
    )


def summary(lines: list[Line]) -> str:
    """How many cells are as expected, and a line for each that is not, or that has a note."""
    counts = count(lines)
    total = sum(counts.values())
    said = ", ".join(f"{counts[verdict]} {verdict}" for verdict in (MET, OUTSIDE, WRONG, UNKNOWN) if verdict in counts)
    astray = [
        _astray(line, place, judged)
        for line in lines
        for place, judged in sorted(line.cells.items())
        if judged.verdict in (OUTSIDE, WRONG)
    ]
    astray += [f"- {', '.join(_what(line.name))}: {note}" for line in lines for note in line.notes]
    return "\n".join([f"{total} cells: {said or 'none was run'}.", *([""] if astray else []), *astray])


LEGEND = (
    "Each cell: requests a second of the pump ÷ those of the inversion (p50 of the pump, of the inversion, in µs), "
    "verdict. \\* the client runs on one of the server's CPUs, because the machine has no other: such a cell has an "
    "expectation of its own."
)


def report(lines: list[Line]) -> str:
    """What the script prints."""
    return f"{table(lines)}\n\n{LEGEND}\n\n{summary(lines)}"


def expectations(platforms: list[Platform]) -> str:
    """What is expected of each cell, and where that is known from."""
    rows = [_row(["platform", "connections", "CPUs", "pump ÷ inverted", "known from"]), "|---|---:|---|---|---|"]
    for platform in platforms:
        for (connections, cpus), expected in sorted(platform.cells.items(), key=lambda item: item[0][0]):
            rows.append(_row([platform.name, str(connections), CPUS[cpus], band(expected), expected.source]))
    return "\n".join(rows)
