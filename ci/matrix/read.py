"""Artifacts as rows: what was measured (bench/run.py) and what was simulated (`sim --costs --json`) in one shape.

A row is one backend of one machine, or one simulated profile; a cell of it is both models with so many connections, the
server on so many CPUs.

- What was measured is an object with `machine` and `rounds`; each scenario that begins with `matrix-` is a row. A
  cell's ratio is the median of its rounds' ratios, its p50s are medians; a round in which a request failed is left out.
- What was simulated is an array of objects `{"platform", "kind": "simulated", "handoff", "cells"}`, each of them a row,
  with cells `{"model", "connections", "cpus", "rate", "p50_us", ...}`. It comes out the same each time.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODELS = ("inverted", "pump")
SCENARIO = "matrix-"


class ArtifactError(Exception):
    """An artifact says something that it must not."""


@dataclass(frozen=True, order=True)
class Place:
    """A column: how many connections, on how many CPUs."""

    connections: int
    cpus: int


@dataclass(frozen=True)
class Cell:
    """Both models in one place."""

    ratio: float
    """Requests a second, pump ÷ inverted."""
    pump: float
    """p50 of the pump, in microseconds."""
    inverted: float
    """p50 of the inversion, in microseconds."""
    shared: bool = False
    """Whether the client ran on one of the server's CPUs."""


@dataclass(frozen=True)
class Row:
    """One backend of one machine, or one profile of the simulator."""

    kind: str
    """`measured` or `simulated`."""
    platform: str
    """Such as `linux-x86_64`; of a profile, its name."""
    backend: str
    """Of a profile, how a request is handed over: `memory` or `datagrams`."""
    cells: dict[Place, Cell]
    date: str = ""
    """When it was measured."""
    source: str = ""
    """The file."""
    notes: tuple[str, ...] = ()
    """What a reader has to know beside the cells."""

    @property
    def name(self) -> tuple[str, str, str]:
        """What there is one row of."""
        return self.kind, self.platform, self.backend


def _pairs(records: list[dict[str, Any]], source: str) -> dict[Place, dict[int, dict[str, dict[str, Any]]]]:
    """Records by place, round and model."""
    found: dict[Place, dict[int, dict[str, dict[str, Any]]]] = {}
    for record in records:
        model = next((model for model in MODELS if f"-{model}-" in record["arm"]), None)
        if model is None:
            raise ArtifactError(f"{source}: {record['arm']} is of no model")
        place = Place(record["connections"], record["cpus"])
        found.setdefault(place, {}).setdefault(record["round"], {})[model] = record
    return found


def _measured(result: dict[str, Any], source: str) -> list[Row]:
    rows = []
    for scenario, records in result["rounds"].items():
        if not scenario.startswith(SCENARIO):
            continue
        cells, failed = {}, 0
        for place, rounds in _pairs(records, source).items():
            both = [models for models in rounds.values() if len(models) == len(MODELS)]
            failed += sum(any(model["errors"] for model in models.values()) for models in both)
            both = [models for models in both if not any(model["errors"] for model in models.values())]
            if both:
                p50 = {model: statistics.median(models[model]["p50"] for models in both) for model in MODELS}
                cells[place] = Cell(
                    statistics.median(models["pump"]["rate"] / models["inverted"]["rate"] for models in both),
                    p50["pump"],
                    p50["inverted"],
                    any(models["pump"]["shared"] for models in both),
                )
        backend = scenario.removeprefix(SCENARIO)
        notes = (f"requests failed in {failed} of its rounds, which are left out",) if failed else ()
        rows.append(Row("measured", result["machine"]["platform"], backend, cells, result["date"], source, notes))
    return rows


def _simulated(profiles: list[dict[str, Any]], source: str) -> list[Row]:
    rows = []
    for profile in profiles:
        if profile["kind"] != "simulated":
            raise ArtifactError(f"{source}: a profile of kind {profile['kind']!r}")
        figures: dict[Place, dict[str, dict[str, Any]]] = {}
        for cell in profile["cells"]:
            figures.setdefault(Place(cell["connections"], cell["cpus"]), {})[cell["model"]] = cell
        cells = {
            place: Cell(
                both["pump"]["rate"] / both["inverted"]["rate"], both["pump"]["p50_us"], both["inverted"]["p50_us"]
            )
            for place, both in figures.items()
            if set(both) == set(MODELS)
        }
        rows.append(Row("simulated", profile["platform"], profile["handoff"], cells, source=source))
    return rows


def rows_of(path: Path) -> list[Row]:
    """Every row of one artifact.

    Raises:
        ArtifactError: it is none.
    """
    try:
        content = json.loads(path.read_text())
        if isinstance(content, list):
            return _simulated(content, path.name)
        return _measured(content, path.name)
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ArtifactError(f"{path}: not an artifact of the matrix: {error!r}") from error


def merged(rows: Iterable[Row]) -> list[Row]:
    """One row for each name: of what was measured the latest.

    Raises:
        ArtifactError: two simulations of the same differ, which never happens between machines.
    """
    found: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        other = found.get(row.name)
        if other is not None and row.kind == "simulated" and row.cells != other.cells:
            raise ArtifactError(f"{row.source} and {other.source}: {row.platform} was simulated with other figures")
        if other is None or row.date > other.date:
            found[row.name] = row
    return list(found.values())


def artifacts_in(folder: Path) -> list[Path]:
    """Every artifact of the matrix below a folder.

    Raises:
        ArtifactError: there is none.
    """
    found = sorted(path for path in folder.rglob("*.json") if "matrix-" in path.name)
    if not found:
        raise ArtifactError(f"{folder}: no artifact of the matrix lies there")
    return found
