"""Modules that fail in one way each."""
