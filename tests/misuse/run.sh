#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Misuse that must not compile. Each file compiles as it is, and with "--cfg misuse" fails with the
# error that its second line names, and with no other.
#
# Usage: run.sh BUILD	(a directory in which build.sh has built the test module)

set -uo pipefail

cd "$1" || exit 2
export RUSTC_BOOTSTRAP=1
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# The command that compiles the test module, without the parts about its input and output.
command=$(sed -n '1s/^savedcmd_[^ ]* := //p' tests/kmod/.rtrs_test.o.cmd)
command=${command%% --out-dir*}
command=${command/clippy-driver/rustc}
[ -n "$command" ] || exit 2

# compiles FILE [OPTION...]
compiles()
{
	local file=$1
	shift

	# A command line of make, for a shell.
	eval "$command"' --crate-name misuse --check-cfg="cfg(misuse)" --emit=metadata="$out/misuse" "$@" "$file"' \
		>"$out/log" 2>&1
}

n=0
result()
{
	n=$((n + 1))
	printf '%s %d %s\n' "$1" "$n" "$2"
	[ "$1" = ok ] || sed 's/^/# /' "$out/log"
}

ok() { "$@" && echo ok || echo 'not ok'; }

refused()
{
	! compiles "$1" --cfg misuse &&
		[ "$(grep -oE '^error\[E[0-9]+\]' "$out/log" | sort -u)" = "error[$2]" ]
}

printf 'TAP version 13\n1..%d\n' $(($(printf '%s\n' "$here"/*.rs | wc -l) * 2))
for file in "$here"/*.rs; do
	name=$(basename "$file" .rs)
	error=$(sed -n '2s,^// error: ,,p' "$file")
	result "$(ok compiles "$file")" "${name//_/ }: compiles without the misuse"
	result "$(ok refused "$file" "$error")" "${name//_/ }: refused with $error"
done
