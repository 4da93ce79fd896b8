#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: one of two links connects but drops all large packets: after some losses its path is a last resort, until the link is well
# topology: pair
# timeout: 300
# seconds: 75

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
require fio rdma tc

SESS=$CLT/hole
# Number of losses without a consequence, see rtrs_client/logic/trial.rs; seconds of the first
# trial. Each trial is twice as long as the one before.
FREE=4
FIRST=8

path() { printf 'ip:%s@ip:%s\n' "$(pair_addr "$1" client)" "$(pair_addr "$1" server)"; }
dir() { path_dir hole "$(path "$1")"; }
map() { map_rnbd hole /dev/nullb0 "$(path 0)" "$(path 1)" >"$TMP/dev"; }
dev() { cat "$TMP/dev"; }

# Drop packets of 1 KiB and more: soft RoCE splits 4 KiB of data into packets of at most that size.
hole()
{
	local match

	modprobe -qa sch_ingress cls_u32 act_gact
	tc qdisc add dev eth1 clsact || return
	for match in "0x0400 0xfc00" "0x0800 0xf800" "0x1000 0xf000"; do
		# shellcheck disable=SC2086 # value and mask
		tc filter add dev eth1 ingress protocol ip u32 match u16 $match at 2 action drop || return
	done
}
no_hole() { tc qdisc delete dev eth1 clsact 2>/dev/null || true; }

trial() { awk '/^trial:/ { print $2 }' "$(dir "$1")/state_full"; }
on_trial() { [ "$(cat "$(dir 1)/state")" = connected ] && [ "$(trial 1)" -gt "$1" ]; }

carries()
{
	local before
	before=$(path_ios "$(dir "$1")")

	wait_for 20 eval "[ \$(path_ios '$(dir "$1")') -gt $((before + 20)) ]"
}

# The path connects, gets IO, and is lost, several times. The trial is checked once per heartbeat.
flaps()
{
	local losses

	wait_for 60 on_trial 3
	dmesg_has "lost $((FREE + 1)) times soon after it was connected: a last resort for"
	dmesg_since_start >"$TMP/dmesg"
	losses=$(grep -c "hole $(path 1): connected: " "$TMP/dmesg")
	echo "on trial after $losses losses, for $(trial 1) s more"
	[ "$losses" -ge $((FREE + 1)) ]
}

# The path gets no IO, and so stays connected. This is the second trial, as the rest of the first
# one may be short.
spared()
{
	local before losses

	wait_for 60 on_trial $((2 * FIRST - 4))
	before=$(path_ios "$(dir 1)")
	losses=$(cut -d ' ' -f 1 "$(dir 1)/stats/reconnects")
	carries 0
	sleep 2
	carries 0
	[ "$(trial 1)" -gt 0 ] || late "the trial was over before"
	[ "$(path_ios "$(dir 1)")" = "$before" ]
	[ "$(cut -d ' ' -f 1 "$(dir 1)/stats/reconnects")" = "$losses" ]
}

# The path on trial is used if it is the only one. This is still the second trial: without the hole
# no loss follows that could start a third one.
last_resort()
{
	local rc=0 left

	on_trial 2 || late "the trial is nearly over"
	write "$(dir 0)/disconnect" 1
	carries 1 || rc=1
	left=$(trial 1)
	write "$(dir 0)/reconnect" 1
	wait_for 20 has_words "$SESS/state" connected
	[ "$rc" = 0 ]
	[ "$left" -gt 0 ] || late "the trial was over before"
}

dropped_some()
{
	tc -s filter show dev eth1 ingress
	tc -s filter show dev eth1 ingress | grep -E 'dropped [1-9]'
}

# The operator's reconnect ends the trial.
forgiven()
{
	write "$(dir 1)/reconnect" 1
	wait_for 20 has_words "$SESS/state" connected
	[ "$(trial 1)" = 0 ]
	carries 1
}

server_role()
{
	must "a memory-backed null_blk" null_blk_up nullb0 128
	defer null_blk_down nullb0
	must "server modules load" eval "load_rtrs rust server && load_rnbd server"
	defer no_hole
	must "one link has a hole" hole
	barrier listening
	barrier flapped 180
	check "it has taken packets" dropped_some
	check "the hole is mended" no_hole
	barrier mended
	barrier unmapped 120
	check "the server modules unload" unload_modules
}

client_role()
{
	client_ready
	must "a device maps over both links" map
	write "$SESS/mpath_policy" round-robin
	# Soft RoCE does not give up on lost packets, and its heartbeats are small enough to pass.
	write "$SESS/heartbeat_interval_ms" $((500 * RTRS_TIME_SCALE))
	write "$SESS/request_timeout_ms" $((1000 * RTRS_TIME_SCALE))
	load_start "$(dev)"
	check "a path that is lost again and again is on trial" flaps
	ktap_log "$TMP/case.log" 1
	check "it is spared" spared
	barrier flapped
	barrier mended
	check "it is taken if there is no other" last_resort
	check "the operator can end the trial" forgiven
	load_stop
	check "all IO succeeded and verified" load_is_fine
	check "the device unmaps" unmap_rnbd "$(dev)"
	check "the client modules unload" unload_modules
	barrier unmapped
}

pair_main
