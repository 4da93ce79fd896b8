#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: cost of sessions, paths and connections in memory, and of maps in time, beside mainline
# topology: pair
# timeout: 1200
# seconds: 200
# default: no
# alone: yes
# smp: 4
# mem: 6144M
# append: init_on_alloc=1

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
require rdma

[ "$RTRS_TIME_SCALE" = 1 ] || skip_all "neither memory nor time says anything where both are checked"

# Rust and mainline take turns, so that other load on the machine affects both; each comes first and
# last once, so that neither gains by what the other one has left behind.
ROUNDS="1:rust 1:c 2:c 2:rust"
FIRST=${ROUNDS%% *}
# Sessions whose memory is measured. All have chunks of CHUNK bytes, so that chunks do not hide the
# rest.
SESSIONS=8
CHUNK=16384
CPUS=$(nproc)
# Maps and unmaps one after the other, and sessions that connect at once.
MAPS=20
CROWD=16
[ -z "${RTRS_LONG:-}" ] || MAPS=100
# One client may have a quarter of the server's memory: that is why the guests have so much.
[ -z "${RTRS_LONG:-}" ] || CROWD=64

path() { printf 'ip:%s@ip:%s\n' "$(pair_addr "$1" client)" "$(pair_addr "$1" server)"; }
map() { map_rnbd "$1" /dev/nullb0 "$(path 0)" access_mode=ro "${@:2}"; }
names() { seq -f "$1%g" "$2"; }

# free_kib: unused memory, without what is only cached.
free_kib() { memory_settle && mem_unused; }

#
# The steps of a round: at each, both sides record how much memory is available
#

STEPS="none one two plain wide"

# step TAG: both sides are at the same step; the client has the figures of both, in $TMP/TAG.ROLE.
step()
{
	barrier "$1"
	free_kib >"$TMP/$1.$RTRS_ROLE"
	if is_server; then
		put "$1" "$(cat "$TMP/$1.server")"
	else
		get "$1" >"$TMP/$1.server"
	fi
	barrier "$1-read"
}

map_all()
{
	local s

	for s in $(names "$1" "$SESSIONS"); do
		map "$s" "${@:2}" >/dev/null || return
	done
}

add_paths()
{
	local s

	for s in $(names s "$SESSIONS"); do
		write "$CLT/$s/add_path" "$(path 1)" || return
	done
}

# cost TAG ROLE FROM TO UNITS: KiB for each of UNITS.
cost()
{
	local from to
	from=$(cat "$TMP/$1-$3.$2")
	to=$(cat "$TMP/$1-$4.$2")

	echo $(((from - to) / $5))
}

# The cost of a session with its first path, which has a connection for each CPU and one more; of
# its second path; and of a connection. With polled connections no writes are sent, so that the server
# has no memory to receive them: a connection is compared with sessions that send none either, which
# mainline's never do.
costs()
{
	local role base=one

	[ "$2" != rust ] || base=plain
	for role in client server; do
		printf '%s %s %s %s %s\n' "$2" "$role" "$(cost "$1" "$role" none one "$SESSIONS")" \
			"$(cost "$1" "$role" one two "$SESSIONS")" "$(awk -v a="$(cost "$1" "$role" none "$base" 1)" \
				-v b="$(cost "$1" "$role" none wide 1)" -v n=$((SESSIONS * CPUS)) \
				'BEGIN { printf "%d\n", (b - a) / n }')"
	done >>"$TMP/costs"
}

#
# Time
#

# The clock in microseconds, without starting a process.
now_us() { echo "${EPOCHREALTIME/./}"; }

# Milliseconds for maps and unmaps one after the other, without the shell's work in between.
in_a_row()
{
	local i dev t us=0

	for ((i = 0; i < MAPS; i++)); do
		t=$(now_us)
		write "$RNBD_CTL/map_device" \
			"sessname=m$i path=$(path 0) device_path=/dev/nullb0 access_mode=ro" || return
		us=$((us + $(now_us) - t))
		dev=$(rnbd_devices)
		wait_for 5 test -b "/dev/$dev" || return
		t=$(now_us)
		unmap_rnbd "$dev" || return
		us=$((us + $(now_us) - t))
	done
	echo "$2 row $((us / 1000))" | tee -a "$TMP/times"
}

# Milliseconds until a number of sessions is connected that all begin at once.
at_once()
{
	local s t0 pids=() p
	t0=$(ms_now)

	for s in $(names c "$CROWD"); do
		write "$RNBD_CTL/map_device" "sessname=$s path=$(path 0) device_path=/dev/nullb0 access_mode=ro" &
		pids+=($!)
	done
	for p in "${pids[@]}"; do
		wait "$p" || return 1
	done
	echo "$2 crowd $(($(ms_now) - t0))" | tee -a "$TMP/times"
	[ "$(cat /sys/class/rtrs-client/c*/paths/*/state | grep -c '^connected$')" -eq "$CROWD" ]
}

# best IMPL WHAT: the least of several times; other load only ever adds to a time.
best() { awk -v i="$1" -v w="$2" '$1 == i && $2 == w && (!m || $3 < m) { m = $3 } END { print m }' "$TMP/times"; }

