"""Checks of shape that no linter makes, over the tracked files. Prints each finding and exits 1 when there is one.

- a Rust or Python file has at most 600 lines (500 is the aim: longer ones are named, without failing);
- a Rust function has at most 100 lines (70 is the aim);
- every `unsafe` block or impl has a SAFETY comment in the lines above it;
- R10, where clippy cannot see it (m0_platform hands on what is std's own): the engine, the handoff, the hosts and
  the models name no atomic, lock, socket or random state of std;
- no `todo!`, `unimplemented!`, `dbg!`, nor a comment that puts something off;
- every Rust module opens with `//!`, every Python module that is not empty with a docstring;
- docs/dependencies.md has a line for each direct dependency of each Cargo.toml, and for no other;
- a file of ours that a document names is there.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FILE_AIM, FILE_MOST = 500, 600
FUNCTION_AIM, FUNCTION_MOST = 70, 100
SAFETY_LINES_ABOVE = 6

FUNCTION = re.compile(
    r"^(\s*)(?:pub(?:\([^)]*\))?\s+)?(?:const\s+)?(?:async\s+)?(?:unsafe\s+)?(?:extern\s+\"\w+\"\s+)?fn\s+(\w+)"
)
EXAMPLE = re.compile(r"\s*//[/!]\s*```")
UNSAFE = re.compile(r"\bunsafe\s*(?:\{|impl\b)")
CORE = ("src/engine/", "src/handoff/", "src/host/", "src/http1/", "src/model/")
OF_STD = re.compile(
    r"\bstd::(?:sync::(?:atomic\b|mpsc\b|(?:\{[^}]*)?\b(?:Mutex|RwLock|Condvar|Barrier|atomic|mpsc)\b)"
    r"|net::(?:\{[^}]*)?\b(?:Tcp|Udp)\w+|os::unix::net\b|hash::RandomState\b)"
)
# With a folder, or a Rust file; DATE and the like stand for something.
NAMED_FILE = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:rs|py|sh|toml|json|txt)|\w+\.rs)`")
STANDS_FOR = re.compile(r"\b[A-Z]{3,}\b")
PUT_OFF = re.compile(r"\btodo!|\bunimplemented!|\bdbg!|\b(?:TODO|FIXME|XXX)\b")


def tracked(*patterns: str) -> list[Path]:
    """Files of the checkout that match, also new ones that are not ignored."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return sorted({ROOT / line for line in listing.stdout.splitlines() if (ROOT / line).is_file()})


def functions(lines: list[str]) -> list[tuple[str, int, int]]:
    """Name, first line and length of each function: to the closing brace at the indentation of its `fn`."""
    found = []
    for number, line in enumerate(lines):
        match = FUNCTION.match(line)
        if not match:
            continue
        closing = match.group(1) + "}"
        for end in range(number, len(lines)):
            if lines[end].rstrip() == closing:
                found.append((match.group(2), number + 1, end - number + 1))
                break
            # A declaration without a body, or one that ends on its own line.
            if lines[end].rstrip().endswith((";", "}")) and end == number:
                break
            if lines[end].rstrip().endswith(";") and not any("{" in text for text in lines[number : end + 1]):
                break
    return found


def check_rust(path: Path, text: str) -> tuple[list[str], list[str]]:
    """Failures and advice for one Rust file."""
    name = path.relative_to(ROOT)
    lines = text.splitlines()
    bad, advice = [], []
    if not text.lstrip().startswith("//!"):
        bad.append(f"{name}:1: does not open with //! saying what it owns")
    for function, start, length in functions(lines):
        if length > FUNCTION_MOST:
            bad.append(f"{name}:{start}: fn {function} has {length} lines, at most {FUNCTION_MOST}")
        elif length > FUNCTION_AIM:
            advice.append(f"{name}:{start}: fn {function} has {length} lines, aim at {FUNCTION_AIM}")
    for number, line in enumerate(lines):
        code = line.split("//")[0]
        if EXAMPLE.match(line):
            bad.append(f"{name}:{number + 1}: no test would compile an example in a comment: doctest = false")
        if UNSAFE.search(code):
            above = lines[max(0, number - SAFETY_LINES_ABOVE) : number + 1]
            if not any("SAFETY:" in text for text in above):
                bad.append(f"{name}:{number + 1}: unsafe without a SAFETY comment")
        if str(name).startswith(CORE) and OF_STD.search(code):
            bad.append(f"{name}:{number + 1}: R10: take it from m0_platform: {line.strip()}")
    return bad, advice


