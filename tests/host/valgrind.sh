#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Runs the unit and property tests under valgrind, once each and with few cases, as it is slow. That
# covers only the unsafe code that calls no kernel functions (rtrs_bindings); KASAN covers the rest,
# with "make test-debug". Miri needs a nightly compiler, which Debian does not have.

set -eu
cd "$(dirname "$0")"

command -v valgrind >/dev/null
# The list comes from the build: one line "Executable ... (path)" each.
exes=$(cargo test --locked --workspace --tests --no-run 2>&1 |
	sed -n 's/^ *Executable tests.*(\(.*\))$/\1/p' | grep -v '/loom_')
[ -n "$exes" ]
for exe in $exes; do
	PROPTEST_CASES=4 valgrind --quiet --error-exitcode=9 --leak-check=full \
		--errors-for-leak-kinds=definite "$exe" --quiet --test-threads=1
done
