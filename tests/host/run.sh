#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Runs the host tests of all logic that needs no kernel:
#   1. unit and property tests,
#   2. the lock-free parts under loom, through all interleavings,
#   3. the unit and property tests once more under valgrind, if there is one,
#   4. with HOST_SANITIZER=1, and with the address sanitizer, which needs a nightly compiler.
# Exits with non-zero if anything failed. Takes no options; PROPTEST_CASES sets how many random
# cases each property is tried on.

set -eu
cd "$(dirname "$0")"

step() {
	printf '# host: %s\n' "$*"
}

step "unit and property tests"
PROPTEST_CASES="${PROPTEST_CASES:-2048}" cargo test --locked --workspace --tests

# Loom replaces the atomics in the whole build, so it has a build of its own.
step "loom"
RUSTFLAGS="--cfg loom" cargo test --locked --workspace --test 'loom_*' --target-dir target/loom

if command -v valgrind >/dev/null 2>&1; then
	step "valgrind"
	./valgrind.sh
else
	step "valgrind: not installed, skipped"
fi

if [ "${HOST_SANITIZER:-0}" = 1 ]; then
	step "address sanitizer"
	target=$(rustc +nightly -vV | sed -n 's/^host: //p')
	RUSTFLAGS="-Zsanitizer=address" PROPTEST_CASES=64 cargo +nightly test --locked --workspace \
		--tests --target "$target" --target-dir target/asan
fi

step "all passed"
