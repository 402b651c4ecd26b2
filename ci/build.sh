#!/usr/bin/env bash
# Builds the release wheel for python3 and says where it lies.
set -euo pipefail
. "$(dirname "$0")/common.sh"

need_to_build
venv .venv python3
install .venv ci/requirements-build.txt
.venv/bin/maturin build --release --interpreter .venv/bin/python --out "$build/dist"
ls -l "$build"/dist/*.whl
