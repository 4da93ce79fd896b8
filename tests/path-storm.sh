#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: paths reconnect, disconnect, are removed and added all the time under verified load: no IO fails, nothing is left behind
# topology: single
# timeout: 400
# seconds: 105
# alone: yes

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
require fio rdma

# Seconds of each storm, paths added and removed, devices mapped and unmapped, and KiB that may be
# missing afterwards.
SECS=3 CYCLES=200 MAPS=32 LOST=6144
[ -z "${RTRS_LONG:-}" ] || SECS=6 CYCLES=1000 MAPS=100 LOST=16384
# On the debug kernel everything takes many times as long.
[ "$RTRS_TIME_SCALE" = 1 ] || SECS=6 CYCLES=60 MAPS=12 LOST=16384
# Where even that takes too long there are two storms, see below, and fewer cycles.
[ "$RTRS_TIME_SCALE" = 1 ] || [ -z "${RTRS_CORE:-}" ] || SECS=4 CYCLES=20 MAPS=4
# Shells that do so at a time.
SHELLS=4
# Limit in milliseconds for taking down a path. It waits for a grace period, but not for the peer.
TEAR_DOWN=$((3000 * RTRS_TIME_SCALE))
SESS=$CLT/storm
P0=ip:10.9.0.1@ip:10.9.0.1
P1=ip:10.9.5.1@ip:10.9.5.1

# A path of a slow machine may seem silent: that must not add to the storm.
map()
{
	map_rnbd storm /dev/nullb0 "$P0" >"$TMP/dev"
	write "$SESS/silent_path_ms" 30000
}
dev() { cat "$TMP/dev"; }

# until_time END CMD...: repeat CMD until END, by the shell's clock.
until_time()
{
	local end=$1
	shift

	while [ "$SECONDS" -lt "$end" ]; do
		"$@" || {
			echo "failed: $*"
			return 1
		}
	done
}

policies()
{
	timed_write "$SESS/mpath_policy" rr && sleep 0.2 &&
		timed_write "$SESS/mpath_policy" MI && sleep 0.2 &&
		timed_write "$SESS/mp_policy" 2 && sleep 0.2
}

reconnect() { timed_write "$(path_dir storm "$1")/reconnect" 1 && sleep 0.3; }

disconnect()
{
	timed_write "$(path_dir storm "$1")/disconnect" 1 && sleep 0.1 &&
		timed_write "$(path_dir storm "$1")/reconnect" 1 && sleep 0.2
}

remove()
{
	timed_write "$(path_dir storm "$1")/remove_path" 1 && sleep 0.1 &&
		timed_write "$SESS/add_path" "$1" && sleep 0.2
}

# swap: replace the only path with another one, and back.
swap()
{
	timed_write "$SESS/add_path" "$P1" && sleep 0.1 && remove "$P0" &&
		timed_write "$(path_dir storm "$P1")/remove_path" 1 && sleep 0.1
}

# reconnects PATH: how many times it came back.
reconnects() { cut -d ' ' -f 1 "$(path_dir storm "$1")/stats/reconnects"; }

# lose: the server ends the path. Requests in flight are lost; above, a grace period avoids that.
# The client waits a second, with jitter, and reconnects.
lose()
{
	local before
	before=$(reconnects "$1")
	timed_write "$SRV/storm/paths/$1/disconnect" 1 &&
		wait_for 20 eval "[ \$(reconnects '$1') -gt $before ]" &&
		wait_for 20 has_words "$(path_dir storm "$1")/state" connected &&
		wait_for 20 test -e "$SRV/storm/paths/$1/disconnect" && sleep 0.3
}

# one_after_another CMD: run CMD on one path, then on the other one.
one_after_another() { "$1" "$P0" && "$1" "$P1"; }

# storm CMD...: run CMD in a loop while the load runs and policies change.
storm()
{
	local pid rc=0 end=$((SECONDS + SECS))

	until_time "$end" policies &
	pid=$!
	until_time "$end" "$@" || rc=1
	wait "$pid" || rc=1
	return "$rc"
}

