#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: IO by the Rust API: sizes, alignment, segments, both invalidate modes, every byte checked
# topology: single
# timeout: 400
# seconds: 90

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/observe.sh"
. "$RTRS_LIB/testmod.sh"

PAGE=$(getconf PAGESIZE)
DEPTH=64

open_session()
{
	rt serve && rt open name=m path=ip:10.9.0.1 && rt limits name=m && result m
}

limits()
{
	[ "$(field m queue_depth)" = "$DEPTH" ] &&
		[ "$(field m max_io_size)" = 524288 ] &&
		[ "$(field m max_segments)" = 128 ] &&
		[ "$(field m connected)" = 1 ] || {
		result m
		return 1
	}
}

# sizes SIZE...: one request, several at a time, and as many as there are permits.
sizes()
{
	local len

	for len in "$@"; do
		both m len="$len" count=2 depth=1 &&
			both m len="$len" count=32 depth=16 seed="$len" &&
			both m len="$len" count="$DEPTH" depth="$DEPTH" || return
	done
}

# offsets SIZE...: buffers that start anywhere in a page.
offsets()
{
	local len off

	for len in "$@"; do
		for off in 1 7 512 1234 $((PAGE - 512)) $((PAGE - 1)); do
			both m len="$len" off="$off" count=4 depth=2 seed="$off" || return
		done
	done
}

# segments N...: whole pages, except where the first segment starts and the last one ends.
segments()
{
	local n off tail

	for n in "$@"; do
		for off in 0 512 1234; do
			for tail in 1 512 "$PAGE"; do
				both m segs="$n" off="$off" count=4 depth=4 seed="$n$off" \
					len="$(((n - 1) * PAGE - off + tail))" || return
			done
		done
	done
}

# A device can gather segments of any shape, as long as they are few.
gaps()
{
	local n

	for n in 2 3 7; do
		io m segs="$n" shape=gaps off=100 len="$((n * 111))" count=4 depth=4 || return
		io m segs="$n" shape=gaps off=4000 len="$((n * 1000))" count=4 depth=4 || return
	done
}

# Data that is copied may have any shape: gaps, or more segments than a message has elements.
copied()
{
	local n

	for n in 1 3 8 31; do
		both m segs="$n" shape=gaps off=100 len="$((n * 100))" count=8 depth=8 &&
			both m segs="$n" shape=gaps off=100 len="$((4096 / n * n))" count=8 depth=8 || return
	done
	# Sizes around the largest that is copied.
	both m len=4095 count="$DEPTH" depth="$DEPTH" && both m len=4096 count="$DEPTH" depth="$DEPTH" &&
		both m len=4097 count="$DEPTH" depth="$DEPTH"
}

# Data that can only be registered must not have gaps. Other requests are not affected.
no_gaps()
{
	io m segs=8 shape=gaps off=100 len=8000 expect=-22 count=20 &&
		io m segs=2 shape=gaps off=100 len=5000 dir=read expect=-22 count=20 &&
		both m len=65536 count="$DEPTH" depth="$DEPTH"
}

too_much()
{
	both m len=$((524288 + 1)) count=3 expect=-90 && both m len=$((2 << 20)) expect=-90 &&
		both m len=524288
}

dataless()
{
	both m len=0 count=100 depth=16 && both m len=0 msg=0 count=100 depth=16
}

# The same variety on the connection for requests that must not queue behind IO.
admin()
{
	both m con=admin len=0 count=16 depth=4 &&
		both m con=admin len=512 count=64 depth=16 &&
		both m con=admin len=4096 off=77 count=64 depth="$DEPTH" &&
		both m con=admin len=524288 segs=128 count=16 depth=8 &&
		both m con=admin len=20000 segs=5 off=100 count=16 depth=8
}

# The completion of a request submits the next one.
chain()
{
	local before

	both m chain=1 len=4096 count=200 depth=8 && both m chain=1 len=65536 count=64 depth=4 || return
	before=$(field m chained)
	[ "$before" -ge 40 ] || {
		echo "only $before submitted in a completion"
		return 1
	}
	both m chain=1 con=admin len=512 count=64 depth=4
}

# on_cpu CPU COMMAND...
on_cpu()
{
	taskset -cp "$1" "$BASHPID" >/dev/null && rt "${@:2}"
}

# Permits of all CPUs at once; the CPUs want more requests than there are permits.
cpus()
{
	local cpu

	for cpu in $(seq 0 $(($(nproc) - 1))); do
		on_cpu "$cpu" io name=m "tag=w$cpu" len=4096 count=300 depth=48 "seed=$cpu" &
		RT_PIDS+=($!)
		on_cpu "$cpu" io name=m "tag=r$cpu" dir=read len=16384 count=300 depth=48 &
		RT_PIDS+=($!)
	done
	rt_wait
}

