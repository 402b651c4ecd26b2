#!/usr/bin/env bash
# Checks what needs no interpreter for macOS, FreeBSD and aarch64 Linux, and runs its tests on the last under qemu-user.
#
# For macOS and FreeBSD that is cargo check and clippy, of the tests too: they need no linker. Nothing here can run them.
# No target's standard library is fetched: it is built from Debian's rust-src, laid into a copy of the nightly toolchain.
# Everything made here lies under ~/.cache/m0serve-cross and target/cross; the system's package lists stay as they are.
# What the machine lacks (nightly, the linker, qemu, a Debian mirror) is named, and the rest still runs.
set -euo pipefail
. "$(dirname "$0")/common.sh"

linux=aarch64-unknown-linux-gnu
checked=(aarch64-apple-darwin x86_64-unknown-freebsd "$linux")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/m0serve-cross
toolchain=$cache/toolchain
packages=(-p m0-platform -p m0serve)
# What else needs no interpreter; its tests run on this machine only.
checked_too=(-p m0-sim -p m0-bench)
skipped=0

skip() {
    echo "SKIPPED: $*"
    skipped=$((skipped + 1))
}
finish() {
    say "summary"
    echo "${passed:-0} passed, ${failed:-0} failed, $skipped skipped"
    [ "${failed:-0}" -eq 0 ]
    exit
}

# A package archive that the machine already uses, read when this runs: from deb822 files, then from the old format.
archive() {
    { sed -n 's/^URIs:[[:space:]]*\([^[:space:]]*\).*/\1/p' /etc/apt/sources.list.d/*.sources
      sed -n 's/^deb[[:space:]]\(\[[^]]*\][[:space:]]\)\{0,1\}\([^[:space:]]*\)[[:space:]].*[[:space:]]main.*/\2/p' \
        /etc/apt/sources.list /etc/apt/sources.list.d/*.list
    } 2>/dev/null | grep '/debian/*$' | head -n 1
}

# Debian's rust-src, through an apt configuration with lists and sources of its own.
fetch_source() {
    local uri=$1 apt=$cache/apt options
    mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$apt/etc"
    printf 'Types: deb\nURIs: %s\nSuites: forky sid\nComponents: main\nSigned-By: %s\n' \
        "$uri" /usr/share/keyrings/debian-archive-keyring.gpg >"$apt/etc/rust.sources"
    options=(-o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$apt/etc" -o Dir::State::Lists="$apt/lists"
        -o Dir::Cache="$apt" -o Acquire::Languages=none -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update -qq || return 1
    (cd "$apt" && apt-get "${options[@]}" download -qq rust-src) || return 1
    dpkg -x "$apt"/rust-src_*.deb "$cache/rust-src"
}

# A copy of nightly (hard links where the file system allows) with the library's source in it.
make_toolchain() {
    local nightly source
    nightly=$(rustup run nightly rustc --print sysroot 2>/dev/null) || { skip "no nightly toolchain"; return 1; }
    if ! ls "$cache"/rust-src/usr/src/rustc-*/library >/dev/null 2>&1; then
        local uri
        uri=$(archive)
        [ -n "$uri" ] || { skip "this machine names no Debian archive to take rust-src from"; return 1; }
        fetch_source "$uri" || { skip "rust-src could not be fetched"; return 1; }
    fi
    source=$(ls -d "$cache"/rust-src/usr/src/rustc-*/library | tail -n 1)
    rm -rf "$toolchain"
    cp -al "$nightly" "$toolchain" 2>/dev/null || { rm -rf "$toolchain"; cp -a "$nightly" "$toolchain"; }
    mkdir -p "$toolchain/lib/rustlib/src/rust"
    cp -a "$source" "$toolchain/lib/rustlib/src/rust/library"
    touch "$toolchain/.complete"
}

tools() {
    command -v aarch64-linux-gnu-gcc >/dev/null 2>&1 && command -v qemu-aarch64-static >/dev/null 2>&1 && return 0
    echo "installing gcc-aarch64-linux-gnu and qemu-user-static"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static </dev/null >/dev/null
}

# cross COMMAND TARGET [ARGUMENTS]: that toolchain's own cargo; nothing is registered with rustup.
cross() {
    # The feature means nothing where kqueue is the kernel's.
    local command=$1 target=$2
    shift 2
    env -u RUSTUP_TOOLCHAIN PATH="$toolchain/bin:$PATH" RUSTC="$toolchain/bin/rustc" CARGO_TARGET_DIR="$root/target/cross" \
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -L /usr/aarch64-linux-gnu" \
        "$toolchain/bin/cargo" "$command" -Zbuild-std=std,panic_abort,panic_unwind --target "$target" \
        "${packages[@]}" --no-default-features --features m0serve/emulated-kqueue "$@"
}

[ -e "$toolchain/.complete" ] || make_toolchain || finish

passed=0 failed=0
for target in "${checked[@]}"; do
    say "check and clippy for $target"
    if cross clippy "$target" "${checked_too[@]}" --tests -- -D warnings; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
[ "$failed" -eq 0 ] || finish

say "tests on $linux under qemu"
if ! tools; then
    skip "gcc-aarch64-linux-gnu or qemu-user-static is missing: the tests were not run"
    finish
fi
log=$build/logs/cross.log
mkdir -p "$build/logs"
skip "the tests that install a seccomp filter: qemu-user emulates system calls, a filter would be for its own"
if cross test "$linux" --no-fail-fast -- --skip forbidden_as_ 2>&1 | tee "$log"; then :; else failed=1; fi
counts=$(sed -n 's/^test result: .* \([0-9]*\) passed; \([0-9]*\) failed; \([0-9]*\) ignored.*/\1 \2 \3/p' "$log" |
    awk '{p += $1; f += $2; s += $3} END {print p + 0, f + 0, s + 0}')
read -r p f s <<<"$counts"
passed=$((passed + p))
[ "$f" -eq 0 ] || failed=$f
skipped=$((skipped + s))
finish
