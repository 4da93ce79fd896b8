# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Helpers around rtrs-peer, a program that speaks RTRS from user space and breaks the protocol.
# Tests that use it source this file after common.sh.

# The place where tests/env/peer.sh puts it, unless RTRS_PEER names another one.
RTRS_PEER=${RTRS_PEER:-$RTRS_CACHE/build/peer-$(printf '%s' "$RTRS_REPO" | sha256sum | cut -c 1-8)/debug/rtrs-peer}
PEER_PORT=4321

# random_seed: a seed for a test, which prints it. RTRS_SEED repeats a run with the same seed.
random_seed() { od -An -N4 -tu4 /dev/urandom | tr -d ' '; }

# peer_require: the program, and the modules that let programs use RDMA, must be there.
peer_require()
{
	[ -x "$RTRS_PEER" ] || skip_all "there is no $RTRS_PEER: run tests/env/peer.sh"
	modprobe -a rdma_ucm ib_uverbs || skip_all "no RDMA for programs: rdma_ucm, ib_uverbs"
}

# peer_server CASE [OPTION...]: start a rogue server at 10.9.0.1, in the
# background; peer_done waits for it.
peer_server()
{
	local case=$1
	shift

	# A rogue server left behind by a failed case still holds the port.
	[ ! -f "$TMP/peer.pid" ] || kill "$(cat "$TMP/peer.pid")" 2>/dev/null || true
	rm -f "$TMP/peer.ready"
	"$RTRS_PEER" server --addr 10.9.0.1 --port "$PEER_PORT" --case "$case" \
		--ready "$TMP/peer.ready" "$@" >"$TMP/peer.json" 2>&1 &
	PEER_PID=$!
	echo "$PEER_PID" >"$TMP/peer.pid"
	wait_for 10 test -e "$TMP/peer.ready" || {
		cat "$TMP/peer.json"
		return 1
	}
}

# peer_done: did the rogue server see what it expects?
peer_done()
{
	local rc=0

	wait "$PEER_PID" || rc=$?
	cat "$TMP/peer.json"
	return "$rc"
}

# rogue_params [PARAM=VALUE...]: parameters of a client that meets rogue servers.
rogue_params()
{
	# attack.sh, interop.sh and a part of rogue.sh cover what servers may do with keys that are kept.
	local params=(keep_keys=N)

	# An attempt that gets no answer takes 30 s by default.
	[ -n "${RTRS_LONG:-}" ] || params+=("connect_timeout_ms=$((8000 * RTRS_TIME_SCALE))")
	client_params "${params[@]}" "$@"
}

# rogue_start NAME ADDRESS [OPTION...]: start a server in the background that serves until it
# misbehaves; rogue_stop NAME ends it.
rogue_start()
{
	local name=$1 addr=$2
	shift 2

	# One that a failed case has left has the port.
	rogue_stop "$name"
	rm -f "$TMP/$name.ready"
	"$RTRS_PEER" rogue --addr "$addr" --port "$PEER_PORT" --timeout 7200 --ready "$TMP/$name.ready" "$@" \
		>"$TMP/$name.json" 2>&1 &
	echo "$!" >"$TMP/$name.pid"
	wait_for 10 test -e "$TMP/$name.ready" || {
		cat "$TMP/$name.json"
		return 1
	}
}

rogue_stop()
{
	local pid
	pid=$(cat "$TMP/$1.pid" 2>/dev/null) || return 0

	rm -f "$TMP/$1.pid"
	kill "$pid" 2>/dev/null || true
	# Its parent may be a subshell that no longer exists, so "wait" does not work.
	wait_for 10 not kill -0 "$pid" 2>/dev/null
}

# peer_attack CASE[,CASE...] [OPTION...]: act as a rogue client of the server at 10.9.0.1.
peer_attack()
{
	local case=$1
	shift

	timeout $((300 * RTRS_TIME_SCALE)) \
		"$RTRS_PEER" client --addr 10.9.0.1 --case "$case" "$@"
}

#
# The attacker is 10.9.0.1, the honest client 10.9.0.2.
#

# arena ADDRESS/PREFIX...: set up the device where attacker and honest clients meet, with the
# addresses of the honest clients, and their disk.
arena()
{
	must "soft RoCE comes up" rxe_up rxe0 10.9.0.1/24 "$@"
	defer rxe_down rxe0
	peer_require
	must "a memory-backed null_blk" null_blk_up nullb0 64
	defer null_blk_down nullb0
	resource_snapshot
	defer unload_modules
}

honest_map() { map_rnbd honest /dev/nullb0 ip:10.9.0.2@ip:10.9.0.1 >"$TMP/dev"; }
honest_unmap() { unmap_rnbd "$(cat "$TMP/dev")"; }

# The honest client: writes and verifies until it is stopped.
honest_io()
{
	rm -f "$TMP/stop" "$TMP/honest"
	(
		n=0
		while [ ! -e "$TMP/stop" ]; do
			fio_verify "$(cat "$TMP/dev")" 1M --iodepth=4 --rate_iops=100 || exit 1
			n=$((n + 1))
		done
		[ "$n" -eq 0 ] || echo "$n rounds" >"$TMP/honest"
	) >"$TMP/fio.log" 2>&1 </dev/null &
	HONEST=$!
}

honest_stop()
{
	: >"$TMP/stop"
	wait "$HONEST"
}

honest_well()
{
	[ -e "$TMP/honest" ] || {
		tail -n 20 "$TMP/fio.log"
		echo "honest IO failed, or did not verify"
		return 1
	}
}

# The honest client's path never went down: there was not even an attempt to reconnect. The log, as
# far as it goes back, gives the reason.
honest_undisturbed()
{
	local path

	for path in /sys/class/rtrs-client/honest/paths/*; do
		[ "$(cat "$path/state" "$path/stats/reconnects" | tr '\n' ' ')" = "connected 0 0 " ] || {
			grep . "$path/state_full" "$path/stats/reconnects"
			dmesg_since_start | grep -E 'rtrs_client: honest [^ ]*: connected: ' || true
			return 1
		}
	done
}

# taken: all RDMA objects, and what the server counts for its connected clients.
taken()
{
	resource_counts
	grep . /sys/module/rtrs_server/quotas/{memory,cons,handshakes}/current
}

# baseline: record this state with the honest client connected.
baseline() { taken >"$TMP/baseline"; }

at_baseline()
{
	taken >"$TMP/baseline.now"
	cmp -s "$TMP/baseline" "$TMP/baseline.now"
}

# back_at_baseline [SECONDS]
back_at_baseline()
{
	wait_for "${1:-10}" at_baseline || {
		diff -u "$TMP/baseline" "$TMP/baseline.now" || true
		echo "something is left"
		return 1
	}
}
