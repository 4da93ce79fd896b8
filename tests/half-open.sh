#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: a thousand clients that never finish connecting are given up in time and cost nothing
# topology: single
# timeout: 600

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/peer.sh"
. "$RTRS_LIB/load.sh"
require fio rdma

CLIENTS=1000

# Seconds that the server gives a path to become complete: 30 by default. The rest of the deadline
# is for a slow machine that ends a thousand of them.
HANDSHAKE=15
[ -z "${RTRS_LONG:-}" ] || HANDSHAKE=30
DEADLINE=$((HANDSHAKE + 15))
TIMEOUT=handshake_timeout_ms=$((HANDSHAKE * 1000 * RTRS_TIME_SCALE))

# With these quotas all of the clients are let in; by default 256 from one address are, if the
# machine has the memory.
NO_QUOTAS=(max_sessions=4096 max_sessions_per_source=4096
	max_handshakes=4096 max_handshakes_per_source=4096
	max_memory=16384 max_memory_per_source=16384)
QUOTAS=(max_memory_per_source=4096)
QUOTA=256

# Tolerances for what is not freed afterwards. Objects of a kind: fewer than there were clients of
# the rarest sort, one in eight. Memory: 32 KiB per client. A leaked path costs more than that: its
# queue pair alone takes a hundred. What remains in fact are caches of allocators.
OBJECTS=$((CLIENTS / 10))
TOLERANCE=$((32 * CLIENTS))

# The debug kernel is too slow for so many at a time, and stores each call stack it sees.
if [ "$RTRS_TIME_SCALE" != 1 ]; then
	CLIENTS=200
	QUOTAS+=(max_handshakes_per_source=32)
	QUOTA=32
	OBJECTS=$((CLIENTS / 10))
	TOLERANCE=$((32 * CLIENTS + 16384))
fi

half_open()
{
	"$RTRS_PEER" half-open --addr 10.9.0.1 --count "$1" --deadline $((DEADLINE * RTRS_TIME_SCALE)) \
		--seed "$2" "${@:3}"
}

# begin CLIENTS SEED: start the clients in the background, as $pid.
begin()
{
	rm -f "$TMP/half.rc" "$TMP/go"
	{
		half_open "$1" "$2" --hold "$TMP/go" >"$TMP/half" 2>&1
		echo "$?" >"$TMP/half.rc"
	} &
	pid=$!
}

# crowd_is N: at least N clients are connecting.
crowd_is() { [ "$(cat /sys/module/rtrs_server/quotas/handshakes/current)" -ge "$1" ]; }

server_objects() { grep -F '[rtrs_server]' "$1"; }

server_at_baseline()
{
	taken >"$TMP/baseline.now"
	cmp -s <(server_objects "$TMP/baseline") <(server_objects "$TMP/baseline.now")
}

# All clients are still there, but their time is over: the server must hold nothing for them.
reaped()
{
	wait_for 300 grep -q waiting "$TMP/half"
	[ "$(server_objects "$TMP/baseline" | wc -l)" -ge 4 ]
	wait_for 5 server_at_baseline || {
		diff -u "$TMP/baseline" "$TMP/baseline.now"
		return 1
	}
}

# Let the clients go.
release()
{
	: >"$TMP/go"
	wait "$pid"
}

fact() { sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$TMP/half"; }

all_given_up()
{
	cat "$TMP/half"
	[ "$(cat "$TMP/half.rc")" = 0 ]
	# Some clients have more than one connection, and none is refused.
	[ "$(fact accepted)" -ge "$CLIENTS" ]
	# Clients that were told of their end were told in time.
	[ "$(fact gone)" -ge $((CLIENTS / 2)) ]
	[ "$(fact longest_ms)" -le $((DEADLINE * 1000 * RTRS_TIME_SCALE)) ] || late "that is too long"
	grep -q '"refused":{}' "$TMP/half"
}

# Clients within the quotas end as well, and a client from another address is not affected.
over_quota()
{
	cat "$TMP/half"
	[ "$(cat "$TMP/half.rc")" = 0 ]
	[ "$(fact 'errno -87')" -gt 0 ]
}

newcomer()
{
	local t0=$SECONDS took dev

	not test -e "$TMP/half.rc"
	dev=$(map_rnbd newcomer /dev/nullb1 ip:10.9.0.3@ip:10.9.0.1)
	took=$((SECONDS - t0))
	fio_verify "$dev" 1M
	unmap_rnbd "$dev"
	not test -e "$TMP/half.rc"
	echo "mapped after $took s"
	# An attempt to connect that is not answered in 30 s fails.
	[ "$took" -le $((40 * RTRS_TIME_SCALE)) ] || late "that is too long"
}

must "a disk for newcomers" null_blk_up nullb1 16
defer null_blk_down nullb1
arena 10.9.0.2/24 10.9.0.3/24
must "modules load" eval "load_rtrs rust both ${NO_QUOTAS[*]} $TIMEOUT && load_rnbd both"
must "an honest client maps a device" honest_map
check "it works" fio_verify "$(cat "$TMP/dev")" 1M
baseline
# What is allocated once and then kept is allocated by the first crowd, before the snapshot.
honest_io
begin "$CLIENTS" 2
check "there is a crowd" wait_for 30 crowd_is $((CLIENTS / 4))
check "meanwhile a new honest client is served" newcomer
check "$CLIENTS are given up while they are still there" reaped
release
check "each was let in, and ended in time" all_given_up
note "$(tail -n 1 "$TMP/half")"
check "nothing is left of them" back_at_baseline "$DEADLINE"
honest_stop
check "the honest client had no error" honest_well
# The newcomer's session, which the server keeps for 30 s, holds nothing any more.
memory_snapshot
honest_io
begin "$CLIENTS" 3
check "there is a crowd again" wait_for 30 crowd_is $((CLIENTS / 4))
check "and another new honest client" newcomer
check "another $CLIENTS are given up" reaped
release
check "each was let in, and ended in time, too" all_given_up
check "nothing is left of them either" back_at_baseline "$DEADLINE"
honest_stop
check "the honest client had no error again" honest_well
check "and stayed connected" honest_undisturbed
check "no memory is missing" memory_compare "$OBJECTS" "$TOLERANCE"
check "the device unmaps" honest_unmap
check "modules unload" unload_modules

must "modules load with quotas" eval "load_rtrs rust both ${QUOTAS[*]} $TIMEOUT && load_rnbd both"
must "an honest client is back" honest_map
baseline
begin $((QUOTA + 100)) 4
check "there is a crowd within quotas" wait_for 30 crowd_is $((QUOTA / 4))
check "a new honest client is served beside quotas" newcomer
check "all are given up" reaped
release
check "a client over the quota is refused" over_quota
note "$(tail -n 1 "$TMP/half")"
check "nothing is left of those" back_at_baseline "$DEADLINE"
check "the device unmaps again" honest_unmap
check "modules unload again" unload_modules
finish
