#!/usr/bin/env bash
# Every test: Rust without an interpreter, simulated worlds, models of what crosses threads, a short fuzzing, the scripts'
# own, then pytest under each interpreter present.
# A failing stage does not stop the next; the last line is the sum, and the exit code says whether all passed.
# ONLY="rust sim models fuzz scripts py" (any of them) limits the stages; PYTEST_ARGS are added to pytest's.
set -euo pipefail
. "$(dirname "$0")/common.sh"

only=${ONLY:-rust sim models fuzz scripts py}
logs=$build/logs
rm -rf "$logs"
mkdir -p "$logs"
wants() { case " $only " in *" $1 "*) true ;; *) false ;; esac }

# stage NAME COMMAND...: runs it, keeps its output for the tally, and records a failure.
stage() {
    local name=$1
    shift
    say "$name"
    local start=$SECONDS
    if "$@" 2>&1 | tee "$logs/$name.log"; then
        echo "-- $name: $((SECONDS - start)) s"
    else
        echo failed >"$logs/$name.failed"
        echo "-- $name: FAILED after $((SECONDS - start)) s"
    fi
}
skip() {
    echo "SKIPPED: $*"
    echo "$*" >>"$logs/skips.txt"
}

# Model checking can explode when a protocol changes; a bound makes that a failure rather than a hang. Only what is written
# for loom or shuttle is compiled: the rest has no sockets there.
models() {
    local -x LOOM_MAX_PREEMPTIONS=${LOOM_MAX_PREEMPTIONS:-3}
    # On one thread: loom maps and unmaps stacks all the time, which two threads of a process do in each other's way.
    timeout 600 cargo test -p m0-platform --features loom --profile ci --test 'loom*' &&
        timeout 600 cargo test -p m0serve --no-default-features --features loom --profile ci --lib loom -- --test-threads=1 &&
        # Runs long enough to be worth optimising.
        timeout 600 cargo test -p m0serve --no-default-features --features shuttle --profile ci \
            --config profile.ci.opt-level=2 --test models
}

# Its own tests are here, since they run long without optimisation and take what is built for the worlds.
simulate() {
    cargo test -p m0-sim --features canary --profile ci && ci/sim.sh --ci
}

scripts() {
    python3 -m unittest discover -s ci -t ci && python3 -m unittest discover -s bench -t bench
}

# One wheel has the emulated kqueue, over which tests marked `kqueue` run; the others are as they are shipped.
feature_of() {
    if same_version "$1" 3.11; then echo emulated-kqueue; fi
}
environment() {
    local dir=$1 python=$2
    venv "$dir" "$python" && install "$dir" tests/requirements.txt && wheel "$dir" ci "$(feature_of "$python")"
}

python_tests() {
    local dir=$1 python=$2
    environment "$dir" "$python" || return 1
    # shellcheck disable=SC2086  # PYTEST_ARGS is a list of flags
    timeout 1500 "$dir/bin/python" ci/unsteady.py pytest "$build/pytest-$(basename "$dir")" tests -n "${PYTEST_WORKERS:-6}" ${PYTEST_ARGS:-}
}

with_python() {
    local python
    while read -r python; do
        "$@" "$python" </dev/null
    done < <(interpreters)
}
# What fails here fails again, and is reported, in the interpreter's own stage.
prepare() { environment "$root/.venv-$(version_of "$1")" "$1" || true; }
test_with() {
    local version
    version=$(version_of "$1")
    stage "python-$version" python_tests "$root/.venv-$version" "$1"
}

# What compiles has long stretches on one core, and what installs waits: in three lanes of about the same work, shown when all of
# them have ended. They compile into one folder, in turn; what one of them runs, installs or fuzzes fills the other core.
# Pytest has the machine to itself.
rust_lane() {
    # With the emulation, so that the contract suite and the rest run over kqueue too.
    if wants rust; then
        # Not optimised, but for what other crates give, which the stages share.
        stage rust python3 ci/unsteady.py cargo --profile ci --config profile.ci.opt-level=0 \
            --workspace --exclude m0-sim --no-default-features --features m0serve/emulated-kqueue
    fi
    if wants sim; then stage sim simulate; fi
    if wants scripts; then stage scripts scripts; fi
}
models_lane() {
    if wants models; then stage models models; fi
    if wants fuzz; then stage fuzz ci/fuzz.sh --short; fi
}
python_lane() {
    if wants py; then with_python prepare; fi
}
lanes=()
for lane in rust_lane models_lane python_lane; do
    "$lane" >"$logs/$lane.txt" 2>&1 &
    lanes+=($!)
done
wait "${lanes[@]}"
cat "$logs/rust_lane.txt" "$logs/models_lane.txt"

if wants py; then
    with_python test_with
    for version in 3.11 3.12 3.13; do
        [ -e "$logs/python-$version.log" ] || skip "Python $version is not on this machine: nothing was tested under it"
    done
fi

exec python3 ci/tally.py "$logs"
