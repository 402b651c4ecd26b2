#!/usr/bin/env bash
# Fuzzes the server with libFuzzer: the targets of tests/fuzz, ten minutes each.
#
#   ci/fuzz.sh [--seconds N] [TARGET...]       one after another; request, chunked and connection are the targets
#   ci/fuzz.sh --short                         all at once, for a few seconds, over the committed corpus (a stage of make test)
#   ci/fuzz.sh --replay FILE TARGET            one input: prints what it stands for, and runs it
#   ci/fuzz.sh --minimize [TARGET...]          takes what was found into the committed corpus, and throws out what it makes needless
#
# The crate is one of cargo-fuzz, whose commands work on it too (cargo fuzz run --fuzz-dir tests/fuzz -s none TARGET). It is not
# used here: installing it takes longer than building the targets, and what it adds is the flags below, which any toolchain takes,
# also a stable one. What was found lies under .build/fuzz; a finding ends the run and makes it fail.
set -euo pipefail
. "$(dirname "$0")/common.sh"

corpus=tests/fuzz/corpus
work=$build/fuzz
built=${CARGO_TARGET_DIR:-$root/target}
seconds=600 mode=run file='' targets=()
while [ $# -gt 0 ]; do
    case $1 in
        --seconds) seconds=${2:?a number of seconds}; shift ;;
        --short) mode=short ;;
        --replay) mode=replay file=${2:?a file}; shift ;;
        --minimize) mode=minimize ;;
        request | chunked | connection) targets+=("$1") ;;
        *) fail "$1 is no target and no option; see $0" ;;
    esac
    shift
done
[ "${#targets[@]}" -gt 0 ] || targets=(request chunked connection)

# libFuzzer is C++. Nothing else here needs a compiler for it, so a machine without one is no failure, but it is said.
compiler() {
    command -v c++ >/dev/null 2>&1 && return 0
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends g++ </dev/null >/dev/null
}
skip() {
    echo "SKIPPED: fuzzing: $*"
    exit 0
}

# libFuzzer, which libfuzzer-sys links. Its build script would compile 23 files that all include the same headers, one by one:
# here they are one, but for two whose names would clash with others'. Compiled once for each version of it.
libfuzzer() {
    local sources folder=$built/libfuzzer file
    sources=$(cargo metadata --quiet --offline --format-version 1 --manifest-path tests/fuzz/Cargo.toml | python3 -c '
import json, pathlib, sys
crates = {crate["name"]: crate["manifest_path"] for crate in json.load(sys.stdin)["packages"]}
print(pathlib.Path(crates["libfuzzer-sys"]).with_name("libfuzzer"))') || return 1
    mkdir -p "$folder"
    export CUSTOM_LIBFUZZER_PATH=$folder/libFuzzer.a
    if [ "$(uname -s)" != Linux ]; then export CUSTOM_LIBFUZZER_STD_CXX=c++; fi
    [ "$(cat "$folder/of" 2>/dev/null)" != "$sources" ] || return 0
    rm -f "$folder"/*
    for file in "$sources"/*.cpp; do
        case $file in */FuzzerFork.cpp | */FuzzerInterceptors.cpp) ;; *) echo "#include \"$file\"" ;; esac
    done >"$folder/rest.cpp"
    for file in "$sources"/Fuzzer{Fork,Interceptors}.cpp "$folder/rest.cpp"; do
        c++ -O1 -std=c++17 -fPIC -fno-omit-frame-pointer -w -c "$file" -o "$folder/$(basename "$file" .cpp).o" || return 1
    done
    ar rcs "$CUSTOM_LIBFUZZER_PATH" "$folder"/*.o && echo "$sources" >"$folder/of"
}

build_targets() {
    local host flag flags=() coverage
    libfuzzer || return 1
    host=$(rustc -vV | sed -n 's/^host: //p')
    coverage=(level=4 inline-8bit-counters pc-table trace-compares)
    for flag in "${coverage[@]}"; do flags+=("-Cllvm-args=-sanitizer-coverage-$flag"); done
    # The target is named so that build scripts and macros are built without the flags, and are those of the other stages.
    RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module ${flags[*]}" CARGO_TARGET_DIR=$built \
        cargo build --quiet --profile ci --bins --target "$host" --manifest-path tests/fuzz/Cargo.toml || return 1
    bin=$built/$host/ci
    echo "built with $(rustc --version), no sanitizer"
}

# fuzz TARGET SECONDS: libFuzzer writes what is new into the first folder.
fuzz() {
    local target=$1 log=$work/$1.log
    mkdir -p "$work/$target"
    if (cd "$work" && "$bin/$target" -max_total_time="$2" -timeout=20 -rss_limit_mb=1024 -max_len=4096 -len_control=20 \
        -dict="$root/tests/fuzz/http.dict" -print_final_stats=1 -artifact_prefix="$work/finding-$target-" \
        "$target" "$root/$corpus/$target") >"$log" 2>&1; then
        local runs rate coverage
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        rate=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
        coverage=$(sed -n 's/.*DONE *cov: \([0-9]*\).*/\1/p' "$log")
        echo "$target: ok, $runs inputs in $2 s ($rate/s), coverage $coverage, $(find "$corpus/$target" -type f | wc -l) in the corpus"
    else
        local found
        found=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
        grep -A 12 -m 1 'panicked at' "$log" || tail -n 20 "$log"
        echo "$target: FAILED, the log is $log"
        [ -z "$found" ] || echo "replay: make fuzz ARGS=\"--replay $found $target\""
        return 1
    fi
}

short() {
    local target status=0 jobs=()
    for target in "${targets[@]}"; do
        fuzz "$target" "${FUZZ_SECONDS:-8}" &
        jobs+=($!)
    done
    for job in "${jobs[@]}"; do wait "$job" || status=1; done
    return "$status"
}

replay() {
    local target=${targets[0]} input
    input=$(cd "${M0_CALLER_DIR:-$OLDPWD}" && realpath "$file")
    RUST_LIBFUZZER_DEBUG_PATH=$work/replayed "$bin/$target" "$input" >"$work/replay.log" 2>&1 && status=0 || status=$?
    [ ! -s "$work/replayed" ] || cat "$work/replayed"
    grep -v '^INFO\|^WARNING' "$work/replay.log"
    return "$status"
}

minimize() {
    local target new
    for target in "${targets[@]}"; do
        new=$work/$target.minimal
        rm -rf "$new"
        mkdir -p "$new" "$work/$target"
        # Those made by hand stay; of the others the fewest that reach every edge.
        cp "$corpus/$target"/seed-* "$new"
        "$bin/$target" -set_cover_merge=1 -use_counters=0 -max_len=4096 "$new" "$corpus/$target" "$work/$target" \
            >"$work/$target.merge.log" 2>&1
        rm -rf "${corpus:?}/$target" "${work:?}/$target"
        mv "$new" "$corpus/$target"
        echo "$target: $(find "$corpus/$target" -type f | wc -l) inputs, $(du -sb "$corpus/$target" | cut -f 1) bytes"
    done
}

mkdir -p "$work"
compiler || skip "no C++ compiler, and none could be installed"
cargo fetch --quiet --manifest-path tests/fuzz/Cargo.toml || skip "what the targets are built from could not be fetched"
build_targets || fail "the targets do not build"
status=0
case $mode in
    run) for target in "${targets[@]}"; do fuzz "$target" "$seconds" || status=1; done ;;
    short) short || status=1 ;;
    replay) replay || status=1 ;;
    minimize) minimize ;;
esac
exit "$status"
