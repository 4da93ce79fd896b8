#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: connections of a path are made at the same time: nearly twice as many take no longer
# topology: pair
# timeout: 120
# seconds: 40
# smp: 4

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
require rdma tc

# A timeout so long that a slow link alone does not cause a packet to be sent again.
export RTRS_ACK_TIMEOUT=20
# Milliseconds that a message to the server takes: long beside all other steps.
DELAY=$((400 * (RTRS_TIME_SCALE > 1 ? 3 : 1)))
CPUS=$(nproc)

path() { printf 'ip:%s@ip:%s\n' "$(pair_addr "$1" client)" "$(pair_addr "$1" server)"; }

# One session with a connection for each CPU, and one with as many again, for polling.
map()
{
	map_rnbd few /dev/nullb0 "$(path 0)" >"$TMP/few"
	map_rnbd many /dev/nullb1 "$(path 0)" nr_poll_queues="$CPUS" >"$TMP/many"
}

unmap()
{
	unmap_rnbd "$(cat "$TMP/few")"
	unmap_rnbd "$(cat "$TMP/many")"
}

slow_down()
{
	tc qdisc replace dev eth1 root netem delay "${DELAY}ms"
	# The time to resolve addresses must not be part of the measurement.
	neighbour_retrans 1 $((2 * DELAY))
	ping -c 1 -W 5 -q "$(pair_addr 1 server)"
}

# connect SESSION CONNECTIONS: write the fastest of three times to $TMP/SESSION.ms, in milliseconds.
connect()
{
	local i t0 ms n best=1000000

	for ((i = 0; i < 3; i++)); do
		t0=$(ms_now)
		write "$CLT/$1/add_path" "$(path 1)"
		ms=$(($(ms_now) - t0))
		n=$(awk -v sess="$1" -v dst="ip:$(pair_addr 1 server)" '$10 == sess && $7 == dst' \
			/sys/kernel/debug/rtrs_client/connections | wc -l)
		echo "$n connections in $ms ms"
		[ "$n" -eq "$2" ]
		[ "$ms" -ge "$best" ] || best=$ms
		write "$(path_dir "$1" "$(path 1)")/remove_path" 1
	done
	echo "$2 connections: $best ms"
	echo "$best" >"$TMP/$1.ms"
}

# If connections were made one after the other, each would add at least the time of a message.
compare()
{
	local few many
	few=$(cat "$TMP/few.ms")
	many=$(cat "$TMP/many.ms")

	echo "$few ms and $many ms"
	[ "$few" -ge "$DELAY" ]
	[ $((many - few)) -lt $((CPUS * DELAY / 2)) ] || late "as many again take longer"
}

server_role()
{
	must "a second null_blk" null_blk_up nullb1 64
	defer null_blk_down nullb1
	serve_disk 64 100
}

client_role()
{
	modprobe -q sch_netem
	client_ready
	must "devices map" map
	check "one link gets slow" slow_down
	defer tc qdisc delete dev eth1 root
	check "a connection for each CPU" connect few $((1 + CPUS))
	ktap_log "$TMP/case.log" 1
	check "as many again" connect many $((1 + 2 * CPUS))
	ktap_log "$TMP/case.log" 1
	check "they take about as long" compare
	check "devices unmap" unmap
	check "the client modules unload" unload_modules
	barrier unmapped
}

pair_main
