"""Makes the artifacts of the machine that it runs on: each backend that works here, and the simulated profiles.

Started by run.sh, which makes the environment. Measuring needs the machine to itself, some ninety seconds a backend.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "bench" / "results"
SIMULATED = RESULTS / "matrix-simulated.json"
"""Without a date: it is the same each time."""


class GatherError(Exception):
    """Nothing could be gathered."""


def usable(report: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Names of the backends that `m0serve --doctor` found to work, and a sentence for each that does not."""
    works, refused = [], []
    for backend in report["backends"]:
        if backend["usable"]:
            works.append(backend["name"])
        else:
            refused.append(f"{backend['name']} does not run here: {backend['reason']}")
    return works, refused


def environment() -> dict[str, str]:
    """Without the path to this package, which is no business of the servers."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def doctor(python: str) -> dict[str, Any]:
    """What the installed server says of this machine.

    Raises:
        GatherError: it says nothing.
    """
    command = [python, "-m", "m0serve", "--doctor"]
    done = subprocess.run(command, cwd=RESULTS, env=environment(), capture_output=True, text=True)
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except json.JSONDecodeError as error:
        raise GatherError(f"m0serve --doctor gave no report: {done.stderr.strip() or error}") from error
    return report


def command(python: str, platform: str, backend: str, rounds: int, seconds: float, add: bool) -> list[str]:
    """The benchmark runner's command line for one backend."""
    scenario = ["--scenario", f"matrix-{backend}", "--name", f"matrix-{platform}"]
    options = ["--rounds", str(rounds), "--seconds", str(seconds), *(["--add"] if add else [])]
    return [python, str(ROOT / "bench" / "run.py"), *scenario, *options]


def measure(python: str, wanted: list[str], rounds: int, seconds: float, add: bool) -> None:
    """Every backend that is wanted and works, one after another into one artifact.

    Raises:
        GatherError: none of them works, or a run failed.
    """
    report = doctor(python)
    platform = report["platform"].replace(" ", "-")
    works, refused = usable(report)
    for sentence in refused:
        print(f"note: {sentence}")
    backends = [backend for backend in works if not wanted or backend in wanted]
    if not backends:
        raise GatherError(f"none of {', '.join(wanted) or 'the backends'} works here")
    for number, backend in enumerate(backends):
        piece = command(python, platform, backend, rounds, seconds, add or number > 0)
        done = subprocess.run(piece, env=environment())
        if done.returncode != 0:
            raise GatherError(f"measuring {backend} failed with exit code {done.returncode}")


def simulate() -> None:
    """Both models on the machines that profiles describe.

    Raises:
        GatherError: the simulator failed.
    """
    done = subprocess.run([str(ROOT / "ci" / "sim.sh"), "--costs", "--json"], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise GatherError(f"the simulator failed with exit code {done.returncode}")
    SIMULATED.write_text(json.dumps(json.loads(done.stdout), indent=1) + "\n")
    print(f"kept as {SIMULATED.relative_to(ROOT)}", file=sys.stderr)
