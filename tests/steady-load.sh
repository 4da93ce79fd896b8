#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: verified load over 1, 2 and 4 paths, each policy, preempted anywhere, CPUs removed or taken by a real-time task, and the scheduler changed, also while IO waits for a path: no IO fails
# topology: single
# timeout: 300
# seconds: 100
# smp: 4
# append: preempt=full
# alone: yes

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
export RTRS_ACK_TIMEOUT=20
require fio rdma

# Seconds for each policy, with each number of paths.
SECS=2
[ -z "${RTRS_LONG:-}" ] || SECS=6
[ "$RTRS_TIME_SCALE" = 1 ] || SECS=6
SESS=$CLT/steady
PATHS=(
	ip:10.9.0.1@ip:10.9.0.1
	ip:10.9.5.1@ip:10.9.5.1
	ip:10.9.0.2@ip:10.9.0.2
	ip:10.9.5.2@ip:10.9.5.2
)

# No path is silent here for a fault of its own, but on a slow machine it may seem so.
map()
{
	map_rnbd steady /dev/nullb0 "${PATHS[0]}" >"$TMP/dev"
	write "$SESS/silent_path_ms" 30000
}
dev() { cat "$TMP/dev"; }

preempts_anywhere()
{
	mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
	if [ -e /sys/kernel/debug/sched/preempt ]; then
		cat /sys/kernel/debug/sched/preempt
		grep -qF '(full)' /sys/kernel/debug/sched/preempt
	else
		# On this kernel the preemption model cannot be chosen.
		uname -v
		uname -v | has ' PREEMPT '
	fi
}

# paths_are N: add paths until there are N.
paths_are()
{
	local p

	for p in "${PATHS[@]:0:$1}"; do
		[ -d "$SESS/paths/$p" ] || write "$SESS/add_path" "$p"
	done
	has_words "$SESS/state" "connected $1/$1"
}

# counts: one line for each path.
counts()
{
	local p

	for p in "${PATHS[@]}"; do
		[ ! -d "$SESS/paths/$p" ] || echo "$p $(path_ios "$SESS/paths/$p")"
	done
}

# under POLICY: does every path get IO, if the policy spreads it?
under()
{
	local want=50

	[ "$1" != min-latency ] || want=0
	write "$SESS/mpath_policy" "$1"
	counts >"$TMP/before"
	sleep "$SECS"
	wait_for 10 spread "$want"
	load_runs
}

# spread WANT: each path has had WANT requests, and all of them 200.
spread()
{
	counts >"$TMP/after"
	join "$TMP/before" "$TMP/after" | awk -v want="$1" '
		{ n = $3 - $2; print $1, n; sum += n; if (n < want) unused = 1 }
		END { exit unused || sum < 200 }'
}

# over N: check the load over N paths.
over()
{
	load_is_fine
	nothing_in_flight steady
	has_words "$SESS/state" "connected $1/$1"
	counts >"$TMP/after"
	# A path that was lost meanwhile would have caused requests to be sent again.
	join "$TMP/start" "$TMP/after" | awk -v dev="$(($(ios "$(dev)") - $(cat "$TMP/ios")))" '
		{ n = $3 - $2; print $1, n; sum += n }
		END { print "by the block device:", dev; exit sum != dev }'
}

load() { load_start "$(dev)" --numjobs=2 --offset_increment=64M --bssplit=4k/75:32k/25; }

# All CPUs but the first go, one after the other and then all together.
cpus_go()
{
	local c

	sleep 0.5
	for c in 1 2 3; do
		echo 0 >/sys/devices/system/cpu/cpu$c/online
		sleep 0.7
		echo 1 >/sys/devices/system/cpu/cpu$c/online
		sleep 0.3
	done
	for c in 1 2 3; do
		echo 0 >/sys/devices/system/cpu/cpu$c/online
	done
	sleep 2
	for c in 3 2 1; do
		echo 1 >/sys/devices/system/cpu/cpu$c/online
	done
	sleep 1
	load_runs
}

