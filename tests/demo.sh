#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The demonstration: an ext4 file system on a disk that is reached over RDMA through unmodified
# RNBD, on a kernel as the distribution ships it, with both settings of always_invalidate, then
# removed without a trace. Runs in a guest, by "make demo".
#
# RTRS_DEMO_IMPL=c shows the same with mainline's own modules.

set -euo pipefail

RTRS_REPO=${RTRS_REPO:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)}
# shellcheck source=lib/util.sh
. "$RTRS_REPO/tests/lib/util.sh"
# shellcheck source=lib/rdma.sh
. "$RTRS_REPO/tests/lib/rdma.sh"

IMPL=${RTRS_DEMO_IMPL:-rust}
FIO_SECONDS=${RTRS_DEMO_FIO_SECONDS:-3}
DIR=$(impl_dir "$IMPL")
TMP=$(mktemp -d /tmp/demo.XXXXXX)
MNT=$TMP/mnt
SUMS=$TMP/checksums
SUMMARY=()
DEVICE=

title()
{
	printf '\n[%3d s] == %s\n' "$SECONDS" "$*"
}

say()
{
	printf '   %s\n' "$*"
}

# run CMD...: show the command and its output.
run()
{
	printf '   $ %s\n' "$*"
	"$@" 2>&1 | sed 's/^/     /'
}

# result TEXT: add a line to the summary.
result()
{
	SUMMARY+=("$*")
	say "-> $*"
}

die()
{
	printf '\nDEMO FAILED: %s\n' "$*"
	exit 1
}

ended()
{
	local status=$?

	[ "$status" -eq 0 ] || {
		printf '\nDEMO FAILED with status %d; end of the kernel log:\n' "$status"
		dmesg | tail -n 25 | sed 's/^/     /'
		# Other statuses have a meaning, 4 that of a skip.
		status=1
	}
	exit "$status"
}
trap ended EXIT

rtrs_modules()
{
	lsmod | awk 'NR == 1 || $1 ~ /^(rtrs|rnbd|rdma|ib_core)/'
}

# tree DIR: files with their content; write-only files without.
tree()
(
	f='' text=''

	cd "$1"
	find . -type f ! -path '*/power/*' ! -name uevent -printf '%P\n' | sort |
		while IFS= read -r f; do
			read -r text <"$f" || true
			printf '%-46s %s\n' "$f" "$text"
		done
)

load()
{
	title "Modules, always_invalidate=$1"
	run insmod "$DIR/rtrs-core.ko"
	run insmod "$DIR/rtrs-client.ko"
	run insmod "$DIR/rtrs-server.ko" "always_invalidate=$1"
	say "and RNBD as it is in mainline, built against mainline's rtrs.h:"
	run insmod "$RTRS_CPEER/rnbd-client.ko"
	run insmod "$RTRS_CPEER/rnbd-server.ko"
	run rtrs_modules
}

unload()
{
	title "Modules go"
	run rmmod rnbd-client rnbd-server rtrs-server rtrs-client rtrs-core
	resource_compare || die "RDMA resources are left behind"
	result "always_invalidate=$1: unloaded, rdma resource and module references as before"
}

map()
{
	printf '   $ echo "sessname=demo path=ip:10.9.0.1 device_path=/dev/nullb0" > %s/map_device\n' "$RNBD_CTL"
	DEVICE=$(map_rnbd demo /dev/nullb0 ip:10.9.0.1)
	run lsblk -o NAME,SIZE,TYPE "/dev/nullb0" "/dev/$DEVICE"
}

unmap()
{
	printf '   $ echo normal > /sys/block/%s/rnbd/unmap_device\n' "$DEVICE"
	unmap_rnbd "$DEVICE"
	wait_for 5 test ! -e "/sys/block/$DEVICE" || die "$DEVICE does not go away"
}

verify()
{
	(cd "$MNT" && sha256sum --quiet -c "$SUMS") || die "content is not what was written"
	result "$1: $(wc -l <"$SUMS") files, $(du -sm "$MNT/files" | cut -f 1) MB: all SHA-256 sums match"
}

# rate MODE KIND
rate()
{
	local iops
	iops=$(fio_rate "$2" "$DEVICE" "$FIO_SECONDS" --offset=192M --size=48M) || die "fio fails"
	[ "${iops:-0}" -gt 0 ] || die "fio did nothing"
	result "always_invalidate=$1: 4k $2, queue depth 32: $iops IOPS"
}

# The steps between loading and unloading, in both modes.
story()
{
	local mode=$1

	title "A device over RDMA"
	map
	[ "$(cat /sys/class/rtrs-client/demo/paths/*/state)" = connected ] || die "the path is not connected"
	title "What the operator sees"
	run tree /sys/class/rtrs-client/demo
	run tree /sys/class/rtrs-server/demo
	run rdma resource

	if [ ! -f "$SUMS" ]; then
		title "A file system on it"
		# The part of the disk after it is for fio.
		run mkfs.ext4 -q -F "/dev/$DEVICE" 160M
		run mount "/dev/$DEVICE" "$MNT"
		mkdir "$MNT/files"
		run cp -a /usr/share/perl "$MNT/files"
		(cd "$MNT" && find files -type f -exec sha256sum {} + >"$SUMS")
		say "$(wc -l <"$SUMS") files, $(du -sm "$MNT/files" | cut -f 1) MB"
		run umount "$MNT"
		title "Unmapped and mapped again"
		unmap
		map
	else
		title "The file system is still there"
	fi
	run e2fsck -f -n "/dev/$DEVICE" || die "the file system is damaged"
	run mount "/dev/$DEVICE" "$MNT"
	run df -h "$MNT"
	verify "always_invalidate=$mode"
	run umount "$MNT"

	title "fio beside the file system, $FIO_SECONDS s each"
	rate "$mode" randread
	rate "$mode" randwrite

	title "Unmap"
	unmap
	[ -z "$(ls /sys/class/rtrs-client)" ] || die "the session is still there"
}

title "The kernel, as the distribution ships it"
run uname -srv
say "The modules are $([ "$IMPL" = rust ] && echo "those of this project" || echo "mainline's own"):"
for m in core client server; do
	say "  $(modinfo -F name "$DIR/rtrs-$m.ko"): $(modinfo -F description "$DIR/rtrs-$m.ko")"
done

title "Soft RoCE and a disk in memory"
rxe_up rxe0
null_blk_up nullb0 256
mkdir "$MNT"
run rdma link
resource_snapshot
run rdma resource

for mode in Y N; do
	load "$mode"
	[ "$(cat /sys/module/rtrs_server/parameters/always_invalidate)" = "$mode" ] ||
		die "the parameter is not what was asked for"
	story "$mode"
	unload "$mode"
done

title "Nothing is left"
[ -z "$(lsmod | grep -E '^(rtrs|rnbd)' || true)" ] || die "modules are left behind"
null_blk_down nullb0
rxe_down rxe0
if dmesg | grep -E -A 30 "$DMESG_BAD"; then
	die "the kernel has complaints"
fi
result "the kernel log is clean"

printf '\n== Summary (%d s in the guest)\n' "$SECONDS"
printf '   %s\n' "${SUMMARY[@]}"
printf '\nDEMO PASSED\n'
