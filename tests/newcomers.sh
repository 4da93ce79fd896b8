#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: one host with hundreds of addresses can neither keep others out nor start paths without end
# topology: single
# timeout: 500
# seconds: 130

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/testmod.sh"
. "$RTRS_LIB/peer.sh"

# The attacker has the addresses from FROM or FROM6 on; newcomers come from those below. A port
# cannot use more than 256 addresses: the verbs have eight bits for the index.
SOURCES=240
FROM=10.9.64.0
FROM6=fd09:0:0:64::
EUSERS=87
HERE=10.9.0.2
ELSEWHERE=10.9.0.3
HERE6=fd09:0:0:2::2
# Milliseconds within which a newcomer has to be connected.
SOON=5000

# What dmesg_has finds is of these modules.
load()
{
	dmesg_mark
	load_test sess_queue_depth=8 max_chunk_size=65536 session_linger=0 \
		handshake_timeout_ms=$((15000 * RTRS_TIME_SCALE)) max_memory=16384 "$@"
	rt serve
}

# addresses add|del 4|6: the attacker's.
addresses()
{
	local i of

	for ((i = 0; i < SOURCES; i++)); do
		case $2 in
		4) of=10.9.64.$i/32 ;;
		6) printf -v of '%s%x/128 nodad' "$FROM6" "$i" ;;
		esac
		echo "addr $1 $of dev drxe0"
	done >"$TMP/addresses"
	ip -batch "$TMP/addresses"
}

addresses_of_v6()
{
	addresses del 4 && addresses add 6
}

# crowd COUNT SEED [SOURCES [OPTION...]]: start clients in the background, each from the next of
# SOURCES addresses, that begin to connect and never finish. More of them come than are let in, for
# the time of the checks.
crowd()
{
	crowd_of 10.9.0.1 "$FROM" "${3:-$SOURCES}" --count "$1" --seed "$2" "${@:4}"
}

crowd6() { crowd_of fd09::1 "$FROM6" "$SOURCES" --count "$1" --seed "$2"; }

crowd_of()
{
	"$RTRS_PEER" half-open --addr "$1" --from "$2" --sources "$3" --workers 4 \
		--pause $((60 * RTRS_TIME_SCALE)) --deadline $((60 * RTRS_TIME_SCALE)) "${@:4}" \
		>"$TMP/half" 2>&1 &
	CROWD=$!
}

crowd_goes()
{
	kill "$CROWD"
	! wait "$CROWD" || return
	# Some never confirmed that they are connected: the server does not hear of their end.
	wait_for 40 in_use handshakes 0
}

refused() { quota "$1" refused; }

# full RESOURCE: there is no room, apart from places that just change hands.
full() { [ "$(quota "$1" current)" -ge $(($(quota "$1" max) * 7 / 8)) ] && [ "$(refused "$1")" -gt 0 ]; }

# under_attack RESOURCE COMMAND...: more clients come during the whole command.
under_attack()
{
	local resource=$1 before
	shift

	wait_for 20 full "$resource"
	before=$(refused "$resource")
	"$@"
	# A large one may just have given way.
	wait_for 20 full "$resource"
	[ "$(refused "$resource")" -gt $((before + 16)) ]
	kill -0 "$CROWD"
	echo "$(($(refused "$resource") - before)) times there was no room"
}

# open_soon COUNT ADDRESS [SERVER]: open COUNT sessions from ADDRESS one after the other, each in
# time.
open_soon()
{
	local i t0 took longest=0

	for ((i = 0; i < $1; i++)); do
		t0=$(ms_now)
		rt open name="new$i" path="ip:$2@ip:${3:-10.9.0.1}" || return
		took=$(($(ms_now) - t0))
		[ "$took" -le "$longest" ] || longest=$took
	done
	echo "the longest of $1 took $longest ms"
	[ "$longest" -le $((SOON * RTRS_TIME_SCALE)) ] || late "that is too long"
}

# close_named NAME COUNT
close_named()
{
	local i

	for ((i = 0; i < $2; i++)); do
		rt close name="$1$i"
	done
}

close_new() { close_named new "$1"; }

# served RESOURCE [COUNT]: there is no room, so other clients give way; and newcomers keep their
# place.
served()
{
	local count=${2:-16}

	under_attack "$1" open_soon "$count" "$HERE"
	dmesg_has 'handshake ended: gave way to another client'
	[ "$(cat /sys/class/rtrs-client/new0/paths/*/state)" = connected ]
	close_new "$count"
}

# A client that has crashed waits for longer than others may take.
crashed()
{
	peer_attack name-of-silent --from "$HERE" --seed 7 --patience $((10 * RTRS_TIME_SCALE)) \
		>"$TMP/crashed" 2>&1 && return
	cat "$TMP/crashed"
	! grep -q 'the name was free too late' "$TMP/crashed" || late "the name was not free in time"
	return 1
}