failovers()
{
	local d n=0

	for d in "$SESS"/paths/*; do
		n=$((n + $(path_count "$d" 6)))
	done
	echo "$n"
}

# weathered PATHS: check the result after the load.
weathered()
{
	load_is_fine
	nothing_in_flight storm
	has_words "$SESS/state" "connected $1/$1"
	times
	[ "$(longest disconnect)" -le "$TEAR_DOWN" ] || late "disconnecting took so long"
	[ "$(longest remove_path)" -le "$TEAR_DOWN" ] || late "removing took so long"
	[ "$(longest reconnect)" -le $((TEAR_DOWN * 2)) ] || late "reconnecting took so long"
}

# run NAME PATHS CMD...
run()
{
	local name=$1 paths=$2
	shift 2

	: >"$TMP/times"
	load_start "$(dev)"
	sleep 0.5
	check "$name: every command succeeds" storm "$@"
	load_stop
	check "$name: all IO succeeded and verified" weathered "$paths"
	note "$name: $(load_rate) IO/s, the longest took $(load_stall) ms; failed over: $(failovers)"
	times | sed 's/^/#   /'
}

# storms_of_one, storms_of_two: a storm of each kind.
storms_of_one()
{
	# reconnect.sh does much the same.
	[ -z "${RTRS_LONG:-}" ] || run "one path, reconnect" 1 reconnect "$P0"
	run "one path, disconnect and reconnect" 1 disconnect "$P0"
	run "one path, lost" 1 lose "$P0"
	run "one path, which another one takes the place of" 1 swap
}

storms_of_two()
{
	run "two paths, reconnect" 2 one_after_another reconnect
	run "two paths, disconnect and reconnect" 2 one_after_another disconnect
	run "two paths, remove and add" 2 one_after_another remove
}

# churn I N: add and remove a path of its own, N times.
churn()
{
	local p="ip:10.9.7.$(($1 + 1))@ip:10.9.0.1" i

	for ((i = 0; i < $2; i++)); do
		timed_write "$SESS/add_path" "$p" || return
		timed_write "$SESS/paths/$p/remove_path" 1 || return
	done
}

# maps I N: map and unmap a device of its own, N times.
maps()
{
	local i link="$RNBD_CTL/devices/!dev!nullb$1@maps$1"

	for ((i = 0; i < $2; i++)); do
		write "$RNBD_CTL/map_device" "sessname=maps$1 path=$P0 device_path=/dev/nullb$1" || return
		timed_write "$link/rnbd/unmap_device" normal || return
	done
	wait_for 10 test ! -e "$CLT/maps$1"
}

# shells CMD N: several shells share the N times.
shells()
{
	local i pids=() pid rc=0

	for ((i = 1; i <= SHELLS; i++)); do
		"$1" "$i" $(($2 / SHELLS)) &
		pids+=($!)
	done
	for pid in "${pids[@]}"; do
		wait "$pid" || rc=1
	done
	return "$rc"
}

# back_to_baseline N: no more memory and RDMA resources are in use than fewer than N leaked things
# would add.
back_to_baseline()
{
	wait_for 10 eval "resource_counts | cmp -s - '$TMP/resources.storm'" ||
		{
			diff <(resource_counts) "$TMP/resources.storm" || true
			echo "resources are left"
			return 1
		}
	memory_compare "$1" "$LOST"
}

set_baseline()
{
	wait_for 10 eval "[ \$(find $SRV/storm/paths/ -mindepth 1 -maxdepth 1 | wc -l) = $1 ]"
	sleep 1
	resource_counts >"$TMP/resources.storm"
	memory_snapshot
}

must "first soft RoCE comes up" rxe_up rxe0 10.9.0.1/24
defer rxe_down rxe0
must "second soft RoCE comes up" rxe_up rxe1 10.9.5.1/24
defer rxe_down rxe1
for ((i = 1; i <= SHELLS; i++)); do
	ip addr add 10.9.7.$((i + 1))/32 dev drxe0
	must "a disk for shell $i" null_blk_up "nullb$i" 16
	defer null_blk_down "nullb$i"
done
must "a disk" null_blk_up nullb0 128
defer null_blk_down nullb0
resource_snapshot
must "modules load" eval "load_rtrs rust both sess_queue_depth=64 && load_rnbd both"
defer unload_modules
defer unmap_all_rnbd
must "a device maps" map
if [ -n "${RTRS_CORE:-}" ]; then
	run "one path, disconnect and reconnect" 1 disconnect "$P0"
else
	storms_of_one
fi
must "a second path" write "$SESS/add_path" "$P1"
[ -n "${RTRS_CORE:-}" ] || storms_of_two
run "two paths, lost" 2 one_after_another lose
check "requests were failed over" [ "$(failovers)" -gt 0 ]

: >"$TMP/times"
check "paths come and go, to warm up" shells churn $((CYCLES < 100 ? CYCLES : 100))
check "devices, too" shells maps $((MAPS < 12 ? MAPS : 12))
must "a baseline of memory" set_baseline 2
: >"$TMP/times"
t0=$(ms_now)
check "$CYCLES paths are added and removed, $SHELLS at a time" shells churn "$CYCLES"
note "that took $(($(ms_now) - t0)) ms"
times | sed 's/^/#   /'
check "no memory and no resource was left behind" back_to_baseline $((CYCLES / 2))
ktap_log "$TMP/case.log" 8
: >"$TMP/times"
t0=$(ms_now)
check "$MAPS times a device is mapped and unmapped, $SHELLS at a time" shells maps "$MAPS"
note "that took $(($(ms_now) - t0)) ms"
check "no memory and no resource was left behind" back_to_baseline $((CYCLES / 2 + MAPS / 2))
ktap_log "$TMP/case.log" 8
check "no error in the kernel log" no_io_error
check "the device unmaps" unmap_rnbd "$(dev)"
check "the modules unload at once" unload_at_once
ktap_log "$TMP/case.log" 1
finish
