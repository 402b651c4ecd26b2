"""The application that VALIDATED_APP names, with the validator around it: `app`, or `make` where that is a factory."""

from __future__ import annotations

import functools
import importlib
import os
from typing import Any

from validator import Validator


@functools.cache
def _named() -> Any:
    module, _, path = os.environ["VALIDATED_APP"].partition(":")
    return functools.reduce(getattr, path.split("."), importlib.import_module(module))


def make() -> Validator:
    """For --factory."""
    return Validator(_named()())


@functools.cache
def _app() -> Validator:
    return Validator(_named())


def __getattr__(name: str) -> Any:
    # Looked up when the server asks for it, so that a factory is not taken for an application.
    if name != "app":
        raise AttributeError(name)
    return _app()
