#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: a silent server is noticed as fast as configured, and nothing waits for a path that stays down
# topology: pair
# timeout: 240
# seconds: 60

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
require rdma

SESS=/sys/class/rtrs-client/fast
MAP=("ip:$(pair_addr 0)@ip:$(pair_addr 0 server)")
# Nothing has this address.
NOWHERE=ip:10.9.1.77

map() { map_rnbd fast /dev/nullb0 "$@" >"$TMP/dev"; }
unmap() { unmap_rnbd "$(cat "$TMP/dev")"; }

# since T0 LIMIT WHAT: fail if T0 is LIMIT ms ago or more.
since()
{
	local ms=$(($(ms_now) - $1))
	echo "$3 after $ms ms"
	[ "$ms" -lt $(($2 * RTRS_TIME_SCALE)) ] || late "that is too long"
}

tune()
{
	write "$SESS/heartbeat_interval_ms" 200
	write "$SESS/heartbeat_limit" 5
	write "$SESS/ack_timeout" 16
	[ "$(cat "$SESS/heartbeat_interval_ms")" = 200 ]
	[ "$(cat "$SESS/heartbeat_limit")" = 5 ]
	[ "$(cat "$SESS/ack_timeout")" = 16 ]
}

params()
{
	local p=/sys/module/rtrs_client/parameters
	[ "$(cat $p/heartbeat_interval_ms)" = 5000 ]
	[ "$(cat $p/heartbeat_limit)" = 5 ]
	[ "$(cat $p/fast_io_fail_tmo)" = 180 ]
	[ "$(cat "$SESS/fast_io_fail_tmo")" = 180 ]
	[ "$(cat $p/silent_path_ms)" = "$(cat "$SESS/silent_path_ms")" ]
	# The debug kernel gets other values, see load_rtrs.
	[ "$RTRS_TIME_SCALE" -gt 1 ] || [ "$(cat $p/ack_timeout) $(cat $p/silent_path_ms)" = "0 800" ]
}

state_is() { [ "$(cat "$SESS"/paths/*/state)" = "$1" ]; }

# address add|del: the client's address on the interface of the path.
address() { ip addr "$1" "$(pair_addr 0 client)/24" dev eth0; }

# The heartbeats would take 25 s to notice.
address_goes()
{
	local t0
	t0=$(ms_now)
	address del
	wait_for 5 not state_is connected
	since "$t0" 2000 "noticed"
	dmesg_has 'connected: address is gone'
}

# Attempts to connect are repeated, but each one waits longer than the one before: the next would
# not come this soon.
address_comes()
{
	local t0
	sleep 7
	t0=$(ms_now)
	address add
	wait_for 20 state_is connected
	since "$t0" 3000 "connected"
}

# The server's machine stands still: only heartbeats can notice. With the defaults that takes 25 s
# at least.
silent()
{
	local t0
	t0=$(ms_now)
	vm_control pause server
	wait_for 20 state_is disconnected
	since "$t0" 6000 "noticed"
	grep -q 'no heartbeat' "$SESS"/paths/*/state_full
}

back()
{
	vm_control resume server
	wait_for 60 state_is connected
}

# The message that closes the device has no path. It fails after 5 s, so that unmapping does not
# wait for ever.
unmap_alone()
{
	local t0 t1 rc=0
	write "$SESS/fast_io_fail_tmo" off
	vm_control pause server
	wait_for 20 state_is disconnected || rc=1
	t0=$(ms_now)
	[ "$rc" -ne 0 ] || unmap || rc=1
	t1=$(ms_now)
	vm_control resume server
	[ "$rc" = 0 ]
	echo "unmapped after $((t1 - t0)) ms"
	[ $((t1 - t0)) -ge 4900 ]
	[ $((t1 - t0)) -lt 8000 ] || late "that is too long"
	dmesg_has 'no path for 5 s: 1 messages of the service connection fail'
}

# The attempt would take 4 s, the time in which the address is resolved.
add_nowhere() { printf '%s' "$NOWHERE" >"$SESS/add_path"; }

no_host()
{
	local t0
	t0=$(ms_now)
	expect_error "Connection timed out" write "$SESS/add_path" "$NOWHERE"
	since "$t0" 8000 "given up"
}

killed()
{
	local t0 pid
	add_nowhere &
	pid=$!
	sleep 1
	t0=$(ms_now)
	kill -KILL "$pid"
	! wait "$pid" || return
	since "$t0" 1000 "gone"
	[ ! -e "$SESS/paths/$NOWHERE" ]
	[ "$(find "$SESS/paths" -mindepth 1 -maxdepth 1 | wc -l)" -eq 1 ]
}

close_at_once()
{
	local t0 pid
	add_nowhere 2>"$TMP/add" &
	pid=$!
	sleep 1
	t0=$(ms_now)
	unmap
	since "$t0" 2000 "unmapped"
	! wait "$pid" || return
	cat "$TMP/add"
}

bad_params()
{
	local p
	unload_modules
	load_one "$RTRS_MODULES" rtrs-core
	for p in heartbeat_interval_ms=99 heartbeat_interval_ms=60001 heartbeat_limit=0 \
		heartbeat_limit=101 silent_path_ms=99 silent_path_ms=60001 ack_timeout=32 ack_timeout=-1 \
		request_timeout_ms=-1 request_timeout_ms=3600001 copy_fence_ms=-1 copy_fence_ms=60001 inline_max=-1 inline_max=257 max_queue_depth=0 max_queue_depth=65536 \
		fast_io_fail_tmo=86401 fast_io_fail_tmo=-1; do
		expect_error "Invalid parameters" load_one "$RTRS_MODULES" rtrs-client "$p"
		dmesg_has "$p: has to be"
	done
	expect_error "Invalid parameters" load_one "$RTRS_MODULES" rtrs-client fast_io_fail_tmo=offline
	load_one "$RTRS_MODULES" rtrs-client fast_io_fail_tmo=off
	[ "$(cat /sys/module/rtrs_client/parameters/fast_io_fail_tmo)" = off ]
}

server_role() { serve_disk 64 200; }

client_role()
{
	client_ready
	must "a device maps" map "${MAP[@]}"
	check "the parameters have their defaults" params
	check "an address that goes is noticed at once" address_goes
	# The settings hold for the connections that are made next.
	check "heartbeats are settable" tune
	check "so is one that comes" address_comes
	check "a silent server is noticed" silent
	check "and found again" back
	check "a device unmaps while its server is silent" unmap_alone
	must "it maps again" map "${MAP[@]}"
	check "that no host has an address is known in time" no_host
	check "a task that waits for a path can be killed" killed
	check "closing does not wait for a path" close_at_once
	check "parameters out of bounds are refused" bad_params
	barrier unmapped
}

pair_main
