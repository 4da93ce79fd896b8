# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Helpers around rtrs-peer, which speaks RTRS from user space and does not keep
# to the protocol. To be read after common.sh by tests that use it.

# Where tests/env/peer.sh put it; RTRS_PEER says otherwise.
RTRS_PEER=${RTRS_PEER:-$RTRS_CACHE/build/peer-$(printf '%s' "$RTRS_REPO" | sha256sum | cut -c 1-8)/debug/rtrs-peer}
PEER_PORT=4321

# peer_require: its program, and the modules that let programs use RDMA.
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

	# One that a failed case left behind has the port.
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

# peer_done: did the rogue server see what it wanted to see?
peer_done()
{
	local rc=0

	wait "$PEER_PID" || rc=$?
	cat "$TMP/peer.json"
	return "$rc"
}

# peer_attack CASE[,CASE...] [OPTION...]: be a rogue client of the server at
# 10.9.0.1.
peer_attack()
{
	local case=$1
	shift

	timeout $((300 * RTRS_TIME_SCALE)) \
		"$RTRS_PEER" client --addr 10.9.0.1 --case "$case" "$@"
}
