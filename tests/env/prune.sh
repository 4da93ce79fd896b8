#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Remove from the cache what nothing refers to any more: releases that a newer one of the same
# series and flavour has replaced, their debug kernels and peers, builds of working copies that are
# gone; with --results, all but the last ten results of this working copy. Removes nothing while
# another script uses the cache, and never the last release of a series.

set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Is there a link to a newer release of RELEASE's series and flavour?
replaced()
{
	local rel=$1 link target

	for link in "$RTRS_CACHE"/kernel/current-*; do
		target=$(readlink "$link") || continue
		if [ "$target" != "$rel" ] && same_kind "$target" "$rel" && [ -d "$RTRS_CACHE/kernel/$target" ]; then
			return 0
		fi
	done
	return 1
}

drop()
{
	say "removing $1, which is not used any more"
	rm -rf --one-file-system "${1:?}"
}

releases()
{
	local d rel

	for d in "$RTRS_CACHE"/{kernel,guest,c-peer}/*+deb13*-*; do
		[ -d "$d" ] || continue
		rel=$(basename "$d")
		! replaced "$rel" || drop "$d"
	done
	# A debug kernel records the tree that it was made from.
	for d in "$RTRS_CACHE"/debug/*-rtrs-*; do
		[ -f "$d/base" ] || continue
		rel=$(cat "$d/base")
		[ -d "$RTRS_CACHE/kernel/$rel" ] || {
			drop "$d"
			rm -rf "$RTRS_CACHE/c-peer/$(basename "$d")"
		}
	done
}

builds()
{
	local d

	for d in "$RTRS_CACHE"/build/*; do
		[ -f "$d/.repo" ] || continue
		[ -d "$(cat "$d/.repo")" ] || drop "$d"
	done
}

results()
{
	local d

	while IFS= read -r d; do
		rm -rf --one-file-system "$d"
	done < <(find "$RTRS_REPO/results" -mindepth 1 -maxdepth 1 -type d -name '20*' 2>/dev/null | sort -r | tail -n +11)
}

need_root
if [ "${1:-}" = --results ]; then
	results
	exit
fi
exec 6>"$RTRS_CACHE/.use"
# A script that uses the cache holds this lock shared.
flock -n -x 6 || exit 0
releases
builds
