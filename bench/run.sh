#!/usr/bin/env bash
# Makes the environment of the benchmarks (wrk, perf, the other servers, our release wheel) and runs bench/run.py in it.
# Python 3.13 where pyenv has one, python3 otherwise. All arguments are bench/run.py's.
set -euo pipefail
. "$(dirname "$0")/../ci/common.sh"

missing=()
command -v wrk >/dev/null 2>&1 || missing+=(wrk)
command -v perf >/dev/null 2>&1 || command -v strace >/dev/null 2>&1 || missing+=(linux-perf strace)
command -v taskset >/dev/null 2>&1 || missing+=(util-linux)
if [ "${#missing[@]}" -gt 0 ]; then
    echo "installing ${missing[*]}"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" </dev/null >/dev/null
fi
[ "$(nproc)" -ge 2 ] || fail "the server and wrk each need a CPU of their own"

python=$(command -v python3)
if prefix=$(pyenv prefix 3.13 2>/dev/null); then python=$prefix/bin/python3; fi
dir=$build/bench-$(version_of "$python")
venv "$dir" "$python"
install "$dir" ci/requirements-build.txt
install "$dir" bench/requirements.txt
# M0_BENCH_NO_BUILD=1 measures the wheel that is installed already (or only the other servers).
if [ -z "${M0_BENCH_NO_BUILD:-}" ]; then wheel "$dir" release; fi

case " $* " in *" --ceiling "*) cargo build --quiet --release -p m0-bench --bin ceiling ;; esac

unset M0_BENCH_NO_BUILD M0_CALLER_DIR  # no options' variables: each server would say so
exec "$dir/bin/python" bench/run.py "$@"
