#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: min-latency uses the faster one of two paths, and notices when the other one becomes faster
# topology: pair
# timeout: 150
# seconds: 40

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
require fio rdma tc

SESS=$CLT/latency
# Milliseconds that the slow link adds: long beside all other delays.
DELAY=200

path() { printf 'ip:%s@ip:%s\n' "$(pair_addr "$1" client)" "$(pair_addr "$1" server)"; }
dir() { path_dir latency "$(path "$1")"; }
map() { map_rnbd latency /dev/nullb0 "$(path 0)" "$(path 1)" >"$TMP/dev"; }
dev() { cat "$TMP/dev"; }

# latency LINK: average latency of the path, in milliseconds.
latency() { awk '{ printf "%d\n", $1 / 1000000 }' "$(dir "$1")/request_latency"; }

# slow LINK: make LINK the slow one, and the other one fast.
slow()
{
	tc qdisc change dev "eth$1" root netem limit 10000 delay "${DELAY}ms"
	tc qdisc change dev "eth$((1 - $1))" root netem limit 10000 delay 0
}

# links_ready: must come before RDMA traffic, as drops_ready.
links_ready()
{
	local n

	modprobe -q sch_netem
	for n in 0 1; do
		tc qdisc add dev "eth$n" root netem limit 10000 || return
	done
}

# noticed LINK: is the path's average above the other one's by more than half of the delay?
noticed() { [ "$(latency "$1")" -gt $(($(latency $((1 - $1))) + DELAY / 2)) ]; }

# avoided LINK: send one request after the other; hardly any goes over that path.
avoided()
{
	local -a before=("$(path_ios "$(dir 0)")" "$(path_ios "$(dir 1)")")
	local slow fast

	fio --name=one --filename="/dev/$(dev)" --direct=1 --ioengine=libaio --rw=randrw --bs=4k --iodepth=1 \
		--size=32M --time_based --runtime=$((3 * RTRS_TIME_SCALE)) --output=/dev/null
	slow=$(($(path_ios "$(dir "$1")") - ${before[$1]}))
	fast=$(($(path_ios "$(dir $((1 - $1)))") - ${before[$((1 - $1))]}))
	echo "$fast requests went over the fast path ($(latency $((1 - $1))) ms), $slow over the slow one ($(latency "$1") ms)"
	[ "$fast" -gt 20 ] || late "they are too few to tell"
	[ $((slow * 10)) -lt "$fast" ]
}

server_role() { serve_disk 64 150; }

client_role()
{
	must "links can be made slow" links_ready
	client_ready
	must "a device maps over both links" map
	write "$SESS/mpath_policy" min-latency
	# Heartbeats measure a path without requests.
	write "$SESS/heartbeat_interval_ms" $((200 * RTRS_TIME_SCALE))
	check "one link gets slow" slow 1
	check "its path is known to be" wait_for 30 noticed 1
	check "it is not taken" avoided 1
	ktap_log "$TMP/case.log" 1
	check "the other link gets slow instead" slow 0
	check "its path is known to be" wait_for 30 noticed 0
	check "it is not taken, but the first one" avoided 0
	ktap_log "$TMP/case.log" 1
	check "the device unmaps" unmap_rnbd "$(dev)"
	check "the client modules unload" unload_modules
	barrier unmapped
}

pair_main
