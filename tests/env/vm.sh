#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Build the program that runs guests and collects results; print its path.

set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

VM=$RTRS_REPO/tests/vm
BIN=$VM/target/debug/rtrs-vm

need_root
"$RTRS_ENV/rootfs.sh"
mkdir -p "$RTRS_LOGS"
if [ ! -x "$BIN" ] || [ -n "$(find "$VM/src" "$VM/guest" "$VM/Cargo.toml" "$VM/Cargo.lock" -newer "$BIN" -print -quit)" ]; then
	step vm "building the VM runner" \
		"$RTRS_ENV/enter.sh" cargo build --locked --manifest-path "$VM/Cargo.toml" ||
		die "the VM runner does not build; see $RTRS_LOGS/vm.log (are the crates reachable?)"
	touch "$BIN"
fi
printf '%s\n' "$BIN"
