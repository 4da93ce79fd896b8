#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: ext4 and fio verify through unmodified RNBD, both invalidate modes
# topology: single
# timeout: 240
# seconds: 55

. "$(dirname "$0")/lib/common.sh"
require fio rdma mkfs.ext4 e2fsck sha256sum

SIZES=${RTRS_SIZES:-"512 4k 12k 64k 124k"}
# As many times as much.
MORE=1
[ -z "${RTRS_LONG:-}" ] || MORE=3
MNT=$TMP/mnt
mkdir "$MNT"

load() { load_rtrs rust both "always_invalidate=$1" && load_rnbd both; }
map() { map_rnbd ext4 /dev/nullb0 ip:10.9.0.1 >"$TMP/dev"; }
dev() { cat "$TMP/dev"; }
unmap() { unmap_rnbd "$(dev)"; }
umount_all() { ! mountpoint -q "$MNT" || umount "$MNT"; }

# make_files DIRECTORY: a directory with many small files.
make_files()
{
	mkfs.ext4 -q -F "/dev/$(dev)"
	mount "/dev/$(dev)" "$MNT"
	cp -r "$1" "$MNT/small"
	head -c 20M /dev/urandom >"$MNT/large"
	: >"$MNT/empty"
	(cd "$MNT" && find . -type f -exec sha256sum {} + >"$TMP/sums")
	umount "$MNT"
}

same_files()
{
	e2fsck -f -n "/dev/$(dev)" || { echo "the file system is damaged"; return 1; }
	mount "/dev/$(dev)" "$MNT"
	(cd "$MNT" && sha256sum --quiet -c "$TMP/sums") || { echo "files are not what was written"; return 1; }
	umount "$MNT"
}

# The server's disk has the data that was sent.
same_on_disk()
{
	mount "/dev/nullb0" "$MNT"
	(cd "$MNT" && sha256sum --quiet -c "$TMP/sums") || { echo "files are not what was written"; return 1; }
	umount "$MNT"
}

# Larger blocks for more bytes: the number of requests determines the time.
verify()
{
	local kib=4096
	[ "$1" != 512 ] || kib=512
	fio_verify "$(dev)" "$((kib * MORE))k" --bs="$1"
}

mixed()
{
	fio_verify "$(dev)" "$((8 * MORE))M" --rw=write --bssplit=512/25:1536/10:4k/25:20k/15:64k/15:128k/10 \
		--numjobs=2 --offset_increment=32M --iodepth=8
}

must "soft RoCE comes up" rxe_up rxe0
defer rxe_down rxe0
must "a memory-backed null_blk" null_blk_up nullb0 128
defer null_blk_down nullb0
resource_snapshot
defer unload_modules
defer unmap_all_rnbd
defer umount_all
# Each size with one mode, and mixed sizes with the other one as well.
small=/usr/share/zoneinfo
for ai in Y N; do
	must "$ai: modules load" load "$ai"
	must "$ai: a device maps" map
	check "$ai: files are written" make_files "$small"
	check "$ai: the device unmaps" unmap
	must "$ai: it maps again" map
	check "$ai: files are what was written" same_files
	check "$ai: the device unmaps again" unmap
	check "$ai: the disk has what was written" same_on_disk
	must "$ai: it maps a third time" map
	for size in $SIZES; do
		check "$ai: blocks of $size verify" verify "$size"
	done
	check "$ai: blocks of all sizes, mixed, verify" mixed
	check "$ai: the device unmaps at last" unmap
	[ -n "${RTRS_LONG:-}" ] || { SIZES='' && small+=/Europe; }
	check "$ai: the modules unload" unload_modules
	check "$ai: no resource left behind" resource_compare
done
finish
