#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: clients that break the protocol are refused or cut off, while an honest client does verified IO
# topology: single
# timeout: 600
# seconds: 240

. "$(dirname "$0")/lib/common.sh"
. "$(dirname "$0")/lib/observe.sh"
. "$(dirname "$0")/lib/peer.sh"
require fio rdma

# With a depth that is no power of two, some values name no chunk.
DEPTH=100

# Cases in which the mode of keys plays no role run in one mode only.
HANDSHAKE='private-data|bad-|cid-|cons|one-con|unknown|info-|name-|leave-early|half-open'

# These cases take the 30 s that a handshake may take, and the 30 s that a client may be silent;
# half-open.sh covers more of the former.
SLOW='^(half-open|silent-full)$'
[ -z "${RTRS_LONG:-}" ] || SLOW='^$'

# Cases for kernels that run only part of each test (RTRS_CORE): some of each kind.
CORE='^(honest|bad-magic|cid-taken|take-over|info-type|info-early|name-taken|imm-answer|buf-id|off-beyond'
CORE+='|usr-len|read-more|same-chunk-twice|hb-on-io|hb-flood|write-behind|foreign-key|sibling-key|stale-key|live-key|guess-key|same-next-key|leave-busy|same-behind-answer|same-before-key'
CORE+='|large-type|large-changed|large-long-user|large-to-the-end|large-open|large-open-short|sends-sizes|sends-many|sent-stale|sent-off-more|sent-too-long|sent-io-zero)$'

cases()
{
	"$RTRS_PEER" --list | awk '$1 == "client" { print $2 }' | grep -E "${RTRS_CORE:+$CORE}"
}

# The server's count of violations, over all clients.
TOTAL=/sys/module/rtrs_server/stats/protocol_errors

# Cases that the server does not count: they break no rule, or are refused like any connect request
# may be, or the device refuses them and tells the server only that the connection failed, or the
# client just does nothing.
RULES='honest|same-[^c]|large-(long-user|to-the-end|open)|sends-|inval-answer|take-over|half-open|crowd|leftovers|hb-ack-unasked|hb-flood|leave-|vanish-busy'
REFUSED='unknown-session|cid-taken|cons-change|name-'
SILENT='silent-'
DEVICE='info-long|info-twice|io-before-info|send-on-|read-chunk-directly|sent-.*too-long|sent-on-service'
DEVICE+='|sent-plain|sent-untaken$|sent-io-'
UNCOUNTED="^($RULES|$REFUSED|$DEVICE|$SILENT)"

# reason CASE: the server's message for the case, an extended regular expression; empty for a case
# that breaks no rule. The log is limited to ten of each line in five seconds. The reasons for
# closing a path are in trace events too, without a limit.
reason()
{
	case $1 in
	no-private-data | bad-magic) echo 'connection refused: bad magic' ;;
	bad-version) echo 'connection refused: unsupported protocol version' ;;
	cid-of-no-connection) echo 'connection refused: bad connection id' ;;
	# The connection manager pads missing bytes with zeroes.
	short-private-data | no-cons | one-con | many-cons) echo 'connection refused: bad number of connections' ;;
	unknown-session) echo 'connection [0-9] of [0-9] refused: -6( |$)' ;;
	cid-taken | cons-change) echo 'connection [0-9] of [0-9] refused: -104( |$)' ;;
	name-taken) echo 'name honest is in use' ;;
	name-of-silent) echo 'closing \(client reconnected\)|disconnected: client reconnected' ;;
	# Whether it has its name first is a matter of time.
	name-of-early) ;;
	name-of-*) echo 'name attack-name-of-[^ ]* is in use' ;;
	info-type | msg-type | never-written | large-type | large-changed) echo 'unexpected message type' ;;
	info-no-* | info-slash | info-dot | info-control) echo 'bad session name' ;;
	info-early) echo 'info request before all connections' ;;
	info-by-value) echo 'request before the info answer' ;;
	info-with-value) echo 'first message is no info request' ;;
	info-short | info-empty | desc-at-end | written-* | large-read | large-more) echo 'bad message length' ;;
	imm-type*) echo 'unknown immediate type' ;;
	imm-answer*) echo 'answer from a client' ;;
	buf-id) echo 'bad buffer id' ;;
	off-*) echo 'offset beyond the chunk' ;;
	usr-len* | large-usr-len) echo 'bad user message length' ;;
	read-none) echo 'bad data length' ;;
	inval-nothing) echo 'invalidation without a key' ;;
	*-descs) echo 'bad number of descriptors' ;;
	same-chunk-twice) echo 'request for a chunk in use' ;;
	send-nothing-* | send-value-* | invalidate*) echo 'message on a connection for writes' ;;
	silent-full) echo 'closing \(heartbeat missed\)|disconnected: heartbeat missed' ;;
	hb-*-io) echo 'heartbeat on an IO connection' ;;
	wrong-key | write-* | *-key) echo 'memory that is not the client.s|the device refused an access' ;;
	# Only the device sees these, and it reports few details.
	info-long | info-twice | send-on-*) echo 'receive failed: ' ;;
	# The line in the log may be one too many, and the client does not disconnect.
	read-chunk-directly) echo '(closing|disconnected).*connection error' ;;
	# The crowd before this case has ended so many handshakes that the log limit drops the line.
	io-before-info) ;;
	read-*) echo 'bad descriptor length' ;;
	sent-no-value | sent-inval | sent-hb* | sent-answer | sent-key-answer | sent-imm-type) echo 'message that is no request' ;;
	sent-buf-id) echo 'bad buffer id' ;;
	sent-off-far) echo 'offset beyond the chunk' ;;
	sent-off-end) echo 'unexpected message type' ;;
	sent-usr-len-header) echo 'bad user message length' ;;
	sent-busy) echo 'request for a chunk in use' ;;
	sent-nothing-on-service | sent-untaken-empty) echo 'message on a connection for writes' ;;
	sent-*too-long | sent-on-service | sent-plain | sent-untaken | sent-io-*) echo 'receive failed: ' ;;
	sent-*) echo 'message that is no write of few data' ;;
	*) echo 'this test does not know' ;;
	esac
}

