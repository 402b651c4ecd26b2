"""That every promise of docs/conformance.md has a test which says so, and that no test speaks of another."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
DOCUMENT = HERE.parent / "docs" / "conformance.md"


def promised() -> list[int]:
    """The numbers of the list, in its order."""
    text = DOCUMENT.read_text().partition("\n## What is promised\n")[2].partition("\n## ")[0]
    return [int(number) for number in re.findall(r"^\| (\d+) \| .+ \|$", text, re.MULTILINE)]


def shown() -> Iterator[tuple[int, str]]:
    """Every number that a test carries, with the test's name."""
    for file in sorted(HERE.glob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.behaviour":
                    assert node.name.startswith("test_"), f"{file.name}: {node.name} is no test"
                    yield from ((ast.literal_eval(number), f"{file.name}::{node.name}") for number in mark.args)


def test_every_promise_has_a_test() -> None:
    numbers = promised()
    assert numbers == sorted(set(numbers))
    assert len(numbers) > 30, "the list is not where it was"
    assert sorted({number for number, _ in shown()}) == numbers
