#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: add_path to a server that cannot be the session's fails, and IO that waits for the session's own server goes on
# topology: single
# timeout: 240
# seconds: 25

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/testmod.sh"
. "$RTRS_LIB/peer.sh"
require rdma

# The session's server is at 10.9.0.2, the other one at 10.9.0.1.
OTHER=ip:10.9.0.1
SESSION=/sys/class/rtrs-client/m
OWN=$SESSION/paths/ip:10.9.0.3@ip:10.9.0.2

# A server that says that it still has the session; there are no administrative requests here.
serve() { rogue_start own 10.9.0.2 --case loses-admin; }
opens()
{
	rt open name=m "path=ip:10.9.0.3@ip:10.9.0.2" port="$PEER_PORT" delay=60
	works
}
works() { io m dir=write len=4096 count=32 depth=8 expect=0; }

begin()
{
	rt io name=m tag="$TAG" dir=write len=4096 count=32 depth=8 expect=0 timeout=200 2>/dev/null &
	wait_for 10 waiting_shown m 8
}
lost() { [ "$(cat "$OWN/state")" != connected ]; }

# not_this CASE: another path is refused, and the requests still wait.
not_this()
{
	peer_server "$1"
	expect_error "Protocol error" write "$SESSION/add_path" "$OTHER"
	peer_done
	waiting_shown m 8
	not has_result "$TAG"
	[ "$(find "$SESSION/paths" -mindepth 1 -maxdepth 1 | wc -l)" = 1 ]
}

goes_on()
{
	write "$OWN/reconnect" 1
	wait_for 60 has_result "$TAG"
	result "$TAG" | tee "$TMP/result"
	grep -q '^ok' "$TMP/result"
	balanced
	not eval 'dmesg | has "m: the server .* requests fail"'
}

disconnected()
{
	write "$OWN/disconnect" 1
	begin
}

server_gone()
{
	rogue_stop own
	wait_for 10 lost
	begin
}

must "soft RoCE comes up" rxe_up rxe0 10.9.0.1/24 10.9.0.2/24 10.9.0.3/24
defer rxe_down rxe0
peer_require
resource_snapshot
defer unload_rtrs
rogue_params
must "modules load" load_test
must "a server serves" serve
defer rogue_stop own
must "a session opens" opens
for case in zero-queue-depth few-chunks; do
	TAG=disconnected-$case
	must "$case: the only path is disconnected, requests wait" disconnected
	check "$case: another server is refused, they still wait" not_this "$case"
	check "$case: they go on when the path is connected" goes_on
	TAG=gone-$case
	must "$case: the server is gone, requests wait" server_gone
	check "$case: another server is refused, they still wait" not_this "$case"
	must "$case: the server is back" serve
	check "$case: they go on" goes_on
done
check "the session closes" rt close name=m
check "modules unload" unload_rtrs
finish
