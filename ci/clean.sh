#!/usr/bin/env bash
# Removes what the other scripts made inside the checkout. The cross toolchain in the user's cache stays.
set -euo pipefail
. "$(dirname "$0")/common.sh"

rm -rf target .build .venv .venv-* .mypy_cache .ruff_cache .pytest_cache
find python tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
rm -f python/m0serve/*.so
