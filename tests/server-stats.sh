#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: sysfs, events, debugfs and tracepoints of the server show what happens
# topology: single
# timeout: 300
# seconds: 55

. "$(dirname "$0")/lib/common.sh"
. "$(dirname "$0")/lib/memory.sh"
. "$(dirname "$0")/lib/observe.sh"
. "$(dirname "$0")/lib/peer.sh"
require fio udevadm rdma

DEPTH=64
CHUNK=131072
SESS=/sys/class/rtrs-server/watched
CLT=/sys/class/rtrs-client/watched
PATHS=("ip:10.9.0.2@ip:10.9.0.1" "ip:10.9.0.3@ip:10.9.0.1")
FILES="rdma wc_completion reset_all"
DEBUG=/sys/kernel/debug/rtrs_server
TOTAL=/sys/module/rtrs_server/stats/protocol_errors
# Nanoseconds that the slow disk takes for a request: what is read meanwhile takes shells and awks.
SLOW=$((4000000000 * (RTRS_TIME_SCALE > 1 ? 3 : 1)))

p0=$SESS/paths/${PATHS[0]}
p1=$SESS/paths/${PATHS[1]}

map()
{
	map_rnbd watched /dev/nullb0 "${PATHS[0]}" >"$TMP/dev"
	map_rnbd watched /dev/nullb1 "${PATHS[0]}" >"$TMP/slow"
}

unmap()
{
	unmap_rnbd "$(cat "$TMP/slow")"
	unmap_rnbd "$(cat "$TMP/dev")"
}

io() { fio_count "$(cat "$TMP/dev")" "$@"; }

# slow_io N: send N requests at a time to the slow disk, in the background.
slow_io()
{
	fio --name=slow --filename="/dev/$(cat "$TMP/slow")" --direct=1 --ioengine=libaio \
		--rw=randread --bs=4k --iodepth="$1" --number_ios="$1" --size=32M >"$TMP/fio.slow" &
}

formats()
{
	local n="[0-9]+" x="[0-9a-f]" uuid
	uuid="$x{8}-$x{4}-$x{4}-$x{4}-$x{12} "

	matches "$SESS/state" "connected 1/1 "
	matches "$SESS/peer_name" "watched "
	matches "$SESS/uuid" "$uuid"
	matches "$SESS/protocol_errors" "0 "
	matches "$SESS/memory" "$n "
	matches "$p0/state" "connected "
	matches "$p0/state_full" "state: connected since: $n connections: $(($(nproc --all) + 1)) attempt: $n "
	matches "$p0/uuid" "$uuid"
	not cmp -s "$p0/uuid" "$SESS/uuid"
	# Knowing them is enough to pass for the client.
	same "root alone reads the path's" "$(stat -c %a "$p0/uuid")" 400
	same "root alone reads the session's" "$(stat -c %a "$SESS/uuid")" 400
	matches "$p0/protocol_errors" "0 "
	matches "$p0/src_addr" "ip:10.9.0.2 "
	matches "$p0/dst_addr" "ip:10.9.0.1 "
	matches "$p0/hca_name" "rxe0 "
	matches "$p0/hca_port" "1 "
	matches "$p0/disconnect" "Usage: echo 1 > disconnect "
	matches "$p0/stats/rdma" "($n ){5}"
	matches "$p0/stats/wc_completion" "($n ){3}"
	matches "$p0/stats/reset_all" "echo 1 to reset all statistics "
}

# Both sides count the same, to the byte.
counts()
{
	local most all polls

	echo 1 >"$p0/stats/reset_all"
	echo 1 >"$CLT/paths/${PATHS[0]}/stats/reset_all"
	io randwrite 300
	io randread 200
	same "requests" "$(nth "$p0/stats/rdma" 1) $(nth "$p0/stats/rdma" 3)" "200 300"
	same "bytes" "$(cut -d ' ' -f 1-4 "$p0/stats/rdma")" \
		"$(cut -d ' ' -f 1-4 "$CLT/paths/${PATHS[0]}/stats/rdma")"
	same "in flight" "$(nth "$p0/stats/rdma" 5)" 0
	# The arrival of each request is a completion, and so is the end of some answers.
	read -r most all polls <"$p0/stats/wc_completion"
	echo "completions: $most $all $polls"
	[ "$all" -ge 500 ]
	[ "$all" -le 1000 ]
	[ "$polls" -ge 1 ]
	[ "$polls" -le "$all" ]
	[ "$most" -ge 1 ]
	[ "$most" -le 16 ]
}

