#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: statistics, states, events, debugfs and tracepoints of the client show what happens
# topology: single
# timeout: 300

. "$(dirname "$0")/lib/common.sh"
. "$(dirname "$0")/lib/observe.sh"
require fio rdma trace-cmd udevadm

SESS=/sys/class/rtrs-client/stats
PATHS=("ip:10.9.0.2@ip:10.9.0.1" "ip:10.9.0.3@ip:10.9.0.1")
FILES="rdma reconnects cpu_migration cpu_migration_from cpu_migration_to sg_entries rdma_lat
	rdma_lat_us wc_completion reset_all"
DEBUG=/sys/kernel/debug/rtrs_client
# Nanoseconds that the slow disk takes.
SLOW=$((4000000000 * (RTRS_TIME_SCALE > 1 ? 3 : 1)))

p0=$SESS/paths/${PATHS[0]}
p1=$SESS/paths/${PATHS[1]}

map()
{
	map_rnbd stats /dev/nullb0 "$@" >"$TMP/dev"
	map_rnbd stats /dev/nullb1 "$@" >"$TMP/slow"
}

unmap()
{
	unmap_rnbd "$(cat "$TMP/slow")"
	unmap_rnbd "$(cat "$TMP/dev")"
}

io() { fio_count "$(cat "$TMP/dev")" "$@"; }

# column FILE N: sum of a column of a latency table, without the maximum.
column() { awk -v n="$2" '!/^maximum/ { sum += $(NF - 2 + n) } END { print sum + 0 }' "$1"; }

formats()
{
	local n="[0-9]+" cpus
	cpus=$(tr ',' '\n' </sys/devices/system/cpu/possible | awk -F- '{ n += $NF - $1 + 1 } END { print n }')

	matches "$p0/stats/rdma" "($n ){6}"
	matches "$p0/stats/reconnects" "0 0 "
	matches "$p0/stats/cpu_migration_from" "($n ){$cpus} "
	matches "$p0/stats/cpu_migration_to" "($n ){$cpus} "
	matches "$p0/stats/cpu_migration" " +(CPU$n ){$cpus}from: ($n ){$cpus}to: ($n ){$cpus}"
	matches "$p0/stats/sg_entries" "entries: 0 1 2 3-4 5-8 9-16 17-32 33-64 65-128 >128 all: ($n ){10}(cpu$n: ($n ){10})*"
	matches "$p0/stats/rdma_lat" "1 ms: $n $n 2 ms: $n $n ($n ms: $n $n ){14}65536 ms: $n $n >= 65536 ms: $n $n maximum ms: $n $n "
	matches "$p0/stats/rdma_lat_us" "1 us: $n $n ($n us: $n $n ){22}8388608 us: $n $n >= 8388608 us: $n $n maximum us: $n $n "
	matches "$p0/stats/wc_completion" "$n $n "
	matches "$p0/stats/reset_all" "echo 1 to reset all statistics "
	matches "$p0/cur_latency" "$n ns "
	matches "$p0/request_latency" "$n ns "
}

# softirqs NAME: how many there were of a kind.
softirqs() { awk -v name="$1:" '$1 == name { for (i = 2; i <= NF; i++) n += $i; print n }' /proc/softirqs; }

# A write that is not copied needs the completion of its send, which is looked for with the answer: as a
# rule it is no interrupt of its own. One that comes after the answer is a work item in softirq, which
# counts as a tasklet. So few pages are not registered. The server's completions are handled in work items
# of tasks. Heartbeats are few.
mapped_writes()
{
	local n=200 polls late

	polls=$(softirqs IRQ_POLL)
	late=$(softirqs TASKLET)
	io randwrite "$n" --bs=16k --iodepth=1
	polls=$(($(softirqs IRQ_POLL) - polls))
	late=$(($(softirqs TASKLET) - late))
	echo "$n writes: $polls softirqs of completions, $late of late ones"
	[ "$polls" -ge "$n" ] && [ "$((polls + late))" -lt "$((n * 8 / 5))" ]
}

