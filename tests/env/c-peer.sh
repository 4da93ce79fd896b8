#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Build mainline's own RTRS and RNBD, unmodified, from the kernel source into
# $RTRS_CACHE/c-peer/<release>: the peer of interoperability tests, and the
# user of our modules. Prints that directory.
#
# RNBD compiles against mainline's rtrs.h. As the kernel has no symbol
# versions, the same rnbd-*.ko loads on mainline's RTRS and on ours.
#
# Usage: c-peer.sh [--debug]

set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

build()
{
	local tree=$1 out=$2
	shift 2

	rm -rf "$out"
	mkdir -p "$out"
	cp -r "$tree/drivers/infiniband/ulp/rtrs" "$tree/drivers/block/rnbd" "$out/"
	printf 'obj-m := rtrs/ rnbd/\n' >"$out/Kbuild"
	make -C "$tree" M="$out" -j"$(nproc)" \
		CONFIG_INFINIBAND_RTRS=m CONFIG_INFINIBAND_RTRS_CLIENT=m \
		CONFIG_INFINIBAND_RTRS_SERVER=m CONFIG_BLK_DEV_RNBD=m \
		CONFIG_BLK_DEV_RNBD_CLIENT=m CONFIG_BLK_DEV_RNBD_SERVER=m "$@" modules
	mv "$out"/rtrs/*.ko "$out"/rnbd/*.ko "$out/"
	touch "$out/.complete"
}

main()
{
	local tree release out args=()

	need_root
	if [ "${1:-}" = --build ]; then
		shift
		build "$@"
		return
	fi
	if [ "${1:-}" = --debug ]; then
		"$RTRS_ENV/debug-kernel.sh" >/dev/null
		release=$(readlink "$RTRS_CACHE/debug/current")
		tree=$RTRS_CACHE/debug/$release/build
		args=(LLVM=-19)
	else
		tree=$("$RTRS_ENV/kernel.sh")
		release=$(basename "$tree")
	fi
	out=$RTRS_CACHE/c-peer/$release
	if [ ! -f "$out/.complete" ] || [ ! -f "$out/rnbd-client.ko" ]; then
		lock_cache
		step "c-peer-$release" "building mainline RTRS and RNBD for $release" \
			"$RTRS_ENV/enter.sh" "$RTRS_ENV/c-peer.sh" --build "$tree" "$out" "${args[@]}" ||
			die "mainline RTRS does not build; see $RTRS_LOGS/c-peer-$release.log"
	fi
	printf '%s\n' "$out"
}

main "$@"
