#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Runs the unit and property tests under valgrind, once each and with few cases, as it is slow. The
# sources have no unsafe code; this is for the day when that is not true any more.

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
