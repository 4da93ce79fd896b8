#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: many shells hammer every file with sense and nonsense under load: another session is not affected, nothing is left behind
# topology: single
# timeout: 300
# alone: yes

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
require fio rdma

SECS=30
[ -z "${RTRS_LONG:-}" ] || SECS=120
SHELLS=4
P0=ip:10.9.0.1@ip:10.9.0.1
P1=ip:10.9.5.1@ip:10.9.5.1
# All texts that mean something to a session's files, except to give up for ever, which would be an
# error of its own.
WORDS=(0 1 1 1 2 -1 100 off 5 rr RR MI ML round-robin min-inflight min-latency $'1\n' $'0\n'
	"$P0" "$P1" ip:10.9.0.2@ip:10.9.0.1 ip:10.9.5.2@ip:10.9.5.1 ip:10.9.0.1 "ip:10.9.5.1,ip:10.9.5.1"
	ip:10.9.0.3@ip:10.9.0.1 ip:127.0.0.1@ip:10.9.0.1)

# Quotas that only new connections of a session meet.
QUOTAS=(/sys/module/rtrs_server/quotas/{paths_per_session,cons_per_path})

# The shells may take all processors for a while: that does not count as silence.
map_keep()
{
	map_rnbd keep /dev/nullb0 "$P0" "$P1" >"$TMP/keep"
	write "$CLT/keep/silent_path_ms" 30000
}
map_hammer() { map_rnbd hammer /dev/nullb1 "$P0" "$P1" >"$TMP/hammer"; }

# hammer_shell I: write to the files of the session, on both sides, and to the other files of the
# modules.
hammer_shell()
{
	printf '%s\n' "${WORDS[@]}" | "$RTRS_LIB/garbage.pl" hammer "$SECS" "$1" \
		"$CLT/hammer" "$SRV/hammer" /sys/module/rtrs_{core,client,server}/parameters \
		/sys/module/rtrs_server/stats "${QUOTAS[@]}" >"$TMP/results.$1"
}

# come_and_go END: open and close a session meanwhile, unless a quota prevents it.
come_and_go()
{
	while [ "$SECONDS" -lt "$1" ]; do
		write "$RNBD_CTL/map_device" "sessname=visitor path=$P0 path=$P1 device_path=/dev/nullb2" \
			2>"$TMP/visit" || {
			cat "$TMP/visit"
			grep -q "Too many users" "$TMP/visit" || return
			sleep 0.5
			continue
		}
		write "$(echo "$RNBD_CTL"/devices/*nullb2*)/rnbd/unmap_device" normal || return
		echo >>"$TMP/visits"
	done
}

read_tables()
{
	while [ "$SECONDS" -lt "$1" ]; do
		find /sys/kernel/debug/rtrs_client /sys/kernel/debug/rtrs_server -type f -exec cat {} + \
			>/dev/null 2>&1 || true
		rdma resource show qp >/dev/null
		sleep 0.5
	done
}

hammer()
{
	local i q pids=() pid rc=0 end=$((SECONDS + SECS))

	mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
	for q in "${QUOTAS[@]}"; do
		cat "$q/max"
	done >"$TMP/quotas"
	find "$CLT/hammer/" "$SRV/hammer/" /sys/module/rtrs_server/stats/ "${QUOTAS[@]}" -name power -prune -o \
		-type f -perm /222 ! -name uevent -printf '%f\n' | sort -u >"$TMP/writable"
	: >"$TMP/visits"
	for ((i = 0; i < SHELLS; i++)); do
		hammer_shell "$i" &
		pids+=($!)
	done
	come_and_go "$end" &
	pids+=($!)
	read_tables "$end" &
	pids+=($!)
	for pid in "${pids[@]}"; do
		wait "$pid" || rc=1
	done
	awk '{ n = $1; $1 = ""; sum[$0] += n } END { for (r in sum) print sum[r] r }' "$TMP"/results.* | sort -rn
	i=$(wc -l <"$TMP/visits")
	echo "$i sessions came and went"
	# A quota prevents most of them.
	[ "$i" -gt 0 ] || rc=1
	all_files_took_something
	return "$rc"
}

