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

# redefined TEST: functions of the library that TEST uses, directly or through other files of it,
# and gives another meaning. The library would call those of the test.
redefined()
{
	local todo=("$1") seen=() f file

	while [ "${#todo[@]}" -gt 0 ]; do
		file=${todo[0]}
		todo=("${todo[@]:1}")
		while read -r f; do
			f=tests/lib/$f
			[[ " ${seen[*]} " != *" $f "* ]] || continue
			seen+=("$f")
			todo+=("$f")
		done < <(sed -nE 's#^\. .*(/lib|RTRS_LIB)/([a-z]+\.sh)".*#\2#p' "$file")
	done
	[ "${#seen[@]}" -gt 0 ] || return 0
	comm -12 <(functions "$1") <(functions "${seen[@]}")
}

functions() { sed -nE 's/^([a-z_0-9]+)\(\).*/\1/p' "$@" | sort -u; }

no_function_twice()
{
	local file names status=0

	for file in tests/*.sh; do
		names=$(redefined "$file")
		[ -z "$names" ] || {
			echo "$file defines functions of tests/lib anew: ${names//$'\n'/ }" >&2
			status=1
		}
	done
	return "$status"
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
	shellcheck)
		"$RTRS_ENV/enter.sh" shellcheck -x "${files[@]}"
		no_function_twice
		;;
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
