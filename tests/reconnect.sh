#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: one path is reconnected and disconnected under verified load, and while RNBD opens its device again: no IO fails
# topology: single
# timeout: 240
# seconds: 35

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
require fio rdma

map() { map_rnbd reconnect /dev/nullb0 ip:10.9.0.1 >"$TMP/dev"; }

device_still_works() { fio_verify "$(cat "$TMP/dev")" 1M; }

device_is() { [ "$(cat "/sys/block/$(cat "$TMP/dev")/rnbd/state")" = "$1" ]; }

wait_at_most() { write /sys/class/rtrs-client/reconnect/fast_io_fail_tmo "$1"; }

# flap SECONDS [TIME]: RNBD has closed its device, and opens it again while the path goes and comes:
# the message to open it, its answer, or what RNBD does before and after them meet that. The second
# time requests wait for the path for TIME seconds: then RNBD is not told of the loss, and does not
# try again.
flap()
{
	wait_at_most 0
	write "$path/disconnect" 1
	wait_for 10 device_is closed
	wait_at_most "${2:-0}"
	write "$path/reconnect" 1
	sleep "$1"
	write "$path/disconnect" 1
	write "$path/reconnect" 1
	# What RNBD says may be older than the second loss.
	wait_for 20 eval "device_is open && usable \$(cat $TMP/dev)"
	device_still_works
}

must "soft RoCE comes up" rxe_up rxe0
defer rxe_down rxe0
must "a memory-backed null_blk" null_blk_up nullb0 128
defer null_blk_down nullb0
resource_snapshot
defer unload_modules
must "modules load" load_modules
must "a device maps" map
path=$(echo /sys/class/rtrs-client/reconnect/paths/ip:*)

load_start "$(cat "$TMP/dev")"
sleep 1
for i in 1 2 3 4 5; do
	check "reconnect $i returns without error" write "$path/reconnect" 1
done
check "disconnect returns without error" write "$path/disconnect" 1
check "the path says so" [ "$(cat "$path/state")" = disconnected ]
sleep 2
check "reconnect brings it back" write "$path/reconnect" 1
check "the path says so, too" [ "$(cat "$path/state")" = connected ]
sleep 2
load_stop
check "no IO failed" load_is_fine
check "the device still works" device_still_works
for ms in 000 010 040 160 ${RTRS_LONG:+005 020 080 320}; do
	check "the path goes and comes 0.$ms s after RNBD was told that it is back" flap "0.$ms"
	check "the same while requests wait for it" flap "0.$ms" 180
done
check "the device unmaps" unmap_rnbd "$(cat "$TMP/dev")"
check "the modules unload" unload_modules
check "nothing is left behind" resource_compare
finish
