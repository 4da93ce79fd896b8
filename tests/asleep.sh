#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: a user of the server that sleeps over a request, or the end of a session, holds up no other user, no path, and no device
# topology: single
# timeout: 240
# seconds: 70

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/testmod.sh"
require rdma

# Two devices, so that one of them can be removed.
A=10.9.1
B=10.9.2
COUNT=24

# Seconds within which an operation ends that waits for nothing. The user sleeps until it is woken, so
# one that waits for it does not end.
SOON=$((20 * RTRS_TIME_SCALE))

load() { load_test "always_invalidate=$1"; }
asleep() { [ "$(total server_asleep:1234)" -ge "$1" ]; }
paths_up() { [ "$(cat /sys/class/rtrs-client/z/paths/*/state | grep -c '^connected$')" = "$1" ]; }
path() { echo "/sys/class/rtrs-$1/z/paths/ip:$2.2@ip:$2.1"; }
server_objects() { rdma resource show "$1" | grep -c 'comm \[rtrs_server\]'; }

open_sessions()
{
	rt open name=m "path=ip:$B.2@ip:$B.1"
	rt open name=z "path=ip:$A.2@ip:$A.1"
}

# send: send requests over which the server's user sleeps. Not from within a check.
send() { rt io name=z tag=sent how=sleep count="$COUNT" depth="$COUNT" & }

# in_time CMD...: CMD does not wait for the user that sleeps.
in_time()
{
	local t0=$SECONDS

	"$@"
	[ $((SECONDS - t0)) -le "$SOON" ] || {
		late "$* took $((SECONDS - t0)) s"
		return 1
	}
	asleep 1
}

others_work()
{
	both m count=200 depth=16
	asleep 1
}

# The path's queue pairs are gone; the other path has as many.
queues_gone() { [ "$(server_objects qp)" -eq "$1" ]; }

path_ends()
{
	local qps

	qps=$(server_objects qp)
	in_time write "$(path client "$A")/disconnect" 1
	in_time wait_for 15 queues_gone $((qps / 2))
}

# The path reconnects while the user that took its requests sleeps.
comes_back()
{
	in_time write "$(path client "$A")/reconnect" 1
	paths_up 1
}

second_path()
{
	write /sys/class/rtrs-client/z/add_path "ip:$B.2@ip:$B.1"
	paths_up 2
}

# A user that wakes up may find its path gone; the client sends the request again, and gets an
# answer. Each release wakes one sleeper per connection.
all_answered()
{
	local i

	for ((i = 0; i < 100 * RTRS_TIME_SCALE; i++)); do
		rt release
		[ -z "$(result sent)" ] || break
		sleep 0.1
	done
	result sent | tee "$TMP/sent"
	grep -q '^ok' "$TMP/sent"
	[ "$(field sent completed)" = "$COUNT" ]
	balanced
}

device_goes()
{
	in_time rdma link delete rxeA
	paths_up 1
}

device_comes_back()
{
	rdma link add rxeA type rxe netdev drxeA
	wait_for 30 paths_up 2
}

# The server's user takes its time to let go of a session. Its client is back meanwhile. The kernel
# reports a task that sleeps for 120 s.
FAREWELL=$((RTRS_TIME_SCALE == 1 ? 25 : 100))
ends() { [ "$(total server_downs)" -gt "$1" ]; }
session_ends()
{
	local downs

	downs=$(total server_downs)
	write "$(path client "$A")/disconnect" 1
	wait_for 15 ends "$downs"
	wait_for 15 in_use memory 0
}

# A path waits for that in its handshake: all that counts are its queues.
waits()
{
	local chunks=$((512 * 131072))

	write "$(path client "$A")/reconnect" 1 &
	wait_for 15 in_use handshakes 1
	sleep 1
	in_use handshakes 1
	[ "$(quota memory current)" -lt "$chunks" ]
}
goes_at_once()
{
	rdma link delete rxeA
	wait_for 10 in_use handshakes 0
	wait_for 10 in_use memory 0
	[ $((SECONDS - T0)) -lt "$FAREWELL" ] || late "that took $((SECONDS - T0)) s"
}
there_again()
{
	rdma link add rxeA type rxe netdev drxeA
	wait_for 90 paths_up 1
	both z count=200 depth=16
}

must "one device" rxe_up rxeA "$A.1/24" "$A.2/24"
defer rxe_down rxeA
must "another device" rxe_up rxeB "$B.1/24" "$B.2/24"
defer rxe_down rxeB
resource_snapshot
defer unload_modules
for ai in Y N; do
	must "$ai: modules load" load "$ai"
	must "$ai: a server opens" rt serve
	must "$ai: sessions open" open_sessions
	send
	must "$ai: the user falls asleep" wait_for 10 asleep 1
	check "$ai: another session does not notice" others_work
	check "$ai: the path ends" path_ends
	check "$ai: the client is back at once" comes_back
	check "$ai: all requests are answered in the end" all_answered
	check "$ai: modules unload" unload_modules
done
must "modules load" load Y
must "a server opens" rt serve
must "sessions open" open_sessions
must "with a second path" second_path
send
must "the user falls asleep" wait_for 10 asleep 1
check "the device goes" device_goes
check "another session does not notice" others_work
check "all requests are answered over the other path" all_answered
check "the device comes back, and its path" device_comes_back
check "modules unload" unload_modules
must "modules load" load_test session_linger=1 session_linger_max=1
must "a server opens, whose user takes long to let go of a session" rt serve farewell="$((FAREWELL * 1000))"
must "a session opens" rt open name=z "path=ip:$A.2@ip:$A.1"
T0=$SECONDS
must "it ends" session_ends
check "the client is back: its path waits, without chunks" waits
check "the device goes meanwhile" goes_at_once
check "the session comes back with it" there_again
check "modules unload" unload_modules
finish
