"""Both models over one backend, on one CPU and on more: what ci/matrix compares across platforms.

One scenario a backend, so that each is a piece of its own. What differs between the CPUs of machines is in each record:

- `cpus`: how many the server may use;
- `shared`: whether the client runs on one of them, because there is none left. Such a figure is not comparable with one
  that has a CPU more: what the client takes is what the pump's second thread would have had.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from . import load
from .arms import m0serve
from .processes import PINNING, usable_cpus
from .scenarios import Load, Record, Setting, same_bodies
from .server import serving

BACKENDS = ["io_uring", "epoll", "kqueue"]
MODELS = ["inverted", "pump"]
CONNECTIONS = [16, 256]
APP, PATH = "apps:hello", "/"


@dataclass(frozen=True)
class Placement:
    """Where server and client run."""

    server: str | None
    """A list for taskset; None is wherever the kernel puts it."""
    client: str | None
    cpus: int
    shared: bool


def placements(usable: list[int], pinning: bool) -> list[Placement]:
    """The server on one CPU, then on two; the client beside it where a CPU is left, with it where none is.

    Raises:
        ValueError: there is one CPU only.
    """
    if len(usable) < 2:
        raise ValueError("server and client each need a CPU")
    if not pinning:
        # Two threads of the server and one of the client have a CPU each where there are three.
        return [Placement(None, None, len(usable), len(usable) < 3)]
    first, second = str(usable[0]), str(usable[1])
    third = str(usable[2]) if len(usable) > 2 else second
    return [
        Placement(first, second, 1, False),
        Placement(f"{first},{second}", third, 2, third == second),
    ]


def matrix(setting: Setting, backend: str) -> list[Record]:
    """Both models over one backend in every place.

    Both servers are up at once and one of them is loaded at a time, so that what a round compares is seconds apart: a
    virtual machine's speed changes by half from one minute to the next. The order of the models turns with each round.
    """
    arms = setting.chosen([m0serve(model, backend) for model in MODELS])
    places = placements(usable_cpus(), PINNING)
    same_bodies(setting, arms, "matrix", Load(APP, PATH, CONNECTIONS, cpus=places[0].server))
    records: list[Record] = []
    for place in places:
        with ExitStack() as stack:
            servers = [
                stack.enter_context(serving(arm, setting.python, APP, "matrix", place.server, place.client))
                for arm in arms
            ]
            for connections in CONNECTIONS:
                for server in servers:
                    load.warm(server, PATH, connections)
                for number in range(setting.rounds):
                    for server in servers if number % 2 == 0 else reversed(servers):
                        record = {"arm": server.arm.name, "round": number, "connections": connections}
                        record |= {"cpus": place.cpus, "shared": place.shared}
                        record |= load.run(server, PATH, connections, setting.seconds).record()
                        records.append(record)
                        print(_line(record))
    return records


def _line(record: Record) -> str:
    """For the terminal."""
    return (
        f"  round {record['round'] + 1}: {record['arm']:28} {record['connections']:4} connections {record['cpus']} CPUs"
        f"{', shared' if record['shared'] else ''} {record['rate']:9.0f}/s {record['cores']:.2f} cores "
        f"p50 {record['p50']:.0f} µs p99 {record['p99']:.0f} µs"
    )


MATRIX = {f"matrix-{backend}": partial(matrix, backend=backend) for backend in BACKENDS}
"""By the names that `--scenario` takes."""
