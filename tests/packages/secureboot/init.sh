#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0
#
# The first process of the machine of secureboot.sh, all of which is in the initrd. It does what
# STAGE, an argument of the kernel, says, and reports at the second serial port: a line "NAME STATUS
# TEXT" for each step, and a line "NAME-log TEXT" for each message of the kernel meanwhile. kmod's
# programs have their paths: the shell prefers its own ones.

export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t securityfs securityfs /sys/kernel/security
exec >/dev/ttyS1 2>&1 </dev/null
stty -F /dev/ttyS1 raw
cd /keys || exit

# step NAME CMD...
step()
{
	local name=$1 text rc=0
	shift
	dmesg -c >/tmp/log
	text=$("$@" 2>&1) || rc=$?
	printf '%s %s %s\n' "$name" "$rc" "$(printf '%s' "$text" | tr '\n' ' ')"
	dmesg | sed "s/^/$name-log /"
	return "$rc"
}

efivars() { /usr/bin/modprobe efivarfs && mount -t efivarfs efivarfs /sys/firmware/efi/efivars; }
import() { printf '%s\n%s\n' "$PASSWORD" "$PASSWORD" | sh /keys/import; }
rnbd() { /usr/bin/modprobe rnbd-server && /usr/bin/modprobe rnbd-client; }
classes() { ls -d /sys/class/rtrs-client /sys/class/rtrs-server /sys/class/rnbd-client /sys/class/rnbd-server; }
taints() { for m in rtrs_core rtrs_client rtrs_server rnbd_client rnbd_server; do cat "/sys/module/$m/taint" || return; done; }
unload() { /usr/bin/modprobe -r rnbd-client rnbd-server rtrs-client rtrs-server rtrs-core && ! grep rtrs /proc/modules; }

dmesg | sed 's/^/boot-log /'
step release uname -r
step lockdown cat /sys/kernel/security/lockdown
step efivars efivars
step state mokutil --sb-state
# What rtrs-core needs of the distribution's kernel.
# shellcheck disable=SC2046 # a list of names
step stock /usr/bin/modprobe -a $(cat /modules/needed)

case $STAGE in
first)
	step unsigned /usr/bin/insmod /modules/unsigned/rtrs-core.ko
	step ours /usr/bin/insmod /modules/ours/rtrs-core.ko
	step import import
	;;
enrolled)
	step enrolled mokutil --test-key MOK.der
	step unsigned /usr/bin/insmod /modules/unsigned/rtrs-core.ko
	step other /usr/bin/insmod /modules/other/rtrs-core.ko
	step changed /usr/bin/insmod /modules/changed/rtrs-core.ko
	step firmware /usr/bin/insmod /modules/firmware/rtrs-core.ko && /usr/bin/rmmod rtrs-core
	step installed rnbd
	step classes classes
	step taints taints
	step unloaded unload
	;;
off)
	step unsigned /usr/bin/insmod /modules/unsigned/rtrs-core.ko
	step taint cat /sys/module/rtrs_core/taint
	step unloaded /usr/bin/rmmod rtrs-core
	step enforced sh -c 'echo 1 >/sys/module/module/parameters/sig_enforce'
	step again /usr/bin/insmod /modules/unsigned/rtrs-core.ko
	step ours /usr/bin/insmod /modules/ours/rtrs-core.ko
	step firmware /usr/bin/insmod /modules/firmware/rtrs-core.ko
	;;
esac
printf 'end 0 %s\n' "$STAGE"
reboot -f
