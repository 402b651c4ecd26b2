# Shared by the scripts in ci/ and bench/. Sourced, with `set -euo pipefail` already on.
#
# Environments (all inside the checkout, none of them committed):
#   .venv              the default python3 with an editable build, for `make serve`
#   .venv-X.Y          interpreter X.Y with the wheel under test, for `make test`
#   .build/tools       pip and maturin, which make the others
#   .build/            wheels, logs, the environments of lint and of the benchmarks

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/.build
cd "$root"

say() { printf '\n== %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }
need() { command -v "$1" >/dev/null 2>&1 || fail "$1 is not installed: $2"; }
# What building takes. An older Python would fail after minutes, with words about something else.
need_to_build() {
    need cargo "install Rust 1.88 or later"
    need python3 "install Python 3.11 or later"
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "python3 is $(version_of python3): put Python 3.11 or later first on PATH"
}

# Every interpreter to test under, one path a line: python3 itself, then 3.12 and 3.13 where pyenv has them.
interpreters() {
    command -v python3
    command -v pyenv >/dev/null 2>&1 || return 0
    local version prefix
    for version in 3.12 3.13; do
        if prefix=$(pyenv prefix "$version" 2>/dev/null) && ! same_version python3 "$version"; then
            echo "$prefix/bin/python3"
        fi
    done
}

same_version() { [ "$(version_of "$1")" = "$2" ]; }
version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }

# python_tool NAME ARGUMENT...: runs pip or maturin, which one environment has for all others. The pip that a Python brings along
# can be years old, and takes twice the time to find what it is to install.
python_tool() {
    make_tools || return 1
    "$build/tools/bin/python" -m "$@"
}

# Makes that environment, unless it is there. Others that need it wait meanwhile, as `make test` does beside a first `make serve`.
make_tools() {
    local dir=$build/tools file=ci/requirements-build.txt
    if cmp -s "$file" "$dir/.installed"; then return 0; fi
    mkdir -p "$build"
    {
        lock 8 || return 1
        if cmp -s "$file" "$dir/.installed"; then return 0; fi
        rm -rf "$dir"
        python3 -m venv "$dir" &&
            "$dir/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile -r "$file" &&
            cp "$file" "$dir/.installed"
    } 8>"$build/tools.lock"
}

# lock NUMBER: waits until nobody else has a lock on the file that this descriptor is open on, and has it until that is closed. By
# Python, since macOS has no flock(1): the lock is the open file's, and stays when the process that asked for it has ended.
lock() { python3 -c 'import fcntl, sys; fcntl.flock(int(sys.argv[1]), fcntl.LOCK_EX)' "$1"; }

# venv DIR PYTHON: makes the environment unless it is there and works. It has no pip, unless that is installed.
venv() {
    local dir=$1 python=$2
    if ! "$dir/bin/python" -c 'pass' 2>/dev/null; then
        rm -rf "$dir"
        "$python" -m venv --without-pip "$dir"
    fi
}

# install DIR FILE: pip installs a requirements file, once for each version of the file, and compiles it: what is compiled when it
# is imported is compiled by each of the processes that import it at the same time.
install() {
    local dir=$1 file=$2 stamp
    stamp=$dir/.installed-$(basename "$file")
    if ! cmp -s "$file" "$stamp"; then
        python_tool pip --python "$dir/bin/python" install --quiet --disable-pip-version-check -r "$file" && cp "$file" "$stamp"
    fi
}

# One number for everything that goes into the wheel.
source_hash() {
    find Cargo.toml Cargo.lock pyproject.toml README.md LICENSE-* src platform/Cargo.toml platform/src python bench/Cargo.toml \
        -type f ! -name '*.so' ! -name '*.pyc' -print0 2>/dev/null | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c1-16
}

# wheel DIR PROFILE [FEATURE]: builds the wheel for the interpreter of environment DIR with a cargo profile, and installs it
# there. A feature given to maturin replaces those of pyproject.toml.
# Nothing happens when the sources are the ones that DIR has installed.
wheel() {
    local dir=$1 profile=$2 feature=${3:-} hash stamp out file
    hash="$(source_hash) $profile $feature"
    stamp=$dir/.wheel
    if [ "$(cat "$stamp" 2>/dev/null)" = "$hash" ]; then return 0; fi
    out=$build/wheels/$profile-$(version_of "$dir/bin/python")
    rm -rf "$out"
    mkdir -p "$out"
    PYO3_PYTHON=$dir/bin/python python_tool maturin build --profile "$profile" \
        ${feature:+--features "extension-module,$feature"} --interpreter "$dir/bin/python" --out "$out" \
        >"$out/log" 2>&1 || { cat "$out/log" >&2; return 1; }
    file=$(ls "$out"/*.whl)
    python_tool pip --python "$dir/bin/python" install --quiet --disable-pip-version-check --force-reinstall --no-deps "$file" &&
        echo "$hash" >"$stamp"
}

# debian PACKAGE...: installs them, where there is apt-get.
debian() {
    command -v apt-get >/dev/null 2>&1 || fail "not installed: $*"
    echo "installing $*"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" </dev/null >/dev/null
}

# The interpreter that figures are taken with: 3.13 where pyenv has one, python3 otherwise.
bench_python() {
    local prefix
    if prefix=$(pyenv prefix 3.13 2>/dev/null); then echo "$prefix/bin/python3"; else command -v python3; fi
}