# Each request submitted counts once, in all tables.
counts()
{
	local bytes extra max

	echo 1 >"$p0/stats/reset_all"
	io randwrite 1000
	same "writes" "$(nth "$p0/stats/rdma" 3)" 1000
	bytes=$(nth "$p0/stats/rdma" 4)
	extra=$((bytes - 1000 * 4096))
	# The user's header counts too, and has the same size in all requests.
	[ "$extra" -gt 0 ] && [ $((extra % 1000)) -eq 0 ] && [ "$extra" -lt 128000 ] || {
		echo "$bytes bytes"
		return 1
	}
	same "written, by ms" "$(column "$p0/stats/rdma_lat" 2)" 1000
	same "written, by us" "$(column "$p0/stats/rdma_lat_us" 2)" 1000
	io randread 500
	same "reads" "$(nth "$p0/stats/rdma" 1)" 500
	same "read, by ms" "$(column "$p0/stats/rdma_lat" 1)" 500
	same "read, by us" "$(column "$p0/stats/rdma_lat_us" 1)" 500
	same "scatter lists" "$(awk '/^all:/ { for (i = 2; i <= NF; i++) n += $i; print n }' \
		"$p0/stats/sg_entries")" 1500
	same "scatter lists by CPU" "$(awk '/^cpu/ { for (i = 2; i <= NF; i++) n += $i } END { print n }' \
		"$p0/stats/sg_entries")" 1500
	max=$(awk '/^maximum/ { print $(NF - 1) }' "$p0/stats/rdma_lat_us")
	[ "$max" -gt 0 ]
	[ "$(nth "$p0/stats/wc_completion" 1)" -ge "$(nth "$p0/stats/wc_completion" 2)" ]
	[ "$(nth "$p0/stats/wc_completion" 2)" -ge 1 ]
	[ "$(nth "$p0/request_latency" 1)" -gt 0 ]
}

beats() { [ "$(nth "$p0/cur_latency" 1)" -gt 0 ]; }

# Requests that wait for the slow disk count in one of the averages. The other one is measured by
# heartbeats, and is not affected.
latencies()
{
	local -i beat request

	write "$SESS/heartbeat_interval_ms" 100
	fio --name=slow --filename="/dev/$(cat "$TMP/slow")" --direct=1 --ioengine=libaio --rw=randread \
		--bs=4k --iodepth=1 --number_ios=1 --size=32M >"$TMP/fio"
	wait_for 10 beats
	beat=$(nth "$p0/cur_latency" 1) request=$(nth "$p0/request_latency" 1)
	write "$SESS/heartbeat_interval_ms" 5000
	echo "a heartbeat takes $beat ns, a request $request ns"
	[ "$beat" -lt $((SLOW / 2)) ]
	[ "$request" -gt "$beat" ]
}

# The answers to requests of CPU 0 are expected there. Soft RoCE handles answers where its work
# items run; the mask of workqueues makes that CPU 1.
migrations()
{
	local unbound=/sys/devices/virtual/workqueue/cpumask was rc=0 n

	[ "$(nproc)" -gt 1 ] || skip "there is one CPU"
	was=$(cat "$unbound")
	echo 2 >"$unbound"
	echo 1 >"$p0/stats/cpu_migration"
	io randwrite 500 --cpus_allowed=0 || rc=1
	echo "$was" >"$unbound"
	n=$(nth "$p0/stats/cpu_migration_from" 1)
	grep . "$p0"/stats/cpu_migration_{from,to}
	[ "$n" -ge 250 ]
	matches "$p0/stats/cpu_migration_from" "$n (0 )+ "
	matches "$p0/stats/cpu_migration_to" "0 $n (0 )* "
	return "$rc"
}

# Reads and writes, without the time that fio takes to start.
some_io()
{
	local dev
	dev=/dev/$(cat "$TMP/dev")

	dd if="$dev" of=/dev/null bs=4k count=20 iflag=direct status=none
	dd if=/dev/zero of="$dev" bs=4k count=20 oflag=direct conv=nocreat status=none
}

resets()
{
	local f w

	for w in 0 1; do
		for f in $FILES; do
			some_io
			write "$p0/stats/$f" "$w"
			case $f in
			rdma | reset_all) matches "$p0/stats/rdma" "0 0 0 0 0 0 " ;;
			esac
			case $f in
			rdma_lat | rdma_lat_us | reset_all)
				same "$f" "$(column "$p0/stats/rdma_lat_us" 1)" 0
				same "$f" "$(column "$p0/stats/rdma_lat" 2)" 0
				matches "$p0/stats/rdma_lat" ".* maximum ms: 0 0 "
				;;
			esac
			case $f in sg_entries | reset_all) matches "$p0/stats/sg_entries" ".*all: (0 ){10}" ;; esac
			case $f in cpu_migration* | reset_all) matches "$p0/stats/cpu_migration_to" "(0 )* " ;; esac
			case $f in wc_completion) [ "$(nth "$p0/stats/$f" 1)" -le 1 ] ;; esac
		done
	done
}

