#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: servers that do not exist, refuse or offer nonsense give the documented errors in time
# topology: single
# timeout: 300
# seconds: 70
# waits: yes

. "$(dirname "$0")/lib/common.sh"
. "$(dirname "$0")/lib/peer.sh"

# Seconds within which connecting ends: at most 30, plus some. There is no ARP here, so that an
# unused address is not noticed earlier: for that see fast-fail.sh.
CONNECT_LIMIT=35

# Number of attempts that are refused, see many_times.
TIMES=8
[ -z "${RTRS_LONG:-}" ] || TIMES=20

# try_map SECONDS ERROR PATH [SESSION PORT]: mapping fails with ERROR in time, and leaves nothing of
# the session behind. RNBD wants the port before the path.
try_map()
{
	local limit=$(($1 * RTRS_TIME_SCALE)) text=$2 path=$3 name=${4:-refused} port=${5:-$PEER_PORT}
	local t0=$SECONDS took

	expect_error "$text" map_rnbd "$name" /dev/nullb0 dest_port="$port" "$path"
	took=$((SECONDS - t0))
	echo "failed with \"$text\" after $took s, $limit s allowed"
	[ "$took" -le "$limit" ] || late "that is too long"
	! [ -e "/sys/class/rtrs-client/$name" ] || {
		echo "there still is a session"
		return 1
	}
}

# nothing_left: all is as before the first attempt, with the modules loaded.
nothing_left()
{
	wait_for 10 resources_same || {
		diff -u "$TMP/resources" "$TMP/resources.now" || true
		echo "resources are left"
		return 1
	}
}

refused()
{
	local case=$1 limit=$2 text=$3

	peer_server "$case"
	try_map "$limit" "$text" ip:10.9.0.1
	peer_done
	nothing_left
}

# A queue depth that a server could mean, and that would cost too much.
many_chunks()
{
	refused many-chunks 5 "Protocol error"
	dmesg | has "the server offers 65535 requests at a time, max_queue_depth is 16384"
}

# without_sends CASE: connections for sent writes are refused, or ended: the client tries without at once,
# and gets another answer.
without_sends()
{
	peer_server "$1" --count 2
	try_map 10 "Device or resource busy" ip:10.9.0.1
	peer_done
	[ "$(dmesg | grep -c "the next attempt sends no writes")" -eq "$2" ]
	nothing_left
}

#
# A client without an answer gives up after 30 s, which cannot be set. All such cases run at the
# same time, each with a session and a port of its own; files with their names have the results.
#

# lasting NAME PORT CASE: start a server in the background.
lasting()
{
	{
		"$RTRS_PEER" server --addr 10.9.0.1 --port "$2" --case "$3" --ready "$TMP/$1.ready" \
			--timeout $((60 * RTRS_TIME_SCALE)) >"$TMP/$1.json" 2>&1 &
		echo "$!" >"$TMP/$1.pid"
		wait "$!"
		echo "$?" >"$TMP/$1.served"
	} &
	wait_for 10 test -e "$TMP/$1.ready"
}

# A silent server has its connections until the client gives up; one that answers nothing has only
# the request.
two_servers() { lasting silent $((PEER_PORT + 1)) silent && lasting mute $((PEER_PORT + 2)) no-accept; }

# attempt NAME PORT PATH: start an attempt in the background.
attempt()
{
	(
		set -e
		try_map "$CONNECT_LIMIT" "Connection timed out" "$3" "$1" "$2"
	) >"$TMP/$1.log" 2>&1 &
	ATTEMPTS[$1]=$!
}
declare -A ATTEMPTS

# ended NAME...: write the exit statuses to files.
ended()
{
	local name

	for name; do
		wait "${ATTEMPTS[$name]}"
		echo "$?" >"$TMP/$name.rc"
	done
}

timed_out()
{
	cat "$TMP/$1.log"
	[ "$(cat "$TMP/$1.rc")" = 0 ]
}

# The server has seen what it expects.
silent_timed_out()
{
	timed_out silent
	wait_for 10 test -s "$TMP/silent.served"
	cat "$TMP/silent.json"
	[ "$(cat "$TMP/silent.served")" = 0 ]
}

nothing_left_of_them()
{
	kill "$(cat "$TMP/mute.pid")" 2>/dev/null || true
	nothing_left
}

no_route()
{
	try_map 5 "Network is unreachable" ip:192.0.2.1
	nothing_left
}

no_listener()
{
	try_map 5 "Connection reset by peer" ip:10.9.0.1
	nothing_left
}

# The second path of a session fails, and so does the whole session.
second_path_fails()
{
	peer_server refuse
	expect_error "Connection reset by peer" map_rnbd refused /dev/nullb0 dest_port="$PEER_PORT" \
		ip:10.9.0.1 ip:10.9.0.1@ip:10.9.0.1
	peer_done
	nothing_left
}

many_times()
{
	local i

	peer_server refuse --count "$TIMES"
	for ((i = 0; i < TIMES; i++)); do
		try_map 5 "Connection reset by peer" ip:10.9.0.1
	done
	peer_done
	nothing_left
}

client_users()
{
	module_refs rtrs-client 1
	[ -z "$(find /sys/class/rtrs-client/ -mindepth 1 -maxdepth 1)" ]
}

must "soft RoCE comes up" rxe_up rxe0
defer rxe_down rxe0
peer_require
resource_snapshot
must "the client's modules load" eval "load_rtrs rust client && load_rnbd client"
defer unload_modules

check "no route to the server" no_route
check "nobody listens" no_listener
check "refused without a reason" refused refuse 5 "Connection reset by peer"
check "refused with a reason" refused reject-errno 5 "Device or resource busy"
check "refused with error 0" refused reject-zero 5 "Connection reset by peer"
check "refused with a positive error" refused reject-positive 5 "Connection reset by peer"
check "refused for writes that are sent" without_sends no-room-for-sends 1
check "ended before the chunks are told, for writes that are sent" without_sends no-room-for-sends-late 2
check "wrong magic" refused wrong-magic 5 "Connection reset by peer"
check "wrong version" refused wrong-version 5 "Connection reset by peer"
check "accepted with an error" refused accept-errno 5 "Connection reset by peer"
check "accepted with half a message" refused short-accept 5 "Protocol error"
check "no chunks" refused zero-queue-depth 5 "Protocol error"
check "too many chunks" refused huge-queue-depth 5 "Protocol error"
check "very many small chunks" many_chunks
check "no header" refused zero-header 5 "Protocol error"
check "huge header" refused huge-header 5 "Protocol error"
check "huge IO" refused huge-io 5 "Protocol error"
check "no IO" refused zero-io 5 "Protocol error"
check "one of two paths refused" second_path_fails
check "refused $TIMES times" many_times
must "two servers that do not answer" two_servers
attempt nobody "$PEER_PORT" ip:10.9.0.77
attempt silent $((PEER_PORT + 1)) ip:10.9.0.1
attempt mute $((PEER_PORT + 2)) ip:10.9.0.1
ended nobody silent mute
check "nobody at the address" timed_out nobody
check "accepted, but no chunks told" silent_timed_out
check "never accepted" timed_out mute
check "nothing is left of these" nothing_left_of_them
check "the client has no users and no sessions" client_users
finish
