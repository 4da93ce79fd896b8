#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: the RDMA device of a path is renamed: the path stays, shows the new name, and is lost and comes back with its port
# topology: single
# timeout: 120
# seconds: 35

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
. "$RTRS_LIB/observe.sh"
require fio rdma

SESS=$CLT/named

map() { map_rnbd named /dev/nullb0 ip:10.9.0.2@ip:10.9.0.1 >"$TMP/dev"; }
dev() { cat "$TMP/dev"; }
of_path() { cat "$SESS"/paths/*/"$1"; }
name_is() { [ "$(of_path hca_name)" = "$1" ]; }
server_says() { [ "$(cat "$SRV"/named/paths/*/hca_name)" = "$1" ] && has -F "$1" </sys/kernel/debug/rtrs_server/connections; }

renamed()
{
	rdma dev set "$1" name "$2"
	name_is "$2"
	server_says "$2"
	fio_verify "$(dev)" 1M
	has_words "$SESS/state" "connected 1/1"
}

# The device reports it: heartbeats would take 25 s.
port_goes()
{
	ip link set drxe0 down
	wait_for 5 dmesg_has "connected: port down"
	has_words "$SESS/state" disconnected
	# The last name of the device.
	name_is roce0
}

# The path comes back at once, not with the next attempt.
port_comes()
{
	ip link set drxe0 up
	wait_for 5 has_words "$SESS/state" "connected 1/1"
	fio_verify "$(dev)" 1M
	name_is roce0
}

must "soft RoCE comes up" rxe_up rxe0 10.9.0.1/24 10.9.0.2/24
defer rxe_down rxe0
defer rxe_down roce0
must "a disk" null_blk_up nullb0 16
defer null_blk_down nullb0
rnbd_up
must "debugfs is there" debugfs_up rtrs_server
must "a device maps" map
check "the path shows its device" name_is rxe0
check "the device has another name" renamed rxe0 roce0
check "its port goes: the path is lost at once" port_goes
check "its port comes: so does the path" port_comes
check "the device has its old name" renamed roce0 rxe0
check "the block device unmaps" unmap_rnbd "$(dev)"
finish
