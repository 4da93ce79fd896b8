#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A kernel that enforces signatures loads our modules if, and only if, they are signed with a key of
# the machine's owner (MOK), by the commands of production.rst under "Secure Boot and signatures". In
# the emulator, UEFI with Microsoft's keys verifies shim, shim GRUB, and GRUB the distribution's
# kernel; the key is imported with mokutil and confirmed on the screen of MokManager. At last Secure
# Boot is switched off.
#
# Usage: secureboot.sh PLATFORM	(as kernel.sh --guest prints it; needs the archive)

set -uo pipefail

# shellcheck source=../env/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../env/lib.sh"

LAYER=$RTRS_CACHE/deb/secureboot
TOOLS=(ovmf shim-signed grub-efi-amd64-signed mokutil mtools python3-virt-firmware)
# Whose keys in the firmware are the test's.
OWNER=77fa9abd-0359-4d32-bd60-28f4e78f784b

outside()
{
	local build
	platform=$(cd "${1:?platform missing}" && pwd -P) || exit 2
	need_root
	need_memory 2000 "a guest with UEFI"
	build=$("$RTRS_ENV/build.sh" --tests "$platform") || exit
	mkdir -p "$RTRS_CACHE/deb"
	exec 8>"$RTRS_CACHE/deb/.lock-secureboot"
	flock 8
	"$RTRS_ENV/layer.sh" "$LAYER" "${TOOLS[@]}" || exit
	[ ! -d "${RTRS_RESULTS:-}/host" ] || export RTRS_BIND=$RTRS_RESULTS
	"$RTRS_ENV/over.sh" "$LAYER" "$build/tests/packages/secureboot.sh" --inside "$platform"
}

ended()
{
	local f
	power_off
	if [ -d "${RTRS_RESULTS:-}/host" ]; then
		for f in "$dir"/*.console "$dir"/*.report; do
			cp "$f" "$RTRS_RESULTS/host/secureboot-${f##*/}"
		done
	fi
	rm -rf "$dir"
}

modules()
{
	take_modules rtrs-core rtrs-client rtrs-server && mkdir -p "$root/modules/unsigned" &&
		strip --strip-debug -o "$root/modules/unsigned/rtrs-core.ko" "$repo/rtrs-core.ko" || return
	"$repo/tests/env/mainline.sh" "$tree" "$dir/repo" rnbd KBUILD_EXTRA_SYMBOLS="$repo/Module.symvers"
}

# documented WORD: the command of production.rst that begins with it.
documented() { sed -n "/^  $1 /{:a;/\\\\$/{N;ba};s/#.*//;p;q}" "$repo/Documentation/production.rst"; }

# key NAME: a directory with it and its certificate.
key()
{
	local make
	make=$(documented openssl) && mkdir "$dir/$1" && cd "$dir/$1" && eval "$make" && [ -s MOK.priv ] && [ -s MOK.der ]
}

# sign NAME: with its key, and keep a copy of what is tried alone. An earlier signature is removed.
sign()
{
	kbuild KEY="$dir/$1/MOK.priv" CERT="$dir/$1/MOK.der" sign && mkdir -p "$root/modules/$1" &&
		cp "$dir/repo/rtrs-core.ko" "$root/modules/$1/"
}

# What a firmware's own menus do, too.
in_firmware()
{
	openssl x509 -inform der -in "$dir/firmware/MOK.der" -out "$dir/firmware/cert.pem" &&
		virt-fw-vars --inplace "$dir/vars.fd" --add-db "$OWNER" "$dir/firmware/cert.pem"
}

# One byte in the middle.
changed()
{
	mkdir -p "$root/modules/changed" && cp "$root/modules/ours/rtrs-core.ko" "$root/modules/changed/" &&
		printf 'x' | dd of="$root/modules/changed/rtrs-core.ko" bs=1 seek=5000 conv=notrunc
}