# Trace the log lines too: then messages and events are in one order.
EVENTS=(printk/console rtrs_srv/rtrs_srv_violation rtrs_srv/rtrs_srv_path_state)

# told: print a line for each case, with its name and the server's messages meanwhile.
told()
{
	awk '
		match($0, /console: rtrs-test: attack [^ ]+ begins/) {
			if (name)
				print name text
			name = $(NF - 1)
			text = ""
		}
		/ console: rtrs_server: | rtrs_srv_(violation|path_state): / {
			sub(/.*( console: rtrs_server: | rtrs_srv_violation: | rtrs_srv_path_state: )/, "")
			text = text " | " $0
		}
		END { if (name) print name text }' "$TRACE/trace"
}

# Despite its limit the log has at least the first messages.
logged()
{
	dmesg_since_start | grep -E 'rtrs_server: .*: (bad|unexpected|offset|heartbeat|answer|memory) ' >"$TMP/logged" ||
		true
	[ "$(wc -l <"$TMP/logged")" -ge 5 ] || {
		cat "$TMP/logged"
		echo "the log does not name what was wrong"
		return 1
	}
}

# results MODE CASE...: a case of this test for each of the attacker's, by the reports of attacker
# and server. It starts no process per case, as there are many.
results()
{
	local ai=$1 line c why ok
	local -A said=() heard=()
	shift

	while IFS= read -r line; do
		[[ $line =~ \"case\":\"([a-z0-9-]+)\" ]] && said[${BASH_REMATCH[1]}]=$line
	done <"$TMP/attacks"
	while read -r c line; do
		heard[$c]=$line
	done < <(told)
	for c; do
		line=${said[$c]:-}
		why=
		[[ $c =~ ^($RULES) ]] || why=$(reason "$c")
		ok=yes
		[[ $line == *'"ok":true'* ]] || ok=no
		[[ $c =~ $UNCOUNTED || $line == *'"counted":'[1-9]* ]] || ok=no
		[[ -z $why || ${heard[$c]:-} =~ $why ]] || ok=no
		if [ "$ok" = yes ]; then
			ktap_test_pass "$ai: $c"
		else
			ktap_test_fail "$ai: $c"
			note "${line:-no result; the attacker said last: $(tail -n 1 "$TMP/attacks")}"
			# A pause of the machine makes the server ask the holder of a name once more, and the
			# user of a chunk may not be done with it when the attacker uses it again.
			case $c$line${heard[$c]:-} in
			*'was free too late'* | silent-full*'request for a chunk in use'*) note "late: $c" ;;
			esac
			note "the server: ${heard[$c]:-nothing}${why:+; wanted: $why}"
		fi
	done
}

# The end of the test checks that the honest session stays connected, and without an error.
impostor()
{
	local i

	for i in 1 2 3; do
		peer_attack name-taken --victim honest --from 10.9.0.2 --seed $((SEED * 100 + i))
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
	trace_begin "${EVENTS[@]}"
	peer_attack "$(IFS=, && echo "${all[*]}")" --seed "$SEED" \
		--patience $((10 * RTRS_TIME_SCALE)) --victim honest --other 10.9.0.2 --counter "$TOTAL" \
		--mark /dev/kmsg >"$TMP/attacks" 2>&1
	trace_end "${EVENTS[@]}"
	results "$ai" "${all[@]}"
	check "$ai: a client from its address does not get its name" impostor
	check "$ai: the log says why, too" logged
	check "$ai: nothing is left of the attackers" back_at_baseline
	honest_stop
	check "$ai: the honest client had no error" honest_well
	check "$ai: and stayed connected" honest_undisturbed
	check "$ai: the device unmaps" honest_unmap
	check "$ai: modules unload" unload_modules
}

SEED=${RTRS_SEED:-1}
arena 10.9.0.2/24
must "a slow disk" null_blk_up nullb1 16 1 1000000000
defer null_blk_down nullb1
must "a disk with one request at a time" null_blk_up nullb2 16 1 3000000000 1
defer null_blk_down nullb2
mode Y "$SLOW"
[ -n "${RTRS_CORE:-}" ] || mode N "^(stale|guess|live|last)-key$|^same-behind-(user|large|write|answer)$|^same-(before-key|held)$|^large-changed$|^sends-[^a]|^sent-([^pu]|us)|$HANDSHAKE"
finish