# all_files_took_something: every writable file has accepted at least one of the inputs, which are
# not all nonsense.
all_files_took_something()
{
	local f missing=

	while read -r f; do
		grep -qx "[0-9]* $f took it" "$TMP"/results.* || missing+=" $f"
	done <"$TMP/writable"
	echo "$(wc -l <"$TMP/writable") kinds of files; that took nothing:${missing:- none}"
	# The debug kernel is too slow to get to each file.
	[ -z "$missing" ] || [ "$RTRS_TIME_SCALE" -gt 1 ]
}

# Set the files in /sys as they were; then the session works.
recovers()
{
	local d was=()

	mapfile -t was <"$TMP/quotas"
	write "${QUOTAS[0]}/max" "${was[0]}"
	write "${QUOTAS[1]}/max" "${was[1]}"
	write "$CLT/hammer/max_reconnect_attempts" -1
	write "$CLT/hammer/fast_io_fail_tmo" 30
	write "$CLT/hammer/heartbeat_interval_ms" 5000
	write "$CLT/hammer/heartbeat_limit" 5
	write "$CLT/hammer/silent_path_ms" 800
	write "$CLT/hammer/ack_timeout" 0
	for d in "$CLT"/hammer/paths/*; do
		[ ! -e "$d" ] || write "$d/remove_path" 1
	done
	write "$CLT/hammer/add_path" "$P0"
	# It was connected, but may fail again on a slow machine.
	wait_for 20 has_words "$CLT/hammer/state" "connected 1/1"
	wait_for 20 usable "$(cat "$TMP/hammer")"
	# After the blocks that the load still writes.
	fio_verify "$(cat "$TMP/hammer")" 1M --offset=68M
}

undisturbed()
{
	load_is_fine
	nothing_in_flight keep
	has_words "$CLT/keep/state" "connected 2/2"
}

unmap_both() { unmap_rnbd "$(cat "$TMP/hammer")" && unmap_rnbd "$(cat "$TMP/keep")"; }

must "first soft RoCE comes up" rxe_up rxe0 10.9.0.1/24 10.9.0.2/24 10.9.0.3/24
defer rxe_down rxe0
must "second soft RoCE comes up" rxe_up rxe1 10.9.5.1/24 10.9.5.2/24
defer rxe_down rxe1
must "three disks" eval "null_blk_up nullb0 80 && null_blk_up nullb1 80 && null_blk_up nullb2 16"
defer null_blk_down nullb0
defer null_blk_down nullb1
defer null_blk_down nullb2
resource_snapshot
defer unload_modules
defer unmap_all_rnbd force

load() { load_rtrs rust both sess_queue_depth=64 && load_rnbd both; }

# Run once before the snapshot: kernel caches fill, and the disks allocate their memory at the first
# write.
once()
{
	local d

	for d in nullb0 nullb1; do
		dd if=/dev/zero of=/dev/$d bs=1M count=80 oflag=direct status=none
	done
	load
	map_keep
	map_hammer
	fio_verify "$(cat "$TMP/hammer")" 4M
	fio_verify "$(cat "$TMP/keep")" 4M
	unmap_both
	unload_modules
}
must "all of it once" once
must "a baseline of memory" memory_snapshot
must "modules load" load
must "a session to be left alone" map_keep
must "a session to be hammered" map_hammer
load_start "$(cat "$TMP/keep")" --iodepth=4
fio --name=hammered --filename="/dev/$(cat "$TMP/hammer")" --direct=1 --ioengine=libaio --rw=randrw --bs=4k \
	--iodepth=8 --size=64M --time_based --runtime=3600 --continue_on_error=all --error_dump=0 \
	--rate_iops=200 >"$TMP/fio.hammered" 2>&1 &
pid=$!
sleep 2
check "$SHELLS shells, $SECS s" hammer
ktap_log "$TMP/case.log" 40
check "the session can be put right" recovers
kill -INT "$pid"
wait "$pid"
load_stop
check "the other session did not notice: all IO succeeded and verified" undisturbed
note "$(load_rate) IO/s, the longest took $(load_stall) ms"
check "both unmap" unmap_both
check "the modules unload at once" unload_at_once
ktap_log "$TMP/case.log" 1
check "no resource left behind" resource_compare
check "no memory left behind" memory_compare 100
ktap_log "$TMP/case.log" 6
finish
