#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Build mainline's own RTRS, RNBD or both, unmodified, from the source of a
# kernel. Runs where the compiler is: in the root, or on a Debian host.
#
# Usage: mainline.sh TREE DIR PART[,PART] [VAR=VALUE...]
#
# PART is rtrs or rnbd; DIR/PART has the sources, objects and modules of each. Both together need
# nothing else; rnbd alone needs KBUILD_EXTRA_SYMBOLS=, the symbols of the RTRS that it will run on.

set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# take TREE DIR PART: copy the sources again only if they are of another kernel, so that a second
# build is short.
take()
{
	local tree=$1 to=$2/$3 from stamp
	case $3 in
	rtrs) from=drivers/infiniband/ulp/rtrs ;;
	rnbd) from=drivers/block/rnbd ;;
	*) die "mainline has no part $3 here" ;;
	esac
	[ -d "$tree/$from" ] ||
		die "$tree has no $from: a full source tree of the kernel is needed, headers do not do"
	stamp="$tree $(cat "$tree/include/config/kernel.release")"
	[ "$(cat "$to/.from" 2>/dev/null)" != "$stamp" ] || return 0
	rm -rf "$to"
	mkdir -p "$2"
	cp -r "$tree/$from" "$to"
	# Remove what a build in the tree itself has left.
	find "$to" \( -name '*.o' -o -name '*.ko' -o -name '.*.cmd' \) -delete
	printf '%s\n' "$stamp" >"$to/.from"
}

main()
{
	local tree=$1 dir=$2 parts part order=()
	IFS=, read -ra parts <<<"$3"
	shift 3

	for part in "${parts[@]}"; do
		take "$tree" "$dir" "$part"
		order+=("$part/")
	done
	if [ "${#parts[@]}" -gt 1 ]; then
		printf 'obj-m := %s\n' "${order[*]}" >"$dir/Kbuild"
	else
		dir+=/${parts[0]}
	fi
	# Use a jobserver's number of jobs, if there is one.
	[[ ${MAKEFLAGS:-} == *jobserver* ]] || set -- -j"$(nproc)" "$@"
	make -C "$tree" M="$dir" \
		CONFIG_INFINIBAND_RTRS=m CONFIG_INFINIBAND_RTRS_CLIENT=m \
		CONFIG_INFINIBAND_RTRS_SERVER=m CONFIG_BLK_DEV_RNBD=m \
		CONFIG_BLK_DEV_RNBD_CLIENT=m CONFIG_BLK_DEV_RNBD_SERVER=m "$@" modules
}

main "$@"
