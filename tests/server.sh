#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: the server with mainline clients: parameters, sysfs, disconnect, crash, unload under IO
# topology: pair
# timeout: 420
# seconds: 70

. "$(dirname "$0")/lib/common.sh"
require fio rdma

SESS=/sys/class/rtrs-server/life

map()
{
	map_rnbd life /dev/nullb0 \
		"ip:$(pair_addr 0)@ip:$(pair_addr 0 server)" \
		"ip:$(pair_addr 1)@ip:$(pair_addr 1 server)" >"$TMP/dev"
}

path_count()
{
	local n
	n=$(find "$SESS/paths" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)
	[ "$n" -eq "$1" ] || {
		echo "$n paths"
		return 1
	}
}

bad_params()
{
	local p

	load_one "$(impl_dir rust)" rtrs-core || return
	for p in sess_queue_depth=0 sess_queue_depth=65536 max_chunk_size=4096 \
		max_chunk_size=100000 "sess_queue_depth=65535 max_chunk_size=1048576" \
		max_chunk_size=x always_invalidate=maybe; do
		# shellcheck disable=SC2086
		if insmod "$(impl_dir rust)/rtrs-server.ko" $p 2>"$TMP/err"; then
			echo "$p was accepted"
			return 1
		fi
		grep -q "Invalid parameters" "$TMP/err" || {
			echo "$p: $(cat "$TMP/err")"
			return 1
		}
	done
}

shows()
{
	local d
	d="$SESS/paths/ip:$(pair_addr 0 client)@ip:$(pair_addr 0 server)"

	[ "$(cat "$d/state")" = connected ]
	[ "$(cat "$d/src_addr")" = "ip:$(pair_addr 0 client)" ]
	[ "$(cat "$d/dst_addr")" = "ip:$(pair_addr 0 server)" ]
	[ "$(cat "$d/hca_name")" = rxe0 ]
	[ "$(cat "$d/hca_port")" = 1 ]
	[ "$(cat "$d/disconnect")" = "Usage: echo 1 > disconnect" ]
	[ "$(wc -w <"$d/stats/rdma")" -eq 5 ]
	expect_error "Invalid argument" write "$d/disconnect" 2
	expect_error "Invalid argument" write "$d/stats/rdma" 2
}

disconnect_path()
{
	write "$SESS/paths/ip:$(pair_addr 0 client)@ip:$(pair_addr 0 server)/disconnect" 1
	wait_for 20 path_count 1
}

# come_back: mainline's client waits half a minute before it reconnects by itself. With RTRS_LONG
# the test waits for that.
come_back()
{
	local p

	for p in /sys/class/rtrs-client/life/paths/*; do
		[ "$(cat "$p/state")" = connected ] || write "$p/reconnect" 1
	done
}

lost() { not grep -qx connected /sys/class/rtrs-client/life/paths/*/state; }
one_lost() { grep -qvx connected /sys/class/rtrs-client/life/paths/*/state; }

io() { fio_verify "$(cat "$TMP/dev")" 4M --bs=64k; }
unmap() { unmap_rnbd "$(cat "$TMP/dev")"; }
gone() { [ ! -e "$SESS" ]; }

server_role()
{
	must "a memory-backed null_blk" null_blk_up nullb0 256
	defer null_blk_down nullb0
	resource_snapshot
	defer unload_modules
	check "bad parameters refuse the load" bad_params
	must "the server loads" eval "load_rtrs rust server && load_rnbd server"
	barrier listening
	barrier mapped
	check "two paths are shown" path_count 2
	check "path files say what they have to" shows
	barrier shown
	barrier io
	check "an operator disconnects a path" disconnect_path
	barrier disconnected
	check "the path comes back" wait_for 60 path_count 2
	barrier again
	barrier busy
	check "the server unloads under IO" unload_modules
	check "the session is gone" gone
	barrier unloaded
	must "the server loads again" eval "load_rtrs rust server && load_rnbd server"
	barrier reloaded
	check "the client comes back" wait_for 90 path_count 2
	barrier back
	barrier unmapped 120
	check "the session goes with its last path" wait_for 20 gone
	barrier remap
	barrier mapped2
	check "two paths again" path_count 2
	vm_control kill client || echo "cannot kill the client"
	check "a dead client is noticed in time" wait_for 60 gone
	check "the server unloads" unload_modules
}

client_role()
{
	resource_snapshot
	defer unload_modules
	must "mainline client modules load" eval "load_rtrs c client && load_rnbd client"
	barrier listening
	must "a device maps over two paths" map
	barrier mapped
	barrier shown
	check "fio writes and verifies" io
	barrier io
	barrier disconnected
	check "fio goes on over the other path" io
	check "the client knows of it" wait_for 30 one_lost
	[ -n "${RTRS_LONG:-}" ] || check "it connects anew" come_back
	barrier again 90
	fio --name=bg --filename="/dev/$(cat "$TMP/dev")" --direct=1 --ioengine=libaio --rw=randwrite \
		--bs=4k --iodepth=32 --time_based --runtime=300 --size=64M --continue_on_error=all \
		>/dev/null 2>&1 &
	sleep 1
	barrier busy
	barrier unloaded
	kill %1
	barrier reloaded
	check "the client knows that the server went" wait_for 30 lost
	[ -n "${RTRS_LONG:-}" ] || check "it connects anew to one that has forgotten it" come_back
	barrier back 120
	check "fio verifies after the reload" io
	check "the device unmaps" unmap
	barrier unmapped
	barrier remap
	check "the device maps again" map
	barrier mapped2
	sleep 100
	check "the client modules unload" unload_modules
}

must "links and soft RoCE come up" pair_up
defer pair_down
"${RTRS_ROLE}_role"
finish
