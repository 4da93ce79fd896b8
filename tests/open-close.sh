#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: sessions open and close, many times; servers and devices go away under them
# topology: single
# timeout: 300
# seconds: 65

. "$(dirname "$0")/lib/common.sh"
require fio rdma

CYCLES=6
[ -z "${RTRS_LONG:-}" ] || CYCLES=20
CLT=/sys/class/rtrs-client
SRV=/sys/class/rtrs-server

map() { map_rnbd "${1:-oc}" "/dev/${2:-nullb0}" ip:10.9.0.1 >"$TMP/dev"; }
dev() { cat "$TMP/dev"; }
unmap() { unmap_rnbd "$(dev)" "${1:-normal}"; }
io() { fio_verify "$(dev)" 1M; }
no_session() { [ -z "$(ls $CLT)" ] && [ -z "$(ls $SRV)" ]; }
no_server_session() { [ -z "$(ls $SRV)" ]; }
path_is() { [ "$(cat $CLT/oc/paths/*/state)" = "$1" ]; }

cycles()
{
	local n

	for ((n = 0; n < CYCLES; n++)); do
		map
		[ "$(cat $CLT/oc/paths/*/state)" = connected ]
		[ $((n % 5)) -ne 0 ] || io
		unmap
		wait_for 10 no_session
	done
}

# Devices share a session, which goes with the last one.
two_devices()
{
	local first second

	map oc nullb0
	first=$(dev)
	map oc nullb1
	second=$(dev)
	[ "$first" != "$second" ]
	[ "$(find $CLT/ -mindepth 1 -maxdepth 1 | wc -l)" -eq 1 ]
	unmap_rnbd "$first"
	[ -d $CLT/oc ]
	io
	unmap_rnbd "$second"
	wait_for 10 no_session
}

# Open fails half way, after RTRS is connected: the server has no such device.
no_such_device()
{
	local n

	! rnbd_leaks || skip "mainline RNBD leaks then"
	for n in 1 2 3; do
		expect_error "No such file" map oc nullb9
		wait_for 10 no_session
	done
}

no_listener()
{
	rmmod rnbd-server
	expect_error "" map
	wait_for 10 no_session
	load_rnbd server
	map
	io
	unmap
	wait_for 10 no_session
}

# start_io: start IO in the background, at full speed; errors do not matter.
start_io()
{
	fio --name=load --filename="/dev/$(dev)" --direct=1 --ioengine=libaio --rw=randrw --bs=4k \
		--iodepth=16 --size=16M --time_based --runtime=60 --continue_on_error=all \
		--error_dump=0 >"$TMP/fio.log" 2>&1 &
	echo $! >"$TMP/fio.pid"
	sleep 1
	kill -0 "$(cat "$TMP/fio.pid")"
}

stop_io()
{
	local pid
	pid=$(cat "$TMP/fio.pid")

	kill "$pid" 2>/dev/null || true
	wait_for 30 eval "! kill -0 $pid 2>/dev/null"
}

server_unloads()
{
	map
	rmmod rnbd-server
	wait_for 10 test ! -e $SRV/oc
	module_refs rtrs-server 0
	rmmod rtrs-server
	wait_for 30 path_is disconnected
}

# The client's session outlives the server and goes on.
server_returns()
{
	load_rtrs rust server
	load_rnbd server
	wait_for 60 path_is connected
	# RNBD opens its device again by itself.
	wait_for 30 usable "$(dev)"
	io
}

server_unloads_under_io()
{
	start_io
	rmmod rnbd-server
	rmmod rtrs-server
	sleep 1
	load_rtrs rust server
	load_rnbd server
	wait_for 60 path_is connected
	stop_io
	wait_for 30 usable "$(dev)"
	io
}

unmaps_without_server()
{
	rmmod rnbd-server
	rmmod rtrs-server
	wait_for 30 path_is disconnected
	# RNBD's message that closes a device waits for as long.
	[ -n "${RTRS_LONG:-}" ] || write $CLT/oc/fast_io_fail_tmo 3
	unmap force
	wait_for 30 test ! -e $CLT/oc
}

client_unloads_under_io()
{
	load_modules rust
	map
	start_io
	stop_io
	# RNBD closes all open devices.
	rmmod rnbd-client
	wait_for 10 no_session
	rmmod rtrs-client
}

# The RDMA device goes, under IO.
device_goes()
{
	load_modules rust
	map
	start_io
	rdma link delete rxe0
	wait_for 60 path_is disconnected
	wait_for 10 no_server_session
	# Requests wait for the path; the device it gets is another one.
	rdma link add rxe0 type rxe netdev drxe0
	wait_for 5 rdma_active rxe0
	wait_for 60 path_is connected
	stop_io
	wait_for 30 usable "$(dev)"
	io
	unmap
	wait_for 10 no_session
}

must "soft RoCE comes up" rxe_up rxe0
defer rxe_down rxe0
must "two disks" eval "null_blk_up nullb0 32 && null_blk_up nullb1 32"
defer null_blk_down nullb0
defer null_blk_down nullb1
rnbd_up force
check "$CYCLES sessions, one after the other" cycles
check "two devices, one session" two_devices
check "a device that the server does not have" no_such_device
check "a server that does not listen" no_listener
check "the server unloads with a session open" server_unloads
check "it returns, the session goes on" server_returns
check "the same under IO" server_unloads_under_io
check "a device unmaps without its server" unmaps_without_server
check "the client unloads right after IO" client_unloads_under_io
check "the RDMA device goes and returns" device_goes
finish
