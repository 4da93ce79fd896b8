#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Build mainline's own RTRS and RNBD, unmodified, from the kernel source into
# $RTRS_CACHE/c-peer/<platform>: the peer of interoperability tests, and the user of the Rust
# modules. Prints that directory.
#
# RNBD compiles against mainline's rtrs.h. As the kernel has no symbol versions, the same rnbd-*.ko
# loads on mainline's RTRS and on the Rust one.
#
# Usage: c-peer.sh PLATFORM	a kernel of kernel.sh --guest or of debug-kernel.sh

set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

build()
{
	local tree=$1 out=$2
	shift 2

	rm -rf "$out"
	"$RTRS_ENV/mainline.sh" "$tree" "$out" rtrs,rnbd "$@"
	mv "$out"/rtrs/*.ko "$out"/rnbd/*.ko "$out/"
	touch "$out/.complete"
}

main()
{
	local platform name tree out args=()

	need_root
	if [ "${1:-}" = --build ]; then
		shift
		build "$@"
		return
	fi
	platform=${1:?platform missing}
	name=$(basename "$platform")
	tree=$(readlink -f "$platform/tree")
	mapfile -t args < <(kbuild_args "$(flavour_of "$name")")
	[ ! -f "$platform/debug" ] || args+=(LLVM=-19)
	out=$RTRS_CACHE/c-peer/$name
	if [ ! -f "$out/.complete" ] || [ ! -f "$out/rnbd-client.ko" ]; then
		lock_cache
		step "c-peer-$name" "building mainline RTRS and RNBD for $name" \
			"$RTRS_ENV/enter.sh" "$RTRS_ENV/c-peer.sh" --build "$tree" "$out" "${args[@]}" ||
			die "mainline RTRS does not build; see $RTRS_LOGS/c-peer-$name.log"
	fi
	printf '%s\n' "$out"
}

main "$@"
