#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Tests the modules between two hosts that have them, over their RDMA devices, and writes a report.
#
# Usage: tests/run.sh --here --scratch DEVICE --path [SRC@]DST [--path ...] [OPTION...]
#   --scratch DEVICE	a disk of the server, by the name that RNBD's server knows it by. ALL THAT
#			IS ON IT IS LOST.
#   --path PATH	an address of the server, as in "ip:10.0.0.1" or "ip:10.0.0.2@ip:10.0.0.1"; once
#		for each path
#   --port N	the server's port (1234)
#   --seconds N	how long each measurement takes (10)
#   --report FILE	where the report goes (rtrs-report-HOST-TIME.txt)
#
# To be run on the client, as root, with rtrs-client and rnbd-client loaded or installed, fio
# installed, and rnbd-server loaded on the server. It loads modules that are missing and unloads
# none. It makes one session, with a name of its own, and uses no other one. Addresses, devices
# and parameters stay as they are.

set -uo pipefail

CLT=/sys/class/rtrs-client
RNBD=/sys/class/rnbd-client/ctl
SESS=here-$(hostname -s)-$$
PORT=1234
RUNTIME=10
SCRATCH=''
REPORT=''
PATHS=()
DEV=''
PASSED=0
FAILED=0

die()
{
	printf 'run.sh --here: error: %s\n' "$*" >&2
	exit 2
}

usage() { sed -n '5,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

arguments()
{
	while [ "$#" -gt 0 ]; do
		case $1 in
		-h | --help)
			usage
			exit 0
			;;
		--scratch | --path | --port | --seconds | --report)
			[ "$#" -ge 2 ] && [ -n "$2" ] || die "$1 wants a value"
			;;
		esac
		case $1 in
		--scratch) SCRATCH=$2 ;;
		--path) PATHS+=("$2") ;;
		--port) PORT=$2 ;;
		--seconds) RUNTIME=$2 ;;
		--report) REPORT=$2 ;;
		*) die "$1: not known; see --help" ;;
		esac
		shift 2
	done
	[ -n "$SCRATCH" ] || die "no scratch device: name a disk of the server to be overwritten, --scratch DEVICE"
	[ "${#PATHS[@]}" -gt 0 ] || die "no path: name an address of the server, --path ip:ADDRESS"
	[[ $PORT =~ ^[0-9]+$ ]] || die "--port wants a number"
	[[ $RUNTIME =~ ^[1-9][0-9]*$ ]] || die "--seconds wants a number"
	[[ "$SCRATCH ${PATHS[*]}" != *[$'\n\t"']* ]] || die "neither device nor path has quotes, tabs or newlines"
	REPORT=${REPORT:-rtrs-report-$(hostname -s)-$(date +%Y%m%d-%H%M%S).txt}
}

preconditions()
{
	[ "$(id -u)" = 0 ] || die "only root can map devices"
	command -v fio >/dev/null || die "fio is not installed"
	[ -d /sys/module/rnbd_client ] || modprobe rnbd-client ||
		die "rnbd-client is neither loaded nor installed"
	[ -d "$CLT" ] && [ -d "$RNBD" ] || die "rtrs-client is not there"
	[ ! -e "$CLT/$SESS" ] || die "there is a session $SESS already"
	: >"$REPORT" || die "cannot write $REPORT"
}

# say TEXT...: print on the terminal and in the report.
say() { printf '%s\n' "$*" | tee -a "$REPORT"; }

# section TITLE CMD...: print CMD's output in the report only.
section()
{
	printf '\n== %s\n' "$1" >>"$REPORT"
	shift
	"$@" >>"$REPORT" 2>&1 || printf '(exit status %d)\n' "$?" >>"$REPORT"
}

# check NAME CMD...: one case
check()
{
	local name=$1 rc=0
	shift

	printf '\n-- %s\n' "$name" >>"$REPORT"
	"$@" >>"$REPORT" 2>&1 || rc=$?
	if [ "$rc" = 0 ]; then
		PASSED=$((PASSED + 1))
		say "ok    $name"
	else
		FAILED=$((FAILED + 1))
		say "FAIL  $name (exit status $rc)"
	fi
	return "$rc"
}

