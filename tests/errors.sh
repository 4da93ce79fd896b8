#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: error answers, late answers, permits, and a session or server that ends with requests in flight
# topology: single
# timeout: 600
# seconds: 60

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/testmod.sh"

DEPTH=64

load() { load_test "always_invalidate=$1" "sess_queue_depth=$DEPTH"; }
open_session() { rt open name=m path=ip:10.9.0.1; }
connected() { rt limits "name=$1" "tag=limits-$1" && [ "$(field "limits-$1" connected)" = 1 ]; }

# fail_after SESSION SECONDS: set how long its requests wait for a path.
fail_after() { write "/sys/class/rtrs-client/$1/fast_io_fail_tmo" "$2"; }

# answers ERRNO...: each errno arrives as it was sent, for all kinds of requests.
answers()
{
	local errno

	for errno in "$@"; do
		both m errno="$errno" expect="-$errno" count=4 depth=2 len=4096 &&
			both m errno="$errno" expect="-$errno" count=2 len=0 &&
			both m errno="$errno" expect="-$errno" count=2 con=admin len=512 || return
	done
}

# becomes ERRNO OTHER...: an errno that must not go over the wire arrives as OTHER.
becomes()
{
	while [ "$#" -gt 0 ]; do
		both m errno="$1" expect="-$2" count=4 depth=2 && both m errno="$1" expect="-$2" len=0 || return
		shift 2
	done
}

# Work items or timers answer, later and in another order; with and without an error.
contexts()
{
	local how errno

	for how in work timer; do
		for errno in 0 5; do
			both m how="$how" errno="$errno" expect="-$errno" count=100 depth=32 len=4096 &&
				both m how="$how" errno="$errno" expect="-$errno" count=32 depth=32 len=0 &&
				both m how="$how" errno="$errno" expect="-$errno" count=64 depth=16 \
					con=admin len=8192 || return
		done
	done
}

late_answers()
{
	local before
	before=$(ms_now)

	both m how=timer delay=400 count="$DEPTH" depth="$DEPTH" len=8192 &&
		both m how=work delay=400 count="$DEPTH" depth="$DEPTH" len=8192 &&
		both m how=timer delay=400 count=8 depth=4 con=admin errno=28 expect=-28 || return
	# Eight delays, less a few ticks: each line writes, then reads, and the one on the service
	# connection takes two batches for each.
	[ $(($(ms_now) - before)) -ge $((8 * 390)) ] || {
		echo "answered too early"
		return 1
	}
}

# Late answers do not hold up other requests on the same connections.
overtaking()
{
	local delay=8000
	[ "$RTRS_TIME_SCALE" = 1 ] || delay=12000

	rt_start io name=m tag=late how=work delay="$delay" count=8 depth=8 len=4096
	both m count=100 depth=8 len=4096 &&
		[ "$(result late)" = "" ] || {
		echo "was held up"
		cat "$RT/result"
		return 1
	}
	rt_wait
}

