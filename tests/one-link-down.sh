#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: one of two cables is pulled under verified load, at either end, or server or client sleeps: how long IO stalls, none fails, the path comes back
# topology: pair
# timeout: 360

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
require fio rdma

# Soft RoCE does not only resend what was lost, it also registers memory again, and fails over that.
# That must not happen before the client finds the loss, nor on a good path.
export RTRS_ACK_TIMEOUT=20

# Limit in milliseconds for a request.
LIMIT=$((${RTRS_STALL_LIMIT:-2} * 1000 * RTRS_TIME_SCALE))
# Nanoseconds that the slow disk takes for a request.
SLOW=$((200 * 1000000))
# Time that a queue pair of soft RoCE may wait for a neighbour by default, see pair_up. Until then
# requests of the path are not sent again.
NEIGHBOUR=$((3000 * RTRS_TIME_SCALE))
# Milliseconds that a path may be silent: the usual time while a cable is pulled or a side sleeps,
# and otherwise so long that a slow machine cannot take a good path for a silent one.
SILENT=$((800 * RTRS_TIME_SCALE))
PATIENT=$((8000 * RTRS_TIME_SCALE))
SESS=$CLT/cables

path() { printf 'ip:%s@ip:%s\n' "$(pair_addr "$1" client)" "$(pair_addr "$1" server)"; }
# map DISK
map() { map_rnbd cables "/dev/$1" "$(path 0)" "$(path 1)" >"$TMP/dev"; }
dev() { cat "$TMP/dev"; }

silent_after() { write "$SESS/silent_path_ms" "$1"; }
state_is() { has_words "$SESS/state" "$1"; }

# carries N: does path N get IO?
carries()
{
	local d before
	d=$(path_dir cables "$(path "$1")")
	before=$(path_ios "$d")

	wait_for 20 eval "[ \$(path_ios '$d') -gt $((before + 20)) ]"
}

# used_again N: path N carries IO after its cable was put back.
used_again()
{
	local t0
	t0=$(ms_now)

	wait_for 20 state_is connected
	carries 1
	carries 0
	echo "used again after $(($(ms_now) - t0)) ms"
}

# silences: how many times the path was lost because it was silent.
silences()
{
	dmesg_since_start | grep -cF "cables $(path 1): connected: silent, unlike other paths" || true
}

# losses: how many times a path was lost, for any reason.
losses() { dmesg_since_start | grep -c 'rtrs_client: cables .*: connected: ' || true; }
no_losses() { [ "$(losses)" = "$1" ]; }

# Only silence shows that the cable at the other end was pulled.
was_silent() { [ "$(silences)" = $(($(cat "$TMP/silences") + 1)) ]; }

# Call it after the load was stopped.
no_io_failed()
{
	load_is_fine
	nothing_in_flight cables
}

# reconnects: of the path whose cable stays.
reconnects() { cut -d ' ' -f 1 "$(path_dir cables "$(path 0)")/stats/reconnects"; }

# stalls LIMIT: did every request complete within LIMIT?
stalls()
{
	local usual
	usual=$(cat "$TMP/usual")

	echo "the longest stall was $(load_stall) ms, at $(load_rate) IO/s; with both cables $usual ms"
	[ "$(reconnects)" = "$(cat "$TMP/reconnects")" ] || {
		echo "the other path failed as well"
		[ "$RTRS_TIME_SCALE" -gt 1 ] || return 1
		skip "the machine is too slow to measure"
	}
	[ "$(load_stall)" -lt "$1" ] || late "that is too long"
}

# usual_stall: the longest stall in a few undisturbed seconds.
usual_stall()
{
	load_start "$(dev)"
	sleep 4
	load_stop
	load_stall >"$TMP/usual"
}

# known: the session notices within the time of the heartbeats; print how long it took.
known()
{
	local t0
	t0=$(ms_now)

	wait_for 10 state_is degraded
	echo "known after $(($(ms_now) - t0)) ms"
}

# pull NAME GUEST LIMIT: pull the cable of the second link at GUEST, until 4 s after the client has
# noticed.
pull()
{
	local name=$1 guest=$2 limit=$3

	reconnects >"$TMP/reconnects"
	silences >"$TMP/silences"
	load_start "$(dev)"
	sleep 3
	check "$name: both paths carry IO" eval "carries 0 && carries 1"
	# From now on only the path that stays can be heard, and so cannot be taken for silent.
	silent_after "$SILENT"
	check "$name: the cable is pulled" vm_control link "$guest" 1 down
	check "$name: the session knows" known
	ktap_log "$TMP/case.log" 1
	[ "$guest" != server ] || check "$name: silence told it" was_silent
	silent_after "$PATIENT"
	sleep 4
	check "$name: the other path carries IO" carries 0
	check "$name: the cable is put back" vm_control link "$guest" 1 up
	check "$name: the path is used again" used_again
	ktap_log "$TMP/case.log" 1
	load_stop
	check "$name: all IO succeeded and verified" no_io_failed
	check "$name: no request took longer than $limit ms" stalls "$limit"
	ktap_log "$TMP/case.log" 2
}

