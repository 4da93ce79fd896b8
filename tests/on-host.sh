#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: "tests/run.sh --here" tests between hosts, and does not touch other sessions and devices
# topology: single
# timeout: 360
# seconds: 70

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
. "$RTRS_LIB/observe.sh"
require fio rdma

HERE=$RTRS_REPO/tests/run.sh
A="ip:10.9.0.2@ip:10.9.0.1"
B="ip:10.9.0.3@ip:10.9.0.1"
OTHER=$CLT/other

map() { map_rnbd other /dev/nullb0 "$A" >"$TMP/dev"; }
here() { "$HERE" --here --seconds 1 --report "$TMP/report" "$@"; }

# refused WORDS ARGUMENT...: exit status 2, a message with WORDS, and no action.
refused()
{
	local words=$1 rc=0
	shift

	"$HERE" --here "$@" >"$TMP/out" 2>&1 || rc=$?
	cat "$TMP/out"
	[ "$rc" = 2 ]
	grep -qF -- "$words" "$TMP/out"
	[ "$(ls "$CLT")" = other ]
}

refuses()
{
	refused "no scratch device" --path "$A"
	refused "no path" --scratch /dev/nullb1
	refused "wants a value" --path "$A" --scratch
	refused "not known" --path "$A" --scratch /dev/nullb1 --unload
}

# The state of the other session.
other() { cat "$OTHER"/{state,mpath_policy} "$OTHER/paths"/*/state_full | grep -v since; }

passes()
{
	other >"$TMP/before"
	here --scratch /dev/nullb1 --path "$A" --path "$B" || {
		cat "$TMP/report"
		return 1
	}
	grep -q ' passed, 0 failed' "$TMP/report"
	other | diff "$TMP/before" -
	[ "$(ls "$CLT")" = other ]
}

reports()
{
	local section

	for section in kernel modules "RDMA devices and network" results session "kernel log"; do
		grep -qxF "== $section" "$TMP/report"
	done
	grep -q '^rtrs_client: version' "$TMP/report"
	grep -q '^rxe0/ports/1/state: ' "$TMP/report"
	grep -qF "paths/$B/state:" "$TMP/report"
	same "measurements" "$(grep -cE '^ +rand(read|write) (4|64)k, depth [0-9]+ +[1-9][0-9]* IO/s, .* p99 [1-9][0-9]*$' \
		"$TMP/report")" 6
}

# A disk that the server does not have.
no_disk()
{
	! rnbd_leaks || skip "mainline RNBD leaks then"
	not here --scratch /dev/none --path "$A"
	grep -q '^FAIL  the scratch device maps' "$TMP/report"
	grep -q 'rnbd_server.*/dev/none' "$TMP/report"
}

# A server that does not exist.
no_server()
{
	not here --scratch /dev/nullb1 --path ip:10.9.0.1 --port 4321
	grep -q '^0 passed, 1 failed' "$TMP/report"
	grep -q 'rtrs_client.*here-.*refused\|rtrs_client.*here-.*reject' "$TMP/report"
	[ "$(ls "$CLT")" = other ]
}

must "soft RoCE comes up" rxe_up rxe0 10.9.0.1/24 10.9.0.2/24 10.9.0.3/24
defer rxe_down rxe0
must "a disk" null_blk_up nullb0 64
defer null_blk_down nullb0
must "a scratch disk" null_blk_up nullb1 128
defer null_blk_down nullb1
rnbd_up
must "a session is there" map
load_start "$(cat "$TMP/dev")" --iodepth=2
check "without scratch device or path it refuses" refuses
check "it passes, and the session that was there is as it was" passes
check "its report says what was found" reports
check "it fails without a disk" no_disk
check "it fails without a server" no_server
load_stop
check "IO of the other session went on" load_is_fine
check "the device unmaps" unmap_rnbd "$(cat "$TMP/dev")"
finish