# cpus_wait: the same, while some requests of the server wait for sent data.
cpus_wait()
{
	local pid rc=0

	until grep -q 'sent data' /sys/kernel/debug/rtrs_server/requests; do
		:
	done &
	pid=$!
	cpus || rc=1
	if kill "$pid" 2>/dev/null; then
		echo "no request has waited for sent data"
		rc=1
	fi
	wait "$pid" 2>/dev/null || true
	return "$rc"
}

# counter NAME: a counter of soft RoCE.
counter() { cat "/sys/class/infiniband/rxe0/ports/1/hw_counters/$1"; }
sent() { counter sent_pkts; }

# Writes of few data.
WRITES=200

# messages_of LEN: the number of messages that so many writes of LEN bytes take.
messages_of()
{
	local before
	before=$(counter rdma_sends)

	io m len="$1" count="$WRITES" depth=16 >&2 && echo $(($(counter rdma_sends) - before))
}

# are_sent yes|no: writes of few data are messages, or not; those of more data never are.
are_sent()
{
	local few most more

	few=$(messages_of 512) && most=$(messages_of 4096) && more=$(messages_of 4097) || return
	echo "messages of $WRITES writes: $few with 512 bytes, $most with 4096, $more with 4097"
	case $1 in
	yes) [ "$few" -ge "$WRITES" ] && [ "$most" -ge "$WRITES" ] && [ "$more" -lt "$WRITES" ] ;;
	no) [ "$few" -lt "$WRITES" ] && [ "$most" -lt "$WRITES" ] ;;
	esac
}

# received: no message or write had to be repeated for want of a receive.
received()
{
	echo "receivers were not ready $(counter send_rnr_err) times"
	[ "$(counter send_rnr_err)" -eq "$1" ]
}

# The number of reads, each of them a message less if the invalidation is the answer.
READS=256

# packets FILE: write the number of packets that large reads take.
packets()
{
	local before
	before=$(sent)

	io m dir=read len=65536 count="$READS" depth=1 && echo $(($(sent) - before)) >"$TMP/$1"
}

# separate: with an invalidation of its own in front of the answer, reads take more packets than
# where it is the answer.
separate()
{
	local with without

	packets separate || return
	with=$(cat "$TMP/separate") without=$(cat "$TMP/answered")
	echo "$READS reads: $with packets, $without if the invalidation is the answer"
	# There are heartbeats, and acknowledgments are not sent one by one.
	[ "$without" -ge "$READS" ] && [ "$with" -ge $((without + READS * 3 / 4)) ]
}