# A disk that needs a minute for each request: by default no path is given up for that, although
# nothing but heartbeats is answered meanwhile.
slow_disk()
{
	dmesg_mark
	[ "$(cat "/sys/class/rtrs-client/m/request_timeout_ms")" = 120000 ]
	io m dir=write how=timer delay=60000 count=8 depth=8 len=4096
	grep . /sys/class/rtrs-client/m/paths/*/stats/reconnects
	dmesg_since_mark >"$TMP/dmesg"
	not grep -E 'rtrs_client: m .*: connected: ' "$TMP/dmesg"
}

permits()
{
	rt permits name=m tag=permits && [ "$(field permits permits)" = "$DEPTH" ] || {
		result permits
		return 1
	}
}

# were_short: a request that did not wait got no permit at first.
were_short() { io m tag=nowait wait=no count=4 depth=4 && [ "$(field nowait retried)" -gt 0 ]; }

# All permits are taken. A request that does not wait gets none; one that waits gets a permit in the
# end. The command may take the permits only after other requests were through.
shortage()
{
	rt_start permits name=m tag=permits hold=$((4000 * RTRS_TIME_SCALE))
	sleep 0.5
	rt_start io name=m tag=wait count=4 depth=4
	wait_for 10 were_short && rt_wait || return
	[ "$(field wait retried)" = 0 ] || {
		cat "$RT/result"
		return 1
	}
	permits
}

busy() { rt busy name=m tag=busy delay=300 || { dmesg_since_start | tail -n 5; return 1; }; }

shared() { rt shared name=m tag=shared delay=300 || { dmesg_since_start | tail -n 5; return 1; }; }

foreign()
{
	rt open name=other path=ip:10.9.0.1 && rt foreign name=m other=other tag=foreign &&
		rt foreign name=other other=m tag=foreign && rt close name=other
}

# drop_in_flight KEY=VALUE...: drop a session while the server holds its requests. Each request
# completes once, and the session is gone before the server answers.
drop_in_flight()
{
	rt open name=d path=ip:10.9.0.1 &&
		io d how=hold drop=1 count=32 depth=32 expect=-103 "$@" &&
		[ "$(field d completed)" = 32 ] && [ "$(field d -103)" = 32 ] || {
		cat "$RT/result" "$RT/stats"
		return 1
	}
	[ ! -e /sys/class/rtrs-client/d ] || return
	refuses 2 limits name=d || return
	rt release && wait_for 10 held 1234 0 && balanced && both m count=16 depth=4
}

drops()
{
	drop_in_flight && drop_in_flight dir=read && drop_in_flight con=admin &&
		drop_in_flight len=0 dir=read
}

# Drop sessions at full speed. Any result of a request will do.
drop_running()
{
	local i

	for i in $(seq 5); do
		rt open name=d path=ip:10.9.0.1 &&
			io d drop=1 count=1000 depth=48 dir=read len=65536 expect=any || return
	done
	balanced
}

# The server closes while it holds all requests. The client aborts them without an answer, and the
# close waits until the server can answer them.
server_gone()
{
	fail_after m 0 && both m count=16 depth=4 || return
	rt_start io name=m tag=w how=hold count=24 depth=24 expect=-103
	rt_start io name=m tag=r how=hold count=24 depth=24 expect=-103 dir=read
	wait_for 10 held 1234 48 || return
	rt unserve tag=unserve &
	wait_for 10 has_result w && wait_for 10 has_result r && rt_wait || return
	kill -0 "$!" || {
		echo "the server is closed though it holds requests"
		return 1
	}
	[ "$(field w -103)" = 24 ] && [ "$(field r -103)" = 24 ] || {
		cat "$RT/result"
		return 1
	}
	refuses 103 io name=m && rt release && wait "$!" && balanced
}

# The server comes back: the session reconnects by itself.
server_back()
{
	rt serve && wait_for 20 connected m && both m count=200 depth=32
}

# The server closes at full speed. Requests it has answered are complete, the others are aborted;
# none is lost or completed twice.
server_gone_running()
{
	rt_start io name=m tag=w count=50000 depth=24 expect=any
	rt_start io name=m tag=r count=50000 depth=24 expect=any dir=read len=16384
	rt_start io name=m tag=c count=50000 depth=8 expect=any chain=1
	sleep 1
	rt unserve && rt_wait || return
	for tag in w r c; do
		[ "$(field "$tag" -103)" -gt 0 ] &&
			[ "$(field "$tag" requests)" = "$(field "$tag" completed)" ] &&
			! result "$tag" | has -E ' -([0-9]|[0-9]{2}|10[0-24-9]|1[1-9][0-9]|[2-9][0-9]{2}):' || {
			result "$tag"
			return 1
		}
	done
	balanced && server_back
}

# cut SIDE FILE: write to FILE of the path of session m, if it is there.
cut()
{
	local f

	for f in "/sys/class/rtrs-$1/m/paths"/*/"$2"; do
		[ -e "$f" ] && write "$f" 1 || return
	done
}

