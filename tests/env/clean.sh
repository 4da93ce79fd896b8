#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Remove the output of kbuild from the tree, without a kernel tree.

set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

find "$RTRS_REPO" \
	\( -path "$RTRS_REPO/.git" -o -path "$RTRS_REPO/results" -o -path '*/target' \) -prune -o \
	-type f \( -name '*.o' -o -name '*.ko' -o -name '*.mod' -o -name '*.mod.c' -o \
		-name '.*.cmd' -o -name '.*.d' -o -name '*.bc' -o -name '*.rmeta' -o -name '*_generated' -o \
		-name '*_generated.*' -o -name 'Module.symvers' -o -name 'modules.order' -o \
		-name 'rust-project.json' \) -exec rm -f {} +
rm -rf "$RTRS_REPO/rnbd"
