"""What is kept of a run, and how runs in pieces, scenario by scenario, become one artifact."""

from __future__ import annotations

import json
from pathlib import Path

from .scenarios import Record

ALIKE = ("cpu", "cpus", "kernel", "wrk", "versions")
"""What two pieces must share beside the code that was measured."""


def _code(result: Record) -> object:
    """The wheel that was measured; the commit where it is not known."""
    machine = result["machine"]
    return machine.get("wheel") or (machine["commit"], machine["changed"])


def read(path: Path, result: Record) -> Record:
    """The artifact that a run will be added to.

    Raises:
        ValueError: other code, another machine or other options were measured for it.
    """
    earlier: Record = json.loads(path.read_text())
    compared = {"the code": (_code(earlier), _code(result)), "options": (earlier["options"], result["options"])}
    compared |= {key: (earlier["machine"].get(key), result["machine"].get(key)) for key in ALIKE}
    for what, (before, now) in compared.items():
        if before != now:
            raise ValueError(f"{path.name} was measured with {what} {before}, now it is {now}; give another --name")
    return earlier


def _piece(result: Record) -> Record:
    """When and in which state of the machine a run was made."""
    return {
        "date": result["date"],
        "load_before": result["machine"]["load_before"],
        "commit": result["machine"]["commit"],
        "scenarios": list(result["rounds"]),
    }


def merge(earlier: Record, result: Record, order: list[str]) -> Record:
    """Both in one, scenarios in the given order; what was measured again replaces what was there.

    Date and machine stay the first piece's: what the others found of load before their start may be the first's.
    """
    names = [name for name in order if name in earlier["rounds"] or name in result["rounds"]]
    merged = dict(earlier)
    for key in ("rounds", "medians"):
        merged[key] = {name: (result if name in result["rounds"] else earlier)[key][name] for name in names}
    found = {bar["id"]: bar for bar in earlier["bars"] if bar["scenario"] not in result["rounds"]}
    found |= {bar["id"]: bar for bar in result["bars"]}
    merged["bars"] = sorted(found.values(), key=lambda bar: names.index(bar["scenario"]))
    merged["pieces"] = [*earlier.get("pieces", [_piece(earlier)]), _piece(result)]
    return merged


def write(path: Path, result: Record) -> None:
    """As indented JSON, in one step: a run that is killed leaves the earlier one whole."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(result, indent=1) + "\n")
    new.replace(path)
