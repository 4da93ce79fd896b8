#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: a disk comes later than its restarted server, and the path that waits for it dies, or makes way for a command: IO goes on; the server becomes another one: IO fails if no path may come back
# topology: pair
# timeout: 300
# seconds: 75

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
require fio rdma tc

# 4.3 s: over a link that is cut no queue pair ends by itself in this test.
export RTRS_ACK_TIMEOUT=20
SESS=$CLT/late
# Milliseconds from when the disk is there to the end of the request that waits for it. The path that
# is cut is given up after 5 s of silence; without that, 30 s after its last question.
SOON=$((12000 * RTRS_TIME_SCALE))

path() { printf 'ip:%s@ip:%s\n' "$(pair_addr "$1" client)" "$(pair_addr "$1" server)"; }
dir() { path_dir late "$(path "$1")"; }

#
# The server
#

# has_path N: the client has chunks over its Nth path, and opens its disk over it or waits.
has_path() { compgen -G "$SRV/late/paths/*$(pair_addr "$1" client)*" >"$TMP/paths"; }

# tell_paths NAME: when the first path is there, and when the second one is.
tell_paths()
{
	local n

	for n in 0 1; do
		wait_for 90 has_path "$n" || bail "$1: path $n does not come"
		put "$1.path$n" yes
	done
}

# disk_comes NAME: when the client asks for it.
disk_comes()
{
	get "$1.disk" 120 >/dev/null
	must "$1: the disk comes" null_blk_up nullb0 64
	put "$1.there" yes
}

server_role()
{
	local name

	must "a disk" null_blk_up nullb0 64
	defer null_blk_down nullb0
	must "server modules load" eval "load_rtrs rust server && load_rnbd server"
	barrier listening
	for name in silent command; do
		reload_when "$name" null_blk_down nullb0
		tell_paths "$name"
		disk_comes "$name"
	done
	RELOAD_OPTIONS=sess_queue_depth=64 reload_when another true
	barrier unmapped 120
	check "the server modules unload" unload_modules
}

#
# The client
#

map() { map_rnbd late /dev/nullb0 "$(path 0)" "$(path 1)" >"$TMP/dev"; }
dev() { cat "$TMP/dev"; }

# cut N, heal N: nothing comes over link N from now on, and all again.
cut() { tc filter add dev "eth$1" ingress protocol ip u32 match u32 0 0 action drop; }
heal() { no_drops "$1"; }

links_ready() { drops_ready 0 && drops_ready 1; }

# start_write: write a block in the background; $TMP/end has the status, and when.
start_write()
{
	rm -f "$TMP/end"
	(
		rc=0
		dd if=/dev/urandom of="/dev/$(dev)" bs=4k count=1 oflag=direct conv=nocreat,notrunc \
			status=none 2>"$TMP/dd" || rc=$?
		echo "$rc $(ms_now)" >"$TMP/end"
	) &
}

# away NAME: the server goes, and a request waits for it. It comes back without its disk, over the
# first link only.
away()
{
	put "$1" now
	wait_for 60 has_words "$SESS/state" disconnected
	start_write
	cut 1
	put "$1.seen" yes
	get "$1.done" 60 >"$TMP/value"
}

# opening NAME: the first path asks for the disk, and the second one waits behind it.
opening()
{
	get "$1.path0" 90 >"$TMP/value"
	heal 1
	get "$1.path1" 90 >"$TMP/value"
	sleep 1
	has_words "$(dir 0)/state_full" "state: connecting"
	has_words "$(dir 1)/state_full" "state: connecting"
	not test -e "$TMP/end"
}

# ended STATUS: the request has ended with STATUS, in time since the disk came, or since $TMP/since.
ended()
{
	local rc ms

	wait_for 60 test -s "$TMP/end"
	read -r rc ms <"$TMP/end"
	cat "$TMP/dd"
	ms=$((ms - $(cat "$TMP/since")))
	echo "the request ended after $ms ms with status $rc"
	[ "$rc" = "$1" ]
	at_most "$ms" "$SOON" "the request"
}

disk_comes_here()
{
	put "$1.disk" now
	get "$1.there" 60 >"$TMP/value"
	ms_now >"$TMP/since"
}

all_back() { wait_for 60 has_words "$SESS/state" "connected 2/2"; }

OPENED="late: the server did not know the session any more: 1 devices"
opened_again() { [ "$(dmesg_since_start | grep -cF "$OPENED")" = "$1" ]; }

# Of the path that had to make way nothing is counted.
makes_way()
{
	write "$(dir 1)/disconnect" 1
	sleep 2
	cat "$(dir 0)/state_full"
	not has_words "$(dir 0)/state_full" "state: given-up"
	has_words "$(dir 1)/state_full" "state: disconnected"
	not test -e "$TMP/end"
}

is_another()
{
	wait_for 60 has_words "$(dir 0)/state_full" "state: incompatible"
	sleep 2
	not test -e "$TMP/end"
}

is_disconnected()
{
	write "$(dir 1)/disconnect" 1
	sleep 2
	not test -e "$TMP/end"
}

client_role()
{
	must "links are ready" links_ready
	client_ready
	must "a device maps over both links" map
	check "it works" fio_verify "$(dev)" 2M

	must "silent: the server is away" away silent
	check "silent: one path opens the disk, the other one waits" opening silent
	must "silent: the link of the former is cut" cut 0
	must "silent: the disk comes" disk_comes_here silent
	check "silent: IO goes on over the latter" ended 0
	ktap_log "$TMP/case.log" 1
	check "silent: the log says why" dmesg_has "silent before it was used"
	check "silent: the device was opened again" opened_again 1
	must "silent: the link heals" heal 0
	check "silent: both paths are back" all_back
	check "silent: the device works" fio_verify "$(dev)" 2M

	must "command: the server is away" away command
	check "command: one path opens the disk, the other one waits" opening command
	must "command: one failure is too much" write "$SESS/max_reconnect_attempts" 1
	check "command: the other one is disconnected, and nothing happens to the one" makes_way
	must "command: the disk comes" disk_comes_here command
	check "command: IO goes on over it" ended 0
	ktap_log "$TMP/case.log" 1
	check "command: the device was opened again" opened_again 2
	must "command: failures do not matter any more" write "$SESS/max_reconnect_attempts" -1
	must "command: the other one is connected again" write "$(dir 1)/reconnect" 1
	check "command: both paths are back" all_back

	must "another: requests wait for ever" write "$SESS/fast_io_fail_tmo" off
	must "another: the server is away" away another
	check "another: it is another one for one path, IO waits for the other one" is_another
	check "another: nor does it fail when that is only disconnected" is_disconnected
	ms_now >"$TMP/since"
	must "another: that is removed" write "$(dir 1)/remove_path" 1
	check "another: IO waits no more" ended 1
	ktap_log "$TMP/case.log" 1
	check "another: the log says why" dmesg_has "late: the server has become another one: 1 requests fail"
	must "another: the link heals" heal 1
	check "the device unmaps" unmap_all_rnbd force
	check "the client modules unload" unload_modules
	barrier unmapped
}

pair_main
