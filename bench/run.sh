#!/usr/bin/env bash
# Makes the environment of the benchmarks (wrk, perf, the other servers, our release wheel) and runs bench/run.py in it.
# Python 3.13 where pyenv has one, python3 otherwise. All arguments are bench/run.py's.
set -euo pipefail
. "$(dirname "$0")/../ci/common.sh"

[ "$(uname -s)" = Linux ] || fail "the comparison with other servers needs Linux; make matrix runs elsewhere too"
command -v wrk >/dev/null 2>&1 || debian wrk
command -v perf >/dev/null 2>&1 || command -v strace >/dev/null 2>&1 || debian linux-perf strace
command -v taskset >/dev/null 2>&1 || debian util-linux
[ "$(nproc)" -ge 2 ] || fail "the server and wrk each need a CPU of their own"

python=$(bench_python)
dir=$build/bench-$(version_of "$python")
venv "$dir" "$python"
install "$dir" bench/requirements.txt
# M0_BENCH_NO_BUILD=1 measures the wheel that is installed already (or only the other servers).
if [ -z "${M0_BENCH_NO_BUILD:-}" ]; then wheel "$dir" release; fi

case " $* " in *" --ceiling "*) cargo build --quiet --release -p m0-bench --bin ceiling ;; esac

unset M0_BENCH_NO_BUILD M0_CALLER_DIR  # no options' variables: each server would say so
exec "$dir/bin/python" bench/run.py "$@"