def check_python(path: Path, text: str) -> list[str]:
    """Failures for one Python file."""
    name = path.relative_to(ROOT)
    if not text.strip():
        return []
    try:
        module = ast.parse(text)
    except SyntaxError as error:
        # Some tests keep modules that are broken on purpose.
        return [] if "broken" in path.name else [f"{name}:{error.lineno}: {error.msg}"]
    if path.suffix == ".py" and ast.get_docstring(module) is None:
        return [f"{name}:1: does not open with a docstring"]
    return []


def check_page(path: Path, text: str, files: list[str]) -> list[str]:
    """Files that a document names, by their whole path or the end of it, and that are not there."""
    bad = []
    for number, line in enumerate(text.splitlines(), 1):
        for named in NAMED_FILE.findall(line):
            if not STANDS_FOR.search(named) and not any(f"/{file}".endswith(f"/{named}") for file in files):
                bad.append(f"{path.relative_to(ROOT)}:{number}: there is no {named}")
    return bad


def direct_dependencies() -> set[str]:
    """Names under every [dependencies] table of the workspace, own crates left out."""
    names: set[str] = set()
    own = set()

    def gather(table: dict[str, Any]) -> None:
        for key, value in table.items():
            if key in ("dependencies", "dev-dependencies", "build-dependencies") and isinstance(value, dict):
                names.update(value)
            elif key in ("target", "workspace") and isinstance(value, dict):
                for inner in value.values() if key == "target" else [value]:
                    if isinstance(inner, dict):
                        gather(inner)

    for manifest in tracked("Cargo.toml", "*/Cargo.toml"):
        content = tomllib.loads(manifest.read_text())
        own.add(content.get("package", {}).get("name", ""))
        gather(content)
    return names - own


def check_dependencies() -> list[str]:
    """docs/dependencies.md against the manifests."""
    page = ROOT / "docs" / "dependencies.md"
    written = set(re.findall(r"^\| `([\w-]+)` \|", page.read_text(), re.M)) if page.exists() else set()
    used = direct_dependencies()
    python = {name for name in written if name in python_dependencies()}
    bad = [f"docs/dependencies.md: no line for {name}" for name in sorted(used - written)]
    bad += [f"docs/dependencies.md: {name} is no direct dependency" for name in sorted(written - used - python)]
    return bad


def python_dependencies() -> set[str]:
    """What pyproject.toml names: run-time, optional and build requirements."""
    path = ROOT / "pyproject.toml"
    if not path.exists():
        return set()
    content = tomllib.loads(path.read_text())
    project = content.get("project", {})
    entries = list(project.get("dependencies", [])) + list(content.get("build-system", {}).get("requires", []))
    for extra in project.get("optional-dependencies", {}).values():
        entries += extra
    return {re.split(r"[^\w.-]", entry, maxsplit=1)[0] for entry in entries}


def main() -> int:
    """Runs every check."""
    bad, advice = check_dependencies(), []
    for path in tracked("*.rs", "*.py", "*.pyi", "*.sh"):
        text = path.read_text()
        name = path.relative_to(ROOT)
        count = text.count("\n")
        if count > FILE_MOST:
            bad.append(f"{name}: {count} lines, at most {FILE_MOST}")
        elif count > FILE_AIM:
            advice.append(f"{name}: {count} lines, aim at {FILE_AIM}")
        if path.name not in ("style.py", "test_checks.py"):
            for number, line in enumerate(text.splitlines(), 1):
                if PUT_OFF.search(line):
                    bad.append(f"{name}:{number}: puts something off: {line.strip()}")
        if path.suffix == ".rs":
            worse, notes = check_rust(path, text)
            bad += worse
            advice += notes
        elif path.suffix in (".py", ".pyi"):
            bad += check_python(path, text)
    files = [str(path.relative_to(ROOT)) for path in tracked()]
    for path in tracked("*.md"):
        bad += check_page(path, path.read_text(), files)
    for line in advice:
        print(f"note: {line}")
    for line in bad:
        print(line)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
