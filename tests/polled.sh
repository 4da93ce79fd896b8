#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: polled IO uses connections of its own, and completes even if nothing polls
# topology: single
# timeout: 240
# alone: yes

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/testmod.sh"
. "$RTRS_LIB/observe.sh"
require fio

CPUS=$(nproc)
DEBUG=/sys/kernel/debug/rtrs_client
EVENTS=(rtrs_clt/rtrs_clt_issue rtrs_clt/rtrs_clt_complete)
PATHS=("ip:10.9.0.2@ip:10.9.0.1" "ip:10.9.0.3@ip:10.9.0.1")
# Microseconds after a poll for which the client certainly treats a CPU as one that polls; the
# client's own value is 5 ms.
HOT_US=4000

map() { map_rnbd polled /dev/nullb0 "$@" nr_poll_queues="$CPUS" >"$TMP/dev"; }

# One service connection, one for each CPU, and one for each polled queue; on a path that is added
# later as well, where mainline makes no polled ones.
connections()
{
	local n
	write /sys/class/rtrs-client/polled/add_path "${PATHS[1]}"
	for n in 2 3; do
		grep -c "ip:10.9.0.$n .* polled " "$DEBUG/connections" >"$TMP/n"
		[ "$(cat "$TMP/n")" -eq $((1 + 2 * CPUS)) ] || {
			cat "$DEBUG/connections"
			return 1
		}
	done
}

# polled_fio ARGS...: write four numbers to $TMP/counts: requests on polled connections; requests
# that fio submitted on a CPU where it had just got an answer by polling; how many of these went out
# on other connections; all requests.
polled_fio()
{
	mountpoint -q "$TRACE" || mount -t tracefs tracefs "$TRACE"
	echo 8192 >"$TRACE/buffer_size_kb"
	echo 'comm == "fio"' >"$TRACE/events/rtrs_clt/rtrs_clt_complete/filter"
	trace_begin "${EVENTS[@]}"
	fio --name=polled --filename="/dev/$(cat "$TMP/dev")" --direct=1 --bs=4k --size=4M \
		--randrepeat=1 "$@" >"$TMP/fio" 2>&1 || {
		cat "$TMP/fio"
		echo "IO failed, or did not verify"
		return 1
	}
	trace_end "${EVENTS[@]}"
	# "  <...>-123   [001] ...1.    56.789012: rtrs_clt_issue: sess=polled path=... cid=3 ..."
	awk -v first=$((CPUS + 1)) -v hot=$HOT_US '/rtrs_clt_(issue|complete): / {
		match($0, /cid=[0-9]+/)
		on_polled = substr($0, RSTART + 4, RLENGTH - 4) + 0 >= first
		match($0, /\[[0-9]+\]/)
		cpu = substr($0, RSTART, RLENGTH)
		match($0, /[0-9]+\.[0-9]+: rtrs_clt/)
		us = substr($0, RSTART, RLENGTH) * 1000000
		match($0, /-[0-9]+ +\[/)
		pid = substr($0, RSTART + 1) + 0
	}
	/rtrs_clt_complete: / && on_polled { last[cpu] = us; fio[pid] }
	/rtrs_clt_issue: / {
		all++
		polled += on_polled
		if (pid in fio && cpu in last && us - last[cpu] < hot) {
			sure++
			missed += !on_polled
		}
	} END { print polled + 0, sure + 0, missed + 0, all + 0 }' "$TRACE/trace" >"$TMP/counts"
}

# The client does not know that a poller's first request will be polled, nor does it after the
# emulated CPU was away for longer than a poll is remembered. So only requests that come in time
# have to be on polled connections. One in four may have been delayed between the poll and the
# event: with three busy loops on each processor of the host one in ten was.
carried()
{
	local polled sure missed all
	polled_fio "$@"
	read -r polled sure missed all <"$TMP/counts"
	echo "$polled of $all requests on polled connections; missed $missed of $sure that had to be"
	[ "$all" -ge 1000 ]
	[ "$sure" -ge 100 ]
	[ $((missed * 4)) -le "$sure" ]
}