# A task of real-time priority has the CPU of the first connections: what is to run there waits for
# it. Other CPUs go on, and what was lost by that comes back.
hogged()
{
	local throttle=/proc/sys/kernel/sched_rt_runtime_us was before part="" rc=0
	local share=/sys/kernel/debug/sched/fair_server/cpu0/runtime

	was=$(cat "$throttle")
	write "$throttle" -1
	# What the scheduler leaves to others in any case.
	if [ -e "$share" ]; then
		part=$(cat "$share")
		write "$share" 0
	fi
	# shellcheck disable=SC2016 # for the inner shell
	taskset -c 0 chrt -f 50 bash -c 'end=$((SECONDS + $1)); while [ "$SECONDS" -lt "$end" ]; do :; done' \
		hog $((6 * RTRS_TIME_SCALE)) &
	sleep 1
	before=$(ios "$(dev)")
	fio_verify "$(dev)" 1M --offset=192M --cpus_allowed=3 || rc=1
	echo "$(($(ios "$(dev)") - before)) requests meanwhile"
	kill -0 "$!" || late "the CPU was free before"
	wait "$!"
	write "$throttle" "$was"
	[ -z "$part" ] || write "$share" "$part"
	[ "$rc" = 0 ]
	wait_for 20 has_words "$SESS/state" "connected 4/4"
	load_runs
}

