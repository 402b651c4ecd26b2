#!/usr/bin/env bash
# The platform matrix (docs/platforms.md): measures what this machine can, runs the simulated profiles, prints the one table.
# Linux and macOS; needs the machine to itself for some minutes. What follows are flags of ci/matrix/__main__.py:
#
#   ci/matrix/run.sh                            all of it
#   ci/matrix/run.sh --backends epoll --add     one backend more, into the artifact that an earlier piece began
#   ci/matrix/run.sh --table [FOLDER]           the table alone, from artifacts below a folder (from the root)
set -euo pipefail
. "$(dirname "$0")/../common.sh"
export PYTHONPATH=$root/ci

if [ "${1:-}" = --table ]; then
    shift
    exec python3 -m matrix "$@"
fi

command -v wrk >/dev/null 2>&1 || debian wrk
python=$(bench_python)
dir=$build/matrix-$(version_of "$python")
venv "$dir" "$python"
# Linux gets the emulated kqueue in its wheel; macOS has the real one.
wheel "$dir" release "$([ "$(uname -s)" != Linux ] || echo emulated-kqueue)"
unset M0_CALLER_DIR
exec python3 -m matrix --measure "$dir/bin/python" --simulate "$@"
