#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: limits on what clients may take of a server, and each listener's own sizes
# topology: single
# timeout: 240
# seconds: 48

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/memory.sh"
. "$RTRS_LIB/testmod.sh"
. "$RTRS_LIB/peer.sh"

EUSERS=87
ENOMEM=12
CONS=$(($(nproc) + 1))
# Memory of a path with the sizes below: chunks and queues.
MEMORY=$(($(chunk_memory 8 65536) + $(queue_memory 8)))

# Handshakes must be in time, however slow the machine is: the others give way.
load()
{
	load_test sess_queue_depth=8 max_chunk_size=65536 session_linger=0 \
		handshake_timeout_ms=$((100000 * RTRS_TIME_SCALE)) \
		listen=1300:sess_queue_depth=16,1301:max_chunk_size=131072:always_invalidate=N
}

# All that was taken has been given back.
all_back()
{
	local q

	for q in "$Q"/*; do
		in_use "${q##*/}" 0 || return
	done
}

bad_parameters()
{
	local p lines

	load_one "$(impl_dir rust)" rtrs-core
	for p in max_sessions=0 max_sessions=4097 max_sessions_per_source=0 max_handshakes=0 \
		max_handshakes_per_source=65537 max_paths_per_session=129 max_cons=1 \
		max_cons_per_path=4097 max_cons_per_source=1 max_memory=-1 \
		max_memory_per_source=-1 max_starts_per_source=-1 source_prefix_v4=33 \
		source_prefix_v6=129 listen=x listen=1234:x=1 \
		listen=1234:sess_queue_depth=0 listen=1234:max_chunk_size=100000 \
		listen=1234,1234; do
		dmesg -C
		expect_error "Invalid parameters" insmod "$(impl_dir rust)/rtrs-server.ko" "$p"
		# The kernel may add a line of its own.
		lines=$(dmesg | grep -v 'invalid for parameter' | grep -c 'rtrs_server: ') || true
		[ "$lines" = 1 ] || {
			echo "$p: $lines lines in the log"
			return 1
		}
	done
	dmesg_mark
}

shown()
{
	local ram

	[ "$(quota sessions max)" = 1024 ]
	[ "$(quota cons_per_path max)" = 1024 ]
	ram=$(awk '/MemTotal/ { print $2 * 1024 }' /proc/meminfo)
	[ "$(quota memory max)" -gt $((ram / 4)) ]
	[ "$(quota memory max)" -lt "$ram" ]
	[ "$(quota memory_per_source max)" = $(($(quota memory max) / 2)) ]
	all_back
	expect_error "Invalid argument" write "$Q/sessions/max" 0
	expect_error "Invalid argument" write "$Q/sessions/max" 5000
	expect_error "Invalid argument" write "$Q/sessions/max" x
	expect_error "Permission denied" write "$Q/sessions/current" 1
}

# only_one: one path is there, and what was refused before it has given back all.
only_one()
{
	in_use cons "$CONS" && in_use memory "$MEMORY" && in_use sessions 1 && in_use handshakes 0
}

# one_more RESOURCE ERRNO TEXT COMMAND...: one path is there. With the maximum set to what is in use,
# the command goes over the quota; both sides log that.
one_more()
{
	local resource=$1 errno=$2 text=$3 old refused
	shift 3

	wait_for 20 only_one
	old=$(quota "$resource" max)
	refused=$(quota "$resource" refused)
	dmesg_mark
	write "$Q/$resource/max" "$(quota "$resource" current)"
	refuses "$errno" "$@"
	write "$Q/$resource/max" "$old"
	[ "$(quota "$resource" refused)" -gt "$refused" ]
	# The server logs it after it has told the client.
	wait_for 5 dmesg_has -E "rtrs_server: .* over quota of .* $text\$"
	dmesg_has -E "rtrs_client: .* rejected \(-$errno\)\$"
}

open1() { echo open name="$1" path=ip:10.9.0.1; }

