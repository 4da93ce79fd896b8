#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: the only interface is taken down for 8 s under verified load: IO waits, and goes on within 3 s of its return; requests to connect, and a server that is closed, survive it
# topology: single
# timeout: 300
# seconds: 75

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
. "$RTRS_LIB/testmod.sh"
require fio rdma

IFACE=drxe0
SESS=$CLT/iface
# Seconds without an interface, and the limit in milliseconds for IO to go on.
DOWN=8
LIMIT=$((3000 * RTRS_TIME_SCALE))
TIMES=${RTRS_LONG:+10}
TIMES=${TIMES:-3}
# Port of the door, see tests/kmod, and milliseconds after which the connection manager sends a
# request again that has no answer (4.1 s): soft RoCE would lose the device to that, too.
DOOR=4790
AGAIN=3500
# Port of a server that is closed.
CLOSED=4791
# ENETDOWN
DOWN_ERRNO=100

map() { map_rnbd iface /dev/nullb0 ip:10.9.0.2@ip:10.9.0.1 >"$TMP/dev"; }
dev() { cat "$TMP/dev"; }
more_than() { [ "$(ios "$(dev)")" -gt "$1" ]; }

# down_and_up: measure how long IO takes to go on.
down_and_up()
{
	local t0 ms

	ip link set "$IFACE" down
	sleep "$DOWN"
	grep . "$SESS"/paths/*/state_full
	ip link set "$IFACE" up
	t0=$(ms_now)
	wait_for 60 more_than "$(ios "$(dev)")"
	ms=$(($(ms_now) - t0))
	echo "IO went on $ms ms after the interface was back"
	[ "$ms" -lt "$LIMIT" ] || late "that is too long"
}

maps_another()
{
	local dev

	dev=$(map_rnbd another /dev/nullb1 ip:10.9.0.2@ip:10.9.0.1)
	fio_verify "$dev" 1M
	unmap_rnbd "$dev"
}

waits() { [ "$(total "waiting:$DOOR")" = 1 ]; }

# decided_without HOW: a request to connect is decided about while there is no interface.
decided_without()
{
	local t0 ms

	rt_start open name=waits path=ip:10.9.0.2@ip:10.9.0.1 port="$DOOR"
	t0=$(ms_now)
	wait_for 5 waits
	ip link set "$IFACE" down
	case $1 in
	accept) refuses "$DOWN_ERRNO" decide port="$DOOR" how=accept ;;
	*) rt decide port="$DOOR" how="$1" ;;
	esac
	# What it sends has been sent by then.
	sleep 0.5
	ip link set "$IFACE" up
	ms=$(($(ms_now) - t0))
	echo "it took $ms ms"
	[ "$ms" -lt "$AGAIN" ] || late "the request may have been sent again meanwhile"
	# The client has no answer that it understands.
	not rt_wait
	maps_another
}

# goes: take the interface down, until the path is lost.
goes()
{
	# RNBD's message that closes its device waits for a path, too.
	write "$SESS/fast_io_fail_tmo" 2
	ip link set "$IFACE" down
	wait_for 20 not has_words "$SESS/state" "connected 1/1"
	# Some ids wait: their disconnect messages got no answer.
	cm_ids >"$TMP/ids"
	cat "$TMP/ids"
	[ "$(wc -l <"$TMP/ids")" -gt 2 ]
}

# All ids but those that listen.
cm_ids() { rdma resource show cm_id | grep 'comm \[rtrs' | grep -v 'state LISTEN'; }

server_ids() { cm_ids | grep 'comm \[rtrs_server'; }

# server_closes: the rest of its connections waits for the interface, though the server does not.
server_closes()
{
	rt serve port="$CLOSED"
	rt open name=closes path=ip:10.9.0.2@ip:10.9.0.1 port="$CLOSED"
	ip link set "$IFACE" down
	rt unserve port="$CLOSED"
	server_ids
	ip link set "$IFACE" up
	rt close name=closes
	wait_for 5 not server_ids
	maps_another
}

device_goes()
{
	local t0=$SECONDS

	rdma link delete rxe0
	[ $((SECONDS - t0)) -le $((10 * RTRS_TIME_SCALE)) ] || late "it took $((SECONDS - t0)) s"
	[ -z "$(cm_ids)" ]
}

device_comes()
{
	ip link set "$IFACE" up && rdma link add rxe0 type rxe netdev "$IFACE" && wait_for 5 rdma_active rxe0
}

must "soft RoCE comes up" rxe_up rxe0 10.9.0.1/24 10.9.0.2/24
defer rxe_down rxe0
must "two disks" eval "null_blk_up nullb0 64 && null_blk_up nullb1 16"
defer null_blk_down nullb0
defer null_blk_down nullb1
resource_snapshot
defer unload_modules
must "modules load" eval "load_test && load_rnbd both"
must "a device maps" map
load_start "$(dev)"
for ((i = 1; i <= TIMES; i++)); do
	sleep 1
	check "IO waits for the interface, and goes on, $i of $TIMES" down_and_up
	grep -o 'IO went on.*' "$TMP/case.log" | sed 's/^/# /'
	check "nothing fails, time $i" load_runs
done
load_stop
check "all IO succeeded and verified" load_is_fine
check "nothing is in flight" nothing_in_flight iface
check "a new session over the device works" maps_another
check "the device unmaps" unmap_rnbd "$(dev)"

must "requests to connect wait for commands" rt door port="$DOOR"
check "a request may be dropped without the interface" decided_without drop
check "or rejected" decided_without reject
check "but not accepted" decided_without accept
must "now they wait in the connection manager" eval "rt shut port=$DOOR && rt door port=$DOOR slow=1"
check "there they may be rejected, too" decided_without turn-away
must "no requests wait any more" rt shut port="$DOOR"

check "a server may be closed without the interface" server_closes

# The remains of connections must not delay the removal of their device.
must "a device maps again" map
check "the interface goes again" goes
check "its RDMA device can be removed meanwhile" device_goes
check "the device unmaps, too" unmap_rnbd "$(dev)"
must "soft RoCE is back" device_comes
check "and so is what it takes to map a device" maps_another

must "a device maps once more" map
check "the interface goes once more" goes
check "the device unmaps without it" unmap_rnbd "$(dev)"
check "modules unload without it" unload_modules
finish
