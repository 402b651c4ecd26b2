"""Raises while it is imported."""


def compute() -> None:
    """Fails."""
    raise ValueError("the app is broken")


compute()
