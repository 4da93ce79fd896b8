#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: servers that misbehave once they are connected lose the path, with a reason, but no IO
# topology: single
# timeout: 1200
# seconds: 200

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/testmod.sh"
. "$RTRS_LIB/observe.sh"
. "$RTRS_LIB/peer.sh"
require rdma

# The rogue is 10.9.0.1. At 10.9.0.2 is a server that behaves, as far as RTRS goes: writes succeed,
# reads fail with EIO. All IO has to end that way, whatever the rogue does.
EVIL=ip:10.9.0.1
GOOD=ip:10.9.0.2

SESSION=/sys/class/rtrs-client/m
TWO=/sys/class/rtrs-client/two
CLIENT_REPORTS='violation by the server|disconnected by|error completion|no heartbeat|silent, unlike|answer with chunks|posting a request'

mark()
{
	echo "rtrs-test: rogue $1 begins" >/dev/kmsg
	echo "rtrs-test: rogue $1 begins" >"$TRACE/trace_marker"
}

# since_mark CASE: the client's messages since the mark of CASE: its log, where the rate is limited,
# and trace events, where it is not.
since_mark()
{
	{ dmesg && cat "$TRACE/trace"; } | awk -v mark="rtrs-test: rogue $1 begins" '
		index($0, mark) { text = text "\n"; from[++n] = length(text); next }
		/rtrs_client: |: rtrs_clt_/ { text = text $0 "\n" }
		/^# tracer:/ { log_end = length(text); log_from = from[n] }
		END {
			printf "%s", substr(text, log_from + 1, log_end - log_from)
			printf "%s", substr(text, from[n] + 1)
		}'
}

# A case leaves some lines about paths; requests are not traced.
trace_paths()
{
	trace_up
	trace_set "$1" rtrs_clt/rtrs_clt_path_state rtrs_clt/rtrs_clt_violation
}

# said CASE TEXT: the client reported TEXT, an extended regular expression.
said() { since_mark "$1" | has -E -- "$2"; }

evil_path() { find "$SESSION/paths" -mindepth 1 -maxdepth 1 -name "*@$EVIL"; }

# Bytes of data of a request: more than are copied.
LEN=5000

# Options of the rogue, see old().
FORM=()

# An answer that is an invalidation, or has a key to be counted, always says success: these reads find
# other data than there should be. All of them end nevertheless.
reads_succeed()
{
	io m dir=read len="$LEN" count=96 depth=12 expect=any timeout=120 ||
		{ [ "$(field m completed)" = 96 ] && [ "$(field m unexpected)" = 0 ]; }
}

# by_inval: the rogue has answered some.
by_inval() { [ "$(field m corrupt)" -gt 0 ]; }

# one_by_one CASE TEXT: a request, and the next one when all that the server has to say has arrived.
# With more of them, the wrong key of the first answer would be used before the second answer is
# there, and break the connection.
one_by_one()
{
	local n

	for n in {1..40}; do
		io m dir=write len="$LEN" count=1 depth=1 expect=0 timeout=120 || return 1
		sleep 0.2
		! said "$1" "$2" || return 0
	done
	echo "$n requests, and no: $2"
	return 1
}

# all_io CASE
all_io()
{
	local writes=0

	case $1 in
	inval-answer*)
		reads_succeed
		return
		;;
	# The first ones make sure that the key of a chunk is used again.
	next-key*)
		io m dir=write len="$LEN" count=96 depth=12 expect=0 timeout=120 && reads_succeed
		return
		;;
	esac
	# The answer may name a request in flight: the client cannot tell.
	[ "$1" != unasked-answer ] || writes=any
	io m dir=write len="$LEN" count=96 depth=12 expect=$writes timeout=120 &&
		io m dir=read len="$LEN" count=96 depth=12 expect=-5 timeout=120
}

# copied CMD...: with so little data that it is copied.
copied() { local LEN=4096 && "$@"; }

# old CMD...: with a server whose chunks keep their keys. Its answers have another form.
old()
{
	local FORM=(--old-keys)

	"$@"
}

