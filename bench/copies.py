"""How often the server copies each byte of a large body between the socket and the application, counted by valgrind.

DHAT's copy mode counts the bytes that pass through memcpy and its relatives, in the process's own memory: what the
kernel copies at its boundary is not in it. Each figure is the difference between a run with the body and one without,
so that starting up costs nothing. Run it by bench/copies.sh.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BENCH = Path(__file__).resolve().parent
BODY = 64 * 1024 * 1024
START_SECONDS = 60.0
#: What a figure may be above the copies that are meant: heads, messages, the loop's own work.
SLACK = 0.05

#: What is moved, the request's target or None for an upload, and how many copies are meant.
CASES = (
    ("download, messages of 4 KiB", "/4096/16384", 2),
    ("download, messages of 64 KiB", "/65536/1024", 1),
    ("download, messages of 64 KiB, chunked", "/65536/1024?chunked", 1),
    ("download, messages of 1 MiB", "/1048576/64", 1),
    ("download, one message", f"/{BODY}/1", 1),
    ("upload", None, 2),
)


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def connect(port: int, server: subprocess.Popen[bytes]) -> socket.socket:
    """A connection, as soon as the server takes one."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            if time.monotonic() > deadline or server.poll() is not None:
                raise
            time.sleep(0.05)


def move(sock: socket.socket, target: str | None) -> None:
    """One request with a large body, one way or the other."""
    if target is None:
        sock.sendall(f"POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {BODY}\r\n\r\n".encode())
        sock.sendall(bytes(BODY))
    else:
        sock.sendall(f"GET {target} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".encode())
    got = 0
    while data := sock.recv(1 << 20):
        got += len(data)
    assert target is None or got > BODY, f"only {got} bytes came"


def copied(model: str, work: str | bool | None) -> int:
    """Bytes that a server copied in its life, with this request or (False) without any."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        valgrind = ["valgrind", "--tool=dhat", "--mode=copy", f"--dhat-out-file={folder}/out", f"--log-file={log}"]
        # valgrind knows no io_uring; what is above the backend is the same on both.
        options = ["--model", model, "--backend", "epoll", "--port", str(port), "apps:bodies"]
        # Every allocation through malloc, which valgrind knows.
        environment = os.environ | {"PYTHONMALLOC": "malloc"}
        server = subprocess.Popen(
            [*valgrind, sys.executable, "-m", "m0serve", *options],
            cwd=BENCH,
            env=environment,
            stderr=subprocess.DEVNULL,
        )
        try:
            with connect(port, server) as sock:
                if not isinstance(work, bool):
                    move(sock, work)
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0
        finally:
            server.kill()
            server.wait()
        found = re.search(r"Total:\s+([\d,]+) bytes", log.read_text())
        assert found, log.read_text()
        return int(found[1].replace(",", ""))


def main() -> int:
    """Print a table; the exit code says whether every figure is what is meant."""
    status = 0
    print("copies in the process of each byte of a body, counted over 64 MiB\n")
    for model in ("inverted", "pump"):
        idle = copied(model, False)
        for name, target, meant in CASES:
            figure = (copied(model, target) - idle) / BODY
            right = meant - SLACK < figure < meant + SLACK
            status |= not right
            print(f"{model:10}{name:40}{figure:6.3f}" + ("" if right else f"   where {meant} are meant"), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
