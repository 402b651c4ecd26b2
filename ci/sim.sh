#!/usr/bin/env bash
# The simulator (docs/notes/simulator.md), built with every canary, none of them planted unless it is asked for.
#
#   SEED=N ci/sim.sh      replays one world with a trace
#   N=1000 ci/sim.sh      runs so many, from a seed that is drawn
#   ci/sim.sh --ci        pinned seeds, fresh seeds, the committed costs, canaries (a stage of make test)
#   ci/sim.sh ...         other flags are the simulator's own (--help)
#
# PROFILE=release measures it: the default has the assertions that a test should have.
set -euo pipefail
. "$(dirname "$0")/common.sh"

profile=${PROFILE:-ci}
flags=()
if [ -n "${SEED:-}" ]; then flags+=(--seed "$SEED"); fi
if [ -n "${N:-}" ]; then flags+=(--worlds "$N"); fi

cargo build --quiet -p m0-sim --features canary --profile "$profile"
exec "${CARGO_TARGET_DIR:-$root/target}/$profile/sim" "${flags[@]}" "$@"