# wait_for SECONDS CMD...
wait_for()
{
	local end=$((SECONDS + $1))
	shift

	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || {
			echo "waited in vain for: $*"
			return 1
		}
		sleep 0.1
	done
}

# write FILE TEXT: one write(2)
write() { printf '%s' "$2" >"$1"; }

#
# The parts of the report besides results
#

modules()
{
	local m f

	for m in rtrs_core rtrs_client rtrs_server rnbd_client rnbd_server; do
		[ -d "/sys/module/$m" ] || continue
		printf '%s: version %s, srcversion %s, taint %s\n' "$m" \
			"$(cat "/sys/module/$m/version" 2>/dev/null || echo -)" \
			"$(cat "/sys/module/$m/srcversion" 2>/dev/null || echo -)" \
			"$(cat "/sys/module/$m/taint" 2>/dev/null)"
		modinfo -F filename "$m" 2>&1
		for f in "/sys/module/$m"/parameters/*; do
			[ ! -f "$f" ] || printf '  %s=%s\n' "${f##*/}" "$(cat "$f" 2>/dev/null)"
		done
	done
}

devices()
{
	local d f

	for d in /sys/class/infiniband/*; do
		[ -e "$d" ] || continue
		for f in "$d"/{fw_ver,hca_type,board_id,node_type} \
			"$d"/ports/*/{state,phys_state,link_layer,rate,gid_attrs/types/0}; do
			[ ! -f "$f" ] || printf '%s: %s\n' "${f#/sys/class/infiniband/}" "$(cat "$f" 2>/dev/null)"
		done
	done
	command -v rdma >/dev/null && rdma link show
	ip -brief address show
	ip -details -statistics link show
}

# Reading a file of sysfs may be refused.
session()
{
	local f

	find "$CLT/$SESS/" -type f -readable | sort | while read -r f; do
		case $f in */uevent | */power/*) continue ;; esac
		printf '%s:\n' "${f#"$CLT/$SESS/"}"
		sed 's/^/    /' "$f" 2>&1
	done
}

since_start() { dmesg | awk -v mark="$MARK" 'index($0, mark) { on = 1; next } on'; }

#
# Cases
#

connected() { [ "$(cat "$CLT/$SESS/paths"/*/state | grep -cx connected)" = "$1" ]; }

devices_mapped() { find "$RNBD/devices" -mindepth 1 -printf '%f\n' | sort; }

map()
{
	local before now

	before=$(devices_mapped)
	# RNBD uses the port for the paths that follow.
	write "$RNBD/map_device" "dest_port=$PORT sessname=$SESS path=${PATHS[0]} device_path=$SCRATCH" || return
	# Another user may map a device meanwhile: take the one of this session.
	for now in $(comm -13 <(printf '%s\n' "$before") <(devices_mapped)); do
		now=$(basename "$(readlink -f "$RNBD/devices/$now")")
		[ "$(cat "/sys/block/$now/rnbd/session" 2>/dev/null)" = "$SESS" ] && DEV=$now
	done
	[ -n "$DEV" ] || {
		echo "no block device"
		return 1
	}
	echo "$DEV, $(cat "/sys/block/$DEV/size") sectors"
	wait_for 10 test -b "/dev/$DEV"
}

# unused: not mounted and not in an array; and large enough for a meaningful result.
unused()
{
	[ "$(cat "/sys/block/$DEV/size")" -ge 131072 ] || {
		echo "smaller than 64 MiB"
		return 1
	}
	[ -z "$(ls "/sys/block/$DEV/holders")" ] && ! grep -q "^/dev/${DEV}[p0-9]* " /proc/mounts
}

