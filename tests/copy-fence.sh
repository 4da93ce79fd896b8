#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: a path ends under load: its requests wait before they are sent again to mainline's server, but not to the Rust one; no path comes before those that failed are over
# topology: pair
# timeout: 240
# seconds: 100

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
. "$RTRS_LIB/observe.sh"
require fio rdma

# Nanoseconds that the disk takes: so many that the first requests of a load are in flight from when
# they are seen until the path has ended, on a slow machine as well. null_blk gives up after 5 s.
SLOW=$(((RTRS_TIME_SCALE > 1 ? 4000 : 3000) * 1000000))
# Milliseconds: the default of the parameter, and the limit for the Rust server.
FENCE=1000
# The same for a request that the disk ends earlier, after which mainline's server takes all paths.
LONG=$((SLOW / 1000000 + 3000))
SOON=$((FENCE * RTRS_TIME_SCALE / 2))
EVENTS=(rtrs_clt/rtrs_clt_failover rdma_cma/cm_qp_destroy)

path() { printf 'ip:%s@ip:%s\n' "$(pair_addr "$1" client)" "$(pair_addr "$1" server)"; }
dir() { path_dir fence "$(path "$1")"; }
map() { map_rnbd fence /dev/nullb0 "$(path 0)" "$(path 1)" >"$TMP/dev"; }
dev() { cat "$TMP/dev"; }

busy() { [ "$(path_count "$(dir 1)" 5)" -ge 4 ]; }

# end_path: end a path while the first requests of the load are in flight there; write to $TMP/ms how
# long they waited, in milliseconds, and how many there were.
end_path()
{
	wait_for 30 busy
	write "$(dir 1)/disconnect" 1
	trace_end "${EVENTS[@]}"
	grep -v '^#' "$TRACE/trace" | sed -E 's/^.* ([0-9.]+): ([a-z_]+): .*/\1 \2/' >"$TMP/steps"
	cat "$TMP/steps"
	awk '$2 == "cm_qp_destroy" { t0 = $1 }
		$2 == "rtrs_clt_failover" { if (!n++) ms = ($1 - t0) * 1000 }
		END { printf "%d %d\n", ms, n }' "$TMP/steps" >"$TMP/ms"
	[ "$(nth "$TMP/ms" 2)" -ge 4 ]
}

no_io_failed()
{
	load_is_fine
	nothing_in_flight fence
	no_io_error
	echo "$(nth "$TMP/ms" 2) requests were held back for $(nth "$TMP/ms" 1) ms; the longest took $(load_stall) ms"
}

held_back() { [ "$(nth "$TMP/ms" 1)" -ge "$FENCE" ]; }
not_held_back() { [ "$(nth "$TMP/ms" 1)" -lt "$SOON" ] || late "$(nth "$TMP/ms" 1) ms"; }

carries() { [ "$(path_count "$(dir 0)" 5)" -gt 0 ]; }

# A request that fails is not held back. But no path comes up before its first copy can be over, as the
# next request may have its chunk.
fails_behind()
{
	local t0 failed up rc=0

	write "$CLT/fence/fast_io_fail_tmo" 0
	write "$(dir 1)/disconnect" 1
	dd if="/dev/$(dev)" of=/dev/null bs=4k count=1 iflag=direct status=none 2>"$TMP/dd" &
	wait_for 5 carries
	t0=$(ms_now)
	write "$(dir 0)/disconnect" 1
	wait "$!" || rc=$?
	failed=$(($(ms_now) - t0))
	write "$(dir 1)/reconnect" 1
	up=$(($(ms_now) - t0))
	cat "$TMP/dd"
	echo "the request failed after $failed ms with status $rc, a path came up after $up ms"
	[ "$rc" != 0 ]
	[ "$up" -ge "$LONG" ]
	[ "$failed" -lt $((LONG / 2)) ] || late "$failed ms"
}

# towards SERVER CMD
towards()
{
	barrier "$1-listening"
	must "$1: a device maps over both links" map
	write "$CLT/fence/mpath_policy" round-robin
	trace_begin "${EVENTS[@]}"
	load_launch "$(dev)"
	check "$1: a path ends" end_path
	load_stop
	check "$1: no IO failed" no_io_failed
	# Mainline's server takes it again only when the disk has finished the requests of the old one.
	check "$1: the path comes back" write "$(dir 1)/reconnect" 1
	ktap_log "$TMP/case.log" 1
	check "$1: ${2//_/ }" "$2"
	check "$1: the device unmaps" unmap_rnbd "$(dev)"
}

# fails_towards NAME
fails_towards()
{
	must "$1: a device maps for requests that fail" map
	check "$1: they are not waited for, but paths are held back" fails_behind
	ktap_log "$TMP/case.log" 1
	check "$1: this device unmaps" unmap_rnbd "$(dev)"
	barrier "$1-done"
}

# serve NAME SERVER
serve()
{
	must "$1: server modules load" eval "load_rtrs $2 server && load_rnbd server"
	barrier "$1-listening"
	barrier "$1-done" 120
	check "$1: the server modules unload" unload_modules
}

server_role()
{
	must "a slow disk" null_blk_up nullb0 64 1 "$SLOW"
	defer null_blk_down nullb0
	serve rust rust
	serve c c
	serve again rust
}

client_role()
{
	must "client modules load" eval "load_rtrs rust client && load_rnbd client"
	towards rust not_held_back
	barrier rust-done
	towards c held_back
	check "the client modules unload" unload_modules
	CLIENT_PARAMS+=("copy_fence_ms=$LONG")
	must "they load with a longer fence" eval "load_rtrs rust client && load_rnbd client"
	fails_towards c
	barrier again-listening
	fails_towards again
	check "the client modules unload" unload_modules
}

pair_main
