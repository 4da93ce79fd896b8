#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: every file of client, server and modules, read and written with all kinds of input: the documented result or EINVAL, and no change
# topology: single
# timeout: 240

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
require fio rdma

P0=ip:10.9.0.1@ip:10.9.0.1
P1=ip:10.9.0.2@ip:10.9.0.1
SESS=$CLT/garbage

map() { map_rnbd garbage /dev/nullb0 "$P0" "$P1" >"$TMP/dev"; }
dev() { cat "$TMP/dev"; }
io() { fio_verify "$(dev)" 1M --bssplit=4k/50:64k/50; }

# files [TEST...]: files of the modules for which find's tests are true, without those that the
# driver core adds to each device.
files()
{
	find "$CLT"/*/ "$SRV"/*/ /sys/module/rtrs_*/{parameters,quotas,stats}/ \
		-name power -prune -o -type f ! -name uevent "$@" -print | sort
}

writable() { files -perm /222; }
read_only() { files ! -perm /222; }

# state: all that a write must not change by mistake, without latencies and the files in which
# heartbeats count.
state()
{
	files
	files ! -name wc_completion ! -name 'cpu_migration*' ! -name '*_latency' |
		xargs -d '\n' grep -H '' | grep -v '/state_full:since'
	ls /sys/block
}

# Each file, in this tree, is in Documentation/ABI with its mode, and the other way round.
documented()
{
	files -printf '%m ' | "$RTRS_LIB/abi.pl" check "$RTRS_REPO"/Documentation/ABI/*
}

# A reader in small pieces gets the same text. No file is longer than a page: sysfs cuts the text
# off after 4095 bytes.
reads()
{
	local f whole

	while read -r f; do
		# The shell itself reads the file to its end: there are too many for a process each.
		{ IFS= read -r -d '' whole || true; } <"$f"
		[ "${#whole}" -lt 4095 ] || {
			echo "$f has no end"
			return 1
		}
		case $f in
		*/state_full | */*_latency | */stats/*)
			# The text differs each time; reading it must still succeed.
			dd if="$f" of=/dev/null bs=3 status=none
			continue
			;;
		esac
		[ "$(dd if="$f" bs=3 status=none && echo .)" = "$whole." ] || {
			echo "$f reads differently in pieces"
			return 1
		}
	done < <(files)
	files | wc -l
}

nothing_writes_read_only()
{
	local f

	while read -r f; do
		expect_error "Permission denied" write "$f" 1
	done < <(read_only)
	read_only | wc -l
}

# garbage FILE...: EINVAL for all inputs, and no change.
garbage()
{
	local rc=0

	state >"$TMP/state"
	"$RTRS_LIB/garbage.pl" check "$@" || rc=1
	state | diff "$TMP/state" - || rc=1
	return "$rc"
}

all_garbage()
{
	local list
	mapfile -t list < <(writable)

	echo "${#list[@]} files"
	[ "${#list[@]}" -ge 30 ]
	garbage "${list[@]}"
}

# The files are opened for writing and closed, without a write.
opened_only()
{
	local f

	state >"$TMP/state"
	while read -r f; do
		: >"$f"
	done < <(writable)
	state | diff "$TMP/state" -
}

# A file that shows its usage does not accept that text. A setting accepts the text it shows, and
# does not change.
takes_what_it_says()
{
	local f text n=0

	state >"$TMP/state"
	while read -r f; do
		text=$(cat "$f")
		case $f in */stats/* | */peers/*) continue ;; esac
		case $text in
		Usage*) expect_error "Invalid argument" write "$f" "$text" ;;
		*)
			# A policy's other names are in brackets.
			write "$f" "${text%% (*}"
			n=$((n + 1))
			;;
		esac
	done < <(writable)
	state | diff "$TMP/state" -
	echo "$n settings"
	# The settings of the session alone are as many.
	[ "$n" -ge 7 ]
}

# errors FILE ERROR TEXT...: the text has a meaning but is refused, without an effect.
errors()
{
	local f=$1 error=$2 text
	shift 2

	state >"$TMP/state"
	for text in "$@"; do
		expect_error "$error" write "$f" "$text"
	done
	state | diff "$TMP/state" -
}

add_path_errors()
{
	errors "$SESS/add_path" "File exists" "$P0" "$P1" "${P0/@/,}"
	errors "$SESS/add_path" "No such device" "ip:fe80::1%nothing"
	# Nothing has this address.
	errors "$SESS/add_path" "Connection timed out" ip:10.9.0.1@ip:10.9.0.99
	# No RDMA device has this address.
	errors "$SESS/add_path" "No such device" ip:127.0.0.1
}

# bounds FILE MIN MAX: both are accepted, the values next to them are not.
bounds()
{
	local f=$1 was v
	was=$(cat "$f")

	for v in "$2" "$3"; do
		write "$f" "$v"
		[ "$(cat "$f")" = "$v" ]
	done
	for v in $(($2 - 1)) $(($3 + 1)); do
		expect_error "Invalid argument" write "$f" "$v"
		[ "$(cat "$f")" = "$3" ]
	done
	write "$f" "$was"
	[ "$(cat "$f")" = "$was" ]
}

all_bounds()
{
	bounds "$SESS/max_reconnect_attempts" -1 9999
	bounds "$SESS/fast_io_fail_tmo" 0 86400
	bounds "$SESS/heartbeat_interval_ms" 100 60000
	bounds "$SESS/heartbeat_limit" 1 100
	bounds "$SESS/silent_path_ms" 100 60000
	bounds "$SESS/request_timeout_ms" 0 3600000
	bounds "$SESS/ack_timeout" 0 31
}

must "soft RoCE comes up" rxe_up rxe0 10.9.0.1/24 10.9.0.2/24
defer rxe_down rxe0
must "a memory-backed null_blk" null_blk_up nullb0 64
defer null_blk_down nullb0
# One of the added paths gets no answer.
client_params connect_timeout_ms=$((3000 * RTRS_TIME_SCALE))
rnbd_up force
must "a device maps over two paths" map
# IO, so that the statistics have something to reset.
check "IO" io
check "every file is documented, with its mode" documented
check "every file reads, whole and in pieces" reads
ktap_log "$TMP/case.log" 1
check "what is read-only cannot be written" nothing_writes_read_only
ktap_log "$TMP/case.log" 1
check "garbage is EINVAL everywhere, and has no effect" all_garbage
ktap_log "$TMP/case.log" 1
check "opening alone has no effect" opened_only
check "settings take what they say" takes_what_it_says
check "add_path: other errors have no effect either" add_path_errors
check "settings have the documented bounds" all_bounds
check "IO again" io
check "the device unmaps" unmap_rnbd "$(dev)"
finish