add_paths()
{
	local p n=1

	for p in "${PATHS[@]:1}"; do
		write "$CLT/$SESS/add_path" "$p" || return
		n=$((n + 1))
		wait_for 10 connected "$n" || return
	done
	cat "$CLT/$SESS/paths"/*/state_full
}

# verified SIZE [FIO OPTION...]
verified()
{
	local size=$1
	shift

	fio --name=verify --filename="/dev/$DEV" --direct=1 --ioengine=libaio --rw=randwrite --bsrange=4k-256k \
		--iodepth=16 --size="$size" --verify=crc32c --verify_fatal=1 "$@"
}

path_ios() { awk '{ print $1 + $3 }' "$1/stats/rdma"; }

# each_path: with all other paths disconnected, requests go over this one.
each_path()
{
	local p q n

	for p in "$CLT/$SESS/paths"/*; do
		for q in "$CLT/$SESS/paths"/*; do
			[ "$q" = "$p" ] || write "$q/disconnect" 1 || return
		done
		n=$(path_ios "$p")
		verified 16M || return
		n=$(($(path_ios "$p") - n))
		echo "$n requests over ${p##*/}"
		[ "$n" -gt 0 ] || return
		for q in "$CLT/$SESS/paths"/*; do
			[ "$q" = "$p" ] || write "$q/reconnect" 1 || return
		done
		wait_for 20 connected "${#PATHS[@]}" || return
	done
}

# reconnects: under load each path in turn is reconnected, or is lost and comes back; no request
# fails.
reconnects()
{
	local load p rc=0

	verified 64M --time_based --runtime="$RUNTIME" &
	load=$!
	while kill -0 "$load" 2>/dev/null; do
		for p in "$CLT/$SESS/paths"/*; do
			write "$p/reconnect" 1 || rc=1
			sleep 1
		done
	done
	wait "$load" || rc=1
	wait_for 20 connected "${#PATHS[@]}" || rc=1
	return "$rc"
}

errors()
{
	! since_start | grep -E 'BUG: |WARNING: |Oops|I/O error|blocked for more than'
}

# measured RW BS DEPTH
measured()
{
	fio --name="$1-$2-$3" --filename="/dev/$DEV" --direct=1 --ioengine=libaio --rw="$1" --bs="$2" \
		--iodepth="$3" --time_based --runtime="$RUNTIME" --ramp_time=1 --output-format=terse \
		--terse-version=3 >"$TMP/terse" || return
	# Fields of terse version 3: IOPS, mean, and percentiles as "99.000000%=123", of reads and writes.
	awk -F';' -v what="$1 $2, depth $3" '/^3;/ {
			at = $8 > 0 ? 0 : 41
			for (i = 18 + at; i < 38 + at; i++) {
				split($i, p, "%=")
				if (p[1] + 0 == 50) p50 = p[2]
				if (p[1] + 0 == 99) p99 = p[2]
			}
			printf "      %-24s %9d IO/s, latency in us: mean %d, p50 %d, p99 %d\n", what,
				$(8 + at), $(40 + at), p50, p99
		}' "$TMP/terse" | tee -a "$REPORT" >&3
}

measurements()
{
	local rw

	for rw in randread randwrite; do
		measured "$rw" 4k 1 && measured "$rw" 4k 16 && measured "$rw" 64k 16 || return
	done
}

unmap()
{
	write "/sys/block/$DEV/rnbd/unmap_device" normal || return
	wait_for 10 test ! -e "$CLT/$SESS" && DEV=''
}

at_exit()
{
	[ -z "$DEV" ] || write "/sys/block/$DEV/rnbd/unmap_device" force
	rm -rf "$TMP"
}

main()
{
	arguments "$@"
	preconditions
	TMP=$(mktemp -d)
	trap at_exit EXIT
	exec 3>&1
	MARK="rtrs here: $SESS begins"
	printf '%s\n' "$MARK" >/dev/kmsg

	say "RTRS between $(hostname -s) and ${PATHS[*]}, $(date -u +'%F %T UTC')"
	section "kernel" uname -a
	section "modules" modules
	section "RDMA devices and network" devices
	section "processors" nproc
	section "results" true
	if check "the scratch device maps" map && check "it is not in use" unused; then
		[ "${#PATHS[@]}" = 1 ] || check "all paths connect" add_paths
		check "data is what was written" verified 64M
		[ "${#PATHS[@]}" = 1 ] || check "each path alone carries IO" each_path
		check "paths reconnect under load, and no request fails" reconnects
		check "measurements" measurements
		section "session" session
		check "the device unmaps" unmap
		check "the kernel has not complained" errors
	fi
	section "kernel log" since_start
	say "$PASSED passed, $FAILED failed; the report is $REPORT"
	[ "$FAILED" = 0 ]
}

main "$@"
