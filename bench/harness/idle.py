"""A client process: opens connections, has one response on each, says how many, and holds them until its input ends."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness.client import Connection

SOURCES = [f"127.0.0.{number}" for number in range(2, 6)]
"""Several source addresses, so that ephemeral ports suffice for any count."""


def main(port: int, count: int) -> None:
    """Holds `count` connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    held, answered = [], 0
    for number in range(count):
        connection = Connection(port, SOURCES[number % len(SOURCES)])
        answered += connection.ask("/")[0] == 200
        held.append(connection)
    print(answered, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
