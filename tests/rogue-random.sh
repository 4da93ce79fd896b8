#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: servers that misbehave at random once they are connected: all IO ends, all sessions recover
# topology: single
# timeout: 1800
# seconds: 85

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/testmod.sh"
. "$RTRS_LIB/peer.sh"
require rdma

EVIL=ip:10.9.0.1
SEED=${RTRS_SEED:-$([ -n "${RTRS_LONG:-}" ] && random_seed || echo 1)}

# Bytes of data of a request: more than are copied.
LEN=5000

SESSIONS=(f1 f2 f3 f4 f5 f6)
SECS=20
[ "$RTRS_TIME_SCALE" = 1 ] || SECS=80
[ -z "${RTRS_LONG:-}" ] || SECS=600

open_all()
{
	local s

	: >"$TMP/honest.now"
	rogue_start evil 10.9.0.1 --seed "$SEED" --honest "$TMP/honest.now" --verbose
	for s in "${SESSIONS[@]}"; do
		rt open "name=$s" "path=$EVIL" port="$PEER_PORT" delay=0
		write "/sys/class/rtrs-client/$s/fast_io_fail_tmo" 1
	done
}

# again SESSION: reconnect by hand a path whose server turned out to be another one.
again()
{
	local path
	path=$(echo "/sys/class/rtrs-client/$1"/paths/*)

	if grep -q -E '^state: (incompatible|given-up)' "$path/state_full"; then
		# The attempt may fail: that server may misbehave, too.
		write "$path/reconnect" 1 2>/dev/null || true
	else
		sleep 0.2
	fi
	return 0
}

# Read and write until the time is over. The server decides how a request ends; each must end, and
# only once.
session_io()
{
	local s=$1 end=$((SECONDS + SECS)) n=0 dir

	while [ "$SECONDS" -lt "$end" ]; do
		for dir in read write; do
			rt io "name=$s" "dir=$dir" "tag=$s.$dir" len="$((n % 4 < 2 ? 4096 : LEN))" count=48 depth=12 expect=any timeout=60 \
				2>/dev/null || true
			n=$((n + 1))
			# A server may answer reads with success although the data it wrote are
			# wrong.
			case $dir:$(result "$s.$dir") in
			*:ok* | read:"error -74 "*) ;;
			*) echo "$dir: $(result "$s.$dir")" >>"$TMP/wrong" ;;
			esac
		done
		again "$s"
	done
	echo "$s: $n runs" >>"$TMP/runs"
}

all_io()
{
	local s pids=()

	rm -f "$TMP/honest.now" "$TMP/wrong" "$TMP/runs"
	for s in "${SESSIONS[@]}"; do
		session_io "$s" &
		pids+=($!)
	done
	wait "${pids[@]}"
	cat "$TMP/runs"
	[ "$(wc -l <"$TMP/runs")" -eq "${#SESSIONS[@]}" ]
	[ ! -e "$TMP/wrong" ] || {
		sort "$TMP/wrong" | uniq -c
		return 1
	}
	balanced
}

met() { grep -c '"plan"' "$TMP/evil.json"; }

all_connected()
{
	local s

	for s in "${SESSIONS[@]}"; do
		[ "$(cat "/sys/class/rtrs-client/$s"/paths/*/state)" = connected ] || return
	done
}

recovers()
{
	local s

	: >"$TMP/honest.now"
	# Paths that were connected before live on for 1.5 s (LIFE in peer/src/rogue.rs).
	sleep $((2 * RTRS_TIME_SCALE))
	for s in "${SESSIONS[@]}"; do
		again "$s"
	done
	# Connecting takes up to 30 s, and some paths may just have begun.
	wait_for 60 all_connected || {
		grep . /sys/class/rtrs-client/f*/paths/*/state_full
		echo "the server said last:"
		tail -n 3 "$TMP/evil.json"
		return 1
	}
	for s in "${SESSIONS[@]}"; do
		io "$s" dir=write len=4096 count=32 depth=8
	done
}

close_all()
{
	local s

	for s in "${SESSIONS[@]}"; do
		rt close "name=$s"
	done
	rogue_stop evil
}

# random TAG PARAM=VALUE...: a client with these parameters meets random servers.
random()
{
	local tag=$1
	shift

	rogue_params "$@"
	must "$tag: modules load" load_test
	must "$tag: sessions to a random server" open_all
	check "$tag: every request ends (seed $SEED)" all_io
	note "$(met) paths met a random server"
	# A server that falls silent is noticed after half a minute.
	check "$tag: there were many of them" [ "$(met)" -ge $((SECS / 4)) ]
	check "$tag: all sessions recover once it serves" recovers
	check "$tag: they close" close_all
	check "$tag: modules unload" unload_rtrs
}

must "soft RoCE comes up" rxe_up rxe0
defer rxe_down rxe0
peer_require
resource_snapshot
defer unload_rtrs
defer rogue_stop evil
note "seed $SEED"
random "keys told"
random "keys counted" keep_keys=Y
finish
