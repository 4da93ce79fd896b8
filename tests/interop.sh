#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: Rust and mainline RTRS ends in two kernels, both ways, 2 paths, both invalidate modes
# topology: pair
# timeout: 600
# seconds: 70
# alone: yes

. "$(dirname "$0")/lib/common.sh"
require fio rdma

# Implementation of the client, of the server, and always_invalidate of the server.
CASES=${RTRS_INTEROP_CASES:-"rust:c:Y rust:c:N c:rust:Y c:rust:N"}

map()
{
	map_rnbd interop /dev/nullb0 \
		"ip:$(pair_addr 0)@ip:$(pair_addr 0 server)" \
		"ip:$(pair_addr 1)@ip:$(pair_addr 1 server)" >"$TMP/dev"
}

two_paths()
{
	local n
	n=$(find /sys/class/rtrs-client/interop/paths -mindepth 1 -maxdepth 1 -name 'ip:*' | wc -l)
	[ "$n" -eq 2 ] || {
		echo "$n paths"
		return 1
	}
	[ "$(cat /sys/class/rtrs-client/interop/paths/*/state | sort -u)" = connected ]
}

# Part of the data is enough; more bytes would not show more.
LESS=2
[ -z "${RTRS_LONG:-}" ] || LESS=1
# On the debug kernel everything takes many times as long.
[ "$RTRS_TIME_SCALE" = 1 ] || LESS=4

# io SIZE KIB: write blocks of SIZE, and read them back.
io() { fio_verify "$(cat "$TMP/dev")" $(($2 / LESS))k --bs="$1"; }
unmap() { unmap_rnbd "$(cat "$TMP/dev")"; }

server_case()
{
	local impl=$1 ai=$2 tag=$3
	load_rtrs "$impl" server "always_invalidate=$ai" && load_rnbd server || {
		echo "Bail out! $tag: server modules"
		barrier "$tag-listening"
		return
	}
	barrier "$tag-listening"
	barrier "$tag-done" 240
	check "$tag: the server modules unload" unload_modules
	check "$tag: the server leaves nothing behind" resource_compare
	barrier "$tag-next"
}

client_case()
{
	local impl=$1 tag=$2
	check "$tag: client modules load" eval "load_rtrs $impl client && load_rnbd client"
	barrier "$tag-listening"
	check "$tag: a device maps over two paths" map
	check "$tag: both paths are connected" two_paths
	# The number of requests determines the time.
	check "$tag: blocks of 512 verify" io 512 1024
	check "$tag: blocks of 4k verify" io 4k 4096
	check "$tag: blocks of 64k verify" io 64k 8192
	check "$tag: blocks of 124k verify" io 124k 8192
	check "$tag: the device unmaps" unmap
	check "$tag: the client modules unload" unload_modules
	check "$tag: the client leaves nothing behind" resource_compare
	barrier "$tag-done"
	barrier "$tag-next" 60
}

must "links and soft RoCE come up" pair_up
defer pair_down
if is_server; then
	must "a memory-backed null_blk" null_blk_up nullb0 256
	defer null_blk_down nullb0
fi
resource_snapshot
defer unload_modules
for c in $CASES; do
	IFS=: read -r clt srv ai <<<"$c"
	if is_server; then
		server_case "$srv" "$ai" "${clt}-${srv}-${ai}"
	else
		client_case "$clt" "${clt}-${srv}-${ai}"
	fi
done
finish
