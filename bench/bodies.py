"""System calls for each MiB of a large body, by server, in Markdown: bench/results/large-bodies.txt.

Run it with the python of the benchmarks' environment, which bench/run.sh makes. strace counts; it slows the server, and
by that changes a little how much each of its calls finds.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

from copies import BODY, CASES, move
from harness.arms import OURS, STOCK
from harness.server import Server, serving
from harness.special import TRACED

MIB = BODY / 2**20
#: Bodies of a trace.
TIMES = 2
#: Of the cases of bench/copies.py those with large messages.
MOVED = [(name, target) for name, target, copies in CASES if copies == 1 or target is None]


def move_bodies(server: Server, target: str | None) -> None:
    """On a connection each."""
    for _ in range(TIMES):
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            move(sock, target)


def calls(server: Server, target: str | None) -> float:
    """System calls a MiB."""
    command = ["strace", "-c", "-f", "-p", str(server.worker())]
    strace = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert strace.stderr is not None
    assert "attached" in strace.stderr.readline(), "it may not trace"
    move_bodies(server, target)
    strace.send_signal(signal.SIGINT)
    total = TRACED.search(strace.communicate(timeout=20)[1])
    assert total is not None, "strace printed no total"
    return int(total[1]) / MIB / TIMES


def main() -> None:
    """Prints the table."""
    print(f"| | {' | '.join(name for name, _ in MOVED)} |")
    print(f"|---{'|---:' * len(MOVED)}|")
    for arm in [*OURS, STOCK]:
        with serving(arm, sys.executable, "apps:bodies", "bodies") as server:
            move_bodies(server, None)  # what is done once is done
            figures = [f"{calls(server, target):.0f}" for _, target in MOVED]
        print(f"| {arm.name} | {' | '.join(figures)} |", flush=True)


if __name__ == "__main__":
    main()
