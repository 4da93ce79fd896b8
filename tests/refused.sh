#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: servers that are not there, refuse or offer nonsense give the documented errors in time
# topology: single
# timeout: 420

. "$(dirname "$0")/lib/common.sh"
. "$(dirname "$0")/lib/peer.sh"

# Connecting ends after 30 s at the latest. An address that nobody has is not known to be
# one earlier here, as there is no ARP: for that see fast-fail.sh.
CONNECT_LIMIT=35

# try_map SECONDS ERROR PATH: mapping fails with ERROR in time, and leaves
# nothing of the session. RNBD wants the port before the path.
try_map()
{
	local limit=$(($1 * RTRS_TIME_SCALE)) text=$2 path=$3 t0=$SECONDS took

	expect_error "$text" map_rnbd refused /dev/nullb0 dest_port="$PEER_PORT" "$path"
	took=$((SECONDS - t0))
	echo "failed with \"$text\" after $took s, $limit s allowed"
	[ "$took" -le "$limit" ]
	! [ -e /sys/class/rtrs-client/refused ] || {
		echo "there still is a session"
		return 1
	}
}

# nothing_left: as before the first attempt, with the modules loaded.
nothing_left()
{
	wait_for 10 resources_same || {
		diff -u "$TMP/resources" "$TMP/resources.now" || true
		final "resources are left"
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

# A silent server has its connections until the client gives up; one that
# answers nothing holds no more than the request.
no_answer()
{
	peer_server no-accept --timeout 60
	try_map "$CONNECT_LIMIT" "Connection timed out" ip:10.9.0.1
	kill "$PEER_PID" 2>/dev/null || true
	wait "$PEER_PID" || true
	nothing_left
}

nobody_there()
{
	try_map "$CONNECT_LIMIT" "Connection timed out" ip:10.9.0.77
	nothing_left
}

no_route()
{
	try_map 5 "Network is unreachable" ip:192.0.2.1
	nothing_left
}

nobody_listens()
{
	try_map 5 "Connection reset by peer" ip:10.9.0.1
	nothing_left
}

# The second path of a session fails: so does all of it.
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

	peer_server refuse --count 20
	for ((i = 0; i < 20; i++)); do
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
check "nobody at the address" nobody_there
check "nobody listens" nobody_listens
check "refused without a reason" refused refuse 5 "Connection reset by peer"
check "refused with a reason" refused reject-errno 5 "Device or resource busy"
check "refused with error 0" refused reject-zero 5 "Connection reset by peer"
check "refused with a positive error" refused reject-positive 5 "Connection reset by peer"
check "wrong magic" refused wrong-magic 5 "Connection reset by peer"
check "wrong version" refused wrong-version 5 "Connection reset by peer"
check "accepted with an error" refused accept-errno 5 "Connection reset by peer"
check "accepted with half a message" refused short-accept 5 "Protocol error"
check "no chunks" refused zero-queue-depth 5 "Protocol error"
check "too many chunks" refused huge-queue-depth 5 "Protocol error"
check "no header" refused zero-header 5 "Protocol error"
check "huge header" refused huge-header 5 "Protocol error"
check "huge IO" refused huge-io 5 "Protocol error"
check "no IO" refused zero-io 5 "Protocol error"
check "accepted, but no chunks told" refused silent "$CONNECT_LIMIT" "Connection timed out"
check "never accepted" no_answer
check "one of two paths refused" second_path_fails
check "refused twenty times" many_times
check "the client has no users and no sessions" client_users
finish
