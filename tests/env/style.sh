#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: style.sh rustfmt|rustfmtcheck|checkpatch|shellcheck

set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# sources PATTERN...: files of the project, including those not yet added, but no generated ones. A
# tree without git (an archive) is searched instead.
sources()
{
	cd "$RTRS_REPO"
	if git -c safe.directory='*' rev-parse --git-dir >/dev/null 2>&1; then
		git -c safe.directory='*' ls-files -z --cached --others --exclude-standard -- "$@"
	else
		local p name=()
		for p in "$@"; do name+=(-o -name "$p"); done
		find . \( -name target -o -name results -o -name '*_generated*' \) -prune -o \
			-type f \( "${name[@]:1}" \) -print0
	fi | while IFS= read -r -d '' f; do
		case $f in
		*_generated* | *.mod.c) ;;
		*) [ ! -f "$f" ] || printf '%s\n' "$f" ;;
		esac
	done
}

# checkpatch IGNORED FILE...
checkpatch()
{
	local ignored=$1
	shift

	"$RTRS_ENV/enter.sh" "$("$RTRS_ENV/kernel.sh")/scripts/checkpatch.pl" \
		--no-tree --strict --no-summary --quiet --ignore "$ignored" -f "$@"
}

main()
{
	local files

	need_root
	"$RTRS_ENV/rootfs.sh"
	case ${1:-} in
	rustfmt | rustfmtcheck) mapfile -t files < <(sources '*.rs') ;;
	checkpatch) mapfile -t files < <(sources '*.c' '*.h') ;;
	shellcheck) mapfile -t files < <(sources '*.sh' '.ci/run' '*rnbd-map' '*rtrs-dkms') ;;
	*) die "unknown check ${1:-}" ;;
	esac
	[ "${#files[@]}" -gt 0 ] || return 0
	cd "$RTRS_REPO"
	case $1 in
	rustfmt) "$RTRS_ENV/enter.sh" rustfmt "${files[@]}" ;;
	rustfmtcheck) "$RTRS_ENV/enter.sh" rustfmt --check --color never "${files[@]}" ;;
	shellcheck) "$RTRS_ENV/enter.sh" shellcheck -x "${files[@]}" ;;
	checkpatch)
		local f trace=() other=()
		for f in "${files[@]}"; do
			case $f in
			*trace.h) trace+=("$f") ;;
			*) other+=("$f") ;;
			esac
		done
		# The exported functions are written in Rust.
		checkpatch EXPORT_SYMBOL "${other[@]}"
		# The macros of trace events are not written like calls.
		[ "${#trace[@]}" -eq 0 ] ||
			checkpatch OPEN_ENDED_LINE,PARENTHESIS_ALIGNMENT "${trace[@]}" ;;
	esac
}

main "$@"