# way_lost SIDE FILE: the path is lost under load, three times. The user does not notice: requests
# wait until there is a path again, and are sent again.
way_lost()
{
	local i

	fail_after m 30 || return
	rt_start io name=m tag=w count=1500 depth=16 len=8192
	rt_start io name=m tag=r count=1500 depth=16 len=8192 dir=read
	# Some four seconds.
	rt_start io name=m tag=t count=3000 depth=16 how=timer delay=20
	for i in 1 2 3; do
		sleep 0.3
		kill -0 "${RT_PIDS[2]}" || {
			late "all requests were through before time $i"
			return 1
		}
		wait_for 20 cut "$@" || {
			echo "no way to lose, time $i"
			return 1
		}
	done
	rt_wait && wait_for 20 connected m && balanced
}

# Drop a session while its requests wait for a path, which they would do for a minute.
drop_waiting()
{
	local t0

	no_way && fail_after d 60 || return
	t0=$(ms_now)
	io d count=16 depth=16 expect=-103 drop=1 dir=read && [ "$(field d completed)" = 16 ] && balanced || return
	t0=$(($(ms_now) - t0))
	[ "$t0" -lt $((5000 * RTRS_TIME_SCALE)) ] || late "that took $t0 ms"
}

# no_way: open session d with one path, which is not connected.
no_way()
{
	rt_open d path=ip:10.9.0.1 && write "$(echo /sys/class/rtrs-client/d/paths/*/disconnect)" 1
}

# With "off" requests wait for ever. A timeout that is set later also holds for requests that wait
# already, counted from when the path was lost.
waits_for_ever()
{
	local secs=5 t0
	[ "$RTRS_TIME_SCALE" = 1 ] || secs=15

	no_way && fail_after d 1 && fail_after d off || return
	[ "$(cat /sys/class/rtrs-client/d/fast_io_fail_tmo)" = off ] || return
	rt_start io name=d tag=ever count=16 depth=16 expect=-103
	sleep "$secs"
	[ "$(ls /sys/class/rtrs-client/d/paths)" ] && ! has_result ever || {
		result ever
		return 1
	}
	t0=$(ms_now)
	fail_after d "$secs" && wait_for 30 has_result ever || return
	t0=$(($(ms_now) - t0))
	[ "$t0" -lt $((secs * 1000 - 500)) ] || {
		late "that took $t0 ms"
		return 1
	}
	rt_wait && [ "$(field ever completed)" = 16 ] && rt close name=d && balanced
}

# failing 0|1: would a request fail at once? rtrs_clt_query() tells RNBD the same.
failing() { rt limits name=d tag=limits && [ "$(field limits failing) $(field limits connected)" = "$1 0" ]; }

# While requests may still wait, a lost path does not matter to the user.
time_to_wait()
{
	no_way && fail_after d off && failing 0 || return
	fail_after d 1 && sleep 1.5 && failing 1 || return
	fail_after d 60 && failing 0 && fail_after d 0 && failing 1 && rt close name=d && balanced
}

# Requests do not wait for a path if the session has no path left.
last_path_removed()
{
	no_way && fail_after d 60 || return
	rt_start io name=d tag=last count=16 depth=16 expect=-103 dir=read
	wait_for 10 waiting_shown d 16 && ! has_result last && write "$(echo /sys/class/rtrs-client/d/paths/*/remove_path)" 1 || return
	wait_for 20 has_result last && rt_wait && [ "$(field last completed)" = 16 ] &&
		[ -z "$(ls /sys/class/rtrs-client/d/paths)" ] && rt close name=d && balanced
}

lost() { [ "$(total client_disconnected)" = "$1" ]; }
back() { [ "$(total client_reconnected)" = "$1" ]; }

