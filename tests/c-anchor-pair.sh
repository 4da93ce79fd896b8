#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: mainline RTRS and RNBD in two kernels with two paths
# topology: pair
# timeout: 180
# seconds: 30

. "$(dirname "$0")/lib/common.sh"
require fio rdma

server_load() { load_rtrs c server && load_rnbd server; }
client_load() { load_rtrs c client && load_rnbd client; }

map()
{
	map_rnbd anchor /dev/nullb0 \
		"ip:$(pair_addr 0)@ip:$(pair_addr 0 server)" \
		"ip:$(pair_addr 1)@ip:$(pair_addr 1 server)" >"$TMP/dev"
}

two_paths()
{
	find /sys/class/rtrs-client/anchor/paths -mindepth 1 -maxdepth 1 -name 'ip:*' | tee "$TMP/paths"
	[ "$(wc -l <"$TMP/paths")" -eq 2 ]
	[ "$(cat /sys/class/rtrs-client/anchor/paths/*/state | sort -u)" = connected ]
}

# Mainline's client takes late requests for lost, and on a debug kernel requests are late. That says
# nothing about the Rust modules.
[ "$RTRS_TIME_SCALE" = 1 ] || skip_all "mainline's modules alone fail IO on a machine this slow"

io() { fio_verify "$(cat "$TMP/dev")" 4M; }

unmap() { unmap_rnbd "$(cat "$TMP/dev")"; }

server_role()
{
	must "a memory-backed null_blk" null_blk_up nullb0 256
	defer null_blk_down nullb0
	must "mainline server modules load" server_load
	barrier listening
	barrier unmapped 150
	check "the server modules unload" unload_modules
}

client_role()
{
	must "mainline client modules load" client_load
	barrier listening
	must "a device maps over two paths" map
	check "both paths are connected" two_paths
	check "fio writes and verifies" io
	check "the device unmaps" unmap
	check "the client modules unload" unload_modules
	barrier unmapped
}

pair_main
