#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: the logic that needs no kernel, in the kernel: the cases of tests/cases under KUnit
# topology: single
# timeout: 120
# seconds: 30
# default: no

. "$(dirname "$0")/lib/common.sh"

modprobe -qn kunit || skip_all "this kernel has no KUnit"

# What the sources have: lines "SUITE CASE". What is printed for a suite as a whole comes last.
in_sources()
{
	awk '
		/^cases!\(/ { inside = 1; suite = ""; next }
		/^\);/ && inside { print suite, suite; inside = 0 }
		inside {
			gsub(/[ ,:]/, "")
			if (suite == "") suite = $0
			else print suite, $0
		}' "$RTRS_REPO"/tests/cases/*/*.rs
}

# What KUnit has printed: lines "SUITE CASE", with the result if that is not "ok".
in_log()
{
	dmesg_since_start | awk '
		match($0, /# Subtest: /) { suite = substr($0, RSTART + RLENGTH) }
		match($0, /[]:] +(not )?ok [0-9]+ [a-z]/) {
			result = substr($0, RSTART, RLENGTH) ~ /not ok/ ? " not ok" : ""
			name = substr($0, RSTART + RLENGTH - 1)
			print suite, name result
		}'
}

# The assertions of a suite that failed.
failed_in()
{
	dmesg_since_start | sed -n "/# Subtest: $1\$/,/ok [0-9]* $1\$/p" | grep -A 1 'ASSERTION FAILED'
}

# passed SUITE: each of its cases was run once, in the order of the sources, and passed.
passed()
{
	local wanted seen

	wanted=$(awk -v suite="$1" '$1 == suite' "$TMP/sources")
	seen=$(awk -v suite="$1" '$1 == suite' "$TMP/results")
	[ "$seen" = "$wanted" ] || {
		failed_in "$1"
		diff <(echo "$wanted") <(echo "$seen")
		return 1
	}
}

# A module with other suites than the sources have was built of others.
nothing_else()
{
	! awk 'NR == FNR { known[$1]; next } !($1 in known) { print; n++ } END { exit !n }' \
		"$TMP/sources" "$TMP/results"
}

unload_kunit()
{
	unload_one rtrs-kunit && unload_rtrs && unload_one kunit
}

in_sources >"$TMP/sources"
must "the sources have cases" [ -s "$TMP/sources" ]
must "KUnit loads" load_one "" kunit enable=1 autorun=1
defer unload_kunit
must "the modules load" load_rtrs rust both
must "the module with the cases loads" load_one "$RTRS_MODULES" rtrs-kunit
in_log >"$TMP/results"
while read -r suite count; do
	check "$suite: $count of $count pass" passed "$suite"
done < <(awk '$1 != $2 { count[$1]++ } END { for (suite in count) print suite, count[suite] }' "$TMP/sources" | sort)
check "nothing else was run" nothing_else
check "the modules unload" unload_kunit
finish
