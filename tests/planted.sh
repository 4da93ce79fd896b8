#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: free memory is full of a known pattern, and none of it comes out of chunks
# topology: single
# mem: 1G
# timeout: 300
# seconds: 65
# append: init_on_alloc=0

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/peer.sh"

# Chunks are allocated before the mode of keys matters.
MODES=Y
[ -z "${RTRS_LONG:-}" ] || MODES="Y N"

# Fill most of the free memory, as fast as possible, then free it again.
plant()
{
	local mib

	grep -qw init_on_alloc=0 /proc/cmdline
	mkdir -p "$TMP/shm"
	mountpoint -q "$TMP/shm" || mount -t tmpfs -o size=90% none "$TMP/shm"
	mib=$(awk '/^MemAvailable/ { print int($2 / 1024 * 0.8) }' /proc/meminfo)
	head -c "${mib}M" < <(yes PLANTED) >"$TMP/shm/planted"
	ls -l "$TMP/shm/planted"
	umount "$TMP/shm"
}

leftovers()
{
	local rc=0

	peer_attack leftovers --seed "$1" >"$TMP/said" || rc=$?
	cat "$TMP/said"
	grep -q '"depth":512' "$TMP/said"
	grep -q '"leaked":0' "$TMP/said" || { echo "what was in memory came out"; return 1; }
	return "$rc"
}

# Mainline's server does not clear chunks before it uses them. Not all of them need be of the memory
# that was filled.
given_away()
{
	peer_attack leftovers --seed 1 >"$TMP/said" || true
	cat "$TMP/said"
	grep -q '"depth":512' "$TMP/said"
	grep -Eq '"planted":[1-9]' "$TMP/said"
	not grep -q '"leaked":0' "$TMP/said"
}

must "soft RoCE comes up" rxe_up rxe0
defer rxe_down rxe0
peer_require
resource_snapshot
defer unload_modules
for ai in $MODES; do
	must "$ai: a server loads" eval \
		"load_rtrs rust server always_invalidate=$ai session_linger=0 && load_rnbd server"
	must "$ai: free memory is full of a pattern" plant
	check "$ai: none of it is in answers" leftovers 1
	must "$ai: the server unloads" unload_modules
done
# Control: if the pattern could not be found, the cases above would prove nothing.
must "control: mainline's server loads" eval "load_rtrs c server && load_rnbd server"
must "control: free memory is full of a pattern" plant
check "control: it is in answers" given_away
must "control: the server unloads" unload_modules
finish