verified() { polled_fio --rw=randwrite --verify=crc32c --verify_fatal=1 "$@"; }

not_polled()
{
	local polled all
	polled_fio --rw=randread --ioengine=libaio --iodepth=4
	read -r polled _ _ all <"$TMP/counts"
	[ "$all" -ge 1000 ]
	[ "$polled" -eq 0 ]
}

# A path goes while there are polled requests on it.
failover()
{
	local i
	# Each job has its own blocks: a block that one job reads while another writes it would not
	# verify.
	verified --ioengine=io_uring --hipri --numjobs=2 --offset_increment=4M --time_based --runtime=6 >"$TMP/failover" 2>&1 &
	for ((i = 0; i < 3; i++)); do
		sleep 1
		write "/sys/class/rtrs-client/polled/paths/${PATHS[i % 2]}/reconnect" 1
	done
	wait $! || {
		cat "$TMP/failover"
		return 1
	}
	[ "$(awk '{ n += $5 } END { print n }' /sys/class/rtrs-client/polled/paths/*/stats/rdma)" -eq 0 ]
}

cpu1() { echo "$1" >/sys/devices/system/cpu/cpu1/online; }

# The block layer waits for the requests in a queue before the queue's last CPU goes.
cpus_go()
{
	local i
	verified --ioengine=io_uring --hipri --numjobs=2 --offset_increment=4M --time_based --runtime=6 >"$TMP/cpus" 2>&1 &
	for ((i = 0; i < 4; i++)); do
		sleep 0.7
		cpu1 0
		sleep 0.5
		cpu1 1
	done
	wait $! || {
		cat "$TMP/cpus"
		return 1
	}
	[ "$(awk '{ n += $5 } END { print n }' /sys/class/rtrs-client/polled/paths/*/stats/rdma)" -eq 0 ]
}

# The same for a path that was made while the CPU was away.
without_a_cpu()
{
	cpu1 0
	write "/sys/class/rtrs-client/polled/paths/${PATHS[0]}/reconnect" 1
	carried --rw=randread --ioengine=io_uring --hipri
}

# Draining a polled queue takes no longer than draining another one.
quick()
{
	local t0 ms
	t0=$(date +%s%N)
	unmap_rnbd "$(cat "$TMP/dev")"
	ms=$((($(date +%s%N) - t0) / 1000000))
	echo "unmapped in $ms ms"
	[ "$ms" -lt $((2000 * RTRS_TIME_SCALE)) ] || late "that is too long"
}

# Nothing ever polls: the guard finds completed requests.
unattended()
{
	rt serve
	rt open name=guarded path=ip:10.9.0.1 poll=2
	rt io name=guarded con=polled queue=0 count=200 depth=8 seed=1
	rt io name=guarded con=polled queue=1 dir=read count=200 depth=8 seed=2
	rt io name=guarded con=polled queue=7 count=100 depth=1 seed=3
}

must "soft RoCE comes up" rxe_up rxe0 10.9.0.1/24 10.9.0.2/24 10.9.0.3/24
defer rxe_down rxe0
must "a null_blk" null_blk_up nullb0 64
defer null_blk_down nullb0
resource_snapshot
defer unload_modules
must "modules load" load_modules rust
must "a device with polled queues maps" map "${PATHS[0]}"
check "every path has polled connections" connections
check "polled reads go out on them" carried --rw=randread --ioengine=io_uring --hipri
check "so do several at a time" carried --rw=randread --ioengine=io_uring --hipri --iodepth=4
check "what is not polled does not" not_polled
check "polled IO verifies" verified --ioengine=io_uring --hipri
check "and does so when paths go and come back" failover
check "and when CPUs go and come back" cpus_go
check "while one is away as well" without_a_cpu
cpu1 1
check "and once it is back" verified --ioengine=io_uring --hipri --cpus_allowed=1
check "the device unmaps at once" quick
must "modules unload" unload_modules
must "modules load with a user of the Rust API" load_test
check "polled requests that nobody polls for complete" unattended
check "modules unload again" unload_modules
finish
