#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: rnbd-map maps the rows of a table through RNBD, once, and unmaps them
# topology: single
# timeout: 240
# seconds: 35

. "$(dirname "$0")/lib/common.sh"
require rdma

export RNBD_MAPPINGS=$TMP/mappings
MAP=$RTRS_REPO/debian/extra/rnbd-map

load() { load_rtrs rust both && load_rnbd both; }
listed() { "$MAP" --list | cut -f 1,3; }
device() { "$MAP" --list | awk -F '\t' -v row="$1" '$1 == row { print $2 }'; }

both_open()
{
	# Rows that are added later are not part of this check.
	[ "$(listed | head -n 2)" = $'table/dev/nullb0\topen\nsecond/dev/nullb1\topen' ] || { "$MAP" --list; return 1; }
}

is_disk() { [ -b "$1" ] && [ "$(blockdev --getsize64 "$1")" = "$((64 << 20))" ]; }
read_only() { [ "$(blockdev --getro "$(device second/dev/nullb1)")" = 1 ]; }

# Mapping again changes nothing.
again()
{
	local before
	before=$("$MAP" --list)
	"$MAP" && [ "$("$MAP" --list)" = "$before" ]
}

# A device that RNBD refuses is reported with the reason; the other rows are mapped nevertheless.
absent()
{
	local rc=0
	"$MAP" 2>"$TMP/err" || rc=$?
	cat "$TMP/err"
	[ "$rc" = 1 ] && [ "$(grep -c '^rnbd-map: third/dev/absent is not mapped: .' "$TMP/err")" = 1 ]
}

# with_a_path_missing OPTION...: rnbd-map says so, and fails.
with_a_path_missing()
{
	local rc=0
	"$MAP" "$@" 2>"$TMP/err" || rc=$?
	cat "$TMP/err"
	[ "$rc" = 1 ] && grep '^rnbd-map: parts/dev/nullb0 is mapped without ip:10.8.0.9: .' "$TMP/err"
}
paths_are() { [ "$(cat /sys/class/rtrs-client/parts/paths/*/dst_addr | sort | paste -s -d ' ')" = "$*" ] || { grep . /sys/class/rtrs-client/parts/paths/*/dst_addr; return 1; }; }
address_comes() { ip addr add 10.8.0.9/32 dev drxe0; }

must "soft RoCE comes up" rxe_up rxe0
defer rxe_down rxe0
must "a memory-backed null_blk" null_blk_up nullb0 64
defer null_blk_down nullb0
must "another one" null_blk_up nullb1 64
defer null_blk_down nullb1
defer unload_modules
defer unmap_all_rnbd
must "modules load" load

printf '%s\n' '# a comment' 'table dev/nullb0 ip:10.9.0.1' 'second dev/nullb1 ip:10.9.0.1 ro,port=1234' >"$RNBD_MAPPINGS"
check "the table is mapped" "$MAP"
check "both rows are open" both_open
check "one is a disk of the server's size" is_disk "$(device table/dev/nullb0)"
check "the other one is read-only" read_only
check "what is mapped is left alone" again
check "one row is unmapped by name" "$MAP" --unmap second/dev/nullb1
check "the other one is still there" is_disk "$(device table/dev/nullb0)"
rows=2
if rnbd_leaks; then
	check "it is mapped again" "$MAP"
	check "both are open" both_open
else
	rows=3
	echo 'third dev/absent ip:10.9.0.1' >>"$RNBD_MAPPINGS"
	check "a disk that the server does not have is one line" absent
	check "and the others are mapped" both_open
	sed -i '$s/$/ nofail/' "$RNBD_MAPPINGS"
	check "with nofail that is no failure" "$MAP"
fi
check "all are unmapped" "$MAP" --unmap
check "none is left" test "$(listed | grep -c unmapped)" = "$rows"

# One path of two cannot be reached, and the first one at that.
echo 'parts dev/nullb0 ip:10.8.0.9,ip:10.9.0.1' >"$RNBD_MAPPINGS"
check "without a path a disk is mapped all the same" with_a_path_missing --left "$TMP/left"
check "over the other one" paths_are ip:10.9.0.1
check "it is a disk" is_disk "$(device parts/dev/nullb0)"
check "the path is still missing" with_a_path_missing --again "$TMP/left"
must "its address comes" address_comes
check "then the path is added" "$MAP" --again "$TMP/left"
check "and there are both" paths_are ip:10.8.0.9 ip:10.9.0.1
check "nothing is left to be done" test ! -s "$TMP/left"
check "it is unmapped" "$MAP" --unmap
# The server has seen the session when the second path turns out to be missing.
must "the address goes again" ip addr del 10.8.0.9/32 dev drxe0
echo 'parts dev/nullb0 ip:10.9.0.1,ip:10.8.0.9' >"$RNBD_MAPPINGS"
check "the same if the second path is missing" with_a_path_missing
check "it is mapped over the first one" paths_are ip:10.9.0.1
check "and unmapped" "$MAP" --unmap
finish
