#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: the server with mainline clients: parameters, sysfs, disconnect, unload under IO, another client under the name, crash and return
# topology: pair
# timeout: 420
# seconds: 90

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
. "$RTRS_LIB/peer.sh"
require fio rdma

SESS=/sys/class/rtrs-server/life

# A client that returns after a crash may have to wait for three seconds, in which the server asks the
# one that it takes for alive, and connects then.
LET_IN=$((8000 * RTRS_TIME_SCALE))

# map [SESSION [DEVICE]]
map()
{
	map_rnbd "${1:-life}" "/dev/${2:-nullb0}" \
		"ip:$(pair_addr 0)@ip:$(pair_addr 0 server)" \
		"ip:$(pair_addr 1)@ip:$(pair_addr 1 server)" >"$TMP/dev"
}

paths_shown()
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
	wait_for 20 paths_shown 1
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

# impostors: programs of the same host want the name of a session under IO. The server asks mainline's
# client for a sign of life, and gets it.
impostors()
{
	local i

	for i in 1 2 3; do
		"$RTRS_PEER" client --addr "$(pair_addr 0 server)" --from "$(pair_addr 0)" --case name-taken \
			--victim life --seed "$i" --patience $((10 * RTRS_TIME_SCALE))
	done
	load_runs
	[ "$(cat /sys/class/rtrs-client/life/paths/*/state | grep -cx connected)" = 2 ]
	[ "$(cat /sys/class/rtrs-client/life/paths/*/stats/reconnects | sort -u)" = "0 0" ]
}

# The server did find them, and thought of the name.
impostors_seen()
{
	dmesg_since_start >"$TMP/dmesg"
	[ "$(grep -c 'name life is in use' "$TMP/dmesg")" -ge 3 ]
	paths_shown 2
}

# let_in SESSION DEVICE: the server lets a client in that comes back after a crash.
let_in()
{
	local t0 took
	t0=$(ms_now)

	map "$1" "$2"
	took=$(($(ms_now) - t0))
	echo "mapped after $took ms" | tee "$TMP/let-in"
	io
	[ "$took" -lt "$LET_IN" ] || late "that is too long"
}

# has_all SESSION: it has two paths, and all connections that there are.
has_all()
{
	[ "$(ls /sys/class/rtrs-server)" = "$1" ] &&
		[ "$(find "/sys/class/rtrs-server/$1/paths" -mindepth 1 -maxdepth 1 | wc -l)" = 2 ] &&
		[ "$(cat /sys/module/rtrs_server/quotas/cons/current)" = $((2 * ($(nproc) + 1))) ]
}

silent_gone() { [ ! -e /sys/class/rtrs-server/silent ]; }

server_role()
{
	must "a memory-backed null_blk" null_blk_up nullb0 256
	defer null_blk_down nullb0
	must "another one" null_blk_up nullb1 16
	defer null_blk_down nullb1
	resource_snapshot
	defer unload_modules
	check "bad parameters refuse the load" bad_params
	must "the server loads" eval "load_rtrs rust server && load_rnbd server"
	barrier listening
	barrier mapped
	check "two paths are shown" paths_shown 2
	check "path files say what they have to" shows
	barrier shown
	barrier io
	check "the name was asked for" impostors_seen
	check "an operator disconnects a path" disconnect_path
	barrier disconnected
	check "the path comes back" wait_for 60 paths_shown 2
	barrier again
	barrier busy
	check "the server unloads under IO" unload_modules
	barrier unloaded
	must "the server loads again" eval "load_rtrs rust server && load_rnbd server"
	barrier reloaded
	check "the client comes back" wait_for 90 paths_shown 2
	barrier back
	barrier unmapped 120
	check "the session goes with its last path" wait_for 20 gone
	barrier remap
	barrier mapped2
	check "two paths again" paths_shown 2
	vm_control kill client || echo "cannot kill the client"
	check "its machine starts again" vm_control start client
	check "a dead client is noticed in time" wait_for 60 silent_gone
	put noticed yes
	# The second boot sends these.
	get let-in 180 >"$TMP/value"
	check "the client that is back has its session" wait_for 20 has_all life
	put seen yes
	get let-in-ours 60 >"$TMP/value"
	check "and ours the other one" wait_for 20 has_all silent
	put seen-ours yes
	get left 60 >"$TMP/value"
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
	load_start "$(cat "$TMP/dev")" --iodepth=4 --rate_iops=100
	check "nothing takes the name of a client that answers" impostors
	load_stop
	check "its IO went on" load_is_fine
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
	must "another session, too" eval "map silent nullb1"
	barrier mapped2
	sleep 100
	bail "the client was not killed"
}

# What the client does when it is back: first mainline's, then ours.
second_boot()
{
	resource_snapshot
	defer unload_modules
	must "mainline client modules load" eval "load_rtrs c client && load_rnbd client"
	check "a client that crashed is let in when it is back" let_in life nullb0
	note "$(cat "$TMP/let-in")"
	put let-in yes
	get seen 60 >"$TMP/value"
	check "its device unmaps" unmap
	check "the client modules unload" unload_modules
	must "our client modules load" eval "load_rtrs rust client && load_rnbd client"
	get noticed 60 >"$TMP/value"
	check "so is ours, under the name of the other session" let_in silent nullb1
	note "$(cat "$TMP/let-in")"
	put let-in-ours yes
	get seen-ours 60 >"$TMP/value"
	check "its device unmaps, too" unmap
	check "our client modules unload" unload_modules
	put left yes
}

must "links and soft RoCE come up" pair_up
defer pair_down
peer_require
if [ "${RTRS_BOOT:-1}" = 1 ]; then
	"${RTRS_ROLE}_role"
else
	second_boot
fi
finish