clean_up()
{
	local path
	path=$(evil_path)

	[ -z "$path" ] || write "$path/remove_path" 1
	rogue_stop evil
}

# told CMD...: with such a server, which says that reads may be answered by the invalidation of their
# key.
told()
{
	local FORM=(--old-keys --inval-answers)

	"$@"
}

# turns CASE TEXT: the rogue loses the path for that reason, several times if need be; every request
# completes nevertheless.
turns()
{
	local case=$1 text=$2 rc=0

	clean_up
	mark "$case"
	rogue_start evil 10.9.0.1 --case "$case" "${FORM[@]}"
	# The rogue may misbehave before the path is reported as connected.
	write "$SESSION/add_path" "$EVIL" || echo "it did"
	[ "$case" != next-key-twice ] || one_by_one "$case" "$text" || rc=1
	all_io "$case" || rc=1
	wait_for 10 said "$case" "$text" || rc=1
	[ "$rc" = 0 ] || {
		since_mark "$case"
		cat "$TMP/evil.json"
	}
	clean_up
	return "$rc"
}

# stays CASE: the behaviour is no reason to lose the path.
stays()
{
	local case=$1 rc=0

	clean_up
	mark "$case"
	rogue_start evil 10.9.0.1 --case "$case" "${FORM[@]}"
	write "$SESSION/add_path" "$EVIL"
	all_io "$case" || rc=1
	[ "$(cat "$(evil_path)/state")" = connected ] || rc=1
	not said "$case" "$CLIENT_REPORTS" || rc=1
	[ "$rc" = 0 ] || {
		since_mark "$case"
		cat "$TMP/evil.json"
	}
	clean_up
	return "$rc"
}

# never CASE ERROR TEXT: the path never comes up; adding it fails with ERROR, and the log has the
# reason TEXT.
never()
{
	local case=$1 t0=$SECONDS

	clean_up
	mark "$case"
	rogue_start evil 10.9.0.1 --case "$case" "${FORM[@]}"
	expect_error "$2" write "$SESSION/add_path" "$EVIL"
	said "$case" "$3" || {
		since_mark "$case"
		return 1
	}
	[ $((SECONDS - t0)) -le $((45 * RTRS_TIME_SCALE)) ] || late "that took $((SECONDS - t0)) s"
	[ -z "$(evil_path)" ]
	clean_up
	io m dir=write len=4096 count=8
}

# The only path is lost with requests in flight: they wait, and fail in time.
parked()
{
	local t0 rc=0

	rogue_start evil 10.9.0.1 --case leave-busy
	rt_open lone "path=$EVIL" port="$PEER_PORT" delay=60
	write /sys/class/rtrs-client/lone/fast_io_fail_tmo 3
	rogue_only_once
	t0=$SECONDS
	rt io name=lone dir=write len=4096 count=64 depth=16 expect=any timeout=60 || rc=1
	echo "done after $((SECONDS - t0)) s: $(result lone)"
	[ $((SECONDS - t0)) -le $((30 * RTRS_TIME_SCALE)) ] || late "that is too long" || rc=1
	[ "$(field lone -103)" -gt 0 ] || rc=1
	rt close name=lone
	clean_up
	return "$rc"
}

# The rogue stops, so that reconnecting fails.
rogue_only_once()
{
	(
		sleep 1
		rogue_stop evil
	) &
}

# A server forgets a session, and tells one path so. Its other idle paths are found dead at once,
# long before their heartbeats are due. A path whose server only claims not to know the session
# stays.
forgetful()
{
	rogue_start evil 10.9.0.1 --case "$1"
	rt_open two "path=ip:10.9.0.3@$EVIL" "path=ip:10.9.0.4@$EVIL" port="$PEER_PORT" delay=60
	io two dir=write len=4096 count=32 depth=8
	mark "$1"
	expect_error "not connected" write "$TWO/paths/ip:10.9.0.3@$EVIL/reconnect" 1
	said "$1" "the server does not know the session \\(-6\\)"
}

both_up() { [ "$(cat "$TWO/state")" = "connected 2/2" ]; }

