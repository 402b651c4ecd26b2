"""The command: gathers what it is asked for, prints the one table, and fails on a wrong sign."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from . import expect, gather, judge, read, table

WRONG_SIGN, UNUSABLE = 1, 2


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python3 -m matrix",
        description="Compares pump ÷ inverted across platforms with ci/matrix/expectations.toml, in one table. "
        "Exit code 1: in a cell the other model is ahead than was expected, by more than 5 %. A ratio outside its band "
        "is named, and no failure: shared machines are noisy, and bands are rough.",
    )
    parser.add_argument(
        "folder", nargs="?", type=Path, default=gather.RESULTS, help="where artifacts lie, at any depth"
    )
    parser.add_argument(
        "--measure",
        metavar="PYTHON",
        type=os.path.abspath,
        help="first measure this machine, with m0serve of that Python",
    )
    parser.add_argument("--backends", default="", help="comma-separated: measure only these (each takes about 90 s)")
    parser.add_argument("--add", action="store_true", help="to the artifact that an earlier piece began")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each measurement")
    parser.add_argument("--simulate", action="store_true", help="first run the simulated profiles")
    return parser.parse_args(argv)


def show(text: str) -> None:
    """Prints it, and puts it into the summary of a job of GitHub's, where there is one."""
    print(text)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(summary).open("a") as file:
            file.write(text + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 for a wrong sign, 2 when something could not be done."""
    chosen = options(argv)
    try:
        if chosen.measure:
            wanted = [name for name in chosen.backends.split(",") if name]
            gather.measure(chosen.measure, wanted, chosen.rounds, chosen.seconds, chosen.add)
        if chosen.simulate:
            gather.simulate()
        artifacts = read.artifacts_in(chosen.folder)
        rows = read.merged(row for path in artifacts for row in read.rows_of(path))
        lines = judge.compare(expect.load(), rows)
    except (gather.GatherError, read.ArtifactError, expect.ExpectationError) as error:
        print(f"error: {error}", file=sys.stderr)
        return UNUSABLE
    show(table.report(lines))
    return WRONG_SIGN if judge.count(lines).get(judge.WRONG) else 0


if __name__ == "__main__":
    sys.exit(main())
