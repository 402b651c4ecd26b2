"""A factory that raises."""

from typing import Any


def make() -> Any:
    """Fails."""
    return {}["missing"]