crowd_ends()
{
	kill "$CROWD"
	! wait "$CROWD"
}

# open_and_close COUNT ADDRESS: leave COUNT sessions that are kept.
open_and_close()
{
	local i

	for ((i = 0; i < $1; i++)); do
		rt open name="kept$i" path="ip:$2@ip:10.9.0.1"
		rt close name="kept$i"
	done
}

# One host has all sessions, without a path: it loses as many of them as others need.
kept_give_way()
{
	open_and_close 16 "$ELSEWHERE"
	in_use sessions 16
	open_soon 6 "$HERE"
	# There was no room for any of the six, which have a path: so ten are left of those kept.
	[ "$(refused sessions)" -ge 6 ]
	in_use sessions 16
	close_new 6
}

# open_from_many: a session from each of 16 addresses.
open_from_many()
{
	local i

	for ((i = 0; i < 16; i++)); do
		rt open name="many$i" path="ip:10.9.64.$i@ip:10.9.0.1"
	done
	in_use sessions 16
}

close_many()
{
	local i

	for ((i = 0; i < 16; i++)); do
		rt close name="many$i"
	done
	in_use sessions 16
}

# kept_by_many ROUND: many hosts have all sessions, each no more than its share, and they were up
# for a moment only.
kept_by_many()
{
	local i

	for ((i = 0; i < 16; i++)); do
		# The one before may not have been away yet for longer than it was up.
		wait_for 20 rt open name="many$1_$i" path="ip:10.9.64.$i@ip:10.9.0.1"
		rt close name="many$1_$i"
	done
}

kept_of_many_give_way()
{
	kept_by_many 0
	in_use sessions 16
	open_soon 6 "$HERE"
	[ "$(refused sessions)" -ge 6 ]
	in_use sessions 16
	close_new 6
}

# Clients that come at the same time, from hosts of their own, do not end each other, although there
# are few sessions that have to give way for them. After the first round they have names that are
# kept.
not_each_other()
{
	local i round before

	write "$Q/sessions/max" 32
	for ((i = 0; i < 22; i++)); do
		rt open name="live$i" path="ip:10.9.64.$((100 + i))@ip:10.9.0.1"
	done
	for ((round = 1; round <= 4; round++)); do
		kept_by_many "$round"
		in_use sessions 32
		before=$(ms_now)
		for ((i = 0; i < 8; i++)); do
			rt_start open name="fresh$i" path="ip:10.9.64.$((200 + i))@ip:10.9.0.1"
		done
		rt_wait
		not dmesg_has 'gave way'
		close_named fresh 8
		# They were not up for longer than that.
		sleep "$(($(ms_now) - before + 1000))e-3"
	done
	close_named live 22
}

# Those that were up for some time are kept for as long.
kept_of_many_stay()
{
	open_from_many
	sleep $((10 * RTRS_TIME_SCALE))
	close_many
	refuses "$EUSERS" open name=more path="ip:$HERE@ip:10.9.0.1"
	in_use sessions 16
	wait_for 60 rt open name=more path="ip:$HERE@ip:10.9.0.1"
	in_use sessions 16
	rt close name=more
}

# Sessions with a path stay, however many one host has.
live_stay()
{
	local i

	write "$Q/sessions/max" 256
	for ((i = 0; i < 16; i++)); do
		rt open name="live$i" path="ip:$ELSEWHERE@ip:10.9.0.1"
	done
	in_use sessions 32
	# Ten of one host, and six of the newcomer's own, are kept: that is not enough for this limit.
	write "$Q/sessions/max" 16
	refuses "$EUSERS" open name=more path="ip:$HERE@ip:10.9.0.1"
	in_use sessions 32
	# Nine end for the first newcomer, and then one for each, at last those of its own source.
	write "$Q/sessions/max" 24
	for ((i = 0; i < 8; i++)); do
		wait_for 10 rt open name="more$i" path="ip:$HERE@ip:10.9.0.1"
		in_use sessions 24
	done
	refuses "$EUSERS" open name=more path="ip:$HERE@ip:10.9.0.1"
	in_use sessions 24
	close_named more 8
	for ((i = 0; i < 16; i++)); do
		[ "$(cat "/sys/class/rtrs-client/live$i"/paths/*/state)" = connected ]
		rt close name="live$i"
	done
}

at_once()
{
	local i

	for ((i = 0; i < 16; i++)); do
		rt_start open name="new$i" path="ip:$HERE@ip:10.9.0.1"
	done
	rt_wait
	close_new 16
}

# one_source ADDRESS SERVER: with a prefix all of the attacker's addresses are one source, and
# ADDRESS is another.
one_source()
{
	wait_for 30 full handshakes_per_source
	[ "$(quota handshakes current)" -le 8 ]
	open_soon 1 "$@"
	close_new 1
	not dmesg_has 'gave way'
}

