#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: 64 sessions connect at once; time, memory, the loss of a device, and closing with all connected, after which all come back; all are kept without a path, and get in again at once
# topology: single
# timeout: 400
# seconds: 80
# alone: yes

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
. "$RTRS_LIB/observe.sh"
. "$RTRS_LIB/memory.sh"
. "$RTRS_LIB/testmod.sh"
. "$RTRS_LIB/peer.sh"

N=${RTRS_SESSIONS:-64}
DEPTH=32
CHUNK=65536
MEMORY=$(($(chunk_memory "$DEPTH" "$CHUNK") + $(queue_memory "$DEPTH")))

names() { seq -f 's%g' "$N"; }

# all_connected client|server: all sessions are, on that side.
all_connected() { [ "$(cat "/sys/class/rtrs-$1"/s*/paths/*/state | grep -cx connected)" = "$N" ]; }

all_up()
{
	all_connected client
	all_connected server
	in_use sessions "$N"
	in_use handshakes 0
	in_use cons $((N * ($(nproc) + 1)))
	in_use memory $((N * MEMORY))
	in_use memory_per_source $((N * MEMORY))
}

# All with one source, like a host with that many clients.
open_all()
{
	local s t0 before

	before=$(mem_unused)
	t0=$(ms_now)
	for s in $(names); do
		rt_start open name="$s" path=ip:10.9.0.1
	done
	rt_wait
	echo "$N sessions in $(($(ms_now) - t0)) ms" >"$TMP/time"
	echo "$(((before - $(mem_unused)) / N)) KiB of memory per session, client and server," \
		"$((DEPTH * CHUNK / 1024)) KiB of it chunks" >"$TMP/memory"
	all_up
}

io_all()
{
	local s

	for s in $(names); do
		rt_start io name="$s" count=20 depth=4 len=4096
	done
	rt_wait
	balanced
}

# close_server: milliseconds until it is closed, with all clients connected.
close_server()
{
	local t0 took

	t0=$(ms_now)
	rt unserve
	took=$(($(ms_now) - t0))
	echo "$N sessions closed by the server in $took ms" >"$TMP/close"
	[ "$took" -lt $((5000 * RTRS_TIME_SCALE)) ] || late "that is too long"
	[ -z "$(ls /sys/class/rtrs-server)" ]
	for q in sessions handshakes cons memory cons_per_source memory_per_source; do
		in_use "$q" 0
	done
}

# waits: how long each session waited before its first attempt, in milliseconds, in order.
waits()
{
	awk '
		!match($0, / [0-9]+\.[0-9]+: rtrs_clt_path_state: sess=[^ ]+/) { next }
		{
			split(substr($0, RSTART + 1, RLENGTH - 1), words, /[: =]+/)
			at = words[1]
			name = words[4]
		}
		/ -> waiting / && !(name in since) { since[name] = at }
		/ waiting -> connecting / && name in since && !(name in wait) {
			wait[name] = 1
			printf "%d\n", (at - since[name]) * 1000
		}' "$TRACE/trace" | sort -n
}

# serve_again: a server that has forgotten all of them is there again while they all try to connect. They
# do so by themselves and at different times, and none is refused.
serve_again()
{
	local before t0 took rc=0
	before=$(refusals)

	# The first attempts are in vain: they come within 1.5 s.
	sleep $((2 * RTRS_TIME_SCALE))
	t0=$(ms_now)
	rt serve
	wait_for 30 all_connected client || rc=1
	took=$(($(ms_now) - t0))
	waits >"$TMP/waits"
	echo "$N sessions are back after $took ms; their first attempts came after" \
		"$(sed -n "$((N / 10 + 1))p" "$TMP/waits") to $(sed -n "$((N - N / 10))p" "$TMP/waits") ms" >"$TMP/again"
	cat "$TMP/again"
	[ "$rc" = 0 ] || {
		grep . /sys/class/rtrs-client/*/paths/*/state_full
		return 1
	}
	all_up
	[ "$(refusals)" = "$before" ]
	[ "$(wc -l <"$TMP/waits")" = "$N" ]
	[ $(($(sed -n "$((N - N / 10))p" "$TMP/waits") - $(sed -n "$((N / 10 + 1))p" "$TMP/waits"))) -ge 500 ]
	[ "$took" -le $((15000 * RTRS_TIME_SCALE)) ] || late "that is too long"
}

