#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: a path ends under load: requests go over the other one once the last queue pair is gone, and wait for nothing else
# topology: single
# timeout: 240
# seconds: 45
# smp: 4

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
. "$RTRS_LIB/observe.sh"
require fio rdma

# Nanoseconds that the disk takes: so many that the first requests of a load are not answered from
# when they are seen until the queues of the path are drained, on a slow machine as well. null_blk
# gives up after 5 s.
SLOW=$(((RTRS_TIME_SCALE > 1 ? 4000 : 3000) * 1000000))
# Connections of a path: one for each CPU, and the service connection.
CONS=$(($(nproc) + 1))
EVENTS=(rtrs_clt/rtrs_clt_close_conns rtrs_clt/rtrs_clt_failover rdma_cma/cm_qp_destroy
	rdma_cma/cm_id_destroy rdma_core/cq_free)
P0=ip:10.9.0.1@ip:10.9.0.1
P1=ip:10.9.5.1@ip:10.9.5.1

map() { map_rnbd order /dev/nullb0 "$P0" "$P1" >"$TMP/dev"; }
dev() { cat "$TMP/dev"; }
busy() { [ "$(path_count "$(path_dir order "$P1")" 5)" -ge 8 ]; }

# end_path: end the path as the operator while the first requests of the load are in flight there;
# write the steps of its owner task to $TMP/steps, as "event seconds" a line.
end_path()
{
	wait_for 30 busy
	write "$(path_dir order "$P1")/disconnect" 1
	trace_end "${EVENTS[@]}"
	# "kworker/u8:3-123 [001] ...1. 56.789012: cm_qp_destroy: cm.id=3 ...". The server ends its
	# side at the same time, in another task.
	grep -v '^#' "$TRACE/trace" | sed -E 's/^ *(.*-[0-9]+) +\[.* ([0-9.]+): ([a-z_]+): .*/\1 \3 \2/' >"$TMP/trace"
	awk '$2 == "rtrs_clt_close_conns" && !owner { owner = $1 } owner && $1 == owner { print $2, $3 }' \
		"$TMP/trace" >"$TMP/steps"
}

# count STEP [before|after]: number of these steps; with "before" those before the first request was
# sent again, with "after" those after the last one.
count()
{
	awk -v step="$1" -v where="${2:-}" '
		{ name[NR] = $1 }
		$1 == "rtrs_clt_failover" { if (!first) first = NR; last = NR }
		END {
			for (i = 1; i <= NR; i++)
				n += name[i] == step && (where == "" || where == "before" && i < first || where == "after" && i > last)
			print n + 0
		}' "$TMP/steps"
}

# after STEP: milliseconds from the beginning to the last of these steps.
after()
{
	awk -v step="$1" 'NR == 1 { t0 = $2 } $1 == step { t = $2 } END { printf "%.1f\n", (t - t0) * 1000 }' "$TMP/steps"
}

in_order()
{
	cat "$TMP/steps"
	# Some of the requests in flight are answered until the queues are drained.
	[ "$(count rtrs_clt_failover)" -ge 1 ]
	same "queue pairs destroyed before a request went on" "$(count cm_qp_destroy before)" "$CONS"
	same "queue pairs of the path" "$(count cm_qp_destroy)" "$CONS"
	same "ids destroyed before a request went on" "$(count cm_id_destroy before)" 0
	same "completion queues freed before a request went on" "$(count cq_free before)" 0
	same "ids destroyed after the last one" "$(count cm_id_destroy after)" "$CONS"
	same "completion queues freed after the last one" "$(count cq_free after)" "$CONS"
}

how_long()
{
	echo "$(count rtrs_clt_failover) requests went on after $(after rtrs_clt_failover) ms; all of the path was gone after $(after cm_id_destroy) ms"
}

no_io_failed()
{
	load_is_fine
	nothing_in_flight order
	no_io_error
	echo "the longest took $(load_stall) ms"
}

must "first soft RoCE comes up" rxe_up rxe0
defer rxe_down rxe0
must "second soft RoCE comes up" rxe_up rxe1 10.9.5.1/24 fd09:5::1/64
defer rxe_down rxe1
must "a slow disk" null_blk_up nullb0 64 1 "$SLOW"
defer null_blk_down nullb0
rnbd_up
must "a device maps over both" map
write "$CLT/order/mpath_policy" round-robin
trace_begin "${EVENTS[@]}"
load_launch "$(dev)" --numjobs=4 --iodepth=16 --size=12M --offset_increment=12M
check "a path is disconnected under load" end_path
how_long >"$TMP/case.log"
ktap_log "$TMP/case.log" 1
check "requests go on before the rest of it is gone" in_order
check "the path connects again" write "$(path_dir order "$P1")/reconnect" 1
load_stop
check "all IO succeeded and verified" no_io_failed
check "the device unmaps" unmap_rnbd "$(dev)"
finish
