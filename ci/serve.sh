#!/usr/bin/env bash
# Builds m0serve into .venv and serves. APP=module:attr is imported from the caller's directory; ARGS are further flags.
# Cargo decides what has to be built again: a second start takes a second or two.
set -euo pipefail
. "$(dirname "$0")/common.sh"

need_to_build
# Two starts at once would install into one environment: the second waits until the first is about to serve.
mkdir -p "$build/logs"
exec 9>"$build/serve.lock"
lock 9
venv .venv python3
install .venv ci/requirements-build.txt
# Only cargo knows whether there is something to build, as after an update: that it takes so long is what shows. The sleep
# has no part in the lock and holds no pipe open.
{
    sleep 5 >/dev/null 2>&1
    echo "building m0serve, which takes a minute or two"
} 9>&- &
notice=$!
trap 'kill "$notice" 2>/dev/null || true' EXIT
# What a build says is noise to someone who wants to see a page, unless it fails.
VIRTUAL_ENV=$root/.venv .venv/bin/maturin develop --release >"$build/logs/serve.log" 2>&1 ||
    { cat "$build/logs/serve.log" >&2; exit 1; }
kill "$notice" 2>/dev/null || true
wait "$notice" 2>/dev/null || true  # or the server would have a child that it knows nothing of
exec 9>&-

cd "${M0_CALLER_DIR:-$root}"
unset M0_CALLER_DIR  # no option's variable: the server would say so
# shellcheck disable=SC2086  # ARGS is a list of flags
exec "$root/.venv/bin/m0serve" ${ARGS:-} ${APP:+"$APP"}