sessions()
{
	local words
	rt open name=a path=ip:10.9.0.1
	in_use sessions 1
	in_use sessions_per_source 1
	in_use paths_per_session 1
	in_use cons "$CONS"
	in_use cons_per_path "$CONS"
	in_use cons_per_source "$CONS"
	in_use memory "$MEMORY"
	in_use memory_per_source "$MEMORY"
	wait_for 20 in_use handshakes 0
	read -r -a words <<<"$(open1 b)"
	one_more sessions "$EUSERS" sessions "${words[@]}"
	one_more sessions_per_source "$EUSERS" "sessions per source address" "${words[@]}"
	one_more cons_per_source "$EUSERS" "connections per source address" "${words[@]}"
	one_more memory "$ENOMEM" "bytes of memory" "${words[@]}"
	one_more memory_per_source "$ENOMEM" "bytes of memory per source address" "${words[@]}"
	one_more cons "$EUSERS" connections "${words[@]}"
	wait_for 20 only_one
	rt open name=b path=ip:10.9.0.1
	in_use sessions 2
	in_use sessions_per_source 2
	wait_for 20 in_use memory_per_source $((2 * MEMORY))
	wait_for 20 in_use cons_per_source $((2 * CONS))
	wait_for 20 in_use memory $((2 * MEMORY))
	rt close name=b
	wait_for 20 in_use cons "$CONS"
}

cons_per_path()
{
	rt open name=b path=ip:10.9.0.1
	write "$Q/cons_per_path/max" $((CONS - 1))
	refuses "$EUSERS" open name=c path=ip:10.9.0.1
	write "$Q/cons_per_path/max" 1024
	rt close name=b
}

# An operator who adds a path over the quota gets the error.
paths()
{
	write "$Q/paths_per_session/max" 1
	expect_error "Too many users" write /sys/class/rtrs-client/a/add_path ip:10.9.1.1
	refuses "$EUSERS" open name=b path=ip:10.9.0.1 path=ip:10.9.1.1
	write "$Q/paths_per_session/max" 32
	write /sys/class/rtrs-client/a/add_path ip:10.9.1.1
	in_use paths_per_session 2
	# The refused paths may not be freed yet.
	wait_for 20 in_use memory $((2 * MEMORY))
}

# The first path takes all memory, so that a second one gets none.
memory_of_a_path()
{
	write "$Q/memory/max" "$MEMORY"
	rt open name=a path=ip:10.9.0.1
	expect_error "Cannot allocate memory" write /sys/class/rtrs-client/a/add_path ip:10.9.1.1
	write "$Q/memory/max" 1000000000
	rt close name=a
}

# crowd RESOURCE SEED: 24 clients connect, 8 may.
crowd()
{
	local refused

	refused=$(quota "$1" refused)
	write "$Q/$1/max" 8
	peer_attack crowd --seed "$2" | tee "$TMP/crowd"
	grep -q '"refused":16' "$TMP/crowd"
	[ "$(quota "$1" refused)" = $((refused + 16)) ]
	write "$Q/$1/max" 1024
	wait_for 10 all_back
}

some_connect() { [ "$(quota handshakes current)" -ge 1 ]; }

# Strangers take all handshakes; a client with a session still reconnects.
known_client()
{
	local pid path=/sys/class/rtrs-client/a/paths/ip:10.9.0.1@ip:10.9.0.1

	"$RTRS_PEER" half-open --addr 10.9.0.1 --count 4 --deadline 60 --seed 3 --hold "$TMP/go" \
		>"$TMP/half" 2>&1 &
	pid=$!
	# shellcheck disable=SC2064 # this one
	trap "kill $pid" EXIT
	wait_for 10 some_connect
	write "$Q/handshakes/max" 1
	refuses "$EUSERS" open name=b path=ip:10.9.0.1
	write "$path/reconnect" 1
	[ "$(cat "$path/state")" = connected ]
	some_connect
	write "$Q/handshakes/max" 1024
}

half_done() { in_use cons 4 && in_use handshakes 0; }

# A client with a session has begun another path, and does not finish it: the path has no place that
# others could have.
half_sibling()
{
	local pid rc=0

	peer_attack half-open-sibling --other 10.9.0.2 --patience $((15 * RTRS_TIME_SCALE)) >"$TMP/half" 2>&1 &
	pid=$!
	wait_for 10 half_done || rc=1
	# Not because it is over.
	sleep 1
	half_done && kill -0 "$pid" || rc=1
	wait "$pid" || rc=1
	[ "$rc" = 0 ] || cat "$TMP/half"
	return "$rc"
}

