# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Shared by the tests of packages: a directory of their own, and results, one per line.

here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck disable=SC2034 # used by others
repo=$(cd "$here/../.." && pwd -P)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
n=0

# check TEXT CMD...: the status of CMD decides the result.
check()
{
	local text=$1 rc=ok
	shift
	"$@" >"$dir/log" 2>&1 || rc='not ok'
	n=$((n + 1))
	printf '%s %d %s\n' "$rc" "$n" "$text"
	[ "$rc" != ok ] || return 0
	tail -n 40 "$dir/log" | sed 's/^/# /'
	return 1
}

# same TEXT WANTED GOT
same()
{
	n=$((n + 1))
	if [ "$2" = "$3" ]; then
		printf 'ok %d %s\n' "$n" "$1"
	else
		printf 'not ok %d %s\n# wanted: %s\n# got: %s\n' "$n" "$1" "$2" "$3"
	fi
}

# take_modules NAME...: copy only these modules and the scripts, to $dir/repo: signing changes the
# modules, and the originals may be needed as they are.
take_modules()
{
	local m names=$*
	mkdir -p "$dir/repo/tests" "$dir/repo/rnbd"
	cp -r "$repo/tests/env" "$dir/repo/tests/" && cp "$repo/Kbuild" "$dir/repo/" || return
	for m; do
		cp "$repo/$m.ko" "$dir/repo/" || return
	done
	# Test modules are not installed.
	grep -E "(^|/)(${names// /|})\.o\$" "$repo/modules.order" >"$dir/repo/modules.order"
}

# kbuild ARGUMENT...: for what take_modules has taken.
kbuild()
{
	# shellcheck disable=SC2154 # the caller has it
	"$dir/repo/tests/env/kbuild.sh" "$tree" "$@"
}
