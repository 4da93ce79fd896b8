#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: a host with sessions that make the server's user sleep gets its share of tasks, no more
# topology: single
# timeout: 240
# seconds: 40

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/testmod.sh"

# Messages of one source that the server works on at a time (SLOW_PER_SOURCE).
SHARE=32
SESSIONS=40
MANY=10.9.0.2
# One address in 256 shares with this one.
OTHERS=(10.9.0.3 10.9.0.4)

# Milliseconds within which another client has to be served.
SOON=$((5000 * RTRS_TIME_SCALE))

LAST=$((SESSIONS - 1))
last_path() { echo "/sys/class/rtrs-client/s$LAST/paths/ip:$MANY@ip:10.9.0.1"; }

asleep() { total server_asleep:1234; }
asleep_are() { [ "$(asleep)" = "$1" ]; }

open_sessions()
{
	local i

	for ((i = 0; i < SESSIONS; i++)); do
		rt open name="s$i" path="ip:$MANY@ip:10.9.0.1"
	done
}

# send TAG: send one message in each session, over which the user sleeps. Not from within a check.
send()
{
	local i

	for ((i = 0; i < SESSIONS; i++)); do
		# Those that wait are the last ones.
		[ "$i" != "$SHARE" ] || wait_for 20 asleep_are "$SHARE"
		rt io name="s$i" tag="$1$i" con=admin how=sleep len=0 timeout=600 &
	done
}

# Some of the messages wait, and go on waiting.
no_more_than_its_share()
{
	wait_for 20 asleep_are "$SHARE"
	sleep 2
	asleep_are "$SHARE" || {
		echo "$(asleep) of $SESSIONS sleep"
		return 1
	}
}

# A client from another address is served: session, messages, IO.
served_elsewhere()
{
	local addr name t0 took best=

	for addr in "${OTHERS[@]}"; do
		# The server keeps a name for the host that had it.
		name=other-${addr##*.}
		t0=$(ms_now)
		rt open name="$name" path="ip:$addr@ip:10.9.0.1"
		rt io name="$name" con=admin len=0 count=20 depth=4 timeout=$((2 * SOON / 1000)) || {
			rt close name="$name"
			continue
		}
		rt io name="$name" len=4096 count=20 depth=4
		rt close name="$name"
		took=$(($(ms_now) - t0))
		[ -n "$best" ] && [ "$best" -le "$took" ] || best=$took
	done
	echo "served in ${best:-no} ms"
	[ -n "$best" ]
	[ "$best" -le "$SOON" ] || late "that is too long"
	asleep_are "$SHARE"
}

# Only messages wait; IO of the same sessions goes on.
own_io()
{
	rt io name="s$LAST" tag=io len=4096 count=50 depth=8
	asleep_are "$SHARE"
}

# A path with a message that waits for its turn ends, and the client reconnects.
waiting_path_ends()
{
	local t0 memory

	memory=$(quota memory current)
	t0=$(ms_now)
	write "$(last_path)/disconnect" 1
	wait_for 10 eval "[ \"\$(quota memory current)\" -lt $memory ]"
	write "$(last_path)/reconnect" 1
	[ $(($(ms_now) - t0)) -le "$SOON" ] || late "it took $(($(ms_now) - t0)) ms"
	[ "$(cat "$(last_path)/state")" = connected ]
	in_use memory "$memory"
	asleep_are "$SHARE"
}

# Each message is answered, first those over which the user sleeps, then those that wait.
all_in_turn()
{
	local i

	rt release
	wait_for 20 asleep_are $((SESSIONS - SHARE))
	for ((i = 0; i < SESSIONS; i++)); do
		[ -z "$(result "$1$i")" ] || echo "$i"
	done | wc -l >"$TMP/answered"
	echo "$(cat "$TMP/answered") are answered"
	rt release
	wait_for 20 asleep_are 0
	for ((i = 0; i < SESSIONS; i++)); do
		wait_for 20 has_result "$1$i"
		[[ $(result "$1$i") == ok* ]] || {
			result "$1$i"
			return 1
		}
	done
	balanced
}

# The server closes while some messages are being handled and some wait: the latter are dropped.
closes()
{
	local pid t0

	rt unserve &
	pid=$!
	wait_for 20 not test -e /sys/class/rtrs-server/s0
	sleep 1
	kill -0 "$pid"
	asleep_are "$SHARE"
	t0=$(ms_now)
	rt release
	wait "$pid"
	[ $(($(ms_now) - t0)) -le "$SOON" ] || late "it took $(($(ms_now) - t0)) ms"
}

must "soft RoCE comes up" rxe_up rxe0 10.9.0.1/24 "$MANY/24" "${OTHERS[0]}/24" "${OTHERS[1]}/24"
defer rxe_down rxe0
resource_snapshot
defer unload_modules
must "modules load" load_test sess_queue_depth=4 max_chunk_size=16384
must "a server opens" rt serve
must "$SESSIONS sessions of one host open" open_sessions
send first
check "of its messages so many are worked on" no_more_than_its_share
check "another host is served" served_elsewhere
check "IO of the same host is, too" own_io
check "a path ends whose message waits, and comes back" waiting_path_ends
check "all messages are answered, in turn" all_in_turn first
send second
check "and once more" no_more_than_its_share
check "the server closes" closes
check "modules unload" unload_modules
finish
