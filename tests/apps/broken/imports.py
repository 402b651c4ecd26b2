"""Imports what is not there."""

import not_installed  # type: ignore[import-not-found]

app = not_installed.app
