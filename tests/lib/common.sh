# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Helpers for all tests: cases and their results in KTAP, cleaning up, a check of the kernel log.
# rdma.sh has the helpers for modules, RDMA devices and RNBD, pair.sh those for pairs of guests,
# util.sh those that the demonstration needs as well. This file reads all of them.
#
# A test is a script that sources this file, calls "check" once per case and
# "finish" at the end. See tests/README.md.

set -uo pipefail

RTRS_LIB=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
RTRS_REPO=${RTRS_REPO:-$(cd "$RTRS_LIB/../.." && pwd -P)}
RTRS_TEST=${RTRS_TEST:-$(basename "$0" .sh)}
RTRS_ROLE=${RTRS_ROLE:-solo}

# shellcheck source=util.sh
. "$RTRS_LIB/util.sh"

# The kernel's own KTAP helpers, from the source tree of the kernel.
find_ktap_helpers()
{
	local f=tools/testing/selftests/kselftest/ktap_helpers.sh d

	for d in "${RTRS_KTREE:-/nonexistent}" "$RTRS_CACHE"/kernel/current-newest-* \
		"/lib/modules/$(uname -r)/source" "/lib/modules/$(uname -r)/build" \
		/usr/src/linux-source-*; do
		if [ -f "$d/$f" ]; then
			printf '%s\n' "$d/$f"
			return
		fi
	done
	echo "no $f found: install linux-source and unpack it, or set RTRS_KTREE to a kernel tree" >&2
	return 1
}
KTAP_HELPERS=$(find_ktap_helpers) || exit 2
# shellcheck disable=SC1090
. "$KTAP_HELPERS"

TMP=$(mktemp -d "/tmp/$RTRS_TEST.XXXXXX")
FINISHED=no

# defer CMD...: run CMD when the test ends, also when it ends early; the last one runs first. CMD
# must not fail if there is nothing left to undo.
defer()
{
	DEFERRED+=("$(printf '%q ' "$@")")
}

