#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Provide a layer over the Debian root, for over.sh, in which packages are installed that only some
# tests need. What is there already is not made again; a new root makes a new layer. The caller
# holds a lock: one layer cannot be mounted twice at a time.
#
# Usage: layer.sh DIR PACKAGE...

set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_root
layer=${1:?directory missing}
shift
stamp() { "$RTRS_ENV/rootfs.sh" --stamp | cat - <(printf '%s\n' "$@"); }

"$RTRS_ENV/rootfs.sh"
! stamp "$@" | cmp -s - "$layer/stamp" || exit 0
rm -rf "$layer"
step "layer-$(basename "$layer")" "installing $* in a layer over the root" \
	"$RTRS_ENV/over.sh" "$layer" sh -c \
	'apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"' sh "$@" ||
	die "cannot install $*"
stamp "$@" >"$layer/stamp"