bad_resets()
{
	local f w

	for f in $FILES; do
		for w in 2 -1 01 "0 " "1 1" x "" $'1\n\n'; do
			[ -n "$w" ] || continue
			expect_error "Invalid argument" write "$p0/stats/$f" "$w"
		done
	done
}

# Under load: requests are in flight, and resets do not lose count of them.
inflight()
{
	local fio n max=0

	io randrw 1000000 --time_based --runtime=4 &
	fio=$!
	while kill -0 "$fio" 2>/dev/null; do
		n=$(nth "$p0/stats/rdma" 5)
		[ "$n" -le "$max" ] || max=$n
		[ "$n" -le 512 ]
		echo 1 >"$p0/stats/reset_all"
		sleep 0.05
	done
	wait "$fio"
	same "most in flight" "$((max >= 1 && max <= 8))" 1
	same "in flight afterwards" "$(nth "$p0/stats/rdma" 5)" 0
}

states()
{
	matches "$p0/state_full" "state: connected since: [0-9]+ attempts: 0 link: 1 trial: 0 last_error: 0 none "
	matches "$SESS/state" "connected 1/1 "
}

# The path has been connected for no longer than this takes.
reconnect()
{
	local t0 since

	t0=$(ms_now)
	write "$p0/reconnect" 1
	matches "$p0/stats/reconnects" "1 0 "
	matches "$p0/state_full" "state: connected since: [0-9]+ attempts: 0 link: 2 .*"
	since=$(awk '/^since:/ { print $2 }' "$p0/state_full")
	t0=$((($(ms_now) - t0) / 1000))
	echo "connected for $since s, at most $t0 s"
	[ "$since" -le "$t0" ]
	echo 0 >"$p0/stats/reconnects"
	matches "$p0/stats/reconnects" "0 0 "
}

# slow_reads: eight reads at a time.
slow_reads()
{
	fio --name=slow --filename="/dev/$(cat "$TMP/slow")" --direct=1 --ioengine=libaio \
		--rw=randread --bs=4k --iodepth=8 --number_ios=8 --size=32M >"$TMP/fio"
}

has_requests() { [ "$(nth "$p1/stats/rdma" 5)" -gt 0 ]; }

# Requests wait for the slow disk when their path is reconnected: they go over the other path.
failover()
{
	local fio n

	write "$SESS/add_path" "${PATHS[1]}"
	matches "$SESS/state" "connected 2/2 "
	write "$SESS/mpath_policy" rr
	write "$p0/stats/rdma" 0
	write "$p1/stats/rdma" 0
	slow_reads &
	fio=$!
	wait_for 20 has_requests
	n=$(nth "$p1/stats/rdma" 5)
	write "$p1/reconnect" 1
	wait "$fio"
	same "in flight" "$(nth "$p0/stats/rdma" 5) $(nth "$p1/stats/rdma" 5)" "0 0"
	matches "$p1/stats/reconnects" "1 0 "
	same "failed over" $((n > 0 && $(nth "$p0/stats/rdma" 6) + $(nth "$p1/stats/rdma" 6) >= n)) 1
}

has_event()
{
	# The variables of an event are in one paragraph.
	awk -v RS= -v event="RTRS_EVENT=$1" -v state="RTRS_STATE=$2" \
		-v path="${3:+RTRS_PATH=$3}" '
		index($0 "\n", event "\n") && index($0 "\n", state "\n") && index($0 "\n", path "\n") &&
			index($0, "ACTION=change") && index($0, "RTRS_SESSION=stats") { found = 1 }
		END { exit !found }' "$TMP/events" || {
		echo "no $1 $2 ${3:-}"
		cat "$TMP/events"
		return 1
	}
}

disconnect_all()
{
	write "$p1/disconnect" 1
	matches "$SESS/state" "degraded 1/2 "
	matches "$p1/state_full" "state: disconnected .*"
	sleep 0.5
	write "$p0/disconnect" 1
	matches "$SESS/state" "disconnected 0/2 "
	sleep 0.5
	write "$p0/reconnect" 1
	sleep 0.5
	write "$p1/reconnect" 1
}

told()
{
	uevents rtrs-client disconnect_all
	has_event path_down degraded "${PATHS[1]}"
	has_event path_down disconnected "${PATHS[0]}"
	has_event session_down disconnected
	has_event path_up degraded "${PATHS[0]}"
	has_event session_up degraded
	has_event path_up connected "${PATHS[1]}"
}

#
# A rule as an operator has it in /etc/udev/rules.d
#