# No request took longer than that, and what followed.
over_hog()
{
	load_is_fine
	nothing_in_flight steady
	at_most "$(load_stall)" $((10000 * RTRS_TIME_SCALE)) "a request"
	grep . "$SESS"/paths/*/stats/reconnects
}

# A path is made while a CPU is away.
connects_without_a_cpu()
{
	echo 0 >/sys/devices/system/cpu/cpu2/online
	write "$SESS/paths/${PATHS[1]}/reconnect" 1
	fio_verify "$(dev)" 1M
	echo 1 >/sys/devices/system/cpu/cpu2/online
	fio_verify "$(dev)" 1M --cpus_allowed=2
	has_words "$SESS/state" "connected 4/4"
}

#
# While IO waits for a path
#

cables() { ip link set drxe0 "$1" && ip link set drxe1 "$1"; }

# waiting CPU...: there is no path, and a write from each CPU waits for one. $TMP/end.CPU has its
# status in the end.
waiting()
{
	local c

	cables down
	wait_for 10 has_words "$SESS/state" disconnected
	rm -f "$TMP"/end.*
	for c; do
		(
			rc=0
			taskset -c "$c" dd if=/dev/urandom of="/dev/$(dev)" bs=4k count=1 seek="$c" \
				oflag=direct conv=notrunc status=none || rc=$?
			echo "$rc" >"$TMP/end.$c"
		) &
	done
	wait_for 20 wait_for_path "$#"
}

# wait_for_path N: exactly N requests have not ended.
wait_for_path() { [ "$(awk '{ print $1 + $2 }' "/sys/block/$(dev)/inflight")" = "$1" ]; }

# goes_on CPU...: the paths come back, and the writes succeed.
goes_on()
{
	local c

	wait_for_path "$#"
	cables up
	for c; do
		wait_for 20 test -s "$TMP/end.$c"
		[ "$(cat "$TMP/end.$c")" = 0 ]
	done
	wait_for 20 has_words "$SESS/state" "connected 4/4"
}

# late_write FILE TEXT: write TEXT to FILE in the background, which ends when no IO waits any more.
late_write()
{
	rm -f "$TMP/written"
	(
		rc=0
		write "$1" "$2" || rc=$?
		echo "$rc" >"$TMP/written"
	) &
	sleep 1
	not test -s "$TMP/written"
}
written()
{
	wait_for 10 test -s "$TMP/written"
	[ "$(cat "$TMP/written")" = 0 ]
}

# No IO of that CPU waits.
other_cpu_goes()
{
	local t0

	waiting 0 2 3
	t0=$(ms_now)
	echo 0 >/sys/devices/system/cpu/cpu1/online
	echo 1 >/sys/devices/system/cpu/cpu1/online
	at_most $(($(ms_now) - t0)) $((3000 * RTRS_TIME_SCALE)) "a CPU that goes and comes"
	goes_on 0 2 3
}

# The block layer takes a CPU away only when its IO has ended, and has CPU hotplug locked meanwhile:
# whatever needs that lock for a path would wait for ever.
own_cpu_goes()
{
	waiting 0 1 2
	late_write /sys/devices/system/cpu/cpu1/online 0
	goes_on 0 1 2
	written
	[ "$(cat /sys/devices/system/cpu/cpu1/online)" = 0 ]
	fio_verify "$(dev)" 1M
	echo 1 >/sys/devices/system/cpu/cpu1/online
	fio_verify "$(dev)" 1M --cpus_allowed=1
}

scheduler() { sed 's/.*\[\(.*\)\].*/\1/' "/sys/block/$(dev)/queue/scheduler"; }

# Changing it freezes the queue, which takes until no IO waits.
scheduler_changes()
{
	[ "$(scheduler)" != "$1" ]
	waiting 0 1
	late_write "/sys/block/$(dev)/queue/scheduler" "$1"
	goes_on 0 1
	written
	[ "$(scheduler)" = "$1" ]
	fio_verify "$(dev)" 1M
}

# It takes no longer than IO may wait.
ends_in_time()
{
	local c

	write "$SESS/fast_io_fail_tmo" $((10 * RTRS_TIME_SCALE))
	waiting 0 1
	late_write "/sys/block/$(dev)/queue/scheduler" mq-deadline
	for c in 0 1; do
		wait_for 20 test -s "$TMP/end.$c"
		[ "$(cat "$TMP/end.$c")" = 1 ]
	done
	written
	[ "$(scheduler)" = mq-deadline ]
	cables up
	wait_for 20 has_words "$SESS/state" "connected 4/4"
	wait_for 20 usable "$(dev)"
}

must "the kernel preempts anywhere" preempts_anywhere
must "first soft RoCE comes up" rxe_up rxe0 10.9.0.1/24 10.9.0.2/24
defer rxe_down rxe0
must "second soft RoCE comes up" rxe_up rxe1 10.9.5.1/24 10.9.5.2/24
defer rxe_down rxe1
must "a memory-backed null_blk" null_blk_up nullb0 256
defer null_blk_down nullb0
rnbd_up
must "a device maps" map
for n in 1 2 4; do
	must "paths: $n" paths_are "$n"
	counts >"$TMP/start"
	ios "$(dev)" >"$TMP/ios"
	load
	for policy in round-robin min-inflight min-latency; do
		check "paths: $n, policy: $policy: IO goes where it should" under "$policy"
	done
	load_stop
	check "paths: $n: all IO succeeded and verified, and was sent once" over "$n"
	note "paths: $n: $(load_rate) IO/s, the longest took $(load_stall) ms"
done
write "$SESS/mpath_policy" round-robin
counts >"$TMP/start"
ios "$(dev)" >"$TMP/ios"
load
check "CPUs go offline and come back under load" cpus_go
load_stop
check "all IO succeeded and verified, and was sent once" over 4
write "$SESS/silent_path_ms" 800
load
check "a real-time task takes a CPU for itself, and others go on" hogged
load_stop
check "all IO succeeded and verified, none took too long" over_hog
write "$SESS/silent_path_ms" 30000
check "a path connects while a CPU is offline" connects_without_a_cpu
check "a CPU goes while IO of others waits for a path" other_cpu_goes
check "a CPU goes while its own IO waits for a path" own_cpu_goes
modprobe -qa bfq
for sched in mq-deadline bfq none; do
	check "the scheduler becomes $sched while IO waits for a path" scheduler_changes "$sched"
done
check "no error in the kernel log" no_io_error
check "IO that waits too long fails, and the scheduler changes" ends_in_time
check "the device unmaps" unmap_rnbd "$(dev)"
finish
