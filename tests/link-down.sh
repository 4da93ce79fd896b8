#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: the only cable is pulled under verified load: IO waits, goes on within 3 s, and fails only after fast_io_fail_tmo
# topology: pair
# timeout: 300
# seconds: 70

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
require fio rdma

# Limit in milliseconds for IO to go on after the cable is back.
LIMIT=$((${RTRS_RESUME_LIMIT:-3} * 1000 * RTRS_TIME_SCALE))
# Seconds that IO waits in the second part.
TMO=3
# Seconds without a cable in the first part.
LONG=5
[ -z "${RTRS_LONG:-}" ] || LONG=10
SESS=$CLT/cable

map()
{
	map_rnbd cable /dev/nullb0 "ip:$(pair_addr 0)@ip:$(pair_addr 0 server)" >"$TMP/dev"
}
dev() { cat "$TMP/dev"; }

# cable down|up: record the time before and after the change.
cable()
{
	ms_now >"$TMP/$1.before"
	vm_control link client 0 "$1"
	ms_now >"$TMP/$1"
}

# went_on LIMIT CMD...: CMD, which succeeds once IO goes on, succeeds within LIMIT milliseconds
# after the cable was put back.
went_on()
{
	local limit=$1 ms
	shift

	until "$@"; do
		ms=$(($(ms_now) - $(cat "$TMP/up")))
		[ "$ms" -lt 60000 ] || return
		sleep 0.05
	done
	ms=$(($(ms_now) - $(cat "$TMP/up")))
	echo "IO went on $ms ms after the cable was back"
	cat "$SESS"/paths/*/state_full
	[ "$ms" -lt "$limit" ] || late "that is too long"
}

# more_than N: the device has completed more than N requests.
more_than() { [ "$(ios "$(dev)")" -gt "$1" ]; }

resumes() { went_on "$LIMIT" more_than "$(ios "$(dev)")"; }

# one_write: print one line: 0 or 1, and the time when the write ended.
one_write()
{
	local rc=0
	dd if=/dev/zero of="/dev/$(dev)" bs=4k count=1 seek=$((12 * 1024)) oflag=direct status=none 2>&1 || rc=1
	echo "$rc $(ms_now)"
}

writes() { [ "$(one_write | tail -n 1 | cut -d ' ' -f 1)" = 0 ]; }

# errors_after_the_time: all writes that were not complete before the cable was pulled wait for TMO
# seconds, and then fail.
errors_after_the_time()
{
	local rc over at first

	write "$SESS/fast_io_fail_tmo" $TMO
	writes
	cable down
	# The first writes wait, later ones are refused.
	one_write >"$TMP/w1" &
	one_write >"$TMP/w2" &
	wait
	for first in w1 w2; do
		cat "$TMP/$first"
		read -r rc over < <(tail -n 1 "$TMP/$first")
		at=$((over - $(cat "$TMP/down")))
		over=$((over - $(cat "$TMP/down.before")))
		echo "the write was over after $at to $over ms"
		[ "$rc" = 1 ]
		[ "$over" -ge $((TMO * 1000)) ]
		[ "$at" -lt $(((TMO + 3) * 1000 * RTRS_TIME_SCALE)) ] || late "that is too long"
	done
	at=$(ms_now)
	not writes
	at=$(($(ms_now) - at))
	echo "the next one took $at ms"
	[ "$at" -lt $((1000 * RTRS_TIME_SCALE)) ] || late "that is too long"
}

# RNBD opens its device again, which takes a message and its answer.
recovers()
{
	cable up
	went_on $((LIMIT + 2000)) writes
	fio_verify "$(dev)" 2M
}

# The cable stays, the interface goes; interface-down.sh covers more of this.
interface()
{
	local before

	ip link set eth0 down
	sleep 8
	before=$(ios "$(dev)")
	ip link set eth0 up
	ms_now >"$TMP/up"
	went_on "$LIMIT" more_than "$before"
	load_runs
}

# The client notices by heartbeats that get no answer, or by requests that are not acknowledged.
servers_interface()
{
	local before

	put "down$1" now
	get "up$1" >/dev/null
	before=$(ios "$(dev)")
	put "counted$1" now
	get "upped$1" >/dev/null
	ms_now >"$TMP/up"
	# An attempt to connect that is under way repeats its datagrams after some seconds.
	went_on $((LIMIT + 5000)) more_than "$before"
	load_runs
}

# takes_interface: the server's side of that.
takes_interface()
{
	local n

	for n in 1 2; do
		get "down$n" 200 >/dev/null
		ip link set eth0 down
		sleep 8
		put "up$n" now
		get "counted$n" >/dev/null
		ip link set eth0 up
		put "upped$n" now
	done
}

server_role() { serve_disk 128 200 takes_interface; }

client_role()
{
	local n

	client_ready
	must "a device maps" map
	load_start "$(dev)"
	sleep 1
	check "the cable is pulled" cable down
	sleep "$LONG"
	check "nothing fails for $LONG s" load_runs
	check "the cable is put back" cable up
	check "IO goes on within $((LIMIT / 1000)) s" resumes
	ktap_log "$TMP/case.log" 6
	sleep 1
	load_stop
	check "all IO succeeded and verified" load_is_fine
	check "nothing is in flight" nothing_in_flight cable
	check "IO fails $TMO s after the cable is pulled, not before" errors_after_the_time
	ktap_log "$TMP/case.log" 6
	check "it goes on by itself when the cable is back" recovers
	grep -o 'IO went on.*' "$TMP/case.log" | sed 's/^/# /'
	write "$SESS/fast_io_fail_tmo" 30
	load_start "$(dev)"
	sleep 1
	check "the interface is taken down for 8 s, and IO goes on" interface
	grep -o 'IO went on.*' "$TMP/case.log" | sed 's/^/# /'
	for n in 1 2; do
		check "the server's interface is taken down for 8 s, and IO goes on, $n of 2" servers_interface "$n"
		grep -o 'IO went on.*' "$TMP/case.log" | sed 's/^/# /'
	done
	load_stop
	check "all IO succeeded and verified, too" load_is_fine
	check "the device unmaps" unmap_rnbd "$(dev)"
	check "the client modules unload" unload_modules
	barrier unmapped
}

pair_main
