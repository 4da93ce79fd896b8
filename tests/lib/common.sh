# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What all tests share: cases and their results in KTAP, cleaning up, a look
# at the kernel log. Modules, RDMA devices and RNBD are in rdma.sh, guests in
# pairs in pair.sh, what the demonstration needs as well in util.sh; all are
# read from here.
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

# The kernel's own KTAP helpers, from the tree the kernel was built of.
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

# defer CMD...: to be done when the test ends, last one first, also when it
# ends early. Undoing what is undone already must not fail.
defer()
{
	DEFERRED+=("$(printf '%q ' "$@")")
}

# run_deferred [KEEP]: all but the first KEEP ones.
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

# A file as diagnostic lines.
ktap_log()
{
	tail -n "${2:-40}" "$1" | sed 's/^/# /'
}

note()
{
	printf '# %s\n' "$*"
}

# failed_at "$@": for a trap of errors, in the arguments of what failed: where that was. A shell within
# the one of the case may be wrong, as a substitution goes on after an error; the outer one knows
# better, but for what is in brackets.
failed_at()
{
	local _cmd=$BASH_COMMAND _at=1 _lib="$RTRS_LIB/@(common|util).sh"

	# Without arithmetic, which may be done twice.
	# shellcheck disable=SC2016
	local _plain=${_cmd//'$(('/} _twice='[`<>]|\$\('

	[[ $- == *e* ]] || return 0
	[[ $_cmd != "("* || ! -s $TMP/where ]] || return 0
	if [[ $_cmd == return* ]]; then
		# A helper says no: whoever asked it is of interest.
		# shellcheck disable=SC2053 # a pattern
		while [[ ${BASH_SOURCE[_at]} == $_lib && ${FUNCNAME[_at]} != run_case ]]; do
			((++_at))
		done
		_cmd=$(sed -n "${BASH_LINENO[_at - 1]}s/^[[:space:]]*//p" "${BASH_SOURCE[_at]}")
	elif [[ $_cmd == "[ "* && ! $_plain =~ $_twice ]]; then
		eval "set -- $_cmd"
		[ "$*" = "$_cmd" ] || _cmd+=" with $*"
	fi
	# The command of the case itself is known.
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

	# Programs exit with 4 as well, for reasons of their own.
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
		# It may be far from the end, and decides whether the failure is final.
		tail -n 40 "$log" | grep -q '^late: ' || grep -m 1 '^late: ' "$log" | sed 's/^/# /'
		ktap_log "$log"
	fi
}

# must NAME CMD...: a step of setting up, without which the rest makes no sense. Counted apart from
# the cases; one that fails is a failed case.
must()
{
	local name=$1 rc
	shift

	# Not with "||", by which "set -e" means nothing in all of it.
	run_case "$@"
	rc=$?
	report_case "$rc" "$name" "$name # set-up" "$@"
	[ "$rc" -eq 0 ] || bail "cannot go on without: $name"
}

# skip REASON: the case does not apply here; for use in a case, which ends.
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

# require CMD...: programs the test cannot do without.
require()
{
	local c

	for c in "$@"; do
		command -v "$c" >/dev/null || skip_all "program $c is not installed"
	done
}

# finish: clean up, look at what every test has to leave behind, sum up.
finish()
{
	# What was set up before the snapshot has to be there when comparing.
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

# not CMD...: CMD must fail, for whatever reason.
not()
{
	if "$@"; then
		echo "is, but must not be: $*"
		return 1
	fi
}

# expect_error TEXT CMD...: CMD must fail, saying that error.
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

dmesg_since_start()
{
	dmesg | awk -v mark="$DMESG_MARK" '
		index($0, mark) { text = ""; next }
		{ text = text $0 "\n" }
		END { printf "%s", text }'
}

# Soft RoCE's warning about itself, explained in vm/src/console.rs, which judges
# the console's log in the same way.
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

# Only the debug kernel has it.
KMEMLEAK=/sys/kernel/debug/kmemleak
RTRS_DEBUG=${RTRS_DEBUG:-0}

# checkers_on: a checker that has switched itself off, or is not there, finds nothing.
checkers_on()
{
	grep -Eq '^ *debug_locks: *1$' /proc/lockdep_stats
	# That it scans was seen a moment ago.
	[ -w "$KMEMLEAK" ]
	[ "$(cat /sys/kernel/debug/dma-api/disabled)" = N ]
	grep -Eq '^max_used_objects|^pool_free' /sys/kernel/debug/debug_objects/stats
	grep -q ' kasan_report' /proc/kallsyms
}

# Two scans, as it wants to see a leak twice.
kmemleak_clean()
{
	echo scan >"$KMEMLEAK"
	sleep 5
	echo scan >"$KMEMLEAK"
	# Its size is always 0.
	head -n 60 "$KMEMLEAK" >"$TMP/kmemleak"
	if [ -s "$TMP/kmemleak" ]; then
		echo "kmemleak reports:"
		cat "$TMP/kmemleak"
		return 1
	fi
}

# dmesg_has [-E] TEXT: said since the test began? With -E it is a regular expression.
dmesg_has()
{
	local how=-F

	[ "$1" != -E ] || { how=-E && shift; }
	dmesg_since_start >"$TMP/dmesg"
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
