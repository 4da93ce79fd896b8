#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Build rtrs-peer, the peer that breaks the protocol; print its path. It is below the cache, which
# guests see: tests/lib/peer.sh finds it there.

set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

PEER=$RTRS_REPO/tests/peer
# Several clones may share a cache.
TARGET=$RTRS_CACHE/build/peer-$(printf '%s' "$RTRS_REPO" | sha256sum | cut -c 1-8)
BIN=$TARGET/debug/rtrs-peer

need_root
"$RTRS_ENV/rootfs.sh"
mkdir -p "$RTRS_LOGS"
if [ ! -x "$BIN" ] || [ -n "$(find "$PEER" "$RTRS_REPO"/rtrs_core/proto* -newer "$BIN" -type f \
	\( -name '*.rs' -o -name '*.h' -o -name 'Cargo.*' \) -print -quit)" ]; then
	step peer "building the peer that does not keep to the protocol" \
		"$RTRS_ENV/enter.sh" cargo build --locked --manifest-path "$PEER/Cargo.toml" --target-dir "$TARGET" ||
		die "rtrs-peer does not build; see $RTRS_LOGS/peer.log (are the crates reachable?)"
	touch "$BIN"
fi
printf '%s\n' "$BIN"
