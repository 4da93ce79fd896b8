#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: clients that break the protocol are refused or cut off, while an honest one does verified IO
# topology: single
# timeout: 600

. "$(dirname "$0")/lib/common.sh"
. "$(dirname "$0")/lib/peer.sh"
require fio rdma

# A depth that is no power of two leaves values that name no chunk.
DEPTH=100

# What does not depend on what becomes of keys is tried with one mode only.
HANDSHAKE='private-data|bad-|cid-|cons|one-con|unknown|info-|name-taken|leave-early|half-open'

cases()
{
	"$RTRS_PEER" --list | awk '$1 == "client" { print $2 }'
}

# What the server counts, over all clients.
TOTAL=/sys/module/rtrs_server/stats/protocol_errors

# Not counted: what breaks no rule, what is refused as any request to connect may
# be, and what the device refuses without telling the server more than that the
# connection failed.
RULES='honest|same-|take-over|half-open|crowd|leftovers|hb-ack-unasked|hb-flood|leave-|vanish-busy'
REFUSED='unknown-session|cid-taken|cons-change|name-taken'
DEVICE='info-long|info-twice|io-before-info|send-on-|read-chunk-directly'
UNCOUNTED="^($RULES|$REFUSED|$DEVICE)"

# results MODE CASE...: each case of the attacker is one of ours, by what the
# attacker has to say about it. Without a process for each: there are many.
results()
{
	local ai=$1 line c
	local -A said=()
	shift

	while IFS= read -r line; do
		[[ $line =~ \"case\":\"([a-z0-9-]+)\" ]] && said[${BASH_REMATCH[1]}]=$line
	done <"$TMP/attacks"
	for c; do
		line=${said[$c]:-}
		if [[ $line == *'"ok":true'* && ($c =~ $UNCOUNTED || $line == *'"counted":'[1-9]*) ]]; then
			ktap_test_pass "$ai: $c"
		else
			ktap_test_fail "$ai: $c"
			note "${line:-no result; the attacker said last: $(tail -n 1 "$TMP/attacks")}"
		fi
	done
}

mode()
{
	local ai=$1 not=$2 all

	SEED=$((SEED + 1))
	must "$ai: modules load" eval \
		"load_rtrs rust both sess_queue_depth=$DEPTH always_invalidate=$ai && load_rnbd both"
	must "$ai: an honest client maps a device" honest_map
	check "$ai: it works" fio_verify "$(cat "$TMP/dev")" 1M
	baseline
	honest_io
	mapfile -t all < <(cases | grep -vE "$not")
	peer_attack "$(IFS=, && echo "${all[*]}")" --seed "$SEED" \
		--patience $((10 * RTRS_TIME_SCALE)) --victim honest --counter "$TOTAL" >"$TMP/attacks" 2>&1
	results "$ai" "${all[@]}"
	check "$ai: nothing is left of the attackers" back_at_baseline
	honest_stop
	check "$ai: the honest client had no error" honest_well
	check "$ai: and stayed connected" honest_undisturbed
	check "$ai: the device unmaps" honest_unmap
	check "$ai: modules unload" unload_modules
}

SEED=${RTRS_SEED:-1}
arena 10.9.0.2/24
mode Y '^$'
mode N "^stale-key$|$HANDSHAKE"
finish
