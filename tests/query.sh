#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: a user in C asks for a session's limits: it gets them as long as requests may wait for a path, and -ECOMM when they fail
# topology: single
# timeout: 120
# seconds: 20

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/testmod.sh"

S=/sys/class/rtrs-client/query
M=/sys/module/rtrs_query/parameters

load()
{
	load_test sess_queue_depth=16 max_chunk_size=131072 session_linger=600 && rt serve &&
		load_one "$RTRS_MODULES" rtrs-query
}

limits_as_before() { [ "$(cat "$M/limits")" = "$(cat "$TMP/before")" ]; }

# Requests fail: so does the question.
no_limits()
{
	! cat "$M/limits" >"$TMP/limits" 2>&1 && grep -q 'Communication error on send' "$TMP/limits"
}

path() { echo "$S"/paths/*; }

# The depth of the queue, the largest request in bytes, and the segments of a request.
with_a_path()
{
	local words

	cat "$M/limits" >"$TMP/before"
	cat "$TMP/before"
	read -r -a words <"$TMP/before"
	[ "${#words[@]}" = 3 ] && [ "${words[0]}" = 16 ] && [ "${words[1]}" -gt 65536 ] &&
		[ "${words[2]}" -ge 16 ]
}

without_a_path()
{
	write "$S/fast_io_fail_tmo" 600
	write "$(path)/disconnect" 1
	[ "$(cat "$(path)/state")" != connected ]
	limits_as_before
}

requests_fail()
{
	write "$S/fast_io_fail_tmo" 1
	wait_for 20 no_limits
}

path_is_back()
{
	write "$(path)/reconnect" 1
	wait_for 20 limits_as_before
}

last_path_removed()
{
	write "$S/fast_io_fail_tmo" 600
	write "$(path)/remove_path" 1
	no_limits
}

must "soft RoCE comes up" rxe_up rxe0
defer rxe_down rxe0
resource_snapshot
defer unload_modules
must "modules load" load
check "the limits are those of the server" with_a_path
check "they can be had while there is no path and requests wait" without_a_path
check "and not once requests fail" requests_fail
check "and again when the path is back" path_is_back
check "and not without any path" last_path_removed
check "the user's module unloads" unload_one rtrs-query
check "the modules unload" unload_modules
finish
