"""Rows against expectations: met, outside, wrong sign, not run."""

from __future__ import annotations

from dataclasses import dataclass

from .expect import Expected, Platform, sign_of
from .read import Cell, Place, Row

MET, OUTSIDE, WRONG, NOT_RUN, UNKNOWN = "met", "outside", "wrong sign", "not run", "no expectation"
OPPOSITE = {"pump": "inverted", "inverted": "pump"}


@dataclass(frozen=True)
class Judged:
    """A cell with its verdict."""

    verdict: str
    cell: Cell | None = None
    expected: Expected | None = None


@dataclass(frozen=True)
class Line:
    """A row of the table."""

    platform: str
    """The expectations' name for it; empty where there are none."""
    name: tuple[str, str, str]
    cells: dict[Place, Judged]
    notes: tuple[str, ...] = ()


def cpus_of(place: Place, shared: bool) -> str:
    """Which expectation a place has."""
    if place.cpus == 1:
        return "one"
    return "shared" if shared else "more"


def judge(cell: Cell, expected: Expected | None) -> str:
    """The verdict on one cell.

    A sign is wrong only when the other model is ahead by more than noise: what is even although one model was expected
    to be ahead is at most outside its band.
    """
    if expected is None:
        return UNKNOWN
    if sign_of(cell.ratio) == OPPOSITE.get(expected.sign):
        return WRONG
    return MET if expected.low <= cell.ratio <= expected.high else OUTSIDE


def _line(platform: Platform | None, name: tuple[str, str, str], row: Row | None) -> Line:
    cells = {}
    for place, cell in (row.cells if row else {}).items():
        wanted = (place.connections, cpus_of(place, cell.shared))
        expected = platform.cells.get(wanted) if platform else None
        cells[place] = Judged(judge(cell, expected), cell, expected)
    return Line(platform.name if platform else "", name, cells, row.notes if row else ())


def compare(platforms: list[Platform], rows: list[Row]) -> list[Line]:
    """A line for each row that is expected, run or not, then for those of which nothing is expected."""
    found = {row.name: row for row in rows}
    lines = [_line(platform, name, found.pop(name, None)) for platform in platforms for name in platform.rows]
    return lines + [_line(None, name, row) for name, row in found.items()]


def count(lines: list[Line]) -> dict[str, int]:
    """How often each verdict on a cell that was run was given."""
    counts: dict[str, int] = {}
    for line in lines:
        for judged in line.cells.values():
            counts[judged.verdict] = counts.get(judged.verdict, 0) + 1
    return counts