forgets()
{
	local t0

	forgetful forgets
	t0=$(ms_now)
	wait_for $((10 * RTRS_TIME_SCALE)) both_up || grep . "$TWO"/paths/*/state_full
	both_up
	echo "both paths are back after $(($(ms_now) - t0)) ms"
	said forgets "10.9.0.4.*silent, and its server does not know the session"
	io two dir=write len=4096 count=32 depth=8
	rt close name=two
	rogue_stop evil
}

confused()
{
	forgetful confused
	wait_for $((10 * RTRS_TIME_SCALE)) both_up
	# Long enough for the path to be found dead.
	sleep $((2 * RTRS_TIME_SCALE))
	not said confused "10.9.0.4.*silent"
	[ "$(state_since "ip:10.9.0.4@$EVIL")" -ge 2 ]
	io two dir=write len=4096 count=32 depth=8
	rt close name=two
	rogue_stop evil
}

state_since() { sed -n 's/^since: *//p' "$TWO/paths/$1/state_full" | tr -dc 0-9; }

# impatient SESSION [MS]: its server lives but does not answer requests; the timeout is 1 s, or MS
# milliseconds, in place of two minutes. Heartbeats must not be faster to end the path, as the
# server may be slow to answer them on a busy machine.
impatient()
{
	write "$1/heartbeat_interval_ms" 200
	write "$1/heartbeat_limit" 100
	write "$1/silent_path_ms" 60000
	write "$1/request_timeout_ms" $((${2:-1000} * RTRS_TIME_SCALE))
}

patient()
{
	write "$1/request_timeout_ms" 120000
	write "$1/silent_path_ms" 30000
	write "$1/heartbeat_limit" 5
	write "$1/heartbeat_interval_ms" 5000
}

# unanswered CASE [MS]: requests over the only path get no answer; MS is as for impatient().
unanswered()
{
	rogue_start evil 10.9.0.1 --case "$1"
	rt_open two "path=ip:10.9.0.3@$EVIL" port="$PEER_PORT" delay=1
	[ "$(cat "$TWO/request_timeout_ms")" = 120000 ]
	impatient "$TWO" "${2:-1000}"
	mark "$1"
	rt_start io name=two dir=write len=4096 count=64 depth=8 expect=any timeout=300
}

ends_unanswered()
{
	write "$TWO/fast_io_fail_tmo" 1
	rogue_stop evil
	rt_wait
	rt close name=two
}

gave_up() { [ "$(since_mark idle | grep -c "two .*: requests are not answered")" -ge "$1" ]; }
two_is_up() { [ "$(cat "$TWO/state")" = "connected 1/1" ]; }

# The path is given up after 1, 2 and 4 s, and then no more.
idle()
{
	unanswered idle
	wait_for $((20 * RTRS_TIME_SCALE)) gave_up 3
	wait_for 10 two_is_up
	sleep $((9 * RTRS_TIME_SCALE))
	two_is_up
	not gave_up 4
	said idle "two .*8 requests wait for an answer, the oldest for"
	ends_unanswered
}

# A server that may execute both copies at a time gets no copy; but the log reports the requests.
idle_c()
{
	unanswered idle-c
	wait_for $((10 * RTRS_TIME_SCALE)) said idle-c "two .*8 requests wait for an answer, the oldest for"
	sleep $((3 * RTRS_TIME_SCALE))
	not said idle-c "requests are not answered"
	two_is_up
	ends_unanswered
}

all_but_one() { awk '{ exit !($3 >= 64 && $5 == 1) }' "$TWO/paths/ip:10.9.0.3@$EVIL/stats/rdma"; }
answered() { rt io name=two tag=more dir=write len=4096 count="$1" depth=4; }
# The report may come while some of those wait as well.
said_meanwhile() { answered 16 && said loses-one "two .* [1-5] requests wait for an answer, the oldest for"; }

# One request of the first 64 is lost, and others are answered, before the report and after it.
loses_one()
{
	unanswered loses-one 10000
	wait_for 10 all_but_one
	wait_for $((20 * RTRS_TIME_SCALE)) said_meanwhile
	answered 512
	all_but_one
	not said loses-one "requests are not answered"
	ends_unanswered
}

# opens_two CASE: a session with one path; its administrative requests get no answer before the path
# comes back.
opens_two()
{
	rogue_start evil 10.9.0.1 --case "$1"
	rt_open two "path=ip:10.9.0.3@$EVIL" port="$PEER_PORT" delay=1
	impatient "$TWO"
	mark "$1"
	rt_start io name=two tag=admin con=admin dir=write len=512 count=1 timeout=120
}

closes_two()
{
	rt_wait
	[ "$(cut -d ' ' -f 1 "$TWO/paths/ip:10.9.0.3@$EVIL/stats/reconnects")" = 1 ]
	rt close name=two
	rogue_stop evil
}

# An administrative request alone.
loses_admin()
{
	opens_two loses-admin
	wait_for $((10 * RTRS_TIME_SCALE)) said loses-admin "two .*requests are not answered"
	closes_two
}

stuck_is_known()
{
	rt io name=two tag=more dir=write len=4096 count=16 depth=4 || : >"$TMP/io-failed"
	said loses-admin "two .*: a connection is stuck"
}

# The same while IO goes on, which takes longer.
loses_admin_only()
{
	local t0

	t0=$(ms_now)
	opens_two loses-admin
	# IO must be answered that often.
	write "$TWO/request_timeout_ms" $((3000 * RTRS_TIME_SCALE))
	wait_for $((40 * RTRS_TIME_SCALE)) stuck_is_known
	not test -e "$TMP/io-failed"
	# See FACTOR in rtrs_client/logic/unanswered.rs.
	[ $(($(ms_now) - t0)) -ge $((11000 * RTRS_TIME_SCALE)) ]
	not said loses-admin "requests are not answered"
	closes_two
}

# A server that orders copies answers heartbeats while it has an administrative request.
mute_admin()
{
	local rc=0

	clean_up
	mark mute-admin
	rogue_start evil 10.9.0.1 --case mute-admin
	write "$SESSION/add_path" "$EVIL"
	io m dir=write con=admin len=512 count=32 depth=8 timeout=120 || rc=1
	said mute-admin "$EVIL.*silent, unlike other paths" || rc=1
	[ "$rc" = 0 ] || since_mark mute-admin
	clean_up
	return "$rc"
}

# With another path the requests go over that one.
elsewhere()
{
	local rc=0

	impatient "$SESSION"
	turns idle "requests are not answered" || rc=1
	patient "$SESSION"
	return "$rc"
}

# soon_silent CMD...: as sessions are by default.
soon_silent() { with_setting "$SESSION/silent_path_ms" $((800 * RTRS_TIME_SCALE)) "$@"; }

all_good()
{
	rt open name=m "path=$GOOD" port="$PEER_PORT" delay=60
	# A pause of the machine must not make a path look silent.
	write "$SESSION/silent_path_ms" 30000
	all_io -
}

close_all()
{
	clean_up
	balanced
	rt close name=m
	[ ! -d "$SESSION" ]
	rogue_stop good
}

must "soft RoCE comes up" rxe_up rxe0 10.9.0.1/24 10.9.0.2/24 10.9.0.3/24 10.9.0.4/24
defer rxe_down rxe0
peer_require
resource_snapshot
defer unload_rtrs
rogue_params
must "modules load" load_test
must "a server serves" rogue_start good 10.9.0.2 --case serve
defer rogue_stop good
defer rogue_stop evil
must "all IO goes over one path" all_good
must "events of paths are there" trace_paths 1

check "a second server serves, too" stays serve
check "chunks told with another type" never info-type "Bad message" "answer with chunks: unexpected message type"
check "no chunks told" never info-none "Bad message" "answer with chunks: bad number of descriptors"
check "one chunk less" never info-fewer "Bad message" "answer with chunks: descriptors do not match queue depth and chunk size"
check "one chunk more than there is" never info-more "Bad message" "answer with chunks: bad message length"
check "65535 chunks" never info-many "Bad message" "answer with chunks: bad message length"
check "chunks told with an empty message" never info-empty "Bad message" "answer with chunks: bad message length"
check "half of a descriptor" never info-half "Bad message" "answer with chunks: bad message length"
check "a chunk of no bytes" never info-len "Bad message" "answer with chunks: bad descriptor length"
check "a chunk of nearly 4 GiB" never info-len-max "Bad message" "answer with chunks: bad descriptor length"
check "a chunk at the end of all addresses" never info-wrap "Bad message" "answer with chunks: descriptor wraps around"
check "chunks told along with a value" never info-value "Protocol error" "violation by the server: no answer with chunks"
check "a value in place of the chunks" never info-by-value "Protocol error" "violation by the server: no answer with chunks"
check "a heartbeat before the chunks" stays info-after-hb
check "chunks told on another connection" never info-other-con "Connection timed out" "no answer in time"
check "wrong keys" turns info-key "error completion|send"
check "chunks told twice" turns info-twice "error completion|receive|violation"
check "left as soon as chunks were told" turns info-leave "disconnected by the server|error completion"
check "an answer nobody asked for" turns unasked-answer "not in flight|second answer"
check "a message nobody asked for" turns unasked-message "message out of place"
check "a key invalidated that is not there" turns unasked-inval "error completion|disconnected|out of place"
check "a value of an unknown type" turns unknown-value "unknown immediate"
check "a request from a server" turns request-value "immediate out of place"
check "a heartbeat on an IO connection" turns hb-on-io "immediate out of place"
check "heartbeats answered nobody sent" stays hb-ack-unasked
check "3000 heartbeats" stays hb-flood
check "an answer to another request" turns wrong-id "not in flight|second answer|another connection"
check "an answer to a request there cannot be" turns far-id "another chunk|no such"
check "an answer on another connection" turns other-con "answer on another connection|not in flight"
check "an answer on the service connection" turns on-service "answer on another connection|not in flight"
check "two answers" turns twice "second answer|not in flight"
check "an answer without a key" turns other-form "immediate out of place"
check "an answer with half a key" turns short-answer "length of an answer"
check "an answer with no message" turns empty-answer "length of an answer"
check "an answer with more than a key" turns long-answer "receive|error completion"
check "an answer of another type" turns answer-type "unexpected message type"
check "the key of another chunk" turns other-chunk "key of another chunk"
check "a key that is wrong" turns wrong-key "error completion|send"
check "an invalidation that never was" stays inval-claimed
check "another key invalidated" turns inval-other "error completion|disconnected|receive"
check "reads answered by the invalidation of their key" stays inval-answer
check "there were such answers" by_inval
check "so, and again" turns inval-answer-twice "second answer|not in flight"
check "so, of another key" turns inval-answer-key "error completion|disconnected|receive"
check "so, on another connection" turns inval-answer-other-con "answer on another connection|not in flight"
check "so, of a request there cannot be" turns inval-answer-far-id "no such chunk"
check "so, with half a key" turns inval-answer-half "length of an answer"
check "so, by another type of message" turns inval-answer-type "unexpected message type"
check "an answer with a key to be counted, which this client has not offered" \
	turns next-key "immediate out of place"
check "more read back than asked for" turns data-more "error completion|disconnected|receive"
check "read back to before the buffer" turns data-before "error completion|disconnected|receive"
check "read back with a wrong key" turns data-key "error completion|disconnected|receive"
check "read back after the answer" turns data-late "error completion|disconnected|receive"
# The buffer that data is copied from belongs to the server for as long as the link lives.
check "copied: read back after the answer" copied stays data-late
check "copied: read back with a wrong key" copied turns data-key "error completion|disconnected|receive"
check "copied: two answers" copied turns twice "second answer|not in flight"
check "copied: an invalidation that never was" copied stays inval-claimed
check "copied: left with requests in flight" copied turns leave-busy "disconnected by the server|error completion"
check "left with requests in flight" turns leave-busy "disconnected by the server|error completion"
check "the service connection left" turns leave-service "disconnected by the server|error completion"
check "old keys: an answer nobody asked for" old turns unasked-answer "not in flight|second answer"
check "old keys: an answer to another request" old turns wrong-id "not in flight|second answer|another connection"
check "old keys: an answer to a request there cannot be" old turns far-id "no such request"
check "old keys: an answer on another connection" old turns other-con "answer on another connection|not in flight"
check "old keys: two answers" old turns twice "second answer|not in flight"
check "old keys: an answer with a key" old turns other-form "connection [1-9]: receive"
check "old keys: an invalidation that never was" old stays inval-claimed
check "old keys: another key invalidated" old turns inval-other "error completion|disconnected|receive"
check "old keys: reads answered by the invalidation of their key" old turns inval-answer "connection [1-9]: receive"
check "old keys: an answer with a key to be counted" old turns next-key "immediate out of place"
check "old keys, told: reads answered by the invalidation of their key" told stays inval-answer
check "old keys, told: there were such answers" by_inval
check "old keys, told: right answers are taken as well" told stays serve
check "old keys, told: so, and again" told turns inval-answer-twice "second answer|not in flight"
check "old keys, told: so, of another key" \
	told turns inval-answer-key "error completion|disconnected|receive"
check "old keys, told: so, on another connection" \
	told turns inval-answer-other-con "answer on another connection|not in flight"
check "old keys, told: so, of a request there cannot be" told turns inval-answer-far-id "no such chunk"
check "old keys, told: so, with half a key" told turns inval-answer-half "length of an answer"
check "old keys, told: so, by another type of message" \
	told turns inval-answer-type "unexpected message type"
check "old keys, told: an answer with a key" told turns other-form "message out of place"
check "old keys, told: an invalidation that never was" told stays inval-claimed
check "old keys: read back after the answer" old turns data-late "error completion|disconnected|receive"
check "old keys: left with requests in flight" old turns leave-busy "disconnected by the server|error completion"
check "old keys, copied: an invalidation that never was" old copied stays inval-claimed
# The other path still gets answers. With only one path, heartbeats would need longer.
check "silence" soon_silent turns mute "silent, unlike other paths"
check "the only path left with requests in flight" parked
check "a server that answers no requests: they go elsewhere" elsewhere
check "on the only path it is tried again, and not for ever" idle
check "one that does not order copies is sent none" idle_c
check "one lost request gives up nothing" loses_one
check "a server that loses an administrative request gets it again" loses_admin
check "so does one that goes on with IO" loses_admin_only
check "an administrative request is no excuse for silence" soon_silent mute_admin
check "a server that forgets is found out on all paths" forgets
check "one that is only confused loses none" confused
check "events of paths are no longer wanted" trace_paths 0
check "the first session closes" close_all
check "modules unload" unload_rtrs

# The rogue's keys are always the same, so the key that the client has counted is a wrong one.
rogue_params keep_keys=Y
must "modules load with keys that are counted" load_test
must "a server serves" rogue_start good 10.9.0.2 --case serve
must "all IO goes over one path" all_good
check "counted: right answers, which tell keys" stays serve
check "counted: a key that is wrong" turns next-key "send: remote access error"
check "counted: two answers" turns next-key-twice "second answer|not in flight"
check "counted: an answer on another connection" \
	turns next-key-other-con "answer on another connection|not in flight"
check "counted: an answer to a request there cannot be" turns next-key-far-id "no such request"
check "counted: an answer with an error" turns next-key-errno "bad message id"
check "counted: an answer with a message" turns next-key-message "immediate out of place"
check "counted: an answer nobody asked for" turns next-key-unasked "not in flight|second answer"
check "counted: an answer in place of the chunks" never next-key-info "Protocol error" \
	"violation by the server: no answer with chunks"
check "old keys, counted: an answer with a key to be counted" \
	old turns next-key "immediate out of place"
check "the session closes" close_all
check "modules unload" unload_rtrs

rogue_params inval_answers=N
must "modules load again" load_test
must "a server serves" rogue_start good 10.9.0.2 --case serve
must "all IO goes over one path" all_good
check "answered by an invalidation, which this client has not offered" turns inval-answer "message out of place"
check "the session closes" close_all
check "modules unload" unload_rtrs
finish