# run_deferred [KEEP]: run all but the first KEEP commands.
run_deferred()
{
	local keep=${1:-0} i

	for ((i = ${#DEFERRED[@]} - 1; i >= keep; i--)); do
		eval "${DEFERRED[i]}" >>"$TMP/deferred.log" 2>&1
		unset "DEFERRED[i]"
	done
}

at_exit()
{
	local status=$?

	run_deferred
	if [ "$FINISHED" = no ]; then
		ktap_test_fail "test script ended early with status $status"
		[ ! -s "$TMP/deferred.log" ] || ktap_log "$TMP/deferred.log"
		status=1
	fi
	rm -rf "$TMP"
	exit "$status"
}
trap at_exit EXIT

# Print a file as diagnostic lines.
ktap_log()
{
	tail -n "${2:-40}" "$1" | sed 's/^/# /'
}

note()
{
	printf '# %s\n' "$*"
}

# failed_at "$@": record where a command failed; for the ERR trap, with the arguments of the
# function that failed. A subshell within the one of the case may report the wrong place, as a
# command substitution goes on after an error. The outer shell overwrites it with the right place,
# except for a command in brackets.
failed_at()
{
	local _cmd=$BASH_COMMAND _at=1 _lib="$RTRS_LIB/@(common|util).sh"

	# Without arithmetic: eval may do it twice.
	# shellcheck disable=SC2016
	local _plain=${_cmd//'$(('/} _twice='[`<>]|\$\('

	[[ $- == *e* ]] || return 0
	[[ $_cmd != "("* || ! -s $TMP/where ]] || return 0
	if [[ $_cmd == return* ]]; then
		# A helper returns an error: report its caller.
		# shellcheck disable=SC2053 # a pattern
		while [[ ${BASH_SOURCE[_at]} == $_lib && ${FUNCNAME[_at]} != run_case ]]; do
			((++_at))
		done
		_cmd=$(sed -n "${BASH_LINENO[_at - 1]}s/^[[:space:]]*//p" "${BASH_SOURCE[_at]}")
	elif [[ $_cmd == "[ "* && ! $_plain =~ $_twice ]]; then
		eval "set -- $_cmd"
		[ "$*" = "$_cmd" ] || _cmd+=" with $*"
	fi
	# The command of the case itself is in the report anyway.
	[ "${FUNCNAME[_at]}" = run_case ] ||
		printf '%s:%s: %.300s\n' "${BASH_SOURCE[_at]##*/}" "${BASH_LINENO[_at - 1]}" "$_cmd" >"$TMP/where"
}

# check NAME CMD...: one case. CMD runs in a subshell that stops at the first
# failing command; its output is shown only if it fails. It may "skip".
check()
{
	local name=$1 rc
	shift

	run_case "$@"
	rc=$?
	report_case "$rc" "$name" "$name" "$@"
	return "$rc"
}

# run_case CMD...
run_case()
{
	rm -f "$TMP/where"
	(
		set -eE
		trap 'failed_at "$@"' ERR
		"$@"
	) >"$TMP/case.log" 2>&1 </dev/null
}

# report_case STATUS NAME NAME_IF_PASSED CMD...
report_case()
{
	local rc=$1 name=$2 passed=$3 reason='' log=$TMP/case.log
	shift 3

	# Programs exit with 4 as well, for their own reasons. Only with the text is it a skip.
	[ "$rc" -ne 4 ] || reason=$(tail -n 1 "$log" | sed -n 's/^skip: //p')
	if [ "$rc" -eq 0 ]; then
		ktap_test_pass "$passed"
	elif [ -n "$reason" ]; then
		ktap_test_skip "$name"
		note "skipped: $reason"
	else
		ktap_test_fail "$name"
		note "$(printf '%.300s' "$*"): exit status $rc"
		[ ! -s "$TMP/where" ] || note "failed at $(cat "$TMP/where")"
		# This line may be far from the end, and it decides whether the failure is final.
		tail -n 40 "$log" | has '^late: ' || grep -m 1 '^late: ' "$log" | sed 's/^/# /'
		ktap_log "$log"
	fi
}

# must NAME CMD...: a set-up step that the rest of the test depends on. It is counted apart from the
# cases, but a failed one counts as a failed case.
must()
{
	local name=$1 rc
	shift

	# Not with "||": it disables "set -e" in the whole command.
	run_case "$@"
	rc=$?
	report_case "$rc" "$name" "$name # set-up" "$@"
	[ "$rc" -eq 0 ] || bail "cannot go on without: $name"
}

# skip REASON: the case does not apply here. Called in a case, which ends.
skip()
{
	echo "skip: $*"
	return 4
}

bail()
{
	note "Bail out! $*"
	FINISHED=yes
	ktap_set_plan "$((KTAP_TESTNO - 1))"
	ktap_print_totals
	dmesg_since_start >"$TMP/dmesg"
	note "end of the kernel log:"
	ktap_log "$TMP/dmesg" 25
	exit 1
}

# skip_all REASON: the test as a whole does not apply here.
skip_all()
{
	FINISHED=yes
	ktap_print_header
	ktap_skip_all "$*"
	exit 4
}

# require CMD...: skip the test if one of these programs is missing.
require()
{
	local c

	for c in "$@"; do
		command -v "$c" >/dev/null || skip_all "program $c is not installed"
	done
}

# finish: clean up, run the checks common to all tests, print the totals.
finish()
{
	# What was set up before the snapshot must still exist for the comparison.
	run_deferred "${SNAPSHOT_DEFERRED:-0}"
	[ ! -f "$TMP/resources" ] || check "no resource left behind" resource_compare
	run_deferred
	check "kernel log is clean" dmesg_clean
	[ "$RTRS_DEBUG" != 1 ] || {
		check "no memory leaked" kmemleak_clean
		check "the kernel's checkers are still on" checkers_on
	}
	FINISHED=yes
	ktap_set_plan "$((KTAP_TESTNO - 1))"
	ktap_finished
}

# not CMD...: CMD must fail; the reason does not matter.
not()
{
	if "$@"; then
		echo "is, but must not be: $*"
		return 1
	fi
}

# expect_error TEXT CMD...: CMD must fail with an error that contains TEXT.
expect_error()
{
	local text=$1 out
	shift

	if out=$("$@" 2>&1); then
		echo "succeeded, but \"$text\" was expected: $*"
		return 1
	fi
	case $out in
	*"$text"*) ;;
	*)
		echo "failed with \"${out:0:300}\", but \"$text\" was expected: ${*:0:300}"
		return 1
		;;
	esac
}

#
# Kernel log
#

DMESG_MARK="rtrs-test: $RTRS_TEST $$ begins"

dmesg_mark()
{
	printf '%s\n' "$DMESG_MARK" >/dev/kmsg
}

# The first mark is set when a test begins.
dmesg_since_start()
{
	dmesg | awk -v mark="$DMESG_MARK" '
		index($0, mark) { text = seen++ ? text : ""; next }
		{ text = text $0 "\n" }
		END { printf "%s", text }'
}

# dmesg_since_mark: the kernel log since the last dmesg_mark.
dmesg_since_mark()
{
	dmesg | awk -v mark="$DMESG_MARK" '
		index($0, mark) { text = ""; next }
		{ text = text $0 "\n" }
		END { printf "%s", text }'
}

# Remove soft RoCE's warning about itself. vm/src/console.rs explains it and filters the console log
# in the same way.
without_soft_roce()
{
	awk '
		/------------\[ cut here \]/ { held = $0; next }
		held != "" {
			own = /WARNING: drivers\/infiniband\/sw\/rxe\/rxe_task.c:[0-9]+ at rxe_sched_task\+/
			if (!own) print held
			held = ""
		}
		own { if (/---\[ end trace/) own = 0; next }
		{ print }
		END { if (held != "") print held }'
}

dmesg_clean()
{
	local bad

	dmesg_since_start | without_soft_roce >"$TMP/dmesg"
	if bad=$(grep -n -m 1 -E "$DMESG_BAD" "$TMP/dmesg"); then
		echo "the kernel reports:"
		sed -n "${bad%%:*},+40p" "$TMP/dmesg"
		return 1
	fi
}

# Only the debug kernel has kmemleak.
KMEMLEAK=/sys/kernel/debug/kmemleak
RTRS_DEBUG=${RTRS_DEBUG:-0}

# checkers_on: a checker that is missing or has switched itself off finds nothing.
checkers_on()
{
	grep -Eq '^ *debug_locks: *1$' /proc/lockdep_stats
	# The kmemleak check before this one has shown that kmemleak scans.
	[ -w "$KMEMLEAK" ]
	[ "$(cat /sys/kernel/debug/dma-api/disabled)" = N ]
	grep -Eq '^max_used_objects|^pool_free' /sys/kernel/debug/debug_objects/stats
	grep -q ' kasan_report' /proc/kallsyms
}

# rnbd_leaks: would kmemleak find, rightly, what mainline RNBD leaks when a server does not have the
# device? rnbd_clt_put_dev() leaves the release to a kobject that such a device never had.
rnbd_leaks() { [ -w "$KMEMLEAK" ]; }

# kmemleak reports a leak only if it sees it in two scans.
kmemleak_clean()
{
	echo scan >"$KMEMLEAK"
	sleep 5
	echo scan >"$KMEMLEAK"
	# The file's size is always 0, so test -s does not work on it.
	head -n 60 "$KMEMLEAK" >"$TMP/kmemleak"
	if [ -s "$TMP/kmemleak" ]; then
		echo "kmemleak reports:"
		cat "$TMP/kmemleak"
		return 1
	fi
}

# dmesg_has [-E] TEXT: does the kernel log since the last dmesg_mark, or the start of the test,
# contain TEXT? With -E, TEXT is a regular expression.
dmesg_has()
{
	local how=-F

	[ "$1" != -E ] || { how=-E && shift; }
	dmesg_since_mark >"$TMP/dmesg"
	grep -q "$how" -- "$1" "$TMP/dmesg" || {
		echo "the kernel log has no \"$1\"; its end:"
		tail -n 15 "$TMP/dmesg"
		return 1
	}
}

# shellcheck source=rdma.sh
. "$RTRS_LIB/rdma.sh"
# shellcheck source=pair.sh
. "$RTRS_LIB/pair.sh"

[ "$(id -u)" -eq 0 ] || skip_all "must be run as root"
ktap_print_header
dmesg_mark
