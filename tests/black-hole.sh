#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: one of two links drops all large packets: large requests on it do not wait for ever beside small ones, and after some losses its path is a last resort
# topology: pair
# timeout: 600
# seconds: 150

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
require fio rdma tc

SESS=$CLT/hole
# Number of losses without a consequence, see rtrs_client/logic/trial.rs; seconds of the first
# trial. Each trial is twice as long as the one before.
FREE=4
FIRST=8
# Seconds of the trial that is looked at; the kernel does not wait longer on a slow machine.
TRIAL=$((FIRST * (RTRS_TIME_SCALE > 2 ? 8 : 2)))

path() { printf 'ip:%s@ip:%s\n' "$(pair_addr "$1" client)" "$(pair_addr "$1" server)"; }
dir() { path_dir hole "$(path "$1")"; }
map() { map_rnbd hole /dev/nullb0 "$(path 0)" "$(path 1)" >"$TMP/dev"; }
dev() { cat "$TMP/dev"; }

# Drop packets of 1 KiB and more: soft RoCE splits 4 KiB of data into packets of at most that size.
hole()
{
	local match

	for match in "0x0400 0xfc00" "0x0800 0xf800" "0x1000 0xf000"; do
		# shellcheck disable=SC2086 # value and mask
		tc filter add dev eth1 ingress protocol ip u32 match u16 $match at 2 action drop || return
	done
}
no_hole() { no_drops 1; }

# Small reads on one processor are answered on either path, all the time.
small_start()
{
	fio --name=small --filename="/dev/$(dev)" --direct=1 --ioengine=libaio --rw=randread --bs=512 \
		--iodepth=2 --rate_iops=100 --cpus_allowed=0 --size=16M --time_based --runtime=3600 \
		--output-format=terse --terse-version=3 >"$TMP/small" 2>&1 &
	SMALL_PID=$!
}
small_stop()
{
	kill -INT "$SMALL_PID"
	# It says that it was interrupted.
	wait "$SMALL_PID" || [ "$?" = 128 ]
}
small_is_fine()
{
	cat "$TMP/small"
	[ "$(awk -F';' '/^3;/ { print $5 }' "$TMP/small")" = 0 ]
}

stuck() { dmesg | grep -c "hole $(path 1): connected: a connection is stuck" || true; }

# gets_stuck read|write: large requests on another processor are stuck on one path, are found out
# although small ones are answered there, and end over the other path. The data of reads are sent by
# the server, which may notice first. Data of 16 KiB have few enough segments to be written without
# a registration: soft RoCE repeats those that it has done when it sends again, and fails.
gets_stuck()
{
	local before lost
	before=$(stuck)
	lost=$(losses)

	fio --name="large-$1" --filename="/dev/$(dev)" --direct=1 --ioengine=libaio --rw="$1" --bs=16k \
		--iodepth=8 --size=1M --cpus_allowed=1 --group_reporting >"$TMP/large" 2>&1 &
	wait_for $((60 * RTRS_TIME_SCALE)) eval "! kill -0 $! 2>/dev/null" || {
		cat "/sys/kernel/debug/rtrs_client/requests"
		return 1
	}
	cat "$TMP/large"
	grep -q 'err= 0' "$TMP/large"
	[ "$(losses)" -gt "$lost" ]
	[ "$1" = read ] || [ "$(stuck)" -gt "$before" ]
}

# The only path connects, and does not carry large requests: they fail in the end, although it is
# lost for a moment only each time. Small ones do not.
only_path()
{
	local lost

	lost=$(losses)
	write "$SESS/fast_io_fail_tmo" $((10 * RTRS_TIME_SCALE))
	# Each link is given more time than the one before, and the fourth is not given up.
	write "$SESS/request_timeout_ms" $((2000 * RTRS_TIME_SCALE))
	write "$(dir 0)/disconnect" 1
	small_start
	fio --name=never --filename="/dev/$(dev)" --direct=1 --ioengine=libaio --rw=write --bs=16k \
		--iodepth=4 --size=64k --cpus_allowed=1 >"$TMP/never" 2>&1 &
	wait_for 90 eval "! kill -0 $! 2>/dev/null" || {
		cat "/sys/kernel/debug/rtrs_client/requests"
		return 1
	}
	not wait "$!"
	echo "lost $(($(losses) - lost)) times meanwhile"
	[ "$(losses)" -gt $((lost + 1)) ]
	dmesg_has "a request was lost again and again for $((10 * RTRS_TIME_SCALE)) s: it fails"
	small_stop
	small_is_fine
	write "$SESS/fast_io_fail_tmo" 180
	write "$(dir 0)/reconnect" 1
}

