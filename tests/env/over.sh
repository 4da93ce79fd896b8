#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Run a command in the Debian root like enter.sh, but with its changes to the root in a layer of
# their own, in DIR; the root stays as it is.
#
# Usage: over.sh DIR CMD [ARG...]	(remove DIR to forget the changes)

set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_root
layer=${1:?directory missing}
shift
mkdir -p "$layer/upper" "$layer/work" "$layer/root"
layer=$(cd "$layer" && pwd -P)

# The mount ends with its namespace.
# shellcheck disable=SC2016 # expanded by the inner shell
exec unshare -m --propagation private bash -c '
	set -e
	lower=$1 layer=$2 enter=$3
	shift 3
	mount -t overlay overlay -o "lowerdir=$lower,upperdir=$layer/upper,workdir=$layer/work" "$layer/root"
	export RTRS_OVER=$layer/root
	exec "$enter" "$@"
' bash "$RTRS_ROOTFS" "$layer" "$RTRS_ENV/enter.sh" "$@"