memory()
{
	local path sess chunks received

	chunks=$(chunk_memory "$DEPTH" "$CHUNK")
	received=$(received_memory $(($(nproc) * ($(receives "$DEPTH") + 32))))
	path=$(cat "$p0/memory")
	sess=$(cat "$SESS/memory")
	# The chunks with their private pages, a page for their new keys, receives, and the session's own
	# state.
	same "memory of a path" "$path" $((chunks + 4096 + received))
	same "memory of the session" "$((sess > path && sess < path + 4096))" 1
}

resets()
{
	local f w

	for w in 0 1; do
		for f in $FILES; do
			io randrw 20
			write "$p0/stats/$f" "$w"
			case $f in rdma | reset_all) matches "$p0/stats/rdma" "0 0 0 0 0 " ;; esac
			case $f in
			wc_completion | reset_all)
				# A heartbeat may come in between.
				[ "$(nth "$p0/stats/wc_completion" 2)" -le 4 ]
				;;
			esac
		done
	done
}

garbage()
{
	local f w

	for f in disconnect stats/rdma stats/wc_completion stats/reset_all; do
		for w in 2 -1 01 "0 " "1 1" x $'1\n\n' "$(printf '%4000d' 1)"; do
			expect_error "Invalid argument" write "$p0/$f" "$w"
		done
	done
	expect_error "Invalid argument" write "$p0/disconnect" 0
	matches "$p0/state" "connected "
	for f in state state_full uuid memory protocol_errors hca_name hca_port src_addr dst_addr; do
		not write "$p0/$f" 1
	done
	for f in state peer_name uuid memory protocol_errors linger; do
		not write "$SESS/$f" 1
	done
}

in_flight()
{
	[ "$(nth "$p0/stats/rdma" 5)" = "$1" ]
}

# With a slow disk, and resets that do not lose count.
inflight()
{
	local fio

	slow_io 8
	fio=$!
	wait_for 20 in_flight 8
	# All of it at once, before the disk is done; the checks can wait.
	echo 1 >"$p0/stats/reset_all"
	echo "$(<"$DEBUG/requests")" >"$TMP/requests"
	echo "$(<"$DEBUG/connections")" >"$TMP/connections"
	echo "$(<"$p0/stats/rdma")" >"$TMP/rdma"
	cat "$TMP/requests"
	same "requests in flight" \
		"$(grep -cE '^watched +ip:10.9.0.2@ip:10.9.0.1 +[0-9]+ +[0-9]+ +read +[0-9]+ user$' \
			"$TMP/requests")" 8
	same "the same, by connection" \
		"$(awk '$10 == "watched" { n += $14 } END { print n }' "$TMP/connections")" 8
	same "in flight" "$(nth "$TMP/rdma" 5)" 8
	wait "$fio"
	same "in flight afterwards" "$(nth "$p0/stats/rdma" 5)" 0
	same "requests afterwards" "$(grep -c '^watched' "$DEBUG/requests")" 0
}

# As the kernel shows them.
connections()
{
	local cons
	cons=$(($(nproc --all) + 1))

	cat "$DEBUG/connections"
	same "connections" "$(awk '$10 == "watched" && $2 == "rxe0" && $4 == "drxe0" &&
		$5 == "ip:10.9.0.2" && $7 == "ip:10.9.0.1" && $13 == "connected"' \
		"$DEBUG/connections" | wc -l)" "$cons"
	awk '$10 == "watched" { print $12 }' "$DEBUG/connections" | sort -n >"$TMP/ours"
	qp_numbers rtrs_server >"$TMP/theirs"
	diff "$TMP/ours" "$TMP/theirs"
	same "queue pairs" "$(wc -l <"$TMP/theirs")" "$cons"
	# Both ends of a connection show the same two ports.
	debugfs_up rtrs_client
	awk '$10 == "watched" { print $1, $6, $8, $9 }' "$DEBUG/connections" | sort >"$TMP/ours"
	awk '$10 == "watched" { print $1, $6, $8, $9 }' "${DEBUG%server}client/connections" | sort >"$TMP/theirs"
	diff "$TMP/ours" "$TMP/theirs"
	[ "$(grep -Exc 'RoCEv2 [0-9]+ 1234 TCP' "$TMP/ours")" = "$cons" ]
}

# The server's listeners are there without any client.
listening()
{
	awk '$13 == "listening" { print $5, $6, $7, $9 }' "$DEBUG/connections" >"$TMP/listening"
	# One for IP addresses and one for GIDs.
	printf '* 1234 * %s\n' TCP IB | diff - "$TMP/listening"
}