UDEVD=/usr/lib/systemd/systemd-udevd
RULES=/run/udev/rules.d/99-rtrs-test.rules

udev_up()
{
	mkdir -p /run/udev/rules.d
	cat >$RULES <<-EOF
		SUBSYSTEM=="rtrs-client", ACTION=="change", ENV{RTRS_EVENT}=="path_down", RUN+="/bin/sh -c 'env >>$TMP/udev'"
	EOF
	# A machine may have udev running already, a guest has not.
	if udevadm control --ping --timeout=2 2>/dev/null; then
		udevadm control --reload
	else
		$UDEVD --daemon
		touch "$TMP/udevd"
	fi
}

udev_down()
{
	rm -f $RULES
	[ ! -e "$TMP/udevd" ] || udevadm control --exit
}

rule_acts()
{
	udev_up
	write "$p1/disconnect" 1
	wait_for 10 grep -qx "RTRS_PATH=${PATHS[1]}" "$TMP/udev"
	grep -qx "RTRS_SESSION=stats" "$TMP/udev"
	grep -qx "RTRS_PATHS_UP=1" "$TMP/udev"
	write "$p1/reconnect" 1
	matches "$SESS/state" "connected 2/2 "
	# Nothing that came up has called the rule.
	udevadm settle --timeout=10
	same "calls" "$(grep -c '^RTRS_PATH=' "$TMP/udev")" 1
}

connections()
{
	local cons
	cons=$(($(nproc --all) + 1))

	debugfs_up rtrs_client
	cat "$DEBUG/connections"
	same "connections" "$(awk '$10 == "stats" && $2 == "rxe0"' "$DEBUG/connections" | wc -l)" $((2 * cons))
	awk '$10 == "stats" { print $12 }' "$DEBUG/connections" | sort -n >"$TMP/ours"
	qp_numbers rtrs_client >"$TMP/theirs"
	diff "$TMP/ours" "$TMP/theirs"
	awk -v sources="ip:10.9.0.2 ip:10.9.0.3" '$10 == "stats" {
			if ($1 != "RoCEv2" || $6 < 1024 || $8 != 1234 || $9 != "TCP" || $3 != 1 || $4 != "drxe0" || !index(sources, $5) || $7 != "ip:10.9.0.1" ||
			    $13 != "connected" || $14 !~ /^[0-9]+$/ || $15 !~ /^[0-9]+\/[0-9]+$/)
				bad = 1
			split($15, sendq, "/")
			if (sendq[1] + 0 > sendq[2] + 0)
				bad = 1
		}
		END { exit bad }' "$DEBUG/connections"
	same "connections by number" "$(awk '$10 == "stats" { print $5, $11 }' "$DEBUG/connections" | sort -u |
		wc -l)" $((2 * cons))
	same "the last number" "$(awk '$10 == "stats" && $11 > max { max = $11 } END { print max }' \
		"$DEBUG/connections")" $((cons - 1))
}

in_flight_table()
{
	local fio seen=0

	io randrw 1000000 --time_based --runtime=4 &
	fio=$!
	while kill -0 "$fio" 2>/dev/null; do
		# No request is older than the load.
		if awk -v oldest=$((5000000 * RTRS_TIME_SCALE)) '
			/^stats +ip:.*@ip:10.9.0.1 +[0-9]+ +[0-9]+ +(read|write) +[0-9]+ +(answer|invalidation|send)$/ {
				print
				if ($6 <= oldest)
					ok = 1
			}
			END { exit !ok }' "$DEBUG/requests"; then
			seen=1
			break
		fi
		sleep 0.05
	done
	wait "$fio"
	same "requests seen" "$seen" 1
	same "requests afterwards" "$(grep -c '^stats' "$DEBUG/requests")" 0
}

some_of_all()
{
	io randwrite 100 --iodepth=1
	write "$p0/reconnect" 1
	write "$p1/disconnect" 1
	write "$p1/reconnect" 1
}

trace_all()
{
	local f

	for f in rtrs_clt_reconnect_work rtrs_clt_close_conns rtrs_rdma_error_recovery; do
		has_fields rtrs_clt "$f" state reconnect_attempts max_reconnect_attempts fail_cnt \
			success_cnt sessname
	done
	traced_while rtrs_clt some_of_all
	traced 100 'rtrs_clt_issue: .*sess=stats .*dir=WRITE data=4096'
	traced 100 'rtrs_clt_response: .*sess=stats .*result=0'
	traced 100 'rtrs_clt_complete: .*sess=stats .*dir=WRITE .*result=0'
	traced 1 "rtrs_clt_reconnect_work: .*${PATHS[0]}"
	traced 1 "rtrs_clt_close_conns: .*${PATHS[1]}"
	traced 1 "rtrs_clt_path_state: .*path=${PATHS[1]} .*connected -> "
}