close_all()
{
	local s

	for s in $(names); do
		rt_start close name="$s"
	done
	rt_wait
}

# The memory that a session takes by default.
default_memory()
{
	local before

	rt serve port=1300 depth=512 chunk=131072
	before=$(mem_unused)
	rt open name=big path=ip:10.9.0.1 port=1300
	echo "$((($(mem_unused) - before) / -1024)) MiB of memory for a session of default size," \
		"client and server, $(($(quota memory current) >> 20)) MiB of it counted" \
		>"$TMP/default"
	# No more chunks than with the C server.
	in_use memory $(($(chunk_memory 512 131072) + $(queue_memory 512)))
	rt close name=big
	wait_for 5 in_use memory 0
	rt unserve port=1300
}

all_down() { [ "$(total server_downs)" = "$(total server_ups)" ]; }
server_paths() { find /sys/class/rtrs-server/two/paths/ -mindepth 1 -maxdepth 1 | wc -l; }
has_paths() { [ "$(server_paths)" = "$1" ]; }

# One of two devices goes, with IO in flight: the session is not affected.
device_gone()
{
	local downs

	# The server ends sessions a little later than their clients.
	wait_for 10 all_down
	downs=$(total server_downs)
	rt open name=two path=ip:10.9.0.1 path=ip:10.9.1.1
	has_paths 2
	rt_start io name=two count=4000 depth=8 len=4096
	sleep 0.5
	rdma link delete rxe1
	wait_for 5 has_paths 1
	wait_for 5 in_use memory "$MEMORY"
	rt_wait
	balanced
	[ -d /sys/class/rtrs-server/two ]
	[ "$(total server_downs)" = "$downs" ]
	rt close name=two
	wait_for 5 in_use cons 0
}

# A device goes while the server's user holds requests without an answer: neither the device nor the
# path waits for them.
device_gone_busy()
{
	local t0 ms

	rdma link add rxe1 type rxe netdev drxe1
	wait_for 5 rdma_active rxe1
	rt open name=two path=ip:10.9.0.1 path=ip:10.9.1.1
	has_paths 2
	rt_start io name=two tag=held count=16 depth=16 how=hold
	wait_for 5 all_held
	t0=$EPOCHREALTIME
	rdma link delete rxe1
	ms=$(((${EPOCHREALTIME/./} - ${t0/./}) / 1000))
	echo "the device went in $ms ms"
	[ "$ms" -lt $((3000 * RTRS_TIME_SCALE)) ] || late "that is too long"
	wait_for 5 has_paths 1
	not has_result held
	# The requests that were sent again over the other path are held as well.
	wait_for 30 eval 'rt release && has_result held'
	rt_wait
	balanced
	rt close name=two
	wait_for 5 in_use cons 0
}

all_held() { [ "$(total server_held:1234)" = 16 ]; }

# The server keeps them without connections and memory, and shows none.
all_kept()
{
	wait_for 10 in_use cons 0
	in_use sessions "$N"
	# Those without a path count half.
	wait_for 10 in_use sessions_per_source $((N / 2))
	in_use memory 0
	[ -z "$(ls /sys/class/rtrs-server)" ]
}

