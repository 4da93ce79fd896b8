#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# First process of a guest once it is in the Debian root: mount the usual file systems and the
# shares, run the job, store its exit status, power off.
#
# shellcheck disable=SC1091,SC2154 # rtrs.conf is written by the runner

. /run/rtrs/rtrs.conf

export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root LANG=C.UTF-8 TERM=dumb

off()
{
	sync
	busybox poweroff -f
	# Power-off takes time; the first process must not return.
	sleep 60
}

mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null
ln -sfn /proc/self/fd /dev/fd
ln -sfn /proc/self/fd/0 /dev/stdin
ln -sfn /proc/self/fd/1 /dev/stdout
ln -sfn /proc/self/fd/2 /dev/stderr

# Boot is over: from now on all kernel messages go to the console log.
dmesg -n 8

for share in $RTRS_SHARES; do
	IFS=: read -r tag mode cache path <<<"$share"
	mkdir -p "$path"
	if ! mount -t 9p -o "trans=virtio,version=9p2000.L,msize=262144,$mode,cache=$cache" "$tag" "$path"; then
		echo "rtrs-vm: stage 2: cannot mount share $tag at $path" >/dev/console
		off
	fi
done

mkdir -p "/lib/modules/$(uname -r)"
mount --bind "$RTRS_KMODULES" "/lib/modules/$(uname -r)"

hostname "$RTRS_GUEST"
ip link set lo up

cd "$RTRS_REPO" || off
read -r up _ </proc/uptime
echo "$up" >"$RTRS_STATE/booted"
set -a
. /run/rtrs/rtrs.conf
. "$RTRS_STATE/env"
set +a
bash "$RTRS_STATE/job" >>"$RTRS_STATE/output" 2>&1 </dev/null
status=$?

# The last messages of the kernel, which did not reach the (slower) console.
dmesg >"$RTRS_STATE/dmesg" 2>/dev/null
echo "$status" >"$RTRS_STATE/status"
off
