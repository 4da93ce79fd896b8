# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The emulated machine of secureboot.sh: UEFI firmware with the keys that machines are sold with, and
# a disk that it boots from as an installed Debian does: shim, signed by Microsoft, GRUB and the
# kernel, signed by Debian. Nothing verifies the initrd, which is ours.
#
# To be sourced, with "dir" and "platform" set.
# shellcheck disable=SC2154

FIRMWARE=/usr/share/OVMF
QEMU='' TYPE='' SEEN=1
# The rest is as in boot/hosts.sh: emulated processors are slow.
CMDLINE="console=ttyS0 mitigations=off tsc=nowatchdog no_timer_check random.trust_cpu=on \
watchdog_thresh=30 rcupdate.rcu_cpu_stall_timeout=90 panic=-1 oops=panic"
LIMIT=300
PASSWORD=rtrs

# copy_program PATH ROOT: with the libraries that it needs.
copy_program()
{
	local lib
	install -D "$1" "$2$1" || return
	for lib in $(ldd "$1" | grep -o '/[^ ]*'); do
		[ -f "$2$lib" ] || install -D "$lib" "$2$lib" || return
	done
}

# programs ROOT
programs()
{
	local name
	copy_program /bin/busybox "$1" && copy_program /usr/bin/kmod "$1" && copy_program /usr/bin/mokutil "$1" || return
	for name in modprobe insmod rmmod; do
		ln -sf kmod "$1/usr/bin/$name"
	done
	for name in sh cat dmesg grep ls mount printf reboot sed stty tr uname; do
		ln -sf busybox "$1/bin/$name"
	done
	mkdir -p "$1"/{proc,sys,dev,tmp} && install -m 755 "$here/secureboot/init.sh" "$1/init"
}

# stock_modules ROOT MODULE...: the distribution's, with what they depend on.
stock_modules()
{
	local root=$1 release base file
	release=$(cat "$platform/release") base=$(readlink -f "$platform")
	shift
	mkdir -p "$root/lib/modules/$release"
	cp "$base/lib/modules/$release"/modules.{builtin,builtin.modinfo,order} "$root/lib/modules/$release/" || return
	modprobe -d "$base" -S "$release" -a --show-depends "$@" >"$dir/needed" || return
	while read -r _ file _; do
		install -D -m 644 "$file" "$root${file#"$base"}" || return
	done < <(grep '^insmod ' "$dir/needed")
}

# disk ROOT: one file system, without partitions, as removable media may have it.
disk()
{
	(cd "$1" && find . | cpio -o -H newc -R 0:0 | gzip -1) >"$dir/initrd.img" || return
	truncate -s 96M "$dir/esp.img"
	mformat -i "$dir/esp.img" -F :: && mmd -i "$dir/esp.img" ::/EFI ::/EFI/BOOT ::/EFI/debian || return
	mcopy -i "$dir/esp.img" /usr/lib/shim/shimx64.efi.signed ::/EFI/BOOT/BOOTX64.EFI &&
		mcopy -i "$dir/esp.img" /usr/lib/shim/mmx64.efi.signed ::/EFI/BOOT/mmx64.efi &&
		mcopy -i "$dir/esp.img" /usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed ::/EFI/BOOT/grubx64.efi &&
		mcopy -i "$dir/esp.img" "$(readlink -f "$platform/image")" ::/vmlinuz &&
		mcopy -i "$dir/esp.img" "$dir/initrd.img" ::/initrd.img || return
	cp "$FIRMWARE/OVMF_VARS_4M.ms.fd" "$dir/vars.fd" && mkfifo "$dir/keys"
}

# stage NAME: what the next boot does.
stage()
{
	printf 'set timeout=0\nlinux /vmlinuz %s STAGE=%s PASSWORD=%s\ninitrd /initrd.img\nboot\n' \
		"$CMDLINE" "$1" "$PASSWORD" >"$dir/grub.cfg"
	mcopy -o -i "$dir/esp.img" "$dir/grub.cfg" ::/EFI/debian/grub.cfg
}

# power_on NAME: the machine ends when it wants to reboot. Its console is written to NAME.console, and
# what init reports to NAME.report.
power_on()
{
	exec {TYPE}<>"$dir/keys" || return
	SEEN=1
	# Writes to the variables are for the firmware's system management mode only.
	qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot \
		-M q35,smm=on,hpet=off -global driver=cfi.pflash01,property=secure,value=on \
		-global ICH9-LPC.disable_s3=1 -accel tcg,thread=multi,tb-size=256 \
		-cpu max,la57=off,erms=off,fsrm=off,fsrs=off,fzrm=off -smp 1 -m 1024 \
		-drive "if=pflash,unit=0,format=raw,readonly=on,file=$FIRMWARE/OVMF_CODE_4M.secboot.fd" \
		-drive "if=pflash,unit=1,format=raw,file=$dir/vars.fd" \
		-drive "if=none,id=esp,format=raw,cache=unsafe,file=$dir/esp.img" \
		-device virtio-blk-pci,drive=esp,bootindex=0,romfile= \
		-chardev "file,id=console,path=$dir/$1.console,input-path=$dir/keys" -serial chardev:console \
		-chardev "file,id=report,path=$dir/$1.report" -serial chardev:report \
		</dev/null >"$dir/$1.qemu" 2>&1 &
	QEMU=$!
}

alive() { [ -n "$QEMU" ] && kill -0 "$QEMU" 2>/dev/null; }

power_off()
{
	! alive || kill "$QEMU"
	[ -z "$QEMU" ] || wait "$QEMU"
	[ -z "$TYPE" ] || exec {TYPE}>&-
	QEMU='' TYPE=''
} 2>/dev/null

# gone: when it has ended.
gone()
{
	local end=$((SECONDS + LIMIT)) rc=0
	while alive && [ "$SECONDS" -lt "$end" ]; do sleep 1; done
	! alive || { echo "it does not end in $LIMIT s"; rc=1; }
	power_off
	return "$rc"
}

# boots STAGE: to its end.
boots()
{
	stage "$1" && power_on "$1" && gone
	tr -d '\r' <"$dir/$1.report" >"$dir/report"
	grep -x "end 0 $1" "$dir/report" || { cat "$dir/$1.qemu"; tail -n 30 "$dir/$1.console"; return 1; }
}

# screen NAME: text on the console since the last key, without colours and positions.
screen() { tail -c +"$SEEN" "$dir/$1.console" | sed 's/\x1b\[[0-9;]*[A-Za-z]//g' | tr -d '\0\r'; }

# asked NAME TEXT KEYS [SECONDS]: when TEXT is on the screen, type KEYS, after the time that it takes to
# draw the rest.
asked()
{
	local end=$((SECONDS + LIMIT))
	until [[ $(screen "$1") == *"$2"* ]]; do
		alive && [ "$SECONDS" -lt "$end" ] || { echo "no \"$2\" on the screen:"; screen "$1" | tail -n 30; return 1; }
		sleep 0.5
	done
	sleep "${4:-2}"
	SEEN=$(($(stat -c %s "$dir/$1.console") + 1))
	printf '%b' "$3" >&"$TYPE"
}
