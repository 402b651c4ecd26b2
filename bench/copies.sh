#!/usr/bin/env bash
# How often each byte of a large body is copied between the socket and the application: bench/copies.py under valgrind, in
# the environment of the benchmarks with our release wheel. Fails when a copy has come in. --keep writes the figures to
# bench/results/copies.txt. Takes some two minutes.
set -euo pipefail
. "$(dirname "$0")/../ci/common.sh"

if ! command -v valgrind >/dev/null 2>&1; then
    echo "installing valgrind"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq valgrind libc6-dbg </dev/null >/dev/null
fi
python=$(command -v python3)
if prefix=$(pyenv prefix 3.13 2>/dev/null); then python=$prefix/bin/python3; fi
dir=$build/bench-$(version_of "$python")
venv "$dir" "$python"
wheel "$dir" release

if [ "${1:-}" = --keep ]; then
    { echo "# at commit $(git rev-parse --short HEAD), $("$dir/bin/python" --version), $(valgrind --version)"
      "$dir/bin/python" bench/copies.py
    } | tee bench/results/copies.txt
else
    exec "$dir/bin/python" bench/copies.py
fi
