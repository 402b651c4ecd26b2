#!/usr/bin/env bash
# Instructions a request, without noise: replays each recorded stream under callgrind with N and with 2N requests and
# takes the difference, so that starting up costs nothing. Compare two commits by running it on both.
# --stream NAME (one of bench/streams), --requests N, --annotate (where the instructions go), --keep (as the figures that
# later runs are compared with, in bench/results/cost.txt), --max N (per cent above the kept figures that fail; 2).
set -euo pipefail
. "$(dirname "$0")/../ci/common.sh"

requests=2000 only='' annotate='' keep='' most=2
while [ $# -gt 0 ]; do
    case $1 in
        --requests) requests=$2; shift ;;
        --stream) only=$2; shift ;;
        --max) most=$2; shift ;;
        --annotate) annotate=yes ;;
        --keep) keep=yes ;;
        *) fail "unknown argument $1" ;;
    esac
    shift
done
if ! command -v valgrind >/dev/null 2>&1; then
    echo "installing valgrind"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq valgrind libc6-dbg </dev/null >/dev/null
fi

target=${CARGO_TARGET_DIR:-$root/target}
cargo build --quiet --release -p m0-bench --bin cost
out=$build/cost
mkdir -p "$out"

# Instructions of one replay of $1 with $2 requests, over 16 connections, with applications mounted at the rest.
count() {
    local stream=$1 requests=$2
    local file=$out/$(basename "$stream" .http).$requests
    shift 2
    valgrind --tool=callgrind --callgrind-out-file="$file" "$target/release/cost" "$stream" "$requests" 16 "$@" \
        >"$file.log" 2>&1 || { cat "$file.log" >&2; return 1; }
    sed -n 's/^\(summary\|totals\): \([0-9]*\).*/\2/p' "$file" | head -n 1
}

kept=bench/results/cost.txt
status=0 lines=''
printf '%-14s %14s %10s %8s\n' stream instr/request kept change
for stream in bench/streams/*.http; do
    name=$(basename "$stream" .http)
    if [ -n "$only" ] && [ "$only" != "$name" ]; then continue; fi
    once=$(count "$stream" "$requests")
    twice=$(count "$stream" $((2 * requests)))
    each=$(((twice - once) / requests))
    before=$(awk -v name="$name" '$1 == name {print $2}' "$kept" 2>/dev/null || true)
    change=''
    if [ -n "$before" ]; then change=$(awk "BEGIN {printf \"%+.1f%%\", ($each / $before - 1) * 100}"); fi
    printf '%-14s %14d %10s %8s\n' "$name" "$each" "$before" "$change"
    if [ -n "$before" ] && [ $((each * 100)) -gt $((before * (100 + most))) ]; then status=1; fi
    lines+="$name $each"$'\n'
    if [ -n "$annotate" ]; then
        callgrind_annotate --inclusive=no --threshold=95 "$out/$name.$((2 * requests))" | sed -n '/^Ir/,$p' | head -n 40
    fi
    # What one application more, mounted elsewhere, adds to each request: held to the same bound.
    once=$(count "$stream" "$requests" /api)
    twice=$(count "$stream" $((2 * requests)) /api)
    mounted=$(((twice - once) / requests))
    change=$(awk "BEGIN {printf \"%+.1f%%\", ($mounted / $each - 1) * 100}")
    printf '%-14s %14d %10s %8s\n' "  and a mount" "$mounted" "$each" "$change"
    if [ $((mounted * 100)) -gt $((each * (100 + most))) ]; then status=1; fi
done
if [ -n "$keep" ]; then
    { echo "# instructions a request, at commit $(git rev-parse --short HEAD), $(rustc --version | cut -d' ' -f1,2)"
      printf '%s' "$lines"
    } >"$kept"
    echo "kept in $kept"
    exit 0
fi
if [ "$status" -ne 0 ]; then echo "more than $most % above the kept figures; if that is meant, keep the new ones (--keep)"; fi
exit "$status"
