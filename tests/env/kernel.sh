#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Provide the kernel tree the modules are built against, ready for Rust:
# $RTRS_CACHE/kernel/<release>, with the symlink $RTRS_CACHE/kernel/current.
# Prints the tree's path. Does nothing that was done before; a newer kernel
# in the archive (looked for once a day, or with RTRS_REFRESH=1) moves it on.
#
# Usage: kernel.sh		for the newest backports kernel, in the root
#        kernel.sh --renew	the same, with the tree made anew
#        kernel.sh --native	for the running kernel of a Debian 13 host

set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

NATIVE_PACKAGES=(
	make gcc gcc-14 bc bison flex libelf-dev libssl-dev dwarves cpio kmod
	xz-utils perl python3 rustc rust-src rustfmt rust-clippy bindgen libclang-19-dev
)
KERNELS=$RTRS_CACHE/kernel
CHECKED=$KERNELS/.checked

inside() { "$RTRS_ENV/enter.sh" "$@"; }

# Set by --native: run natively, touch nothing of the rootfs.
RUN=inside
natively() { "$@"; }

# tree_ready REL: prepared, and not only in name.
tree_ready()
{
	[ -f "$KERNELS/$1/.rtrs-ready" ] && [ -f "$KERNELS/$1/rust/libkernel.rmeta" ]
}

# have_release REL: both the tree and what the guests boot are complete.
have_release()
{
	tree_ready "$1" && [ -f "$RTRS_ROOTFS/usr/lib/modules/$1/.rtrs-modules" ]
}

have_current()
{
	[ -L "$KERNELS/current" ] && have_release "$(readlink "$KERNELS/current")"
}

checked_lately()
{
	[ "${RTRS_REFRESH:-0}" != 1 ] && [ -f "$CHECKED" ] &&
		[ -z "$(find "$CHECKED" -mmin +1440)" ]
}

# The image and the modules, where the guests look for them.
install_modules()
{
	local rel=$1 dest=$RTRS_ROOTFS/usr/lib/modules/$1 tmp deb

	[ ! -f "$dest/.rtrs-modules" ] || return 0
	tmp=$RTRS_CACHE/kernel/.modules-$rel
	rm -rf "$tmp" "$dest"
	mkdir -p "$tmp" "$(dirname "$dest")"
	for deb in "$RTRS_DEBS/$rel"/linux-{base,binary,modules}-*.deb; do
		dpkg-deb -x "$deb" "$tmp"
	done
	[ -f "$tmp/usr/lib/modules/$rel/vmlinuz" ] || die "no vmlinuz in linux-binary-$rel"
	mv "$tmp/usr/lib/modules/$rel" "$dest"
	rm -rf "$tmp"
	inside depmod "$rel"
	touch "$dest/.rtrs-modules"
}

# fetch REL VERSION PACKAGE...
fetch()
{
	local rel=$1

	[ ! -f "$RTRS_DEBS/$rel/.complete" ] || return 0
	step kernel-download "downloading the packages of kernel $rel" \
		"$RUN" "$RTRS_ENV/kernel-prepare.sh" download "$@" ||
		die "cannot download kernel $rel: is the network there?"
}

# prepare_release REL
prepare_release()
{
	local rel=$1 tree=$KERNELS/$1

	! tree_ready "$rel" || return 0
	[ -f "$tree/.rtrs-extracted" ] ||
		step kernel-extract "unpacking the source of kernel $rel" \
			"$RUN" "$RTRS_ENV/kernel-prepare.sh" extract "$rel" ||
		die "cannot unpack the kernel source"
	step kernel-prepare "preparing kernel tree $rel for Rust modules" \
		"$RUN" "$RTRS_ENV/kernel-prepare.sh" prepare "$rel" ||
		die "cannot prepare the kernel tree; see $RTRS_LOGS/kernel-prepare.log"
}

update_index()
{
	step apt-update "asking the archive for the newest $RTRS_SERIES kernel" \
		"$RUN" apt-get update
}

from_backports()
{
	local rel ver

	"$RTRS_ENV/rootfs.sh"
	if have_current && checked_lately; then
		return 0
	fi
	need_space "$RTRS_CACHE" 4000 "the kernel tree"
	if ! update_index; then
		have_current || die "the archive cannot be reached and no kernel tree is cached"
		say "the archive cannot be reached, staying with $(readlink "$KERNELS/current")"
		return 0
	fi
	read -r rel ver < <(inside "$RTRS_ENV/kernel-prepare.sh" newest) ||
		die "$RTRS_SUITE-backports has no kernel $RTRS_SERIES.x with image, headers and source"
	if ! have_release "$rel"; then
		fetch "$rel" "$ver" "linux-source-$RTRS_SERIES=$ver" "linux-headers-$rel" \
			"linux-base-$rel" "linux-binary-$rel" "linux-modules-$rel"
		prepare_release "$rel"
		install_modules "$rel"
	fi
	ln -sfn "$rel" "$KERNELS/current"
	touch "$CHECKED"
	rm -rf "${RTRS_DEBS:?}/$rel"
	printf '%s\n' "$KERNELS/$rel" >"$RTRS_CACHE/READY"
	say "kernel $rel is ready at $KERNELS/$rel"
}

# The tree for the kernel this very host runs.
for_running()
{
	local rel ver missing=() p

	rel=$(uname -r)
	! tree_ready "$rel" || return 0
	RUN=natively
	need_space "$RTRS_CACHE" 4000 "the kernel tree"
	ver=$(dpkg-query -W -f '${Version}' "linux-image-$rel" 2>/dev/null) ||
		die "the running kernel $rel is not a Debian package; give KDIR="
	for p in "${NATIVE_PACKAGES[@]}"; do
		dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q ' installed$' || missing+=("$p")
	done
	export DEBIAN_FRONTEND=noninteractive
	update_index || die "the archive cannot be reached"
	if [ "${#missing[@]}" -gt 0 ]; then
		step native-apt "installing ${missing[*]}" \
			apt-get install -y --no-install-recommends "${missing[@]}" ||
			die "cannot install the build tools: ${missing[*]}"
	fi
	[ -n "$(apt-cache madison "linux-source-$RTRS_SERIES" | awk -v v="$ver" '$3 == v')" ] ||
		die "the archive has no source of the running kernel $ver any more: upgrade the kernel, or give KDIR="
	fetch "$rel" "$ver" "linux-source-$RTRS_SERIES=$ver" "linux-headers-$rel=$ver"
	prepare_release "$rel"
	rm -rf "${RTRS_DEBS:?}/$rel"
}

# Forget the tree; what the guests boot stays.
renew()
{
	lock_cache
	[ ! -L "$KERNELS/current" ] || rm -rf "${KERNELS:?}/$(readlink "$KERNELS/current")"
}

main()
{
	need_root
	mkdir -p "$KERNELS"
	[ "${1:-}" != --renew ] || renew
	# The common case needs no lock, so callers do not wait for each other.
	if [ "${1:-}" != --native ] && "$RTRS_ENV/rootfs.sh" --check && have_current && checked_lately; then
		printf '%s\n' "$KERNELS/$(readlink "$KERNELS/current")"
		return
	fi
	lock_cache
	if [ "${1:-}" = --native ]; then
		for_running
		printf '%s\n' "$KERNELS/$(uname -r)"
	else
		from_backports
		printf '%s\n' "$KERNELS/$(readlink "$KERNELS/current")"
	fi
}

main "$@"
