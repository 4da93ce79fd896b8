#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# "make sign" signs what "make modules_install" installs: openssl verifies it, with a key made for
# that, before and after compression. Whether a kernel that enforces signatures accepts them is what
# secureboot.sh tests.
#
# Usage: sign.sh TREE	(in the root; the modules of this repository are built for TREE)

set -uo pipefail

# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

tree=${1:?tree missing}

refused() { ! "$@"; }

make_key()
{
	openssl req -x509 -newkey rsa:2048 -nodes -subj '/CN=rtrs test/' -days 2 \
		-keyout "$dir/key.pem" -out "$dir/cert.pem" &&
		openssl x509 -in "$dir/cert.pem" -outform der -out "$dir/cert.der"
}

# verify MODULE: like the kernel does. The module is followed by the signature, 12 bytes that end
# with its length, and a line of 28 bytes.
verify()
{
	local size len
	size=$(stat -c %s "$1")
	[ "$(tail -c 28 "$1")" = '~Module signature appended~' ] || return 1
	len=$((16#$(tail -c 32 "$1" | head -c 4 | xxd -p)))
	head -c $((size - 40 - len)) "$1" >"$dir/content"
	tail -c $((len + 40)) "$1" | head -c "$len" >"$dir/signature"
	openssl cms -verify -binary -inform der -in "$dir/signature" -content "$dir/content" \
		-certfile "$dir/cert.pem" -nointern -noverify -out /dev/null
}

all_verified()
{
	local ko
	for ko in "$dir"/repo/rtrs-{core,client,server}.ko; do
		verify "$ko" || return 1
	done
}

installed()
{
	local name
	kbuild INSTALL_MOD_PATH="$dir/root" modules_install || return 1
	for name in rtrs-core rtrs-client rtrs-server; do
		xz -dc "$dir"/root/lib/modules/*/updates/$name.ko.xz >"$dir/$name.ko" && verify "$dir/$name.ko" || return 1
	done
}

shown()
{
	[ "$(modinfo -F sig_id "$dir/repo/rtrs-client.ko")" = 'PKCS#7' ] &&
		[ "$(modinfo -F signer "$dir/repo/rtrs-client.ko")" = 'rtrs test' ]
}

changed()
{
	cp "$dir/repo/rtrs-core.ko" "$dir/changed.ko"
	printf 'x' | dd of="$dir/changed.ko" bs=1 seek=5000 conv=notrunc && verify "$dir/changed.ko"
}

take_modules rtrs-core rtrs-client rtrs-server || exit
printf 'TAP version 13\n1..8\n'
check 'a key is made' make_key
check 'there is no signature before' refused verify "$dir/repo/rtrs-core.ko"
check 'all modules are signed' kbuild KEY="$dir/key.pem" CERT="$dir/cert.der" sign
check 'openssl verifies them' all_verified
check 'a module that was changed is refused' refused changed
check 'modinfo shows the signer' shown
check 'what is installed is signed below its compression' installed
check 'stripping them is refused' refused kbuild INSTALL_MOD_PATH="$dir/root" INSTALL_MOD_STRIP=1 modules_install