# come_and_go COUNT: print how many sessions got in.
come_and_go()
{
	local i in=0

	for ((i = 0; i < $1; i++)); do
		if rt open name=comes path="ip:$ELSEWHERE@ip:10.9.0.1" 2>/dev/null; then
			in=$((in + 1))
			rt close name=comes
		fi
	done
	echo "$in"
}

# Sixteen at once, then one per second; clients from other addresses have rates of their own.
limited()
{
	local t0 in most i others=0

	t0=$(ms_now)
	in=$(come_and_go 60)
	most=$((16 + ($(ms_now) - t0) / 1000 + 1))
	echo "$in of 60, $most allowed"
	[ "$in" -ge 16 ] && [ "$in" -le "$most" ]
	[ "$in" -lt 60 ] || late "they came at a lower rate"
	dmesg_has 'too many paths in short time'
	# More than come in that time at the rate of one; but one in 256 shares its rate with this one.
	for ((i = 0; i < 8; i++)); do
		! open_soon 1 "10.9.64.$i" || {
			others=$((others + 1))
			close_new 1
		}
	done
	[ "$others" -ge 7 ]
	# The allowance recovers with time.
	wait_for 10 eval "[ \$(come_and_go 1) = 1 ]"
}

not_limited()
{
	local in

	in=$(come_and_go 100)
	echo "$in of 100"
	[ "$in" = 100 ]
}

must "soft RoCE comes up" rxe_up rxe0 10.9.0.1/16 "$HERE/16" "$ELSEWHERE/16" fd09::1/64 "$HERE6/64"
defer rxe_down rxe0
peer_require
must "with $SOURCES addresses more" addresses add 4
resource_snapshot
defer unload_modules

must "modules load" load max_handshakes=256
crowd 20000 1
check "a crowd has all handshakes" wait_for 60 full handshakes
check "newcomers connect, one after the other" served handshakes
check "and at once" under_attack handshakes at_once
check "the crowd goes" crowd_goes
check "the modules unload" unload_modules

must "modules load for few sessions" load max_sessions=256
crowd 20000 2
check "a crowd has all sessions" wait_for 60 full sessions
check "newcomers have theirs" served sessions
check "the crowd goes again" crowd_goes
check "the modules unload again" unload_modules

# Two hosts have all the memory, by many connections of handshakes that they renew.
must "modules load for little memory" load sess_queue_depth=512 max_chunk_size=8192 \
	max_memory=256 max_memory_per_source=200
crowd 20000 4 2 --cons 9
check "two hosts have all memory" wait_for 60 full memory
check "newcomers have their part" served memory 8
check "the two go" crowd_goes
check "all memory is free then" wait_for 40 in_use memory 0
check "the modules unload without them" unload_modules

must "modules load with RNBD" eval "load_rtrs rust both session_linger=600 max_memory=16384 \
	handshake_timeout_ms=$((60000 * RTRS_TIME_SCALE)) max_handshakes=256 && load_rnbd server"
crowd 20000 5
check "there is a crowd of handshakes" wait_for 60 full handshakes
check "a client that has crashed gets in again" under_attack handshakes crashed
check "the crowd ends" crowd_ends
check "the modules unload with RNBD" unload_modules

must "modules load for sessions that are kept" load session_linger=600 max_sessions=16
check "sessions that are kept do not keep others out" kept_give_way
check "sessions with a path do" live_stay
check "the modules unload with kept sessions" unload_modules

# Handshakes must be in time here, however slow the machine is.
must "modules load for sessions of many hosts" load session_linger=600 max_sessions=16 \
	handshake_timeout_ms=$((100000 * RTRS_TIME_SCALE))
check "those that were up for a moment do not keep others out" kept_of_many_give_way
check "nor do newcomers end each other while there are such" not_each_other
check "the modules unload with those" unload_modules
must "modules load for sessions that were up for longer" load session_linger=600 max_sessions=16
check "those are kept for as long" kept_of_many_stay
check "the modules unload with sessions of many hosts" unload_modules

must "modules load with a prefix" load max_handshakes_per_source=8 source_prefix_v4=24
crowd 20000 3
check "addresses that begin alike are one source" one_source "$HERE" 10.9.0.1
check "the crowd goes once more" crowd_goes
check "a hundred that come and go are let in" not_limited
check "the modules unload once more" unload_modules

must "modules load with a limit" load max_starts_per_source=1
check "paths of one source are started at a rate" limited
check "all was given back" wait_for 10 in_use memory 0
check "the modules unload with a limit" unload_modules

must "the attacker has as many addresses of IPv6" addresses_of_v6
must "modules load with the prefix of IPv6 that is the default" load max_handshakes_per_source=8
crowd6 20000 6
check "addresses of a network are one source" one_source "$HERE6" fd09::1
check "the crowd of IPv6 goes" crowd_goes
check "the modules unload at last" unload_modules
finish
