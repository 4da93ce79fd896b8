#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: mainline's server loses the last path while another one connects, and the client does not notice: RNBD's devices are opened again, no write reaches another disk
# topology: pair
# timeout: 300
# seconds: 60

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
require fio rdma tc cmp

# 4.3 s: no queue pair ends over a packet that is late.
export RTRS_ACK_TIMEOUT=20
# Milliseconds that a packet takes to the server while the second path connects. Between the server's
# answer to its first connection and the request for the chunks are two of them.
SLOW=1500
# Milliseconds that a path may be silent while the test looks at one that waits for it, and by default.
# Soft RoCE was seen to need more than 15 s to send again what a link had lost. Mainline's server gives up
# a path after 25 s, so a link is not cut for that long.
PATIENT=60000
SILENT=$((800 * RTRS_TIME_SCALE))
# Milliseconds for a path to connect if the other one answers, and for a command.
SOON=$((3000 * RTRS_TIME_SCALE))
AT_ONCE=$((1000 * RTRS_TIME_SCALE))
SESS=$CLT/unseen

path() { printf 'ip:%s@ip:%s\n' "$(pair_addr "$1" client)" "$(pair_addr "$1" server)"; }
dir() { path_dir unseen "$(path "$1")"; }

# lossy N [WHAT...]: what happens from now on to packets that this side sends over link N. To change it
# takes no packet, unlike to add it.
lossy() { tc qdisc change dev "eth$1" root netem limit 10000 "${@:2}"; }
cut() { lossy 0 loss 100%; }
heal() { lossy 0; }

# ready: links that can be made worse, and neighbours that are known although a link is cut.
ready()
{
	local n peer mac

	modprobe -q sch_netem
	for n in 0 1; do
		tc qdisc add dev "eth$n" root netem limit 10000
		peer=$(pair_addr "$n" "$(pair_peer)")
		ping -c 1 -W 5 -q "$peer"
		mac=$(ip -4 neigh show to "$peer" dev "eth$n" | sed -n 's/.*lladdr \([^ ]*\).*/\1/p')
		ip neigh replace "$peer" lladdr "$mac" dev "eth$n" nud permanent
	done
}

#
# The server
#

# second: the second path at the server: "gone", "connecting" or "up".
second()
{
	if compgen -G "$SRV/unseen/paths/*$(pair_addr 1 client)*" >"$TMP/second"; then
		echo up
	elif rdma resource show qp link rxe1/1 2>/dev/null | has -E '\[(rdma_cm|rtrs_server)\]'; then
		echo connecting
	else
		echo gone
	fi
}

# tell_second: tell the client of each change.
tell_second()
{
	local last='' now

	while :; do
		now=$(second)
		[ "$now" = "$last" ] || put second "$now"
		last=$now
		sleep 0.05
	done
}

second_is() { [ "$(second)" = "$1" ]; }

# As soon as the second path has its first connection, lose the first one.
lose_first()
{
	local end=$((SECONDS + 60 * RTRS_TIME_SCALE)) f

	f=$(echo "$SRV"/unseen/paths/*"$(pair_addr 0 client)"*/disconnect)
	until second_is connecting; do
		[ "$SECONDS" -lt "$end" ]
	done
	write "$f" 1
	# It says so only if no other path is up by then.
	wait_for 5 dmesg_has "RTRS Session unseen disconnected" ||
		late "the second path was up before the first one was lost"
	wait_for 30 second_is up
}

nothing_refused() { not dmesg_has "Not the first connection request"; }

contents()
{
	local n

	for n in 1 2 3; do
		cmp -n $((1 << 20)) "$RTRS_SYNC/data.$n" "/dev/nullb$n" || {
			echo "disk $n has not what was written to it"
			return 1
		}
	done
}

disks_up() { for n in 0 1 2 3; do null_blk_up "nullb$n" 16; done; }
disks_down() { for n in 0 1 2 3; do null_blk_down "nullb$n"; done; }

server_role()
{
	local what

	must "links are ready" ready
	must "disks" disks_up
	defer disks_down
	must "server modules load" eval "load_rtrs c server && load_rnbd server"
	barrier listening
	tell_second &
	defer kill "$!"
	for what in "cut 1" "heal 1" "cut 2"; do
		get "$what" 120 >/dev/null
		"${what% *}"
		put "$what.done" yes
	done
	check "the server loses its only path before the next one is up" lose_first
	check "it has refused none" nothing_refused
	put lost yes
	barrier written 120
	check "each disk has what was written to it" contents
	barrier unmapped
	check "the server modules unload" unload_modules
}

