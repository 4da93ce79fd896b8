#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: the attacks do hurt: mainline's server falls for attacks that the Rust server has to withstand
# topology: single
# timeout: 300
# default: no

. "$(dirname "$0")/lib/common.sh"
. "$(dirname "$0")/lib/peer.sh"
require rdma

# Attacks that make mainline's server warn or crash are left out: the kernel's report would fail the
# test. The effect of the others is in what the attacker gets. The content of a chunk that nothing
# was written to depends on what was in that memory before.

# falls_for CASE: the attack was carried out, and the server goes on as if nothing had happened. Any
# other failure would be a fault of the attacker.
falls_for()
{
	peer_attack "$1" --seed 1 --patience 5 >"$TMP/attack" 2>&1 || true
	cat "$TMP/attack"
	grep -q '"wrong":"the server did not end the path"' "$TMP/attack"
}

withstands()
{
	peer_attack "$1" --seed 1 --patience 5
}

# refused_here CASE TEXT: the device refuses it with TEXT. The server does not even notice.
refused_here()
{
	falls_for "$1"
	grep -qF "\"$2\"" "$TMP/attack"
}

# Longer than the Rust server keeps any client. One of the attackers does not wait for the end.
never_given_up()
{
	"$RTRS_PEER" half-open --addr 10.9.0.1 --count 8 --deadline 45 >"$TMP/half" 2>&1 || true
	cat "$TMP/half"
	grep -q '"accepted":12,.*"gone":0,"left":11,' "$TMP/half"
}

must "soft RoCE comes up" rxe_up rxe0 10.9.0.1/24 10.9.0.2/24
defer rxe_down rxe0
peer_require
defer unload_modules
must "mainline's modules load" eval "load_rtrs c both sess_queue_depth=100 && load_rnbd both"
check "an honest attacker is served" withstands honest
check "a wrong magic is refused" withstands bad-magic
check "the key of another session is as good as one's own" falls_for foreign-key
check "what an earlier request left is read" falls_for written-before
check "more is read back than the request had" falls_for read-more
check "a user message longer than all is dropped, and no side is told" falls_for usr-len
check "a chunk is not read, and the end of its connection not noticed" \
	refused_here read-chunk-directly "remote invalid request error"
check "half-open clients are never given up" never_given_up
check "modules unload" unload_modules
finish
