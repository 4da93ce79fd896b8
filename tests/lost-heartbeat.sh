#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: a heartbeat, or its answer, is lost on one of two paths while requests wait there: the path is kept, whatever the ack timeout
# topology: pair
# timeout: 300
# seconds: 115

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
require rdma tc

# 8.6 s: the device must not find the loss by its timeout before the path would be given up as
# silent.
export RTRS_ACK_TIMEOUT=21
# Milliseconds that a path may be silent. The client sends four heartbeats less one in this time, so
# a quarter of it is left to notice a loss, and to lose no more.
SILENT=2000
[ "$RTRS_TIME_SCALE" -eq 1 ] || SILENT=6000
# Nanoseconds that the disk takes for a request: meanwhile the path carries nothing but heartbeats.
SLOW=$((2 * SILENT * 1000000))
# Questions, the last one with the default time.
QUESTIONS="1 2"
[ "$RTRS_TIME_SCALE" -gt 1 ] || QUESTIONS="1 2 3"
SESS=$CLT/quiet

path() { printf 'ip:%s@ip:%s\n' "$(pair_addr "$1" client)" "$(pair_addr "$1" server)"; }
dir() { path_dir quiet "$(path "$1")"; }
map() { map_rnbd quiet /dev/nullb0 "$(path 0)" "$(path 1)" >"$TMP/dev"; }
dev() { cat "$TMP/dev"; }

# gaps: number of packets that this side found missing.
gaps() { cat /sys/class/infiniband/rxe1/ports/1/hw_counters/out_of_seq_request; }

# One tc runs all the time and reads commands: while one starts, a slow machine loses more
# heartbeats than a path may lose.
tc_up() { coproc TC { exec tc -s -force -batch - 2>&1; }; }
tc_do() { printf '%s\n' "$@" >&"${TC[1]}"; }

# dropped: set DROPPED to the number of packets that the filter has dropped. What is shown of the
# loopback device comes after it.
dropped()
{
	local line

	DROPPED=0
	tc_do "filter show dev eth1 ingress" "qdisc show dev lo"
	while read -r -t $((20 * RTRS_TIME_SCALE)) -u "${TC[0]}" line; do
		[[ $line != qdisc* ]] || break
		[[ $line != *rror* ]] || echo "$line"
		[[ ! $line =~ dropped\ ([0-9]+) ]] || DROPPED=${BASH_REMATCH[1]}
	done
	# The rest of it.
	while read -r -t 0 -u "${TC[0]}"; do
		read -r -u "${TC[0]}" line
	done
}

# lose N [MATCH]: drop the next N packets that arrive here over the second link, and those that
# arrive before the drop is noticed. The sender does not know.
lose()
{
	local end=$((SECONDS + 20 * RTRS_TIME_SCALE))

	tc_do "filter add dev eth1 ingress protocol ip u32 match ip dport 4791 0xffff ${2:-} action drop"
	until dropped && [ "$DROPPED" -ge "$1" ] || [ "$SECONDS" -ge "$end" ]; do
		:
	done
	tc_do "filter delete dev eth1 ingress"
	echo "$DROPPED packets were lost"
}
# The operation code of the header after IP's and UDP's: a write with a value, as heartbeats are.
HEARTBEAT="match u8 0x0b 0xff at 28"

wait_on() { [ "$(path_count "$(dir "$1")" 5)" -ge 1 ]; }
all_done() { [ "$(cat "$TMP"/read.* | wc -l)" = 4 ]; }

# wait_on_both: send two requests over each path, in the background.
wait_on_both()
{
	local i

	rm -f "$TMP"/read.*
	for i in 1 2 3 4; do
		(
			dd "if=/dev/$(dev)" of=/dev/null bs=4k count=1 skip="$i" iflag=direct 2>/dev/null
			echo $? >"$TMP/read.$i"
		) &
	done
	wait_for 20 wait_on 0
	wait_for 20 wait_on 1
}

all_read()
{
	wait_for 40 all_done
	[ "$(sort -u "$TMP"/read.*)" = 0 ]
}

kept()
{
	dmesg_since_start >"$TMP/dmesg"
	not grep 'rtrs_client: quiet .*: connected: ' "$TMP/dmesg" || {
		echo "a path was lost"
		return 1
	}
	[ "$(cut -d ' ' -f 1 "$(dir 1)/stats/reconnects")" = 0 ] || return
	has_words "$SESS/state" connected
}

# found BEFORE AFTER: one side saw a gap: a packet was lost, and the loss found.
found()
{
	echo "$(($2 - $1)) gaps were found"
	[ "$2" -gt "$1" ]
}

# question N: the client's heartbeat is lost on the way to the server, one or more.
question()
{
	local lost

	check "question $1: requests wait on both paths" wait_on_both
	put "lose$1" now
	check "question $1: the requests are answered" all_read
	put "read$1" now
	lost=$(get "lost$1")
	check "question $1: it was lost, and found" found "$(get "before$1")" "$(get "after$1")"
	ktap_log "$TMP/case.log" 1
	# With the default time a path may lose one.
	check "question $1: no path was" kept_but_for "$lost" $(($1 < 3 ? 2 : 1))
}

# kept_but_for N LIMIT: N heartbeats were lost before that was noticed; a path may lose LIMIT.
kept_but_for() { kept || { [ "$1" -gt "$2" ] && late "$1 heartbeats were lost"; }; }

# answer N: the server's answer is lost on the way to the client.
answer()
{
	local before
	before=$(gaps)

	check "answer $1: requests wait on both paths" wait_on_both
	# The acknowledgment of the heartbeat, and the answer.
	lose 2 >"$TMP/lost"
	ktap_log "$TMP/lost"
	check "answer $1: the requests are answered" all_read
	check "answer $1: it was lost, and found" found "$before" "$(gaps)"
	ktap_log "$TMP/case.log" 1
	check "answer $1: no path was" kept
}

server_role()
{
	local n

	must "packets can be dropped" drops_ready 1
	tc_up
	must "a slow disk" null_blk_up nullb0 16 1 "$SLOW"
	defer null_blk_down nullb0
	must "server modules load" eval "load_rtrs rust server && load_rnbd server"
	barrier listening
	for n in $QUESTIONS; do
		get "lose$n" 200 >/dev/null
		put "before$n" "$(gaps)"
		# Not an acknowledgment, of which a loss need not be found.
		lose 1 "$HEARTBEAT" >"$TMP/lost"
		ktap_log "$TMP/lost"
		put "lost$n" "$DROPPED"
		get "read$n" 120 >/dev/null
		put "after$n" "$(gaps)"
	done
	barrier unmapped 200
	check "the server modules unload" unload_modules
}

client_role()
{
	local n

	must "packets can be dropped" drops_ready 1
	tc_up
	client_ready
	must "a device maps over both links" map
	write "$SESS/mpath_policy" round-robin
	write "$SESS/silent_path_ms" "$SILENT"
	for n in 1 2; do question "$n"; done
	for n in 1 2; do answer "$n"; done
	# The last one: a path that was lost is none that was kept.
	if [ "$RTRS_TIME_SCALE" = 1 ]; then
		write "$SESS/silent_path_ms" 800
		question 3
	fi
	check "no IO failed" no_io_error
	check "the device unmaps" unmap_rnbd "$(dev)"
	check "the client modules unload" unload_modules
	barrier unmapped
}

pair_main