# These times differ by a third from run to run on a machine with two processors, so the check finds
# only gross differences. "tests/bench/bench.sh profile session:map:Y" counts instructions.
no_slower()
{
	local ours theirs
	ours=$(best rust "$1")
	theirs=$(best c "$1")

	echo "$ours ms, mainline's $theirs ms"
	[ "$ours" -le $((theirs * 3 / 2)) ] || late "more than half as slow again"
}

# The costs of sessions, paths and connections.
table()
{
	local impl role one two con

	printf '%-6s %-6s %14s %14s %14s\n' "" "" "first path" "second path" "connection"
	while read -r impl role one two con; do
		printf '%-6s %-6s %10d KiB %10d KiB %10d KiB\n' "$impl" "$role" "$one" "$two" "$con"
	done <"$TMP/costs"
	[ "$(wc -l <"$TMP/costs")" -eq 4 ]
}

# no_more ROLE COLUMN: no more memory than mainline's, plus a tenth, by which two equal runs differ.
no_more()
{
	awk -v role="$1" -v col="$2" '$2 == role { kib[$1] = $col } END {
		print kib["rust"] " KiB, mainline\047s " kib["c"] " KiB"
		exit !(kib["rust"] > 0 && kib["rust"] * 10 <= kib["c"] * 11)
	}' "$TMP/costs"
}

server_round()
{
	local tag=$1 impl=$2 s

	must "$tag: server modules load" eval "load_rtrs $impl server max_chunk_size=$CHUNK && load_rnbd server"
	barrier "$tag-listening"
	if [ "${tag:0:1}" = 1 ]; then
		for s in $STEPS; do step "$tag-$s"; done
	fi
	barrier "$tag-done" 500
	check "$tag: the server modules unload" unload_modules
	barrier "$tag-next"
}

# load_client IMPL [PARAM=VALUE...]: with these parameters of ours.
load_client()
{
	unload_modules || return
	client_params "${@:2}"
	load_rtrs "$1" client && load_rnbd client
}

client_round()
{
	local tag=$1 impl=$2

	must "$tag: client modules load" load_client "$impl"
	barrier "$tag-listening"
	if [ "${tag:0:1}" = 1 ]; then
		step "$tag-none"
		must "$tag: $SESSIONS sessions connect" map_all s
		step "$tag-one"
		must "$tag: they get a second path" add_paths
		step "$tag-two"
		must "$tag: they disconnect" unmap_all_rnbd
		must "$tag: the client sends no writes" load_client "$impl" send_writes=N
		must "$tag: as many connect" map_all p
		step "$tag-plain"
		must "$tag: they disconnect" unmap_all_rnbd
		must "$tag: as many connect, with connections to poll" map_all w "nr_poll_queues=$CPUS"
		step "$tag-wide"
		must "$tag: these disconnect" unmap_all_rnbd
		must "$tag: the client is as usual" load_client "$impl"
		costs "$tag" "$impl"
	fi
	if [ "$tag" = "${FIRST/:/-}" ]; then
		# The host gives a guest its memory page by page, when it is first used. A crowd needs more
		# of it than all before, and the first one would pay for those that follow.
		check "$tag: a first crowd of $CROWD connects, which counts for neither" at_once "$tag" first
		ktap_log "$TMP/case.log" 1
		check "$tag: it disconnects" unmap_all_rnbd
	fi
	check "$tag: $MAPS devices map and unmap in a row" in_a_row "$tag" "$impl"
	ktap_log "$TMP/case.log" 1
	if [ "$impl" = rust ]; then
		check "$tag: $CROWD sessions connect at once" at_once "$tag" "$impl"
		ktap_log "$TMP/case.log" 1
	else
		# Some of mainline's sessions give up if the machine is busy.
		at_once "$tag" "$impl" >/dev/null || note "not all of mainline's connected"
	fi
	check "$tag: they disconnect" unmap_all_rnbd
	check "$tag: the client modules unload" unload_modules
	barrier "$tag-done" 500
	barrier "$tag-next"
}

server_role()
{
	local r

	must "a null_blk" null_blk_up nullb0 64
	defer null_blk_down nullb0
	for r in $ROUNDS; do
		server_round "${r/:/-}" "${r#*:}"
	done
}

client_role()
{
	local r role

	for r in $ROUNDS; do
		client_round "${r/:/-}" "${r#*:}"
	done
	check "memory of each session" table
	ktap_log "$TMP/case.log" 5
	for role in client server; do
		check "a connection costs the $role no more memory than mainline's" no_more "$role" 5
		ktap_log "$TMP/case.log" 1
	done
	check "a second path costs the client no more memory than mainline's" no_more client 4
	ktap_log "$TMP/case.log" 1
	check "maps in a row take about as long as mainline's" no_slower row
	ktap_log "$TMP/case.log" 1
	check "sessions that connect at once take about as long as mainline's" no_slower crowd
	ktap_log "$TMP/case.log" 1
}

pair_main
