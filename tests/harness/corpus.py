"""gunicorn's corpus of valid and invalid requests, out of its source distribution; none of it is kept in this tree.

The distribution is fetched by pip, once for a checkout, and read where it lies. A case is two files. `NAME.http` holds
the bytes, with real line ends for the eye only and `\\r\\n`, `\\n`, `\\t`, `\\0` and `\\xHH` for the ones meant.
`NAME.py` assigns to `request` what is expected: one dictionary, a list of them, or the class of an error; and may call
`cfg.set` for settings that gunicorn's own test makes.
"""

from __future__ import annotations

import fcntl
import functools
import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VERSION = "27.0.1"
_SHA256 = "b1514965361c8b7e8107a80aa2a92636878df1ccfac6dd204a676426e04d9e3e"
_KEPT = Path(__file__).resolve().parents[2] / ".build" / "corpus"

# pip asks the build system of a source distribution for its metadata even where nothing is to be built. This stands in
# for it, so that nothing of the distribution runs and nothing else is downloaded.
_BACKEND = """
import os
def prepare_metadata_for_build_wheel(directory, config_settings=None):
    os.makedirs(os.path.join(directory, "gunicorn.dist-info"))
    with open(os.path.join(directory, "gunicorn.dist-info", "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\\nName: gunicorn\\nVersion: VERSION\\n")
    return "gunicorn.dist-info"
"""


class Unavailable(Exception):
    """The distribution could not be fetched."""


@dataclass
class Expected:
    """A request that the application should see. Bytes are strings of latin-1, names of fields in lower case."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: str


@dataclass
class Case:
    """One case."""

    #: As in `valid/001`.
    name: str
    data: bytes
    #: Empty for an invalid one.
    requests: list[Expected] = field(default_factory=list)
    #: The name of gunicorn's error, for an invalid one.
    error: str = ""

    @property
    def valid(self) -> bool:
        """Whether it is to be accepted."""
        return not self.error


@functools.cache
def cases() -> list[Case]:
    """All of them, sorted by name.

    Raises:
        Unavailable: with pip's reason.
    """
    found = []
    # Whole in memory: it is read out of order, and each step back would decompress it from the front.
    whole = io.BytesIO(gzip.decompress(_fetch().read_bytes()))
    with tarfile.open(fileobj=whole) as archive:
        members = {member.name: member for member in archive.getmembers()}

        def text(name: str) -> bytes:
            file = archive.extractfile(members[name])
            assert file is not None
            return file.read()

        for name in sorted(members):
            if match := re.fullmatch(r"[^/]*/tests/requests/((?:in)?valid/[^/]+)\.http", name):
                expected = _expected(text(name.removesuffix(".http") + ".py").decode())
                found.append(Case(match[1], _bytes(text(name)), **expected))
    assert len(found) > 100, f"only {len(found)} cases: the corpus is not where it was"
    return found


def _fetch() -> Path:
    """The distribution's path. Several processes may ask at once: one downloads, the others wait for it."""
    path = _KEPT / f"gunicorn-{VERSION}.tar.gz"
    _KEPT.mkdir(parents=True, exist_ok=True)
    with (_KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_right(path):
            with tempfile.TemporaryDirectory(dir=_KEPT) as directory:
                _download(Path(directory))
                (Path(directory) / path.name).rename(path)
    return path


def _is_right(path: Path) -> bool:
    return path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == _SHA256


def _download(directory: Path) -> None:
    (directory / "setuptools").mkdir()
    (directory / "setuptools" / "__init__.py").touch()
    (directory / "setuptools" / "build_meta.py").write_text(_BACKEND.replace("VERSION", VERSION))
    wanted = directory / "wanted.txt"
    wanted.write_text(f"gunicorn=={VERSION} --hash=sha256:{_SHA256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-binary", ":all:", "--no-build-isolation", "--dest", str(directory), "-r", str(wanted)]
    environment = os.environ | {"PYTHONPATH": str(directory)}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=40, check=False)
    except subprocess.TimeoutExpired:
        raise Unavailable("pip download took longer than 40 s") from None
    if done.returncode != 0:
        raise Unavailable(f"pip download failed: {done.stderr.strip()}")


_ESCAPE = re.compile(rb"\\(?:x([0-9A-Fa-f]{2})|([rnt0]))")
_MEANING = {b"r": b"\r", b"n": b"\n", b"t": b"\t", b"0": b"\0"}


def _bytes(text: bytes) -> bytes:
    """What a `.http` file stands for."""

    def meant(match: re.Match[bytes]) -> bytes:
        return bytes.fromhex(match[1].decode()) if match[1] else _MEANING[match[2]]

    return _ESCAPE.sub(meant, text.replace(b"\n", b""))


class _Anything:
    """Stands in for every module that a `.py` file imports from, and for the settings: takes all, does nothing."""

    def __call__(self, *_: object, **__: object) -> _Anything:
        return self

    def __getattr__(self, name: str) -> Any:
        if name in ("Config", "set"):
            return self
        if name.startswith("__"):
            raise AttributeError(name)
        return name  # an error class: its name is all that is asked of it


def _expected(source: str) -> dict[str, Any]:
    """What a `.py` file expects, as the fields of a `Case`."""
    anything = _Anything()
    names: dict[str, Any] = {
        "__builtins__": {"__import__": anything},
        "uri": lambda text: text,
        "cfg": anything,
    }
    exec(compile(source, "expected", "exec"), names)
    request = names["request"]
    if isinstance(request, str):
        return {"error": request}
    return {"requests": [_request(one) for one in (request if isinstance(request, list) else [request])]}


def _request(one: dict[str, Any]) -> Expected:
    body = one["body"]
    return Expected(
        method=one["method"],
        target=one["uri"],
        headers=[(name.lower(), value) for name, value in one["headers"]],
        body=body.decode("latin-1") if isinstance(body, bytes) else body,
    )