# The user is told once that requests fail for lack of a path, once that there is a path again, and
# once that the last path was removed; but not of its own actions.
user_is_told()
{
	local lost back path
	rt_open d path=ip:10.9.0.1 && fail_after d 1 || return
	path=$(echo /sys/class/rtrs-client/d/paths/*)
	lost=$(total client_disconnected) back=$(total client_reconnected)
	write "$path/disconnect" 1 && io d count=4 depth=4 expect=-103 && wait_for 20 lost $((lost + 1)) &&
		back "$back" && write "$path/reconnect" 1 && wait_for 20 back $((back + 1)) &&
		lost $((lost + 1)) && io d count=4 depth=4 || return
	write "$path/remove_path" 1 && wait_for 20 lost $((lost + 2)) && fail_after d 0 &&
		rt close name=d || return
	rt open name=d path=ip:10.9.0.1 && fail_after d 0 && rt close name=d &&
		lost $((lost + 2)) && back $((back + 1))
}

# A server that turns clients away.
turned_away()
{
	rt serve port=1235 refuse=1 && refuses 104 open name=t path=ip:10.9.0.1 port=1235 &&
		[ ! -e /sys/class/rtrs-client/t ] && rt unserve port=1235 && both m count=16 depth=4
}

# A module in use cannot be unloaded. When a user's module goes, its sessions go with it.
unload()
{
	rt open name=u1 path=ip:10.9.0.1 && rt open name=u2 path=ip:10.9.0.1 &&
		both u1 count=16 depth=4 && both u2 count=16 depth=4 || return
	for m in rtrs-client rtrs-server rtrs-core; do
		expect_error "in use" rmmod "$m" || return
	done
	module_refs rtrs-client 1 && module_refs rtrs-server 1 && rmmod rtrs-test &&
		module_refs rtrs-client 0 && module_refs rtrs-server 0 || return
	[ -z "$(ls -A /sys/class/rtrs-client)" ] && [ -z "$(ls -A /sys/class/rtrs-server)" ]
}

must "soft RoCE comes up" rxe_up rxe0
defer rxe_down rxe0
resource_snapshot
defer unload_modules
# beyond_core NAME CMD...: a long case, left out on kernels that run only part of each test.
beyond_core() { [ -n "${RTRS_CORE:-}" ] || check "$@"; }

# of_the_client AI: cases in which the mode of keys plays no role.
of_the_client()
{
	check "$1: errors that are no use outside become others" \
		becomes 512 4 515 25 516 4 517 11 518 116 519 22 521 116 524 95 525 22 528 11 529 5 4095 5
	check "$1: as many permits as the queue is deep" permits
	beyond_core "$1: short of permits" shortage
	check "$1: a permit is for one request at a time" busy
	check "$1: data is in one request at a time" shared
	check "$1: a permit is for one session" foreign
	check "$1: a session is dropped while requests wait" drop_waiting
	beyond_core "$1: requests wait for ever if told to" waits_for_ever
	beyond_core "$1: a session is failing when no time to wait is left" time_to_wait
	beyond_core "$1: the last path is removed while requests wait" last_path_removed
	beyond_core "$1: the user is told of a session that is lost, and back" user_is_told
	check "$1: a server turns clients away" turned_away
}

# One mode is enough on kernels that run only part of each test.
MODES="Y N"
[ -z "${RTRS_CORE:-}" ] || MODES=Y
for ai in $MODES; do
	must "$ai: modules load" load "$ai"
	must "$ai: a server opens" rt serve
	must "$ai: a session opens" open_session
	check "$ai: errors arrive as they were sent" \
		answers 1 2 4 5 11 12 16 22 28 30 61 71 90 95 103 104 110 121 255 256 510 511
	beyond_core "$ai: answers by work items and interrupts" contexts
	beyond_core "$ai: late answers" late_answers
	beyond_core "$ai: late answers are overtaken" overtaking
	[ -z "${RTRS_LONG:-}" ] || check "$ai: a disk needs a minute, and no path is given up" slow_disk
	check "$ai: a session is dropped with requests in flight" drops
	beyond_core "$ai: a session is dropped at full speed" drop_running
	check "$ai: the server goes with requests in its hands" server_gone
	check "$ai: the server comes back" server_back
	beyond_core "$ai: the server goes at full speed" server_gone_running
	check "$ai: the way is lost at the client, requests wait" way_lost client reconnect
	beyond_core "$ai: the way is lost at the server, requests wait" way_lost server disconnect
	[ "$ai" = N ] && [ -z "${RTRS_LONG:-}" ] || of_the_client "$ai"
	check "$ai: every request was completed once" balanced
	check "$ai: modules unload with sessions open" unload
	check "$ai: all modules unload" unload_modules
	check "$ai: nothing is left behind" resource_compare
done
finish
