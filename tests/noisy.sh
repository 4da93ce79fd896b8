#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: a client that floods the log with one kind of line does not hide that line about other clients
# topology: single
# timeout: 150
# seconds: 30

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/testmod.sh"
. "$RTRS_LIB/peer.sh"

# The noisy client, and the others, which are refused once each.
NOISY=10.9.0.2
OTHERS=(10.9.0.3 10.9.0.4 10.9.0.5 10.9.0.6 10.9.0.7 10.9.0.8)
# One address in 32 shares the noisy one's allowance.
ENOUGH=4

addresses() { printf '%s/24 ' 10.9.0.1 "$NOISY" "${OTHERS[@]}"; }

# lines ADDRESS: number of lines about a refused connection from ADDRESS.
lines()
{
	dmesg_since_start | grep -c "rtrs_server: ip:$1@ip:10\.9\.0\.1: connection 0 of [0-9]* refused: "
}

# Refusals by either quota: once a source may have only one session, the noisy client meets that
# quota.
refused() { echo $(($(quota handshakes_per_source refused) + $(quota sessions_per_source refused))); }

# The client has the one handshake that it may have, and each further one is refused.
noise()
{
	"$RTRS_PEER" half-open --addr 10.9.0.1 --from "$NOISY" --sources 1 --count 20000 \
		--workers 4 --pause $((60 * RTRS_TIME_SCALE)) --deadline $((60 * RTRS_TIME_SCALE)) >"$TMP/half" 2>&1 &
	NOISE=$!
	echo "$NOISE" >"$TMP/noise"
}

# After this many refusals the log has all the lines about this client that the limit allows.
is_noisy() { [ "$(refused)" -gt 100 ]; }

others_are_heard()
{
	local addr heard=0 before

	before=$(refused)
	write "$Q/sessions_per_source/max" 1
	for addr in "${OTHERS[@]}"; do
		# The second session is refused.
		rt open name=a path="ip:$addr@ip:10.9.0.1"
		refuses 87 open name=b path="ip:$addr@ip:10.9.0.1"
		rt close name=a
		[ "$(lines "$addr")" -eq 0 ] || heard=$((heard + 1))
	done
	echo "$heard of ${#OTHERS[@]} are in the log; meanwhile $(($(refused) - before)) refusals of the noisy one"
	[ $(($(refused) - before)) -gt 50 ] || late "that is not much"
	[ "$heard" -ge "$ENOUGH" ]
}

# The noisy client is in the log too, but not more often than the limit allows.
noise_is_bounded()
{
	local was now t0

	was=$(lines "$NOISY")
	t0=$(ms_now)
	sleep 6
	now=$(lines "$NOISY")
	echo "$((now - was)) lines"
	[ "$now" -gt "$was" ]
	[ $((now - was)) -le $((10 * (($(ms_now) - t0) / 5000 + 2))) ]
	kill -0 "$(cat "$TMP/noise")"
}

# shellcheck disable=SC2046 # words
must "soft RoCE comes up" rxe_up rxe0 $(addresses)
defer rxe_down rxe0
peer_require
resource_snapshot
defer unload_modules
must "modules load" load_test sess_queue_depth=8 max_chunk_size=65536 session_linger=0 \
	max_handshakes_per_source=1 handshake_timeout_ms=$((60000 * RTRS_TIME_SCALE))
must "a server opens" rt serve
noise
must "a client is refused again and again" wait_for 40 is_noisy
check "the log names others" others_are_heard
check "and the noisy one, a few times" noise_is_bounded
kill "$NOISE"
wait "$NOISE" 2>/dev/null || true
check "modules unload" unload_modules
finish
