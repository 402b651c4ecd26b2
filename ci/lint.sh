#!/usr/bin/env bash
# Everything that reads the code without running it. Every check runs; the exit code says whether all were clean.
set -euo pipefail
. "$(dirname "$0")/common.sh"

status=0
check() {
    local name=$1
    shift
    say "$name"
    if "$@"; then echo "-- clean"; else echo "-- $name: FAILED"; status=1; fi
}

dir=$build/lint
venv "$dir" python3
install "$dir" ci/requirements-lint.txt

# stubtest imports the built module, in the interpreter it was built for.
stubs() {
    wheel "$dir" ci || return 1
    local allow=()
    if [ -f ci/stubtest-allow.txt ]; then allow=(--allowlist "$root/ci/stubtest-allow.txt"); fi
    (cd "$build" && MYPYPATH='' "$dir/bin/python" -m mypy.stubtest m0serve "${allow[@]}")
}

# The targets themselves are formatted and linted with tests/fuzz_corpus.rs, which replays their corpus.
check "rustfmt" cargo fmt --all --check
check "rustfmt of the fuzz crate" rustfmt --check --edition 2024 tests/fuzz/fuzz_targets/*.rs
check "clippy, with the interpreter" cargo clippy --workspace --all-targets --quiet -- -D warnings
check "clippy, without" cargo clippy --workspace --all-targets --no-default-features --quiet -- -D warnings
# tests/apps/broken holds modules that cannot be parsed, on purpose.
check "ruff check" "$dir/bin/ruff" check --no-cache --output-format concise --extend-exclude tests/apps/broken .
check "ruff format" "$dir/bin/ruff" format --no-cache --check --exclude tests/apps/broken .
check "mypy" "$dir/bin/mypy" --strict --python-executable "$dir/bin/python" --cache-dir "$build/mypy" python/m0serve
check "stubtest" stubs
check "style" "$dir/bin/python" ci/style.py
exit "$status"