#
# The client
#

# map N: disk N of the server.
map() { map_rnbd unseen "/dev/nullb$1" "$(path 0)" "$(path 1)" >"$TMP/dev.$1"; }
dev() { cat "$TMP/dev.$1"; }

at_server() { [ "$(cat "$RTRS_SYNC/second.value")" = "$1" ]; }

second_off()
{
	local t0
	t0=$(ms_now)

	write "$(dir 1)/disconnect" 1
	at_most $(($(ms_now) - t0)) "$AT_ONCE" "disconnecting"
	wait_for 20 at_server gone
	# The server forgets the path a moment after its queues.
	sleep 0.5
}

# both "cut|heal N": both ends do so, for the Nth time.
both()
{
	"${1% *}"
	put "$1" now
	get "$1.done" >"$TMP/value"
}

# second_on: reconnect the second path, in the background; $TMP/on has the status and the time it took.
second_on()
{
	rm -f "$TMP/on"
	(
		t0=$(ms_now)
		rc=0
		write "$(dir 1)/reconnect" 1 2>/dev/null || rc=$?
		echo "$rc $(($(ms_now) - t0))" >"$TMP/on"
	) &
}

# is_on [LIMIT]: it is connected, after at most LIMIT milliseconds.
is_on()
{
	local rc ms

	wait_for 30 test -s "$TMP/on" || late "it does not connect"
	read -r rc ms <"$TMP/on"
	echo "the path was connected after $ms ms"
	[ "$rc" = 0 ]
	has_words "$(dir 1)/state" connected
	[ -z "${1:-}" ] || at_most "$ms" "$1" "connecting"
}

opened_again() { dmesg_has "unseen: the server did not know the session any more: $1 devices opened again"; }
# Neither end waits longer than 25 s for the other's heartbeats, and mainline's server cannot be told to.
not_opened_again()
{
	not dmesg_has "no heartbeat" || late "the link was cut for too long"
	not dmesg_has "unseen: the server did"
}

# waits: the server has it, and the client does not use it.
waits()
{
	wait_for 20 at_server up
	sleep 1
	has_words "$(dir 1)/state_full" "state: connecting"
	not test -e "$TMP/on"
}

write_data() { dd if="$RTRS_SYNC/data.$1" of="/dev/$(dev "$1")" bs=64k oflag=direct conv=nocreat,notrunc status=none; }

new_disks()
{
	map 2
	map 3
}

write_all()
{
	local n

	for n in 2 3 1; do
		write_data "$n"
	done
}

lost_first()
{
	get lost 120 >"$TMP/value"
	lossy 1
}

client_role()
{
	local n

	for n in 1 2 3; do
		head -c $((1 << 20)) /dev/urandom >"$RTRS_SYNC/data.$n"
	done
	must "links are ready" ready
	client_ready
	must "a device maps over both links" map 0
	must "another one does, which has another number at the server" map 1
	must "the first one unmaps" unmap_rnbd "$(dev 0)"
	check "the device works" fio_verify "$(dev 1)" 2M

	must "the other path answers: one is disconnected" second_off
	second_on
	check "the other path answers: it comes back at once" is_on "$SOON"
	ktap_log "$TMP/case.log" 1

	must "the other path is silent: one is disconnected" second_off
	must "a path may be silent for long" write "$SESS/silent_path_ms" "$PATIENT"
	both "cut 1"
	second_on
	check "the other path is silent: it is waited for" waits
	check "the other path is silent: a command does not wait" second_off
	# A slow machine takes too long for both.
	if [ "$RTRS_TIME_SCALE" -eq 1 ]; then
		second_on
		check "the other path is silent: it is waited for again" waits
	fi
	both "heal 1"
	[ "$RTRS_TIME_SCALE" -eq 1 ] || second_on
	check "the other path is silent no more: both are used" is_on
	ktap_log "$TMP/case.log" 1
	check "no device was opened again" not_opened_again
	write "$SESS/silent_path_ms" "$SILENT"

	must "the other path is lost: one is disconnected" second_off
	lossy 1 delay "${SLOW}ms"
	both "cut 2"
	second_on
	check "the other path is lost: the server has noticed" lost_first
	check "the other path is lost: the one comes up" is_on
	ktap_log "$TMP/case.log" 1
	check "the device was opened again" opened_again 1
	check "it works" fio_verify "$(dev 1)" 2M
	check "new devices map" new_disks
	check "all of them can be written to" write_all
	barrier written
	check "all devices unmap" unmap_all_rnbd
	check "the client modules unload" unload_modules
	barrier unmapped
}

pair_main
