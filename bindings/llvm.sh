#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Usage: llvm.sh RUSTC
#
# Prints "clang LLVM-LINK": programs of the same major version of LLVM, which can
# read the bitcode of this rustc. If they are not installed, prints the reason in
# one line that begins with "none".

set -eu

major=$("$1" -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
[ -n "$major" ] || {
	echo "none: $1 does not say which LLVM it has"
	exit
}

# find NAME: prints the program NAME of this version.
find()
{
	for name in "$1-$major" "/usr/lib/llvm-$major/bin/$1" "$1"; do
		if "$name" --version 2>/dev/null | grep -q "version $major\."; then
			echo "$name"
			return
		fi
	done
	return 1
}

if clang=$(find clang) && link=$(find llvm-link); then
	echo "$clang $link"
else
	echo "none: no clang and llvm-link of LLVM $major, which rustc has (packages clang-$major, llvm-$major)"
fi
