"""expectations.toml: what pump ÷ inverted should be on each platform, and where that is known from."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().with_name("expectations.toml")
ALIKE = 0.05
"""Ratios that are this close to 1 have no sign."""
SIGNS = ("pump", "inverted", "even")
CPUS = ("one", "more", "shared")
"""One CPU for the server; more; more, one of which the client runs on too."""
CONNECTIONS = (16, 256)


class ExpectationError(Exception):
    """The file contradicts itself, or leaves something out."""


@dataclass(frozen=True)
class Expected:
    """Of one cell."""

    sign: str
    """Which model is ahead, or `even` where either may be, by little."""
    low: float
    high: float
    source: str
    """Where it is known from."""


@dataclass(frozen=True)
class Platform:
    """One platform: its cells, and the rows that are held against them."""

    name: str
    rows: list[tuple[str, str, str]]
    """Kind, platform and backend, as `Row.name`."""
    cells: dict[tuple[int, str], Expected]
    """By connections and one of `CPUS`."""


def sign_of(ratio: float) -> str:
    """Which model a ratio speaks for."""
    if round(abs(ratio - 1), 9) <= ALIKE:
        return "even"
    return "pump" if ratio > 1 else "inverted"


def _expected(cell: dict[str, Any], where: str) -> Expected:
    low, high = cell["band"]
    expected = Expected(cell["sign"], low, high, cell["from"])
    if expected.sign not in SIGNS or not 0 < low < high or not expected.source.strip():
        raise ExpectationError(f"{where}: a sign of {SIGNS}, a band from low to high, and where it is from")
    # Where the sign is known, no figure of the band may have the other one.
    other = {"pump": sign_of(low) == "inverted", "inverted": sign_of(high) == "pump"}
    if other.get(expected.sign, False):
        raise ExpectationError(f"{where}: the band {low} to {high} has figures of another sign than {expected.sign}")
    return expected


def _platform(content: dict[str, Any]) -> Platform:
    name = content["name"]
    cells = {}
    for cell in content["cells"]:
        place = (cell["connections"], cell["cpus"])
        where = f"{name}, {place[0]} connections, {place[1]}"
        if place in cells or place[0] not in CONNECTIONS or place[1] not in CPUS:
            raise ExpectationError(f"{where}: twice, or no cell of the matrix")
        cells[place] = _expected(cell, where)
    missing = [(count, cpus) for count in CONNECTIONS for cpus in ("one", "more") if (count, cpus) not in cells]
    if missing:
        raise ExpectationError(f"{name}: nothing is expected of {missing}")
    rows = []
    for kind in ("measured", "simulated"):
        for row in content.get(kind, []):
            platform, _, backend = row.partition("/")
            rows.append((kind, platform, backend))
    return Platform(name, rows, cells)


def load(text: str | None = None) -> list[Platform]:
    """The platforms of the file, or of its text.

    Raises:
        ExpectationError: it contradicts itself, or leaves something out.
    """
    content = tomllib.loads(FILE.read_text() if text is None else text)
    platforms = [_platform(platform) for platform in content["platform"]]
    names = [row for platform in platforms for row in platform.rows]
    if len(names) != len(set(names)):
        raise ExpectationError("a row is held against two platforms")
    return platforms