needs() { modinfo -F depends "$dir"/repo/*.ko "$dir"/repo/rnbd/*.ko | tr ',' '\n' | grep -vE '^$|rtrs|rnbd' | sort -u; }
installs()
{
	needs >"$root/modules/needed" || return
	mapfile -t needed <"$root/modules/needed"
	stock_modules "$root" efivarfs "${needed[@]}" && kbuild INSTALL_MOD_PATH="$root" modules_install
}

programs_and_disk()
{
	mkdir -p "$root/keys" && cp "$dir/ours/MOK.der" "$root/keys/" && documented mokutil >"$root/keys/import" &&
		[ -s "$root/keys/import" ] && programs "$root" && disk "$root"
}

# reported NAME STATUS [REGEX]: how a step ended, and what it said.
reported()
{
	grep -E "^$1(-log)? " "$dir/report"
	grep -qE "^$1 $2 .*${3:-}" "$dir/report"
}

logged() { grep -qE "^$1-log .*$2" "$dir/report"; }

# refused NAME WHY: as production.rst has it.
refused() { reported "$1" 1 'Key was rejected by service' && logged "$1" "Loading of $2 is rejected"; }

secure()
{
	reported state 0 'SecureBoot enabled' && reported lockdown 0 '\[integrity\]' &&
		logged boot 'Secure boot enabled' && logged boot 'locked down from EFI Secure Boot'
}

# confirmed: what the person in front of the machine does.
confirmed()
{
	local down='\e[B\r'
	power_on manager && asked manager 'Press any key to perform MOK management' '\r' 0 &&
		asked manager 'Enroll MOK' "$down" &&
		asked manager 'View key 0' "$down" &&
		asked manager 'Enroll the key(s)?' "$down" &&
		asked manager 'Password' "$PASSWORD\r" &&
		asked manager 'Reboot' '\r' && gone
}

first()
{
	must 'Debian boots with Secure Boot' boots first
	check 'it is in force, and the kernel locked down' secure
	check "the distribution's own modules load" reported stock 0
	check 'a module that is not signed is refused' refused unsigned 'unsigned module'
	check 'so is one whose key is not enrolled' refused ours 'module with unavailable key'
	must 'mokutil imports the key' reported import 0
}

enrolled()
{
	must 'MokManager asks for it, and enrolls it' confirmed
	must 'another key is put into the db of the firmware' in_firmware
	must 'Debian boots again' boots enrolled
	check 'Secure Boot is in force' secure
	check 'the key is enrolled' reported enrolled '[01]' 'is already enrolled'
	check 'a module that is not signed is still refused' refused unsigned 'unsigned module'
	check 'so is one signed with another key' refused other 'module with unavailable key'
	check 'and a signed one that was changed' reported changed 1 'Key was rejected by service'
	check 'one signed with the key in db is loaded' reported firmware 0
	check 'what was signed and installed is loaded, with RNBD' reported installed 0
	check 'it is there' reported classes 0
	check 'and not tainted as unsigned' same_taints O
	check 'it is unloaded' reported unloaded 0
}
same_taints() { reported taints 0 && grep -qxE "taints 0 ($1 ?){5}" "$dir/report"; }

insecure() { reported state 0 'SecureBoot disabled' && reported lockdown 0 '\[none\]' && logged boot 'Secure boot disabled'; }
switched_off() { virt-fw-vars --inplace "$dir/vars.fd" --set-false SecureBootEnable && boots off; }
off()
{
	must 'it boots with Secure Boot switched off' switched_off
	check 'it is off, and nothing is locked down' insecure
	check 'a module that is not signed is loaded' reported unsigned 0
	check 'and tainted as that' reported taint 0 OE
	check 'unless signatures are enforced' refused again 'unsigned module'
	check "the owner's key counts with Secure Boot only" refused ours 'module with unavailable key'
	check 'the one in db without, too' reported firmware 0
}

# must TEXT CMD...: the rest depends on it.
must() { check "$@" || { printf '1..%d\n' "$n"; exit 1; }; }

# In the root, with the copy of the repository that the modules are built in.
inside()
{
	platform=$1
	tree=$(readlink -f "$platform/tree")
	# shellcheck source=lib.sh
	. "$RTRS_REPO/tests/packages/lib.sh"
	# shellcheck source=secureboot/machine.sh
	. "$RTRS_REPO/tests/packages/secureboot/machine.sh"
	trap ended EXIT
	root=$dir/root
	printf 'TAP version 13\n'
	must 'the modules, and RNBD' modules
	must 'three keys' keys
	must 'the modules are signed with one after the other' all_signed
	must 'and installed' installs
	must 'a disk' programs_and_disk
	first
	enrolled
	off
	printf '1..%d\n' "$n"
}
keys() { (key firmware) && (key other) && (key ours) && ! cmp "$dir/ours/MOK.der" "$dir/other/MOK.der"; }
all_signed() { sign firmware && sign other && sign ours && changed; }

main()
{
	if [ "${1:-}" = --inside ]; then
		inside "$2"
	else
		outside "$@"
	fi
}

# The shell reads a script while it runs. With main at the end, edits meanwhile do no harm.
main "$@"
