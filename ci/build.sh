#!/usr/bin/env bash
# Builds the release wheel for python3 and says where it lies.
set -euo pipefail
. "$(dirname "$0")/common.sh"

need_to_build
venv .venv python3
install .venv ci/requirements-build.txt
# Not the interpreter of .venv, which may have been made when another was python3.
python=$(python3 -c 'import sys; print(sys.executable)')
.venv/bin/maturin build --release --interpreter "$python" --out "$build/dist"
ls -l "$build"/dist/*.whl