# for_everyone: users without rights see the same connections, with both ports and the queue pair, and
# the listeners; sysfs shows them the rest.
for_everyone()
{
	local user=(setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set=-all)

	"${user[@]}" rdma resource show cm_id >"$TMP/cm-ids"
	cat "$TMP/cm-ids"
	not "${user[@]}" cat "$DEBUG/connections" 2>/dev/null
	# "link rxe0/1 cm-idn 1 lqpn 17 ... comm [rtrs_server] src-addr 10.9.0.1:1234 dst-addr ..."
	awk '/\[rtrs_server\]/ && !/state LISTEN/ {
			for (i = 1; i < NF; i++) v[$i] = $(i + 1)
			split(v["src-addr"], src, ":"); split(v["dst-addr"], dst, ":")
			print v["lqpn"], "ip:" dst[1], dst[2], "ip:" src[1], src[2], v["ps"]
		}' "$TMP/cm-ids" | sort >"$TMP/theirs"
	awk '$10 == "watched" { print $12, $5, $6, $7, $8, $9 }' "$DEBUG/connections" | sort >"$TMP/ours"
	diff "$TMP/ours" "$TMP/theirs"
	grep -q 'state LISTEN ps TCP comm \[rtrs_server\] src-addr .*:1234' "$TMP/cm-ids"
	"${user[@]}" cat /sys/class/rtrs-client/watched/state \
		"/sys/class/rtrs-client/watched/paths/${PATHS[0]}"/{state_full,hca_name,hca_port,stats/rdma}
}

# trace_of BS INVALIDATED: trace requests of BS bytes whose chunk's key is invalidated, or which are
# copied.
trace_of()
{
	local who="sess=watched path=ip:10.9.0.2@ip:10.9.0.1 cid=[1-9][0-9]* msg_id=[0-9]+"

	traced_while rtrs_srv io randwrite 50 --iodepth=1 --bs="$1"
	traced 50 "rtrs_srv_recv: $who off=${1:0:1}[0-9]{3} len=${1:0:1}[0-9]{3}$"
	traced 50 "rtrs_srv_submit: $who dir=WRITE data=$1 user=[0-9]+ result=0 age=[0-9]+ ns"
	traced 50 "rtrs_srv_done: $who dir=WRITE data=$1 user=[0-9]+ result=0 age=[0-9]+ ns"
	traced 50 "send_io_resp_imm: sess='ip:10.9.0.2@ip:10.9.0.1' state='CONNECTED' dir=WRITE err='0' inval='0' glob-inval='1' .* session='watched'"
	# All stages of a request, in their order.
	awk '/ msg_id=|msgid=/ {
			match($0, /msg_?id=.?[0-9]+/); id = substr($0, RSTART, RLENGTH); gsub(/[^0-9]/, "", id)
			match($0, /[a-z_]+: /); e = substr($0, RSTART, RLENGTH - 2)
			seen[id] = seen[id] " " e
		}
		END { for (id in seen) print seen[id] }' "$TMP/trace" >"$TMP/stages"
	not grep -vE "^( rtrs_srv_recv$2 rtrs_srv_submit rtrs_srv_done send_io_resp_imm)+$" "$TMP/stages"
}

trace_requests()
{
	has_fields rtrs_srv send_io_resp_imm dir need_inval always_invalidate msg_id wr_cnt \
		signal_interval state errno sessname
	trace_of 4096 ""
	trace_of 8192 " rtrs_srv_invalidated"
}

# Print each paragraph as one line of values.
event_list()
{
	awk -v RS= -F '\n' '/SUBSYSTEM=rtrs-server/ {
		split("", v)
		for (i = 1; i <= NF; i++) { eq = index($i, "="); v[substr($i, 1, eq - 1)] = substr($i, eq + 1) }
		if (v["ACTION"] == "change")
			print v["RTRS_EVENT"], v["RTRS_SESSION"], v["RTRS_STATE"],
				v["RTRS_PATHS_UP"] "/" v["RTRS_PATHS"], v["RTRS_PATH"], v["RTRS_NUMBER"]
		else
			print v["ACTION"], v["DEVPATH"]
	}' "$TMP/events" | sed 's|/devices/virtual/rtrs-server/||; s/  */ /g; s/ $//'
}

come_and_go()
{
	write "$CLT/add_path" "${PATHS[1]}"
	write "$CLT/paths/${PATHS[1]}/remove_path" 1
	wait_for 20 not test -e "$p1"
	write "$CLT/paths/${PATHS[0]}/disconnect" 1
	wait_for 20 not test -e "$SESS"
	write "$CLT/paths/${PATHS[0]}/reconnect" 1
}

