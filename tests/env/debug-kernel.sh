#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Build the debug kernel (debug.config) from the same source as the stock one, with clang, because
# Rust and KASAN need it. The result is $RTRS_CACHE/debug/<release>, which is like a directory of
# kernel.sh --guest; its tree is in build/. Prints its path. It is cached by release and
# configuration; an interrupted build goes on where it stopped.

set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

FRAGMENT=$RTRS_ENV/debug.config
LLVM=-19
DEBUG=$RTRS_CACHE/debug

kmake()
{
	nice -n "${RTRS_NICE:-10}" make LLVM="$LLVM" -j"$(nproc)" "$@"
}

# Kconfig silently drops an option that is not available, and a missing checker finds nothing. An
# option marked "until" some series may be unknown to this kernel.
check_config()
{
	local line absent=0

	while IFS= read -r line; do
		case $line in
		*' # until '*)
			line=${line%% #*}
			grep -rqx --include='Kconfig*' "config ${line:7:-2}" . || continue
			;;
		esac
		grep -qxF "$line" .config || {
			echo "not in the configuration: $line"
			absent=$((absent + 1))
		}
	done < <(grep '^CONFIG' "$FRAGMENT")
	[ "$absent" -eq 0 ] || {
		rm .config
		die "$absent options of $(basename "$FRAGMENT") are not set"
	}
}

# Inside the root: build SOURCE RELEASE
build()
{
	local source=$1 rel=$2 dir=$DEBUG/$2 version

	mkdir -p "$dir"
	if [ ! -f "$dir/.source" ]; then
		rm -rf "$dir/build"
		cp -a "$source" "$dir/build"
		make -C "$dir/build" mrproper
		touch "$dir/.source"
	fi
	cd "$dir/build"
	if [ ! -f .config ]; then
		version=$(make -s kernelversion)
		sed 's/ # until .*//' "$FRAGMENT" >"$dir/fragment"
		printf 'CONFIG_LOCALVERSION="%s"\n' "${rel#"$version"}" >>"$dir/fragment"
		kmake KCONFIG_ALLCONFIG="$dir/fragment" allnoconfig
		check_config
	fi
	kmake bzImage modules
	kmake INSTALL_MOD_PATH="$dir" modules_install
	cp arch/x86/boot/bzImage "$dir/image"
	make -s LLVM="$LLVM" kernelrelease >"$dir/release"
	printf '%s\n' "$RTRS_ROOTFS" >"$dir/rootfs"
	basename "$source" >"$dir/base"
	echo amd64 >"$dir/arch"
	ln -sfn build "$dir/tree"
	touch "$dir/debug" "$dir/.complete"
}

main()
{
	local tree rel

	need_root
	if [ "${1:-}" = --build ]; then
		build "$2" "$3"
		return
	fi
	[ "$RTRS_FLAVOUR" = amd64 ] || die "there is a debug kernel for amd64 only"
	tree=$("$RTRS_ENV/kernel.sh")
	# A changed configuration makes another kernel.
	rel=$(basename "$tree")
	rel=${rel%%+*}-rtrs-$(sha256sum "$FRAGMENT" | cut -c 1-6)
	if [ ! -f "$DEBUG/$rel/.complete" ]; then
		# Not the cache's lock: other users go on with the stock kernel meanwhile.
		mkdir -p "$DEBUG"
		exec 7>"$DEBUG/.lock"
		flock -n 7 || { say "the debug kernel is being built already, waiting"; flock 7; }
		if [ ! -f "$DEBUG/$rel/.complete" ]; then
			need_space "$RTRS_CACHE" 6000 "the debug kernel"
			step debug-kernel "building the debug kernel $rel (about ten minutes)" \
				"$RTRS_ENV/enter.sh" "$RTRS_ENV/debug-kernel.sh" --build "$tree" "$rel" ||
				die "the debug kernel does not build; see $RTRS_LOGS/debug-kernel.log"
		fi
	fi
	printf '%s\n' "$DEBUG/$rel"
}

main "$@"
