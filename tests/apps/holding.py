"""What a process holds, for tests that nothing grows."""

from __future__ import annotations

import gc
import os
import sys
import threading
from typing import Any


def held() -> dict[str, Any]:
    """Python objects after a full collection, blocks of memory, threads, descriptors, and which types are frequent."""
    gc.collect()
    gc.collect()
    counts: dict[str, int] = {}
    for thing in gc.get_objects():
        name = type(thing).__name__
        counts[name] = counts.get(name, 0) + 1
    return {
        "objects": sum(counts.values()),
        "blocks": sys.getallocatedblocks(),
        "threads": threading.active_count(),
        "fds": len(os.listdir("/proc/self/fd")),
        "top": dict(sorted(counts.items(), key=lambda item: -item[1])[:40]),
    }
