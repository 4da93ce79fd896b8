#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: the attacks do hurt: mainline's server falls for those ours has to withstand
# topology: single
# timeout: 300
# default: no

. "$(dirname "$0")/lib/common.sh"
. "$(dirname "$0")/lib/peer.sh"
require rdma

# Nothing that makes that server warn or crash: a guest that reports about
# itself fails the test. What is left shows in what the attacker gets.

# falls_for CASE: the attacker gets what it must not get.
falls_for()
{
	peer_attack "$1" --seed 1 --patience 5 >"$TMP/attack" 2>&1 || true
	cat "$TMP/attack"
	grep -q '"ok":false' "$TMP/attack"
}

withstands()
{
	peer_attack "$1" --seed 1 --patience 5
}

# Longer than ours keeps anybody.
never_given_up()
{
	not "$RTRS_PEER" half-open --addr 10.9.0.1 --count 8 --deadline 45 >"$TMP/half"
	cat "$TMP/half"
	grep -q '"gone":0,' "$TMP/half"
}

must "soft RoCE comes up" rxe_up rxe0 10.9.0.1/24 10.9.0.2/24
defer rxe_down rxe0
peer_require
defer unload_modules
must "mainline's modules load" eval "load_rtrs c both sess_queue_depth=100 && load_rnbd both"
check "an honest attacker is served" withstands honest
check "a wrong magic is refused" withstands bad-magic
check "the key of another session is as good as one's own" falls_for foreign-key
check "a chunk never written to is read" falls_for never-written
check "so is what an earlier request left" falls_for written-before
check "more is read back than the request had" falls_for read-more
check "a user message longer than all is dropped, and nobody told" falls_for usr-len
check "half-open clients are never given up" never_given_up
check "modules unload" unload_modules
finish
