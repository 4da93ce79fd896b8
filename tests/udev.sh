#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: udev with the rules of the packages finds what is on a mapped disk: links by UUID and label, which stay while it has no path, and an array
# topology: single
# timeout: 240
# seconds: 40

. "$(dirname "$0")/lib/common.sh"
require rdma mkfs.ext4 mdadm udevadm
UDEVD=/usr/lib/systemd/systemd-udevd

UUID=0f0f0f0f-1111-2222-3333-444444444444
BY_UUID=/dev/disk/by-uuid/$UUID
BY_LABEL=/dev/disk/by-label/of-disk1
PATHS=/sys/class/rtrs-client/alpha/paths

udev_up()
{
	mkdir -p /run/udev/rules.d
	cp "$RTRS_REPO/debian/extra/60-rtrs.rules" /run/udev/rules.d/
	udevadm verify /run/udev/rules.d/60-rtrs.rules
	"$UDEVD" --daemon
	udevadm control --ping
}
udev_down() { udevadm control --exit; }

# map NAME DISK: its name is in the file NAME.
map() { map_rnbd alpha "dev/$2" ip:10.9.0.1 >"$TMP/$1" && udevadm settle --timeout=60; }
dev() { cat "$TMP/$1"; }
unmap() { unmap_rnbd "$(dev "$1")" && udevadm settle --timeout=60; }

# leads LINK NAME: to the device of that name.
leads() { [ "$(readlink -f "$1")" = "/dev/$(dev "$2")" ] || { ls -l "$1"; udevadm info "/dev/$(dev "$2")"; return 1; }; }
has_links() { leads /dev/disk/by-rnbd/alpha-dev/nullb0 disk1 && leads "$BY_UUID" disk1 && leads "$BY_LABEL" disk1; }
no_links() { not test -L "$BY_UUID" && not test -L "$BY_LABEL"; }
has_type() { udevadm info "/dev/$(dev disk1)" | has "ID_FS_TYPE=ext4"; }

# Only closing the device, which mkfs does, makes udev look at it.
mkfs() { mkfs.ext4 -q -F -U "$UUID" -L of-disk1 "/dev/$(dev disk1)" && wait_for 20 has_links && udevadm settle --timeout=60; }

state_is() { [ "$(cat "/sys/block/$(dev disk1)/rnbd/state")" = "$1" ]; }
each_path() { local p; for p in "$PATHS"/*; do write "$p/$1" 1; done; }
# The disk is told to be offline when its IO fails, and not while that waits.
no_path() { write /sys/class/rtrs-client/alpha/fast_io_fail_tmo 0 && each_path disconnect && wait_for 20 state_is closed && udevadm settle --timeout=20; }
path_again() { each_path reconnect && wait_for 30 state_is open && udevadm settle --timeout=20; }
looked_at() { udevadm trigger --action=change --settle "/sys/block/$(dev disk1)"; }

# A partition has links of its own.
partitioned()
{
	mbr | dd of="/dev/$(dev disk2)" bs=512 conv=nocreat,notrunc,fsync status=none
	wait_for 20 leads_to_partition
	# udev does not read the table again while it still handles the last event of the disk.
	udevadm settle --timeout=60
	dd if=/dev/zero of="/dev/$(dev disk2)" bs=512 count=1 conv=nocreat,notrunc,fsync status=none
	wait_for 20 not test -b "/dev/$(dev disk2)p1"
}
# mbr: the signature 0x12345678, one partition of 1000 sectors from 2048.
mbr()
{
	head -c 440 /dev/zero
	printf '\x78\x56\x34\x12\0\0'
	printf '\0\0\0\0\x83\0\0\0\0\x08\0\0\xe8\x03\0\0'
	head -c 48 /dev/zero
	printf '\x55\xaa'
}
leads_to_partition()
{
	[ "$(readlink -f /dev/disk/by-partuuid/12345678-01)" = "/dev/$(dev disk2)p1" ] &&
		[ "$(readlink -f /dev/disk/by-rnbd/alpha-dev/nullb1-part1)" = "/dev/$(dev disk2)p1" ]
}

array()
{
	modprobe -a md_mod raid1
	mdadm --create /dev/md9 --run --level=1 --raid-devices=2 --assume-clean --metadata=1.2 \
		"/dev/$(dev disk2)" "/dev/$(dev disk3)"
	mdadm --stop /dev/md9
	udevadm settle --timeout=60
}
assembled() { grep -E "^md[0-9]+ : active .*raid1 .*$(dev disk2)\[" /proc/mdstat | grep "$(dev disk3)\[" || { cat /proc/mdstat; return 1; }; }
stop_arrays() { mdadm --stop --scan; }

must "udev is started" udev_up
defer udev_down
must "soft RoCE comes up" rxe_up rxe0
defer rxe_down rxe0
for n in 0 1 2; do
	must "nullb$n, in memory" null_blk_up "nullb$n" 64
	defer null_blk_down "nullb$n"
done
rnbd_up force

must "a disk is mapped" map disk1 nullb0
check "an empty disk has no links" no_links
must "a file system is made, and found" mkfs
check "the type is known" has_type
must "it is unmapped" unmap disk1
check "the links are gone" no_links
must "it is mapped again" map disk1 nullb0
check "the links are there" has_links
must "it has no path" no_path
check "the links stay" has_links
check "udev looks at the disk again" looked_at
check "the links still stay" has_links
must "it has a path again" path_again
check "the links are there as before" has_links
check "the type is known again" has_type

must "two more disks are mapped" map disk2 nullb1
must "the second" map disk3 nullb2
check "a partition has links" partitioned
must "an array is made of both" array
defer stop_arrays
must "they are unmapped" unmap disk2
must "both" unmap disk3
must "they are mapped again" map disk2 nullb1
must "the second again" map disk3 nullb2
check "the array is assembled" wait_for 20 assembled
finish
