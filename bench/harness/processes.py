"""CPU time of processes, CPUs to run them on, and what a reader has to know of the machine: Linux, macOS and the BSDs.

Linux has the figures in /proc, and pins with taskset. Elsewhere CPU time comes from ps(1), in hundredths of a second,
and nothing can be pinned: an artifact says so in `machine.pinned`.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

PROC = Path("/proc/self/stat").exists()
TICK = os.sysconf("SC_CLK_TCK")
PINNING = shutil.which("taskset") is not None and hasattr(os, "sched_getaffinity")
NAMES = {"Darwin": "macos", "arm64": "aarch64", "amd64": "x86_64"}
"""What the platform module calls otherwise than `m0serve --doctor`."""


def pin(cpus: str | None) -> list[str]:
    """What to put before a command line that runs on these CPUs; nothing for None."""
    return [] if cpus is None else ["taskset", "-c", cpus]


def usable_cpus() -> list[int]:
    """Numbers of the CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def stat(pid: int) -> tuple[int, int]:
    """Clock ticks and threads of one process (proc(5)); zeros when it has gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0, 0
    return int(fields[11]) + int(fields[12]), int(fields[17])


def members(group: int) -> list[int]:
    """Process ids of a process group, from /proc."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getpgid(int(entry.name)) == group:
                    found.append(int(entry.name))
            except ProcessLookupError:
                pass
    return found


def seconds_of(text: str) -> float:
    """The TIME column of ps(1): `0:01.25` on the BSDs and macOS, `1-02:03:04` on Linux."""
    days, _, clock = text.strip().rpartition("-")
    seconds = 0.0
    for part in clock.split(":"):
        seconds = seconds * 60 + float(part)
    return seconds + 86_400 * int(days or 0)


def listed_seconds(listing: str, group: int) -> float:
    """User and system time of a group in what `ps -A -o pgid= -o time=` prints."""
    rows = [line.split() for line in listing.splitlines() if line.strip()]
    return sum(seconds_of(row[1]) for row in rows if int(row[0]) == group)


def group_seconds(group: int) -> float:
    """User and system time of every process of a group so far."""
    if PROC:
        return sum(stat(pid)[0] for pid in members(group)) / TICK
    listing = subprocess.run(["ps", "-A", "-o", "pgid=", "-o", "time="], check=True, capture_output=True, text=True)
    return listed_seconds(listing.stdout, group)


def everybody() -> float | None:
    """Seconds of all processes so far, and those that went to other machines of the host, from /proc/stat (proc(5))."""
    try:
        fields = Path("/proc/stat").read_text().split(maxsplit=9)[1:9]
    except FileNotFoundError:
        return None
    user, nice, system, _, _, _, _, steal = map(int, fields)
    return (user + nice + system + steal) / TICK


def output(*command: str, cwd: Path | None = None) -> str:
    """What a command prints, or nothing when it cannot be run."""
    try:
        return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _virtual(flags: str) -> bool | None:
    """Whether there is a hypervisor below; None where that cannot be found out."""
    if platform.system() == "Darwin":
        return {"1": True, "0": False}.get(output("sysctl", "-n", "kern.hv_vmm_present"))
    if re.search(r"^flags\b.*\bhypervisor\b", flags, re.M):
        return True
    # It prints `none`, and fails, where there is none.
    found = subprocess.run(["systemd-detect-virt"], capture_output=True, text=True) if _has_detector() else None
    return None if found is None else found.stdout.strip() != "none"


def _has_detector() -> bool:
    return shutil.which("systemd-detect-virt") is not None


def _wrk() -> str:
    """The version of wrk: the package's, or what it says itself before it fails for want of a URL."""
    if package := output("dpkg-query", "-W", "-f", "${Version}", "wrk"):
        return package
    try:
        said = subprocess.run(["wrk", "-v"], capture_output=True, text=True).stdout.split()
    except OSError:
        return "?"
    return said[1] if len(said) > 1 else "?"


def facts() -> dict[str, Any]:
    """The machine: processor, system, and in which state it is."""
    info = Path("/proc/cpuinfo").read_text() if PROC else ""
    named = re.search(r"^model name\s*:\s*(.*)$", info, re.M)
    system, machine = platform.system(), platform.machine()
    return {
        "cpu": named[1] if named else output("sysctl", "-n", "machdep.cpu.brand_string") or machine,
        "cpus": os.cpu_count(),
        "system": "macOS" if system == "Darwin" else system,
        "platform": f"{NAMES.get(system, system.lower())}-{NAMES.get(machine, machine)}",
        "virtual": _virtual(info),
        "pinned": PINNING,
        "kernel": platform.release(),
        "load_before": os.getloadavg()[0],
        "wrk": _wrk(),
    }
