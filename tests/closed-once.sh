#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: the answer to RNBD's message that closes a device is lost with its path: no other device is closed that has its number by now
# topology: pair
# timeout: 200
# seconds: 40

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
. "$RTRS_LIB/observe.sh"
require fio rdma tc

# 4.3 s: the queue pairs of link 0 do not end by themselves meanwhile.
export RTRS_ACK_TIMEOUT=20
# Where RNBD's server shows a disk while some client has it open.
OPEN=/sys/class/rnbd-server/ctl/devices

path() { printf 'ip:%s@ip:%s\n' "$(pair_addr "$1" client)" "$(pair_addr "$1" server)"; }
dir() { path_dir once "$(path "$1")"; }

#
# The server
#

closed() { not test -e "$OPEN/nullb0"; }
open() { test -e "$OPEN/nullb1"; }

server_role()
{
	must "disks" eval "null_blk_up nullb0 16 && null_blk_up nullb1 16"
	defer eval "null_blk_down nullb0; null_blk_down nullb1"
	must "server modules load" eval "load_rtrs rust server && load_rnbd server"
	barrier listening
	get cut 120 >/dev/null
	must "the first device is open" test -e "$OPEN/nullb0"
	put open yes
	check "the first device is closed" wait_for 30 closed
	put closed yes
	get ended 120 >/dev/null
	check "the second one is open" open
	barrier unmapped 120
	check "it is closed when it is unmapped" wait_for 10 not open
	check "the server modules unload" unload_modules
}

#
# The client
#

# Link 0 carries nothing to the client.
cut() { tc filter add dev eth0 ingress protocol ip u32 match u32 0 0 action drop; }

unmap_first()
{
	unmap_rnbd "$(cat "$TMP/first")" >"$TMP/unmap" 2>&1
	echo "$?" >"$TMP/unmapped"
}

# The number is that of the first device. The message goes over link 1, as one is in flight on link 0;
# what is read from the device waits until link 0 was found silent.
map_second()
{
	write "$(dir 1)/reconnect" 1
	not test -s "$TMP/unmapped"
	map_rnbd once /dev/nullb1 >"$TMP/second"
}

first_is_unmapped()
{
	wait_for 30 test -s "$TMP/unmapped"
	cat "$TMP/unmap"
	[ "$(cat "$TMP/unmapped")" = 0 ]
	not has_words "$(dir 0)/state" connected
}

# What goes over the service connection is RNBD's messages; none waits for an answer but that one.
answered_again()
{
	local id
	trace_end "${EVENTS[@]}"
	cp "$TRACE/trace" "$TMP/trace"
	id=$(sed -n 's/.* rtrs_clt_issue: .* cid=0 id=\([0-9]*\) .* failover=1$/\1/p' "$TMP/trace")
	[ -n "$id" ]
	traced 1 "rtrs_clt_response: .* cid=0 id=$id result=0 "
}

EVENTS=(rtrs_clt/rtrs_clt_issue rtrs_clt/rtrs_clt_response)

client_role()
{
	must "packets can be dropped" drops_ready 0
	client_ready
	must "a device maps over both links" eval \
		"map_rnbd once /dev/nullb0 '$(path 0)' '$(path 1)' >$TMP/first"
	must "messages go where the fewest are in flight" write "$CLT/once/mpath_policy" min-inflight
	must "link 1 is not used" write "$(dir 1)/disconnect" 1
	trace_begin "${EVENTS[@]}"
	must "link 0 is cut in one direction" cut
	put cut yes
	get open >/dev/null
	unmap_first &
	get closed 120 >/dev/null
	check "another device maps over link 1" map_second
	check "the first one is unmapped when link 0 is not used any more" first_is_unmapped
	check "the message was sent again, and its answer waited for" answered_again
	check "the other one works" fio_verify "$(cat "$TMP/second")" 2M
	put ended yes
	must "link 0 is mended" no_drops 0
	check "link 0 is used again" wait_for 60 has_words "$CLT/once/state" "connected 2/2"
	check "the device works over both" fio_verify "$(cat "$TMP/second")" 2M
	check "it unmaps" unmap_rnbd "$(cat "$TMP/second")"
	barrier unmapped
	check "the client modules unload" unload_modules
}

pair_main
