#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What DKMS runs in its copy of the sources: prepare the tree of a kernel from the installed
# packages, unless that is done, and build RTRS and RNBD for it.
#
# Usage: dkms.sh RELEASE

set -euo pipefail
export RTRS_CACHE=/var/cache/rtrs
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

PREPARE=$RTRS_ENV/kernel-prepare.sh
release=${1:?release missing}
tree=$RTRS_CACHE/kernel/$release
# Other versions of compilers or sources make another tree.
stamp() { "$PREPARE" compilers "$(flavour_of "$release")"; }

if [ "$(cat "$tree/.rtrs-ready" 2>/dev/null)" != "$(stamp)" ]; then
	new=$tree.new
	if [ -f "$tree/.config.distro" ]; then
		"$PREPARE" again "$tree" "$new"
	else
		"$PREPARE" unpack "/usr/src/linux-source-$(series_of "$release").tar.xz" \
			"/usr/src/linux-headers-$release" "$new"
	fi
	"$PREPARE" prepare "$release" "$new"
	rm -rf "$tree"
	mv "$new" "$tree"
fi
# DKMS has set these variables for its own way to build.
unset ARCH KERNELRELEASE MAKEFLAGS MFLAGS MAKELEVEL
exec "$RTRS_ENV/kbuild.sh" "$tree" rnbd