# The path is there again, with a new record.
reconnected()
{
	wait_for $((60 * RTRS_TIME_SCALE)) has_words "$SESS/state" "connected 2/2"
	write "$(dir 1)/reconnect" 1
	wait_for 20 has_words "$SESS/state" "connected 2/2"
}

trial() { awk '/^trial:/ { print $2 }' "$(dir "$1")/state_full"; }
on_trial() { [ "$(cat "$(dir 1)/state")" = connected ] && [ "$(trial 1)" -gt "$1" ]; }

carries()
{
	local before
	before=$(path_ios "$(dir "$1")")

	wait_for 20 eval "[ \$(path_ios '$(dir "$1")') -gt $((before + 20)) ]"
}

losses()
{
	dmesg_since_start >"$TMP/dmesg"
	grep -c "hole $(path 1): connected: " "$TMP/dmesg" || true
}

# The path connects, gets IO, and is lost, several times. The trial is checked once per heartbeat.
flaps()
{
	local losses

	wait_for 60 on_trial 3
	dmesg_has "lost $((FREE + 1)) times soon after it was connected: a last resort for"
	losses=$(($(losses) - LOST_BEFORE))
	echo "on trial after $losses losses, for $(trial 1) s more"
	[ "$losses" -ge $((FREE + 1)) ]
}

reconnects() { cut -d ' ' -f 1 "$(dir "$1")/stats/reconnects"; }

# The path gets no IO, and so stays connected. This is not the first trial, the rest of which may be
# short.
spared()
{
	local before other losses ios now

	wait_for 60 on_trial $((TRIAL - 4))
	before=$(path_ios "$(dir 1)")
	other=$(reconnects 0)
	losses=$(reconnects 1)
	carries 0
	sleep 2
	carries 0
	ios=$(path_ios "$(dir 1)")
	now=$(reconnects 1)
	# What was read holds for the trial only if that is not over.
	[ "$(trial 1)" -gt 0 ] || late "the trial was over before"
	# The server may have stood still for as long as requests may wait.
	[ "$(reconnects 0)" = "$other" ] || late "the other path was lost, too"
	[ "$ios" = "$before" ]
	[ "$now" = "$losses" ]
}

# The path on trial is used if it is the only one. This is still the same trial: without the hole no
# loss follows that could start another one.
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
	must "packets can be dropped" drops_ready 1
	must "one link has a hole" hole
	barrier listening
	barrier flapped 440
	check "it has taken packets" dropped_some
	check "the hole is mended" no_hole
	barrier mended
	barrier unmapped 120
	check "the server modules unload" unload_modules
}

client_role()
{
	must "packets can be dropped" drops_ready 1
	client_ready
	must "a device maps over both links" map
	write "$SESS/mpath_policy" round-robin
	# Soft RoCE does not give up on lost packets, and its heartbeats are small enough to pass.
	write "$SESS/heartbeat_interval_ms" $((500 * RTRS_TIME_SCALE))
	# Small requests are answered: a path that carries them is not silent, on a slow machine neither.
	write "$SESS/silent_path_ms" $((8000 * RTRS_TIME_SCALE))
	# Small requests must be answered that often.
	write "$SESS/request_timeout_ms" $((3000 * RTRS_TIME_SCALE))
	small_start
	check "large writes beside small requests do not wait for ever" gets_stuck write
	must "the path connects again" reconnected
	write "$SESS/heartbeat_interval_ms" $((3500 * RTRS_TIME_SCALE))
	check "nor with an interval of heartbeats that is longer than requests may take" gets_stuck write
	must "the path connects again" reconnected
	write "$SESS/heartbeat_interval_ms" $((500 * RTRS_TIME_SCALE))
	# Large answers do not come, the server's large answer in the handshake neither.
	must "the other direction has a hole, too" hole
	check "large reads beside small requests do not wait for ever" gets_stuck read
	check "it has taken packets" dropped_some
	must "that direction is well again" no_hole
	must "the path connects once more" reconnected
	small_stop
	check "the small requests succeeded" small_is_fine
	check "what its only path never carries fails in the end" only_path
	ktap_log "$TMP/case.log" 1
	must "both paths connect again" reconnected
	write "$SESS/request_timeout_ms" $((1000 * RTRS_TIME_SCALE))
	LOST_BEFORE=$(losses)
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
