"""Sums up the logs of ci/test.sh: what each stage ran, what was skipped, and one closing line.

Reads the endings of `cargo test`, pytest, unittest, ci/sim.sh and ci/fuzz.sh. What ci/unsteady.py calls
unsteady counts as passed, and is named. A stage that failed without a count (it did not build, say) counts as one
failure; one that passed but ran nothing is a failure too, since an empty suite proves nothing, unless it says why it
was skipped.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

CARGO = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", re.M)
PYTEST = re.compile(
    r"^=*\s*((?:\d+ (?:passed|failed|skipped|errors?|xfailed|xpassed|deselected|warnings?)(?:, )?)+) in ", re.M
)
FUZZED = re.compile(r"^\w+: (ok|FAILED), ", re.M)
SIMULATED = re.compile(r"^simulated: (\d+) passed, (\d+) failed$", re.M)
SKIPPED = re.compile(r"^SKIPPED: .*", re.M)
UNSTEADY = re.compile(r"^UNSTEADY: .*", re.M)
UNITTEST = re.compile(r"^Ran (\d+) tests? in .*\n\n(OK|FAILED)(?: \((.*)\))?", re.M)


@dataclass
class Count:
    """Tests of one stage."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0


def count(text: str) -> Count:
    """Adds up every runner's ending in a log."""
    total = Count()
    for passed, failed, ignored in CARGO.findall(text):
        total.passed += int(passed)
        total.failed += int(failed)
        total.skipped += int(ignored)
    for ending in PYTEST.findall(text):
        for number, word in re.findall(r"(\d+) (\w+)", ending):
            if word in ("passed", "xfailed"):
                total.passed += int(number)
            elif word in ("failed", "error", "errors", "xpassed"):
                total.failed += int(number)
            elif word == "skipped":
                total.skipped += int(number)
    total.failed -= len(UNSTEADY.findall(text))  # the second run has counted them as passed
    for ran, _, detail in UNITTEST.findall(text):
        parts = {word: int(number) for word, number in re.findall(r"(\w+)=(\d+)", detail)}
        bad = parts.get("failures", 0) + parts.get("errors", 0)
        total.failed += bad
        total.skipped += parts.get("skipped", 0)
        total.passed += int(ran) - bad - parts.get("skipped", 0)
    for passed, failed in SIMULATED.findall(text):
        total.passed += int(passed)
        total.failed += int(failed)
    for ending in FUZZED.findall(text):
        total.passed += ending == "ok"
        total.failed += ending == "FAILED"
    return total


def main(folder: Path) -> int:
    """Prints the tally and returns the exit code."""
    total = Count()
    print("\n== summary")
    for log in sorted(folder.glob("*.log")):
        text = log.read_text(errors="replace")
        stage = count(text)
        broken = log.with_suffix(".failed").exists()
        if broken and stage.failed == 0:
            stage.failed = 1
        skips = dict.fromkeys(SKIPPED.findall(text))
        for line in [*UNSTEADY.findall(text), *skips]:
            print(f"{log.stem}: {line}")
        if not broken and stage.passed == 0:
            stage.skipped += len(skips)
            if not skips:
                print(f"{log.stem}: no test ran")
                stage.failed += 1
        print(f"{log.stem}: {stage.passed} passed, {stage.failed} failed, {stage.skipped} skipped")
        total.passed += stage.passed
        total.failed += stage.failed
        total.skipped += stage.skipped
    skips = folder / "skips.txt"
    if skips.exists():
        for line in skips.read_text().splitlines():
            print(f"SKIPPED: {line}")
            total.skipped += 1
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
