#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Run a kbuild target for the modules without being told a kernel tree.
#
# Usage: build.sh [VAR=VALUE...] TARGET...
#        build.sh --tests PLATFORM	build modules and test modules for the tests, out of
#					tree, for a kernel of kernel.sh --guest or of
#					debug-kernel.sh, and tests/packages/users against what
#					they install; print where
#        build.sh --where PLATFORM	only print where

set -euo pipefail
# The "+" of the recipe passes make's jobs on, but also makes "make -n" run this. Single-letter
# options are the first word, if there are any.
flags=${MAKEFLAGS:-}
flags=${flags%% *}
[[ $flags != *n* || ! $flags =~ ^[A-Za-z]+$ ]] || exit 0
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# A Debian 13 host builds for its running kernel, unless told otherwise.
native_host()
{
	# shellcheck disable=SC1091
	[ "$(. /etc/os-release && printf '%s' "${ID:-} ${VERSION_CODENAME:-}")" = "debian $RTRS_SUITE" ] &&
		[ -z "$RTRS_SERIES" ] && [ "$RTRS_FLAVOUR" = amd64 ]
}

# Paths in the arguments must exist in the root, too.
show_paths()
{
	local arg path

	RTRS_BIND=
	for arg in "$@"; do
		case $arg in
		INSTALL_MOD_PATH=/* | INSTALL_HDR_PATH=/*)
			path=${arg#*=}
			mkdir -p "$path" ;;
		KEY=/* | CERT=/*) path=$(dirname "${arg#*=}") ;;
		*) continue ;;
		esac
		RTRS_BIND+=:$path
	done
	export RTRS_BIND
}

# The jobserver does not reach into the root, so the number of jobs is passed there.
build()
{
	local tree args

	unset MAKEFLAGS MFLAGS MAKELEVEL
	if native_host; then
		tree=$("$RTRS_ENV/kernel.sh" --native)
		exec "$RTRS_ENV/kbuild.sh" "$tree" "$@"
	fi
	case " $* " in
	*" modules_install "*)
		[[ " $* " == *" INSTALL_MOD_PATH="* ]] ||
			die "this host does not run the kernel the modules are for; give KDIR= or INSTALL_MOD_PATH=" ;;
	esac
	tree=$("$RTRS_ENV/kernel.sh")
	[ "$(uname -r)" = "$(basename "$tree")" ] ||
		say "building for kernel $(basename "$tree"); this host runs $(uname -r)"
	mapfile -t args < <(kbuild_args "$RTRS_FLAVOUR")
	show_paths "$@"
	exec "$RTRS_ENV/enter.sh" "$RTRS_ENV/kbuild.sh" "$tree" "${args[@]}" "$@"
}

# Several clones may share a cache.
tests_dir()
{
	printf '%s/build/%s-%s\n' "$RTRS_CACHE" "$(basename "$1")" \
		"$(printf '%s' "$RTRS_REPO" | sha256sum | cut -c 1-8)"
}

# take_sources DIR [RSYNC OPTION...]: what only the copy has stays, for example rustdoc.sh's pages.
take_sources()
{
	local dir=$1
	shift

	mkdir -p "$dir"
	"$RTRS_ENV/enter.sh" rsync -a --delete "$@" \
		--filter=':- .gitignore' --exclude=/.git --exclude=/results --exclude=/stale --exclude=/users --exclude=/headers \
		--exclude=/doc --exclude=/.lock --exclude=/.repo --exclude=/tests/vm --exclude=/tests/host \
		"$RTRS_REPO/" "$dir/" >&2
}

# edited FILE SED_SCRIPT: a copy of the repository's file, written only if its content changes.
edited()
{
	sed "$2" "$RTRS_REPO/$1" >"$STALE/$1.new"
	if cmp -s "$STALE/$1.new" "$STALE/$1"; then
		rm "$STALE/$1.new"
	else
		mv "$STALE/$1.new" "$STALE/$1"
	fi
}

# Core and client of "another version", which differs by a comment in the core: stale-abi.sh checks
# that such modules do not mix.
stale_sources()
{
	take_sources "$STALE" --exclude=/Kbuild --exclude=/rtrs_core/rtrs_core.rs
	# shellcheck disable=SC2016 # sed's $
	edited rtrs_core/rtrs_core.rs '$a // Another core.'
	edited Kbuild '/^obj-m :=/s/ rtrs-server\.o//'
}

# Drivers that are users out of tree: they see what headers_install installs, and nothing else.
users_sources()
{
	mkdir -p "$1/users"
	"$RTRS_ENV/enter.sh" rsync -a --delete --exclude-from="$RTRS_REPO/.gitignore" \
		"$RTRS_REPO/tests/packages/users/" "$1/users/" >&2
}

# Tests build in a copy, so that the tree keeps what "make" left there, and kernels do not interfere
# with each other. The flags never change: other flags would recompile everything.
build_for_tests()
{
	local platform=$1 name copy args=() tree make stale=
	name=$(basename "$platform")

	copy=$(tests_dir "$platform")
	STALE=$copy/stale
	mapfile -t args < <(kbuild_args "$(flavour_of "$name")")
	[ ! -f "$platform/debug" ] || args+=(LLVM=-19)
	mkdir -p "$copy"
	exec 8>"$copy/.lock"
	flock 8
	printf '%s\n' "$RTRS_REPO" >"$copy/.repo"
	take_sources "$copy"
	users_sources "$copy"
	tree=$(readlink -f "$platform/tree")
	make="make -C $tree -j$(nproc) W=1 CLIPPY=1 ${args[*]}"
	# One crate after the other uses only one processor, so both build at once.
	if [ "${RTRS_STALE:-yes}" = yes ]; then
		stale_sources
		stale="$make M=$STALE modules >$STALE/log 2>&1"
	fi
	step "build-$name" "building the modules for $name" \
		"$RTRS_ENV/enter.sh" bash -c "
			${stale:-true} & stale=\$!
			$make M=$copy RTRS_TESTS=1 modules &&
			$copy/tests/env/kbuild.sh $tree INSTALL_HDR_PATH=$copy/headers headers_install &&
			$make M=$copy/users RTRS_HEADERS=$copy/headers modules && wait \$stale || {
				rc=\$?; ${stale:+tail -n 20 $STALE/log;} exit \$rc; }" ||
		die "the modules do not build; see $RTRS_LOGS/build-$name.log"
	printf '%s\n' "$copy"
}

need_root
case ${1:-} in
--tests) build_for_tests "$2" ;;
--where) tests_dir "$2" ;;
*) build "$@" ;;
esac
