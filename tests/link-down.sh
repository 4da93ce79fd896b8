#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: the only cable is pulled for 8 s under verified load: no IO fails, and it goes on soon
# topology: pair
# timeout: 240

. "$(dirname "$0")/lib/common.sh"
require fio rdma

# Seconds after the cable is back within which IO has to go on. A loaded host
# slows emulated guests down; the number measured is printed.
LIMIT=${RTRS_RESUME_LIMIT:-10}

map()
{
	map_rnbd cable /dev/nullb0 "ip:$(pair_addr 0)@ip:$(pair_addr 0 server)" >"$TMP/dev"
}

load()
{
	fio --name=load --filename="/dev/$(cat "$TMP/dev")" --direct=1 --ioengine=libaio \
		--rw=randwrite --bs=4k --iodepth=8 --size=32M --time_based --runtime="$1" \
		--verify=crc32c --verify_backlog=256 --verify_fatal=1 --output="$TMP/fio"
	echo "$?" >"$TMP/fio.rc"
}

# To be called after the load was waited for.
load_is_fine()
{
	cat "$TMP/fio"
	[ "$(cat "$TMP/fio.rc")" -eq 0 ]
}

# Completed IO of the device.
done_ios() { awk '{ print $1 + $5 }' "/sys/block/$(cat "$TMP/dev")/stat"; }

resumes()
{
	local before t0
	before=$(done_ios)
	t0=$(date +%s%N)
	wait_for 60 eval "[ \$(done_ios) -gt $before ]" || return
	echo "IO went on $((($(date +%s%N) - t0) / 1000000)) ms after the cable was back"
	[ $(($(date +%s%N) - t0)) -lt $((LIMIT * 1000000000)) ]
}

server_role()
{
	must "a memory-backed null_blk" null_blk_up nullb0 128
	defer null_blk_down nullb0
	must "server modules load" eval "load_rtrs rust server && load_rnbd server"
	barrier listening
	barrier unmapped 200
	check "the server modules unload" unload_modules
}

client_role()
{
	local pid
	must "client modules load" eval "load_rtrs rust client && load_rnbd client"
	barrier listening
	must "a device maps" map
	load 40 &
	pid=$!
	sleep 5
	check "the cable is pulled" vm_control link client 0 down
	sleep 8
	check "the cable is put back" vm_control link client 0 up
	check "IO goes on" resumes
	wait "$pid"
	check "no IO failed" load_is_fine
	check "the device unmaps" unmap_rnbd "$(cat "$TMP/dev")"
	check "the client modules unload" unload_modules
	barrier unmapped
}

must "links and soft RoCE come up" pair_up
defer pair_down
resource_snapshot
defer unload_modules
"${RTRS_ROLE}_role"
finish
