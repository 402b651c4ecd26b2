"""Runs pytest, and gives what failed beside others a second look, alone.

ci/pytests.py CACHE ARGUMENT...

The suite waits for conditions, but each wait has an end, and a machine that does nothing for seconds reaches it. So at
most two failed tests are run again, by themselves; one that then passes is named in a line that ci/tally.py repeats at
the end. More than two, or one that fails again, are failures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

MOST = 2


def failed(cache: Path) -> list[str]:
    """What the last run left as failed."""
    file = cache / "v" / "cache" / "lastfailed"
    return list(json.loads(file.read_text())) if file.exists() else []


def main(cache: Path, arguments: list[str]) -> int:
    """Returns pytest's exit code, or 0 when everything that failed passed in its second run."""
    pytest = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}"]
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # every worker would compile every test again
    (cache / "v" / "cache" / "lastfailed").unlink(missing_ok=True)
    code = subprocess.call([*pytest, *arguments])
    names = failed(cache)
    if code != 1 or not 0 < len(names) <= MOST:
        return code
    print("\n== once more, alone:", *names, flush=True)
    if code := subprocess.call([*pytest, "-n", "0", *names]):
        return code
    for name in names:
        print(f"UNSTEADY: {name} failed beside others and passed alone", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