told()
{
	uevents rtrs-server come_and_go
	event_list >"$TMP/event_list"
	cat >"$TMP/expected" <<-EOT
		path_up watched connected 2/2 ${PATHS[1]} 2
		path_down watched connected 1/1 ${PATHS[1]} 3
		path_down watched disconnected 0/0 ${PATHS[0]} 4
		session_down watched disconnected 0/0 4
		remove watched
		add watched
		path_up watched connected 1/1 ${PATHS[0]} 5
		session_up watched connected 1/1 5
	EOT
	diff -u "$TMP/expected" "$TMP/event_list" || {
		cat "$TMP/events"
		return 1
	}
}

# The path is not the one of the attempt in $TMP/attempt, but the next one.
reborn()
{
	[ "$(awk '/^attempt/ { print $2 }' "$p0/state_full")" != "$(cat "$TMP/attempt")" ] &&
		[ "$(cat "$p0/state")" = connected ]
}

close_path()
{
	awk '/^attempt/ { print $2 }' "$p0/state_full" >"$TMP/attempt"
	write "$p0/disconnect" 1
	not test -e "$p0/disconnect"
	wait_for 20 reborn
}

trace_path()
{
	traced_while rtrs_srv close_path
	traced 1 "rtrs_srv_path_state: sess=watched path=${PATHS[0]} connected -> closing \(disconnected by the operator\)"
	traced 1 "rtrs_srv_path_state: sess=watched path=${PATHS[0]} closing -> closed "
	traced 1 "rtrs_srv_path_state: sess=watched path=${PATHS[0]} starting -> connected "
}

# attack CASE
attack()
{
	peer_attack "$1" --seed 1 --patience $((10 * RTRS_TIME_SCALE)) --victim watched \
		>"$TMP/attack" 2>&1 || {
		cat "$TMP/attack"
		return 1
	}
}

# A client that breaks the protocol: the server counts it, and other clients are not affected.
violation()
{
	write "$TOTAL" 0
	traced_while rtrs_srv attack imm-answer
	traced 1 "rtrs_srv_violation: sess=[^ ]+ path=[^ ]+ connected -> closing \(answer from a client\)"
	traced 1 "rtrs_srv_path_state: .* connected -> closing \(protocol violation\)"
	matches "$TOTAL" "1 "
	matches "$SESS/protocol_errors" "0 "
	matches "$SESS/state" "connected 1/1 "
	expect_error "Invalid argument" write "$TOTAL" 2
	matches "$TOTAL" "1 "
	write "$TOTAL" 1
	matches "$TOTAL" "0 "
}

# A client whose message is right but comes too early: counted once, too.
early()
{
	write "$TOTAL" 0
	traced_while rtrs_srv attack info-early
	traced 1 "rtrs_srv_violation: sess=[^ ]* path=[^ ]+ handshaking -> closing \(info request before all connections\)"
	traced 1 "rtrs_srv_path_state: .* handshaking -> closing \(protocol violation\)"
	matches "$TOTAL" "1 "
	write "$TOTAL" 0
}

# A client that breaks the protocol before there is a path to count it for.
bad_request()
{
	write "$TOTAL" 0
	attack bad-magic
	matches "$TOTAL" "1 "
	matches "$SESS/protocol_errors" "0 "
	write "$TOTAL" 0
}

must "soft RoCE comes up" rxe_up rxe0 10.9.0.1/24 10.9.0.2/24 10.9.0.3/24
defer rxe_down rxe0
peer_require
resource_snapshot
must "a null_blk" null_blk_up nullb0 64
defer null_blk_down nullb0
must "a slow one" null_blk_up nullb1 64 0 "$SLOW"
defer null_blk_down nullb1
must "modules load" eval "load_rtrs rust both sess_queue_depth=$DEPTH && load_rnbd both"
defer unload_modules
must "debugfs" debugfs_up rtrs_server
must "devices map" map
check "files say what they should" formats
check "requests are counted as the client counts them" counts
check "the memory held is shown" memory
check "0 and 1 reset" resets
check "what makes no sense is EINVAL" garbage
check "requests in flight are counted and listed" inflight
check "debugfs lists connections" connections
check "debugfs tells where the server listens" listening
check "so does rdma resource, to users without rights" for_everyone
check "rdma resource names the owner" owned_by rtrs_server
check "tracepoints show every stage of a request" trace_requests
check "uevents tell of paths and session" told
check "tracepoints show the life of a path" trace_path
check "a violation of the protocol is shown and counted" violation
check "and so is a question that comes too early" early
check "and so is a request to connect that makes no sense" bad_request
check "devices unmap" unmap
finish
