#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0
#
# First process of a guest, in the initramfs: load the modules for the shared root, put a throw-away
# layer over it, and switch to it.

b=/bin/busybox
export PATH=/bin

fail()
{
	echo "rtrs-vm: stage 1: $*" >/dev/console
	$b poweroff -f
}

$b mkdir -p /proc /sys /dev /ro /rw /new
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs devtmpfs /dev

# The runner has written this: RTRS_INSMOD, RTRS_SHARES and the variables for stage 2.
. /rtrs.conf

for m in $RTRS_INSMOD; do
	$b insmod "/modules/$m" || echo "rtrs-vm: cannot load $m" >/dev/console
done

$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,ro,cache=loose root /ro ||
	fail "no shared root"
$b mount -t tmpfs -o mode=755,size=75% tmpfs /rw
$b mkdir /rw/upper /rw/work
$b mount -t overlay -o lowerdir=/ro,upperdir=/rw/upper,workdir=/rw/work overlay /new ||
	fail "no overlay"

$b mount -t tmpfs -o mode=755 tmpfs /new/run
$b mkdir /new/run/rtrs
$b cp /rtrs.conf /stage2.sh /new/run/rtrs/
for d in proc sys dev; do
	$b mount --move "/$d" "/new/$d"
done

exec $b switch_root /new /bin/bash /run/rtrs/stage2.sh
