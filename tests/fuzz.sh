#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: thousands of generated attacks leave the server and an honest client's verified IO unharmed
# topology: single
# timeout: 1200

. "$(dirname "$0")/lib/common.sh"
. "$(dirname "$0")/lib/peer.sh"
require fio rdma

# Small sessions, so that many of them fit. The depth is no power of two, so that some values name
# no chunk.
DEPTH=12
CHUNK=16384
# Half of the chunks have private pages for reads of all lengths; the others change their key.
PRIVATE=6

# All sessions come from one address, and each counts until the server forgets it. Other tests show
# the effect of quotas.
QUOTAS=(max_sessions=4096 max_sessions_per_source=4096 max_handshakes_per_source=1024
	max_cons_per_source=65536 max_memory=16384 max_memory_per_source=16384 session_linger=2)

# The same attacks each time, unless RTRS_SEED is set. With RTRS_LONG, ten minutes of different
# attacks each time.
SEED=${RTRS_SEED:-$([ -n "${RTRS_LONG:-}" ] && random_seed || echo 1)}
SESSIONS=${RTRS_SESSIONS:-2000}
WORKERS=${RTRS_WORKERS:-12}
LIMIT=()
if [ -n "${RTRS_LONG:-}" ]; then
	SESSIONS=1000000
	LIMIT=(--seconds 600)
elif [ "$RTRS_TIME_SCALE" != 1 ]; then
	# The debug kernel is slow; the number is enough for one attack of each kind.
	SESSIONS=300
fi

attack()
{
	# The attacker's messages go to the console at once: if the kernel dies, they are the last
	# ones.
	"$RTRS_PEER" fuzz --addr 10.9.0.1 --seed "$SEED" --sessions "$SESSIONS" --workers "$WORKERS" \
		--patience $((30 * RTRS_TIME_SCALE)) "${LIMIT[@]}" 2>&1 |
		tee "$TMP/fuzz" | sed -u 's/^/# /'
}

# summary KEY: a value from the attacker's last line.
summary() { tail -n 1 "$TMP/fuzz" | sed -n "s/.*\"$1\":\([a-z0-9.]*\).*/\1/p"; }

no_failure()
{
	[ "$(summary ok)" = true ] || {
		grep -F '"wrong"' "$TMP/fuzz" || true
		echo "the same again: rtrs-peer fuzz --addr 10.9.0.1 --seed $SEED --only INDEX"
		echo "a session was not answered or ended as it has to be"
		return 1
	}
}

enough_sessions()
{
	echo "$(summary sessions) sessions"
	[ -n "${RTRS_LONG:-}" ] || [ "$(summary sessions)" -ge "$SESSIONS" ]
}

# Attacks that all end the same way show little: each kind of end must have a share of the sessions,
# in percent about half of its usual one. Hardly any session may meet a quota.
all_ends()
{
	local end least n all rc=0

	all=$(summary sessions)
	while read -r end least; do
		n=$(summary "$end")
		echo "$end: ${n:-none} of $all, at least $least %"
		[ $((${n:-0} * 100)) -ge $((all * least)) ] || rc=1
	done <<-END
		refused 9
		unfinished 14
		closed 12
		served 8
		broken 7
	END
	n=$(summary over_quota)
	echo "over_quota: ${n:-none} of $all"
	[ $((${n:-0} * 100)) -le "$all" ] || rc=1
	return "$rc"
}

# The server's log: each place that logs is limited to ten lines in five seconds, and there are a
# dozen.
log_bounded()
{
	local lines secs=$1

	dmesg_since_start >"$TMP/dmesg"
	lines=$(grep -c 'rtrs_server: ' "$TMP/dmesg")
	echo "$lines lines in $secs s"
	[ "$lines" -le $((12 * 10 * (secs / 5 + 1))) ]
}

arena 10.9.0.2/24
note "seed $SEED"
must "modules load" eval \
	"load_rtrs rust both sess_queue_depth=$DEPTH max_chunk_size=$CHUNK private_chunks=$PRIVATE ${QUOTAS[*]} && load_rnbd both"
must "an honest client maps a device" honest_map
check "it works" fio_verify "$(cat "$TMP/dev")" 1M
baseline
honest_io
T0=$SECONDS
attack
TOOK=$((SECONDS - T0))
check "the server answers or ends each session (seed $SEED)" no_failure
check "there were as many sessions as there should be" enough_sessions
check "and all sorts of them" all_ends
# Half-open connections are given up after 30 s.
check "nothing is left of the attackers" back_at_baseline 60
honest_stop
check "the honest client had no error" honest_well
check "and stayed connected" honest_undisturbed
check "the log was not flooded" log_bounded "$TOOK"
check "the device unmaps" honest_unmap
check "modules unload" unload_modules
finish