# undisturbed: the path was not lost, as it is by a request with a wrong key: that is sent again, and
# completes.
undisturbed()
{
	local file

	for file in /sys/class/rtrs-client/m/paths/*/stats/reconnects; do
		[ "$(cat "$file")" = "0 0" ] || {
			echo "reconnects: $(cat "$file")"
			return 1
		}
	done
}

must "soft RoCE comes up" rxe_up rxe0
defer rxe_down rxe0
resource_snapshot
defer unload_modules
for ai in Y N; do
	must "$ai: modules load" load_test \
		"always_invalidate=$ai" max_chunk_size=1048576 "sess_queue_depth=$DEPTH"
	must "$ai: a session opens" open_session
	check "$ai: the limits are those of the server" limits
	check "$ai: 512 to 64k" sizes 512 1024 4096 8192 65536
	check "$ai: to the largest" sizes 126976 262144 524288
	check "$ai: odd lengths" sizes 1 2 3 5 511 513 4095 4097 65537 126975
	check "$ai: anywhere in a page" offsets 1 3 512 513 4096 65537
	check "$ai: 2 to 9 segments" segments 2 3 7 8 9
	check "$ai: 31 to 127 segments" segments 31 64 127
	check "$ai: 128 segments" both m segs=128 len=524288 count=16 depth=8
	check "$ai: the largest, anywhere in a page" offsets 524288
	check "$ai: few pieces with gaps" gaps
	check "$ai: few data, anywhere" copied
	check "$ai: gaps that cannot be registered are refused" no_gaps
	check "$ai: too much is refused" too_much
	check "$ai: without data" dataless
	check "$ai: on the service connection" admin
	check "$ai: submitted by completions" chain
	check "$ai: submitted on all CPUs, and short of permits" cpus
	check "$ai: every request was completed once" balanced
	check "$ai: the path was not lost" undisturbed
	check "$ai: modules unload with a session open" unload_modules
	check "$ai: nothing is left behind" resource_compare
done

# without TAG OPTION...: the same without answers by invalidation, beside large reads with.
without()
{
	local tag=$1
	shift

	client_params inval_answers=Y
	must "$tag: modules load" load_test \
		max_chunk_size=1048576 "sess_queue_depth=$DEPTH" "$@"
	must "$tag: a session opens" open_session
	must "$tag: packets of large reads are counted" packets answered
	check "$tag: modules unload" unload_modules
	client_params inval_answers=N
	must "$tag, without answers by invalidation: modules load" load_test \
		max_chunk_size=1048576 "sess_queue_depth=$DEPTH" "$@"
	must "$tag: a session opens" open_session
	check "$tag: 512 to 64k" sizes 512 1024 4096 8192 65536
	check "$tag: anywhere in a page" offsets 512 4096 65537
	check "$tag: on the service connection" admin
	check "$tag: each read takes one more message" separate
	check "$tag: every request was completed once" balanced
	check "$tag: the path was not lost" undisturbed
	check "$tag: modules unload" unload_modules
}

# invalidated: how many keys of chunks were invalidated since this was traced.
invalidated() { grep -c 'rtrs_srv_invalidated:' "$TRACE/trace" || true; }

# own_words: with 16 requests of each CPU, large reads find chunks with private pages, as each CPU
# keeps to numbers of its own: also after all numbers were in use.
own_words()
{
	local cpu n all=0

	io m dir=read len=512 count=$((4 * WORDS)) depth="$WORDS" || return
	trace_begin rtrs_srv/rtrs_srv_invalidated
	for cpu in $(seq 0 $(($(nproc) - 1))); do
		on_cpu "$cpu" io name=m "tag=p$cpu" dir=read len=65536 count=400 depth=16 &
		RT_PIDS+=($!)
		all=$((all + 400))
	done
	rt_wait || return
	n=$(invalidated)
	# Too long for these pages.
	io m dir=read len=126976 count=8 depth=1 || return
	trace_end rtrs_srv/rtrs_srv_invalidated
	echo "$n keys were invalidated in $all reads, and $(($(invalidated) - n)) in 8 longer ones"
	[ "$n" -le $((all / 20)) ] && [ "$(invalidated)" -eq $((n + 8)) ]
}

# Writes of few data by RDMA although the other side could do better.
for side in client server; do
	client_params "send_writes=$([ "$side" = client ] && echo N || echo Y)" inval_answers=Y
	must "writes are not sent by choice of the $side: modules load" load_test \
		"take_sends=$([ "$side" = server ] && echo N || echo Y)" \
		max_chunk_size=1048576 "sess_queue_depth=$DEPTH"
	must "a session opens" open_session
	check "$side: no write is a message" are_sent no
	check "$side: 512 to 64k" sizes 512 1024 4096 8192 65536
	check "$side: anywhere in a page" offsets 512 4096 65537
	check "$side: every request was completed once" balanced
	check "$side: the path was not lost" undisturbed
	check "$side: modules unload" unload_modules
done

# As many numbers as the words of all CPUs have.
WORDS=$((64 * $(nproc)))
client_params inval_answers=Y send_writes=Y
must "a word for each CPU: modules load" load_test always_invalidate=Y "sess_queue_depth=$WORDS"
must "a session opens" eval "rt serve && rt open name=m path=ip:10.9.0.1"
check "large reads of all CPUs find private pages" own_words
rnr=$(counter send_rnr_err)
check "writes of few data are messages" are_sent yes
check "one CPU sends as many as there are numbers" both m len=4096 count=$((8 * WORDS)) depth="$WORDS"
check "all CPUs send, and want more numbers than there are" cpus
check "there was a receive for each" received "$rnr"
check "the path was not lost" undisturbed
check "modules unload" unload_modules

# Requests wait for sent data again and again: with the least limit, each answer of 32 KiB or more is one that
# the next but one waits for.
client_params inval_answers=Y
must "few data under way: modules load" load_test max_chunk_size=1048576 "sess_queue_depth=$DEPTH" ahead_max=65536
must "a session opens" open_session
check "few data under way: 4k to 512k" sizes 4096 8192 65536 524288
check "few data under way: all CPUs, and requests wait" cpus_wait
check "few data under way: every request was completed once" balanced
check "few data under way: the path was not lost" undisturbed
check "modules unload" unload_modules

# Otherwise the client counts keys, of chunks with and without private pages, and is told some.
client_params count_keys=N
must "all keys told: modules load" load_test max_chunk_size=1048576 "sess_queue_depth=$DEPTH"
must "a session opens" open_session
check "all keys told: 512 to 64k" sizes 512 1024 4096 8192 65536
check "all keys told: anywhere in a page" offsets 512 4096 65537
check "all keys told: every request was completed once" balanced
check "all keys told: the path was not lost" undisturbed
check "modules unload" unload_modules

without "private pages" always_invalidate=Y
without "new keys" always_invalidate=Y private_chunks=0
without "old keys" always_invalidate=N
finish