# A session of another server has the name, and its directory too.
same_name()
{
	rt open name=here path=ip:10.9.0.2@ip:10.9.0.1 port=1300
	peer_attack name-taken --victim here
	[ "$(cat /sys/class/rtrs-client/here/paths/*/state)" = connected ]
	rt close name=here
}

limits()
{
	rt limits name="$1"
	[ "$(field "$1" queue_depth)" = "$2" ] &&
		[ "$(field "$1" max_io_size)" = $(($3 - 4096)) ] || {
		result "$1"
		return 1
	}
}

server_mrs()
{
	rdma resource show mr | grep -c 'comm \[rtrs_server\]'
}
server_has_mrs() { [ "$(server_mrs)" = "$1" ]; }

# try_server PORT DEPTH CHUNK KEYS: the server at PORT offers these sizes; KEYS is the number of
# keys for chunks.
try_server()
{
	rt open name=s path=ip:10.9.0.1 port="$1"
	limits s "$2" "$3"
	wait_for 10 server_has_mrs "$4" || {
		rdma resource show mr
		return 1
	}
	io s count=32 depth=8 len=4096
	rt close name=s
	wait_for 20 all_back
}

listeners()
{
	rt serve port=1301
	rt serve port=1302 depth=32 chunk=8192 ai=0
	refuses 22 serve port=1303 depth=4 chunk=5000
	try_server 1234 8 65536 8
	try_server 1300 16 65536 16
	try_server 1301 8 131072 1
	rt open name=t path=ip:10.9.0.1 port=1302
	limits t 32 8192
	rt close name=t
}

# Settings changed while the module runs hold for servers that begin to listen afterwards.
listeners_later()
{
	local f=/sys/module/rtrs_server/parameters/listen was bad
	was=$(cat "$f")

	for bad in x 1304:sess_queue_depth=0 1304:max_chunk_size=5000 1304,1304 1304:x=1; do
		expect_error "Invalid argument" write "$f" "$bad"
		[ "$(cat "$f")" = "$was" ]
	done
	write "$f" $'1300:sess_queue_depth=32,1304:sess_queue_depth=4\n'
	rt serve port=1304
	try_server 1304 4 65536 4
	try_server 1300 16 65536 16
	rt unserve port=1304
	write "$f" $'\n'
	rt serve port=1304
	try_server 1304 8 65536 8
	rt unserve port=1304
}

# keeps SOURCE: the server keeps a session of the client from SOURCE.
kept_name()
{
	rt open name=kept path=ip:10.9.0.2@ip:10.9.0.1
	rt close name=kept
	wait_for 20 not test -e /sys/class/rtrs-server/kept
	in_use sessions 1
	# A client from another address does not end the session; the one from the same address
	# does.
	not rt open name=kept path=ip:10.9.0.1
	wait_for 20 in_use memory 0
	rt open name=kept path=ip:10.9.0.2@ip:10.9.0.1
	rt close name=kept
}

must "soft RoCE comes up" rxe_up rxe0 10.9.0.1/24 10.9.0.2/24
defer rxe_down rxe0
must "a second one comes up" rxe_up rxe1 10.9.1.1/24
defer rxe_down rxe1
peer_require
resource_snapshot
defer unload_modules
check "bad parameters refuse the load with one line" bad_parameters
must "modules load" load
must "two servers open" eval "rt serve port=1234 && rt serve port=1300"
check "maxima and what is in use are shown" shown
check "sessions, sources, connections, memory" sessions
check "connections per path" cons_per_path
check "paths per session" paths
check "a session is used meanwhile" io a count=50 depth=8 len=4096
check "strangers do not keep a known client away" known_client
rt close name=a
check "all was given back" wait_for 20 all_back
check "memory for one path of two" memory_of_a_path
check "all was given back again" wait_for 20 all_back
check "handshakes" crowd handshakes 1
check "handshakes of a source" crowd handshakes_per_source 2
check "a path that is never finished has no place" half_sibling
check "a name at another server" same_name
check "each listener has its own sizes" listeners
check "and those that come later have what is said by then" listeners_later
must "modules unload" unload_modules
must "modules load again" load_test sess_queue_depth=8 max_chunk_size=65536
must "a server opens" rt serve
check "a name is kept for its client" kept_name
finish
