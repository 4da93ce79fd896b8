# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Helpers that look at what the modules report about themselves. Source it after common.sh.

TRACE=/sys/kernel/tracing

# nth FILE N: the Nth word of the first line.
nth() { awk -v n="$2" '{ print $n; exit }' "$1"; }

# same WHAT IS EXPECTED
same()
{
	[ "$2" = "$3" ] || {
		echo "$1: $2, not $3"
		return 1
	}
}

# matches FILE REGEX: REGEX matches the whole file, with newlines as blanks.
matches()
{
	local text
	text=$(tr '\n' ' ' <"$1")

	[[ $text =~ ^$2$ ]] || {
		echo "$1: $text"
		return 1
	}
}

# owned_by MODULE: MODULE owns RDMA objects of each kind.
owned_by()
{
	local what

	for what in qp cq pd mr cm_id; do
		rdma resource show "$what" >"$TMP/owners"
		grep -qF "[$1]" "$TMP/owners" || {
			echo "no $what of $1"
			cat "$TMP/owners"
			return 1
		}
	done
}

# fio_count DEVICE RW N [FIO OPTION...]: send N requests of 4 KiB.
fio_count()
{
	local dev=$1 rw=$2 n=$3
	shift 3

	fio --name=count --filename="/dev/$dev" --direct=1 --ioengine=libaio --rw="$rw" \
		--bs=4k --iodepth=8 --size=32M --number_ios="$n" "$@" >"$TMP/fio" || {
		cat "$TMP/fio"
		echo "IO failed"
		return 1
	}
}

# uevents SUBSYSTEM CMD...: record in $TMP/events what udev receives while CMD runs.
uevents()
{
	local subsystem=$1 pid
	shift

	: >"$TMP/events"
	udevadm monitor --kernel --property --subsystem-match="$subsystem" >"$TMP/events" &
	pid=$!
	# udevadm prints this once it listens.
	wait_for 10 grep -q '^KERNEL - ' "$TMP/events"
	"$@"
	sleep "$RTRS_TIME_SCALE"
	kill "$pid"
	wait "$pid" 2>/dev/null || true
}

# qp_numbers OWNER: the numbers of its queue pairs, as the kernel shows them.
qp_numbers()
{
	rdma resource show qp | awk -v owner="$1" 'index($0, owner) {
		for (i = 1; i < NF; i++) if ($i == "lqpn") print $(i + 1) }' | sort -n
}

# debugfs_up DIRECTORY: mount debugfs if needed and check that DIRECTORY is there.
debugfs_up()
{
	[ -d "/sys/kernel/debug/$1" ] || mount -t debugfs debugfs /sys/kernel/debug
}

# trace_up: tracefs is there and empty. The names of tasks are not recorded: that would patch
# __schedule() with every event switched on or off. QEMU may translate an instruction on one
# processor just before another one replaces it, and keeps the translation of the breakpoint that
# stands there meanwhile; in a function that runs all the time this kills a guest now and then.
trace_up()
{
	mountpoint -q "$TRACE" || mount -t tracefs tracefs "$TRACE"
	echo 0 >"$TRACE/options/record-cmd"
	echo >"$TRACE/trace"
}

# trace_begin EVENT...: trace these events from now on, each as "system/event" or "system".
trace_begin()
{
	trace_up
	trace_set 1 "$@"
}

# trace_end EVENT...: stop tracing these events; the events recorded so far stay.
trace_end() { trace_set 0 "$@"; }

trace_set()
{
	local to=$1 e
	shift

	for e; do
		echo "$to" >"$TRACE/events/$e/enable"
	done
}

# traced_while SYSTEM CMD...: record all events of SYSTEM in $TMP/trace while CMD runs.
traced_while()
{
	local system=$1
	shift

	trace_begin "$system"
	"$@"
	trace_end "$system"
	cp $TRACE/trace "$TMP/trace"
	tail -n 20 "$TMP/trace"
}

# traced N REGEX: at least N events of $TMP/trace match.
traced()
{
	local n
	n=$(grep -cE "$2" "$TMP/trace")

	[ "$n" -ge "$1" ] || {
		echo "$n of $2"
		return 1
	}
}

# has_fields SYSTEM EVENT NAME...: the event has the fields that tools look for.
has_fields()
{
	local format=$TRACE/events/$1/$2/format f
	shift 2

	mountpoint -q $TRACE || mount -t tracefs tracefs $TRACE
	for f; do
		grep -Eq "field:.* $f(\[[0-9]+\])?;" "$format" || {
			echo "no $f in $format"
			return 1
		}
	done
}
