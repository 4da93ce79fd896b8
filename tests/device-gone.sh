#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: a device that is removed ends all activity over it at once, an attempt to connect too
# topology: single
# timeout: 180

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/testmod.sh"
. "$RTRS_LIB/load.sh"
. "$RTRS_LIB/peer.sh"
require rdma

A=10.9.1
B=10.9.2
SESS=/sys/class/rtrs-client/s
# A path over the device that is removed, and one over the other. Nothing has the address of the
# third one. There is no ARP here, so that an attempt to connect to it takes 30 s.
PATH_A=ip:$A.2@ip:$A.1
PATH_B=ip:$B.2@ip:$B.1
NOBODY=ip:$A.2@ip:$A.77

# Seconds within which an operation ends that waits for nothing.
SOON=$((5 * RTRS_TIME_SCALE))

load() { load_test sess_queue_depth=32; }
connected() { [ "$(cat "$SESS/paths"/*/state | grep -c '^connected$')" = "$1" ]; }
remove_device() { rdma link delete rxeA; }
add_device() { rdma link add rxeA type rxe netdev drxeA; }
path_is() { [ "$(cat "$SESS/paths/$PATH_A/state")" = "$1" ]; }
# A path has a directory only once it is connected, so debugfs shows the attempt.
connecting() { grep -q " ${NOBODY#*@} .* connecting " /sys/kernel/debug/rtrs_client/connections; }

open_session()
{
	rt open name=s "path=$PATH_B" "path=$PATH_A"
	connected 2
}

# The device goes a second after the attempt began, which gets no answer.
goes_while_connecting()
{
	local pid t0

	write "$SESS/add_path" "$NOBODY" 2>"$TMP/err" &
	pid=$!
	wait_for 10 connecting
	sleep 1
	connecting
	kill -0 "$pid"
	t0=$SECONDS
	remove_device
	not wait "$pid"
	cat "$TMP/err"
	[ $((SECONDS - t0)) -le "$SOON" ] || late "that took $((SECONDS - t0)) s"
	not connecting
}

in_flight() { [ "$(path_count "$(path_dir s "$PATH_A")" 5)" -gt 0 ]; }

# The first requests take so long that those of both paths are in flight from when they are seen until
# the device has gone.
goes_while_connected()
{
	rt_start io name=s tag=w count=32 depth=16 how=timer delay=$((3000 * RTRS_TIME_SCALE))
	wait_for 10 in_flight
	remove_device
	not path_is connected
	rt_wait
	[ "$(field w completed)" = 32 ]
	balanced
	# Requests in flight on the removed device went over the other one.
	[ "$(path_count "$(path_dir s "$PATH_B")" 6)" -gt 0 ] || {
		echo "nothing was in flight: $(grep . "$SESS"/paths/*/stats/rdma)"
		return 1
	}
}

comes_back()
{
	add_device
	wait_for 30 path_is connected
	both s count=64 depth=16
}

# Requests to connect wait for their turn, more than are looked at together.
crowd_is() { [ "$(cat /sys/module/rtrs_server/quotas/handshakes/current)" -ge "$1" ]; }

# The interface goes, and with it the device, while many clients are connecting: some requests wait
# when the removal is announced. The removal waits until all of them are gone.
goes_while_asked()
{
	local crowd t0

	"$RTRS_PEER" half-open --addr "$A.1" --port 1234 --count 400 --workers 100 \
		>"$TMP/crowd" 2>&1 &
	crowd=$!
	wait_for 20 crowd_is 8 || {
		cat "$TMP/crowd"
		return 1
	}
	t0=$SECONDS
	(
		ip link delete drxeA
		: >"$TMP/deleted"
	) &
	# Before 7.3 soft RoCE does not go while a program has it open.
	grep -qw rxe_disassociate_ucontext /proc/kallsyms || kill "$crowd"
	wait_for $((20 * RTRS_TIME_SCALE)) test -e "$TMP/deleted" || late "the interface does not go"
	echo "the interface went in $((SECONDS - t0)) s"
	not rdma_active rxeA
	# The clients would wait for much longer.
	kill "$crowd" 2>/dev/null || true
	wait "$crowd" || true
	wait_for 10 not crowd_is 1
	rxe_up rxeA "$A.1/24" "$A.2/24"
}

must "one device" rxe_up rxeA "$A.1/24" "$A.2/24"
defer rxe_down rxeA
peer_require
must "another device" rxe_up rxeB "$B.1/24" "$B.2/24"
defer rxe_down rxeB
resource_snapshot
defer unload_modules
must "modules load" load
must "a server opens" rt serve
must "a session opens" open_session
check "a device goes, requests do not notice" goes_while_connected
check "it comes back, and its path" comes_back
check "a device goes, and an attempt to connect with it" goes_while_connecting
check "the other path does not notice" both s count=64 depth=16
check "it comes back again" comes_back
check "an interface goes with its device, and requests to connect with it" goes_while_asked
check "the other path does not notice" both s count=64 depth=16
check "modules unload" unload_modules
finish
