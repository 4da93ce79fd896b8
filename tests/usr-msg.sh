#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: user messages from empty to the limit, in pieces; one byte more is -EMSGSIZE
# topology: single
# timeout: 300
# seconds: 27

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/observe.sh"
. "$RTRS_LIB/testmod.sh"

# Bytes that the transport needs for itself: in a write, in a read without data, and in one with
# data. The limits show "up to 24".
OWN_W=4
OWN_R0=8
OWN_R=24

open_session()
{
	rt serve && rt open name=m path=ip:10.9.0.1 && rt limits name=m
}

# The largest message and data with a server of default size. MAX_MSG fits all kinds of requests.
HDR=$(getconf PAGESIZE)
MAX_MSG=$((HDR - OWN_R))
MAX_IO=$((131072 - HDR))

limits()
{
	[ "$(field m max_hdr_size)" = "$HDR" ] && [ "$(field m max_io_size)" = "$MAX_IO" ] || {
		result m
		return 1
	}
}

# lengths LENGTH...: with no data, some, and the most.
lengths()
{
	local msg len

	for msg in "$@"; do
		for len in 0 512 4097 "$MAX_IO"; do
			both m msg="$msg" len="$len" count=8 depth=4 seed="$msg" || return
		done
	done
}

# every FROM TO: each length in the range.
every()
{
	local msg

	for msg in $(seq "$1" "$2"); do
		both m msg="$msg" len=16 count=2 depth=2 || return
	done
}

the_limit()
{
	lengths $((MAX_MSG - 1)) "$MAX_MSG" &&
		io m dir=write msg=$((HDR - OWN_W)) len="$MAX_IO" count=16 depth=16 &&
		io m dir=write msg=$((HDR - OWN_W)) len=0 count=16 depth=16 &&
		io m dir=read msg=$((HDR - OWN_R0)) len=0 count=16 depth=16
}

# is_over KEY=VALUE...: refused at once, each time.
is_over()
{
	io m count=3 expect=-90 "$@" && [ "$(field m refused)" = 3 ] || {
		result m
		return 1
	}
}

# Other requests are not affected.
beyond()
{
	local over len

	for over in 1 2 24 4096 65536 1000000; do
		is_over dir=read len=0 msg=$((HDR - OWN_R0 + over)) || return
		for len in 512 "$MAX_IO"; do
			is_over dir=read len="$len" msg=$((HDR - OWN_R + over)) || return
		done
		for len in 0 512 "$MAX_IO"; do
			is_over dir=write len="$len" msg=$((HDR - OWN_W + over)) || return
		done
	done
	both m msg="$MAX_MSG" len="$MAX_IO" count=16 depth=16
}

# Up to 16 pieces, some of them empty.
pieces()
{
	local n msg

	for n in 1 2 3 5 16; do
		for msg in 0 1 3 15 32 100 1001 "$MAX_MSG"; do
			both m pieces="$n" msg="$msg" len=512 count=4 depth=2 seed="$n" || return
		done
		is_over dir=write pieces="$n" msg=$((HDR - OWN_W + 1)) len=512 || return
	done
	# Without a piece the message is empty.
	both m pieces=0 msg=0 len=512 count=4
}

admin()
{
	both m con=admin msg=0 len=0 count=4 && both m con=admin msg="$MAX_MSG" len=0 count=16 depth=8 &&
		both m con=admin msg="$MAX_MSG" len="$MAX_IO" count=16 depth=8 &&
		is_over con=admin dir=write msg=$((HDR - OWN_W + 1)) len=0
}

# The number of requests whose work is looked at.
READS=256

# looked_up MESSAGE: write to $TMP/looked_up how often soft RoCE looked up memory that it sent from,
# for READS reads with a message of that many bytes.
looked_up()
{
	trace_up
	[ -e "$TRACE/kprobe_events" ] || skip "this kernel does not trace functions"
	echo 'p:soft_roce/look_up rdma_rxe:copy_data' >"$TRACE/kprobe_events"
	trace_set 1 soft_roce/look_up
	io m dir=read len=512 msg="$1" count="$READS" depth=1
	trace_set 0 soft_roce/look_up
	grep -c ' look_up: ' "$TRACE/trace" >"$TMP/looked_up"
	echo >"$TRACE/kprobe_events"
	echo "$READS reads with a message of $1 bytes: $(cat "$TMP/looked_up")"
}

# Then only the answer is sent from memory.
in_work_request()
{
	looked_up "$1"
	[ "$(cat "$TMP/looked_up")" -lt $((READS * 5 / 4)) ]
}

not_in_work_request()
{
	looked_up "$1"
	[ "$(cat "$TMP/looked_up")" -ge $((READS * 2)) ]
}

must "soft RoCE comes up" rxe_up rxe0
defer rxe_down rxe0
resource_snapshot
defer unload_modules
for ai in Y N; do
	must "$ai: modules load" load_test "always_invalidate=$ai" sess_queue_depth=64
	must "$ai: a session opens" open_session
	check "$ai: the limits are those of the server" limits
	check "$ai: every length from 0 to 66" every 0 66
	# The server keeps 320 bytes with the request.
	check "$ai: every length from 315 to 325" every 315 325
	# Work requests of soft RoCE have room for 128 bytes.
	check "$ai: every length from 100 to 130" every 100 130
	check "$ai: a short message is in its work request" in_work_request 32
	check "$ai: a longer one as well" in_work_request $((128 - OWN_R))
	check "$ai: one that does not fit is not" not_in_work_request $((128 - OWN_R + 1))
	check "$ai: lengths with data" lengths 0 1 31 32 33 1024 2048 4000
	check "$ai: the limit" the_limit
	check "$ai: beyond the limit" beyond
	check "$ai: in pieces" pieces
	check "$ai: on the service connection" admin
	check "$ai: submitted by completions" both m chain=1 msg="$MAX_MSG" len=512 count=100 depth=8
	check "$ai: every request was completed once" balanced
	check "$ai: modules unload" unload_modules
	check "$ai: nothing is left behind" resource_compare
done

client_params inline_max=0
must "not in work requests: modules load" load_test sess_queue_depth=64 inline_max=0
must "a session opens" open_session
check "no message is in its work request" not_in_work_request 32
check "lengths with data" lengths 0 1 32 104 105 4000
check "every request was completed once" balanced
check "modules unload" unload_modules
finish