# From now on use the slow disk, in the same session.
map_slow()
{
	local was
	was=$(dev)

	map nullb1
	unmap_rnbd "$was"
	# Reset the path that was lost so often: one more loss would put it on trial.
	write "$(path_dir cables "$(path 1)")/reconnect" 1
	wait_for 20 state_is connected
}

# asleep SECONDS: pause the whole server, so that no path gets an answer.
asleep()
{
	local before
	before=$(losses)

	load_start "$(dev)"
	sleep 2
	silent_after "$SILENT"
	check "asleep: the server is for $1 s" eval "vm_control pause server && sleep $1 && vm_control resume server"
	# A path would be found silent by now.
	sleep 1
	silent_after "$PATIENT"
	check "asleep: both paths carry IO" eval "carries 0 && carries 1"
	load_stop
	check "asleep: all IO succeeded and verified" no_io_failed
	ktap_log "$TMP/case.log" 2
	check "asleep: no path was lost" no_losses "$before"
}

# Milliseconds that the client stands still: longer than a path may be silent, and shorter than the
# server takes to give it up (25 s). Where time is not scaled, also shorter than soft RoCE waits for an
# acknowledgment (4.3 s).
STILL=$((3000 * (RTRS_TIME_SCALE > 1 ? 2 : 1)))

# The server pauses the client, for which time goes on meanwhile, and no answer has come.
client_asleep()
{
	local before
	before=$(losses)

	load_start "$(dev)"
	sleep 2
	silent_after "$SILENT"
	put asleep now
	get awake 60 >"$TMP/value"
	sleep 1
	silent_after "$PATIENT"
	check "asleep: both paths carry IO, after the client was" eval "carries 0 && carries 1"
	load_stop
	check "asleep: all IO succeeded and verified, of the client too" no_io_failed
	ktap_log "$TMP/case.log" 2
	check "asleep: the client stood still" stood_still
	check "asleep: it has lost no path" no_losses "$before"
	put recovered yes
}

stood_still()
{
	echo "the longest request took $(load_stall) ms"
	[ "$(load_stall)" -ge $((STILL - 500)) ]
}

server_role()
{
	must "a slow null_blk" null_blk_up nullb1 64 1 "$SLOW"
	defer null_blk_down nullb1
	must "a memory-backed null_blk" null_blk_up nullb0 128
	defer null_blk_down nullb0
	must "server modules load" eval "load_rtrs rust server && load_rnbd server"
	barrier listening
	get asleep 250 >"$TMP/value"
	# A path whose cable was out before is rightly lost by that.
	dmesg_mark
	check "asleep: the client is for $STILL ms" eval \
		"vm_control pause client && sleep $((STILL / 1000)) && vm_control resume client"
	put awake yes
	get recovered 60 >"$TMP/value"
	check "the server lost no path by that" not dmesg_has "heartbeat missed"
	barrier unmapped 250
	check "the server modules unload" unload_modules
}

client_role()
{
	client_ready
	must "a device maps over both links" map nullb0
	write "$SESS/mpath_policy" round-robin
	silent_after "$PATIENT"
	usual_stall
	pull client client "$LIMIT"
	# Here no event tells the client; only answers are missing.
	pull server server "$LIMIT"
	# Longer than a path may be silent, shorter than soft RoCE tolerates (see load_rtrs).
	asleep "$([ "$RTRS_TIME_SCALE" -eq 1 ] && echo 3 || echo 7)"
	client_asleep
	# The kernel's default: see pair_up.
	neighbour_retrans 1 1000
	pull "client, default neighbour timer" client $((LIMIT + NEIGHBOUR))
	neighbour_retrans 1 200
	# Requests at the disk were acknowledged: the device has nothing to send again.
	check "a slow disk maps over both links" map_slow
	usual_stall
	pull "server, slow disk" server "$LIMIT"
	check "the device unmaps" unmap_rnbd "$(dev)"
	check "the client modules unload" unload_modules
	barrier unmapped
}

pair_main