# Requests wait for the slow disk when the server ends all paths: they fail over, wait, and go on.
lose_all()
{
	local fio

	slow_reads &
	fio=$!
	wait_for 20 has_requests
	write "/sys/class/rtrs-server/stats/paths/${PATHS[0]}/disconnect" 1
	write "/sys/class/rtrs-server/stats/paths/${PATHS[1]}/disconnect" 1
	wait "$fio"
	matches_soon "$SESS/state" "connected 2/2 "
}

matches_soon() { wait_for 20 matches "$@"; }

trace_losses()
{
	has_fields rtrs_clt rtrs_clt_failover sess path cid id answered
	traced_while rtrs_clt lose_all
	traced 1 "rtrs_rdma_error_recovery: .*${PATHS[0]}"
	traced 1 "rtrs_rdma_error_recovery: .*${PATHS[1]}"
	traced 1 "rtrs_clt_failover: sess=stats path=${PATHS[1]} cid=[0-9]+ id=[0-9]+ answered=0"
	traced 1 'rtrs_clt_park: sess=stats id=[0-9]+ paths=0'
	traced 1 'rtrs_clt_resume: sess=stats id=[0-9]+ result=0'
	traced 1 'rtrs_clt_issue: sess=stats .*dir=READ data=4096 .*failover=1'
}

# The events, with the tool that users have.
trace_cmd()
{
	trace-cmd record -q -e rtrs_clt -o "$TMP/trace.dat" fio --name=traced \
		--filename="/dev/$(cat "$TMP/dev")" --direct=1 --ioengine=libaio --rw=randwrite --bs=4k \
		--number_ios=100 --size=32M >"$TMP/fio"
	trace-cmd report -i "$TMP/trace.dat" >"$TMP/trace"
	tail -n 5 "$TMP/trace"
	traced 100 'rtrs_clt_issue: .*sess=stats .*dir=WRITE data=4096'
	traced 100 'rtrs_clt_complete: .*sess=stats .*result=0'
}

# perf shows the fields as they are, and leaves out those that are 0. Now and then it misses an
# event of any kind; trace_all has counted them.
perf_trace()
{
	command -v perf >/dev/null || skip "perf is not installed"
	perf trace --no-syscalls -a -e 'rtrs_clt:*' -o "$TMP/trace" fio --name=traced \
		--filename="/dev/$(cat "$TMP/dev")" --direct=1 --ioengine=libaio --rw=randwrite --bs=4k \
		--number_ios=100 --size=32M >"$TMP/fio"
	tail -n 5 "$TMP/trace"
	traced 95 'rtrs_clt:rtrs_clt_issue\(sess: "?stats"?, .*dir: 1, .*4096'
	traced 95 'rtrs_clt:rtrs_clt_complete\(sess: "?stats"?, '
}

must "soft RoCE comes up" rxe_up rxe0 10.9.0.1/24 10.9.0.2/24 10.9.0.3/24
defer rxe_down rxe0
resource_snapshot
must "a null_blk" null_blk_up nullb0 256
defer null_blk_down nullb0
must "a slow one" null_blk_up nullb1 64 0 "$SLOW"
defer null_blk_down nullb1
must "modules load" load_modules rust
defer unload_modules
must "devices map" map "${PATHS[0]}"
check "files have the documented formats" formats
check "states are shown" states
check "requests are counted" counts
# With PREEMPT_RT completions are handled in tasks.
[ -e /sys/kernel/realtime ] || check "a write that is not copied is one interrupt" mapped_writes
check "heartbeats and requests have latencies of their own" latencies
check "so are those that are answered on another CPU" migrations
check "0 and 1 reset" resets
check "other values do not" bad_resets
check "requests in flight are counted, and not reset" inflight
check "reconnects are counted" reconnect
check "failed over requests are counted" failover
check "uevents tell of paths and session" told
defer udev_down
check "a udev rule acts on them" rule_acts
check "debugfs lists connections" connections
check "debugfs lists requests in flight" in_flight_table
check "rdma resource names the owner" owned_by rtrs_client
check "tracepoints show requests and paths" trace_all
check "tracepoints show losses, and what becomes of requests" trace_losses
check "trace-cmd understands them" trace_cmd
check "so does perf trace" perf_trace
check "devices unmap" unmap
finish
