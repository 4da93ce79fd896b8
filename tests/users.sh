#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: block drivers out of tree, in C and in Rust, that are built against what is installed
# topology: single
# timeout: 240
# seconds: 65

. "$(dirname "$0")/lib/common.sh"
. "$(dirname "$0")/lib/testmod.sh"
. "$(dirname "$0")/lib/observe.sh"
require fio rdma

# What the drivers in packages/users have; the server is a disk of the same size.
PORT=1300
SECTORS=2048
SESS=/sys/class/rtrs-client
PATH_NAME=ip:10.9.0.1@ip:10.9.0.1

serve() { rt serve "port=$PORT" "disk=$SECTORS"; }
unserve() { rt unserve "port=$PORT"; }
state() { cut -d ' ' -f 1 "$SESS/$1/state"; }
is() { [ "$(state "$1")" = "$2" ]; }
no_disk() { [ ! -e "/sys/block/$1" ]; }

refused()
{
	expect_error "Connection reset" load_one "$RTRS_MODULES" "$1"
	no_disk "$1"
	[ ! -e "$SESS/$1" ]
}

loads()
{
	load_one "$RTRS_MODULES" "$1"
	wait_for 5 test -b "/dev/$1"
	is "$1" connected
	same "sectors" "$(cat "/sys/block/$1/size")" "$SECTORS"
}

# The whole disk, by requests of several sizes, past the cache.
verifies()
{
	fio_verify cdisk 1M
	fio_verify cdisk 1M --bsrange=512-64k
}

# Pages that are anywhere, as the cache has them: the disk has exactly what is in the file.
same_as()
{
	head -c $((SECTORS * 512)) /dev/urandom >"$TMP/data"
	dd if="$TMP/data" of=/dev/cdisk bs=64k conv=nocreat,fsync status=none
	blockdev --flushbufs /dev/cdisk
	cmp "$TMP/data" /dev/cdisk
	same "requests that the server refused" "$(total server_corrupt)" 0
}

# transfer read|write N: so many requests of the driver in Rust.
transfer()
{
	if [ "$1" = read ]; then
		dd if=/dev/rustdisk of=/dev/null bs=4k count="$2" iflag=direct status=none
	else
		dd if=/dev/zero of=/dev/rustdisk bs=4k count="$2" oflag=direct conv=nocreat status=none
	fi
}

# Each request is a message, whatever it is to the block layer.
counted()
{
	local n
	n=$(total server_reads)
	transfer read 100
	same "reads" $(($(total server_reads) - n)) 100
	transfer write 50
	same "reads and writes" $(($(total server_reads) - n)) 150
	same "requests that the server refused" "$(total server_corrupt)" 0
}

paths() { write "$SESS/cdisk/paths/$PATH_NAME/$1" 1 && write "$SESS/rustdisk/paths/$PATH_NAME/$1" 1; }
all_are() { is cdisk "$1" && is rustdisk "$1"; }

# IO that begins while there is no path waits for it.
path_gone()
{
	local c rust n
	n=$(total server_reads)
	paths disconnect
	all_are disconnected
	dd if="$TMP/data" of=/dev/cdisk bs=64k oflag=direct conv=nocreat status=none &
	c=$!
	transfer read 20 &
	rust=$!
	sleep 2
	kill -0 "$c"
	kill -0 "$rust"
	same "reads meanwhile" "$(total server_reads)" "$n"
	paths reconnect
	wait "$c"
	wait "$rust"
	same "reads afterwards" "$(total server_reads)" $((n + 20))
	cmp "$TMP/data" /dev/cdisk
}

# load [FIO OPTION...]: as many requests at a time as there may be, for a while.
load()
{
	fio --name=load --filename=/dev/cdisk --direct=1 --ioengine=libaio --rw=randrw --bs=4k \
		--iodepth=64 --size=1M --time_based --runtime=$((8 * RTRS_TIME_SCALE)) "$@" >"$TMP/fio" || {
		cat "$TMP/fio"
		return 1
	}
}

path_lost_under_load()
{
	local fio i
	load &
	fio=$!
	for i in 1 2 3; do
		sleep $((2 * RTRS_TIME_SCALE))
		paths reconnect
		wait_for 10 all_are connected
	done
	wait "$fio"
}

# To the next server those requests mean nothing that were made for the last one: they fail, and what
# comes later does not.
server_gone_under_load()
{
	local fio i
	load --continue_on_error=io &
	fio=$!
	for i in 1 2; do
		sleep $((2 * RTRS_TIME_SCALE))
		unserve
		wait_for 10 all_are disconnected
		serve
		wait_for 30 all_are connected
	done
	wait "$fio"
	dmesg_has -E "cdisk: the server does not know the session any more: [1-9][0-9]* requests fail"
}

# The one in Rust cannot tell the block layer: it says so in the log.
server_gone_for_too_long()
{
	write "$SESS/cdisk/fast_io_fail_tmo" 1
	write "$SESS/rustdisk/fast_io_fail_tmo" 1
	unserve
	expect_error "Input/output error" dd if=/dev/cdisk of=/dev/null bs=4k count=1 iflag=direct status=none
	transfer read 1
	dmesg_has "rustdisk: request failed: -103"
	serve
	wait_for 30 all_are connected
	counted
}

unloads()
{
	rmmod "$1"
	no_disk "$1"
	[ ! -e "$SESS/$1" ]
}

without_server()
{
	loads cdisk
	loads rustdisk
	unserve
	unloads cdisk
	unloads rustdisk
}

must "soft RoCE comes up" rxe_up rxe0
defer rxe_down rxe0
resource_snapshot
defer unload_modules
must "the modules load" load_test
check "without a server the driver in C does not load" refused cdisk
check "nor does the one in Rust" refused rustdisk
check "an address that is none is refused" expect_error "Invalid parameters" load_one "$RTRS_MODULES" cdisk path=ip:nobody
must "a server with a disk" serve
defer unload_one rustdisk
defer unload_one cdisk
must "the driver in C loads" loads cdisk
must "the driver in Rust loads" loads rustdisk
check "they use the client" module_refs rtrs-client 3
check "what is written by the one in C is read" verifies
check "pages of the cache, too" same_as
check "requests of the one in Rust arrive" counted
check "the path goes: IO waits until it is back" path_gone
check "it is lost under load: no IO fails" path_lost_under_load
check "the server goes under load, and another one comes: what was under way fails" server_gone_under_load
check "the rest works" verifies
check "it goes for too long: IO fails" server_gone_for_too_long
check "and works again when it is back" verifies
check "the driver in C unloads" unloads cdisk
check "the driver in Rust unloads" unloads rustdisk
check "they load again, and unload while there is no server" without_server
finish