refusals() { grep . "$Q"/*/refused; }

opened_ms() { awk '{ print $4 }' "$TMP/time"; }

# all_again: the same client, with new sessions of the same names, like one whose modules were loaded
# again. Each takes the place of the one that is kept; none is refused, and none waits, as it would for
# a client that may still be there (three seconds). A source that has as many as it may, all kept, may
# have as many again.
all_again()
{
	local fresh before t0 one
	write "$Q/sessions_per_source/max" "$N"
	before=$(refusals)
	fresh=$(opened_ms)
	dmesg_mark

	t0=$(ms_now)
	rt open name=s1 path=ip:10.9.0.1
	one=$(($(ms_now) - t0))
	echo "the first one took $one ms"
	[ "$one" -lt 2500 ] || late "that is too long"
	rt close name=s1
	open_all
	echo "in the place of those kept: $(cat "$TMP/time"); fresh ones took $fresh ms"
	[ "$(refusals)" = "$before" ]
	dmesg_since_mark >"$TMP/dmesg"
	not grep -E 'rejected|too many|gave way|is in use' "$TMP/dmesg"
	[ "$(opened_ms)" -lt $((2 * fresh + 5000)) ] || late "that is too long"
}

# all_silent: as many clients of one address have crashed, which nothing tells the server; all come
# again at once, and each takes its name after three seconds without an answer. There are fewer on a
# slow machine: one that takes more than 25 s to come finds that the server has missed heartbeats.
all_silent()
{
	local i before rc=0 pids=() N=$((N / RTRS_TIME_SCALE))
	before=$(refusals)

	for ((i = 1; i <= N; i++)); do
		peer_attack name-of-silent --from 10.9.0.1 --seed "$i" --patience $((60 * RTRS_TIME_SCALE)) \
			>"$TMP/silent.$i" 2>&1 &
		pids+=($!)
	done
	for ((i = 1; i <= N; i++)); do
		wait "${pids[i - 1]}" || {
			cat "$TMP/silent.$i"
			rc=1
		}
	done
	sed -n 's/.*chunks after \([0-9]*\) ms.*/\1/p' "$TMP"/silent.* | sort -n >"$TMP/waited"
	echo "$(wc -l <"$TMP/waited") clients that had crashed waited $(head -n 1 "$TMP/waited") to $(tail -n 1 "$TMP/waited") ms"
	[ "$rc" = 0 ]
	[ "$(wc -l <"$TMP/waited")" = "$N" ]
	[ "$(refusals)" = "$before" ]
	wait_for 10 in_use cons 0
}

said() { while read -r line; do note "$line"; done <"$TMP/$1"; }

must "soft RoCE comes up" rxe_up rxe0
defer rxe_down rxe0
peer_require
resource_snapshot
must "a second one comes up" rxe_up rxe1 10.9.1.1/24
defer rxe_down rxe1
defer unload_modules
must "modules load" load_test "sess_queue_depth=$DEPTH" "max_chunk_size=$CHUNK" session_linger=0
check "a session of default size" eval "rt serve && default_memory"
said default
check "$N sessions connect at once" open_all
said time
said memory
check "IO on all" io_all
trace_begin rtrs_clt/rtrs_clt_path_state
check "the server closes with all connected" close_server
said close
check "all come back by themselves once it is open again, at different times" serve_again
said again
trace_end rtrs_clt/rtrs_clt_path_state
check "IO on all of them" io_all
check "the clients close" close_all
check "a session outlives one of its devices" device_gone
check "a device goes while requests are unanswered" device_gone_busy
check "the modules unload" unload_modules
must "modules load, with sessions that are kept" load_test "sess_queue_depth=$DEPTH" \
	"max_chunk_size=$CHUNK" session_linger=600
must "the server opens once more" rt serve
check "$N sessions connect" open_all
check "their client goes" close_all
check "the server keeps all" all_kept
check "all get in again, unthrottled" all_again
ktap_log "$TMP/case.log" 1
check "IO on all again" io_all
check "the server ends none of them meanwhile" all_up
check "the modules unload again" unload_modules
must "modules load with RNBD" eval \
	"load_rtrs rust server sess_queue_depth=$DEPTH max_chunk_size=$CHUNK && load_rnbd server"
check "all get in again that have crashed" all_silent
ktap_log "$TMP/case.log" 1
finish
