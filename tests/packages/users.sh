#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A block driver in C and one in Rust build without a warning against the files that headers_install
# installs, and use only exported symbols. So does mainline's RNBD against mainline's header.
#
# Usage: users.sh TREE	(in the root; the modules of this repository are built for TREE)

set -uo pipefail

# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

tree=${1:?tree missing}

build()
{
	make -C "$tree" M="$dir/users" RTRS_HEADERS="$dir/headers" W=1 modules >"$dir/build" 2>&1
	cat "$dir/build"
	[ -f "$dir/users/cdisk.ko" ] && [ -f "$dir/users/rustdisk.ko" ]
}

silent() { [ -f "$dir/users/rustdisk.ko" ] && ! grep -E '(^|: )(warning|WARNING): ' "$dir/build"; }
needs() { modinfo -F depends "$dir/$1.ko" | tr ',' '\n' | grep -x "$2"; }

rnbd()
{
	"$repo/tests/env/mainline.sh" "$tree" "$dir" rnbd KBUILD_EXTRA_SYMBOLS="$repo/Module.symvers"
}

# The copy is out of the repository's reach, so that a file missing from the installation is
# noticed.
cp -r "$here/users" "$dir/users"
printf 'TAP version 13\n1..8\n'
check 'headers, symbols and metadata are installed' \
	"$repo/tests/env/kbuild.sh" "$tree" INSTALL_HDR_PATH="$dir/headers" headers_install
check 'a driver in C and one in Rust build against them' build
check 'without a warning' silent
check 'the one in C uses rtrs-client' needs users/cdisk rtrs-client
check 'the one in Rust uses rtrs-client' needs users/rustdisk rtrs-client
check "mainline's RNBD builds" rnbd
check 'its client uses rtrs-client' needs rnbd/rnbd-client rtrs-client
check 'its server uses rtrs-server' needs rnbd/rnbd-server rtrs-server
