#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: packets are lost, reordered and doubled on one of two paths, and on the only one: no IO fails, and no good path ends
# topology: pair
# timeout: 240
# seconds: 54

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
require fio rdma tc

# Soft RoCE does not only resend what was lost, it also registers memory again, and fails over that.
# So a path without a fault of its own may end here, and come back.
#
# What happens to packets, in each direction.
BAD=(loss 1% reorder 80% 50% delay 1ms duplicate 2%)
# Seconds of each load: some hundred requests, on a slow machine as well.
SECS=$((10 * RTRS_TIME_SCALE))
SESS=$CLT/loss

path() { printf 'ip:%s@ip:%s\n' "$(pair_addr "$1" client)" "$(pair_addr "$1" server)"; }
dir() { path_dir loss "$(path "$1")"; }
map() { map_rnbd loss /dev/nullb0 "$(path 0)" "$(path 1)" >"$TMP/dev"; }
dev() { cat "$TMP/dev"; }

bad() { tc qdisc replace dev eth1 root netem "${BAD[@]}"; }
good() { tc qdisc delete dev eth1 root 2>/dev/null || true; }
# dropped: number of packets that this side has lost.
dropped() { tc -s qdisc show dev eth1 | awk '/dropped/ { gsub(",", ""); print $7; exit }'; }

reconnects() { cut -d ' ' -f 1 "$(dir "$1")/stats/reconnects"; }

# carries N: does path N get IO?
carries()
{
	local before
	before=$(path_ios "$(dir "$1")")

	wait_for 20 eval "[ \$(path_ios '$(dir "$1")') -gt $((before + 20)) ]"
}

# Log the reasons for which paths were lost.
why()
{
	dmesg_since_start >"$TMP/dmesg"
	sed -n 's/.*rtrs_client: loss .*: connected: /lost: /p' "$TMP/dmesg" | sort | uniq -c
}

no_io_failed()
{
	load_is_fine
	nothing_in_flight loss
	no_io_error
	echo "$(load_rate) IO/s, the longest took $(load_stall) ms"
}

# The path without packet loss has not been lost.
well() { [ "$(reconnects 0)" = "$(cat "$TMP/reconnects")" ]; }

lost_some()
{
	local lost
	lost=$(($(dropped) - $(cat "$TMP/dropped")))

	echo "$lost packets were lost on the way there; $(reconnects 1) reconnects"
	why
	[ "$lost" -gt 20 ] || late "there was too little IO"
}

# over NAME: verified IO over the bad link.
over()
{
	dropped >"$TMP/dropped"
	load_start "$(dev)"
	sleep "$SECS"
	check "$1: the path carries IO" carries 1
	load_stop
	check "$1: all IO succeeded and verified" no_io_failed
	ktap_log "$TMP/case.log" 1
	check "$1: packets were lost" lost_some
	ktap_log "$TMP/case.log" 8
}

server_role()
{
	modprobe -q sch_netem
	defer good
	must "packets are lost on one link" bad
	serve_disk 128 150
}

client_role()
{
	modprobe -q sch_netem
	client_ready
	must "a device maps over both links" map
	defer good
	must "packets are lost on one link" bad
	write "$SESS/mpath_policy" round-robin
	# A slow machine may not answer for a while: that does not count as silence. A quarter of this
	# time without an answer makes the client ask, which brings back what was lost.
	write "$SESS/silent_path_ms" $((4000 * RTRS_TIME_SCALE))
	reconnects 0 >"$TMP/reconnects"
	over "one of two"
	check "the path that loses nothing has not ended" well
	check "the other one is all there is" write "$(dir 0)/remove_path" 1
	over "the only one"
	good
	check "the path is well again" carries_again
	check "the device unmaps" unmap_rnbd "$(dev)"
	check "the client modules unload" unload_modules
	barrier unmapped
}

carries_again()
{
	wait_for 20 has_words "$SESS/state" connected
	fio_verify "$(dev)" 2M
}

pair_main
