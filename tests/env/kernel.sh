#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Provide a kernel of the distribution: the tree that modules are built against, ready for Rust, in
# $RTRS_CACHE/kernel/<release>, and what guests boot, in $RTRS_CACHE/guest/<release>. Prints the
# path of the tree, or with --guest that of the other one.
#
# RTRS_SERIES (7.2, ...) and RTRS_FLAVOUR (amd64, rt-amd64, cloud-amd64, arm64) choose; the default
# is the newest supported series. What is complete is not made again; once a day, or with
# RTRS_REFRESH=1, the archive is asked for a newer point release. A release that is cached stays
# usable when the archive does not have it any more: a new one is made beside it, and only a
# complete new one replaces it.
#
# Usage: kernel.sh [--guest]
#        kernel.sh --native	the tree for the running kernel of a Debian host

set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

NATIVE_PACKAGES=(
	make gcc gcc-14 bc bison flex libelf-dev libssl-dev dwarves cpio kmod
	xz-utils perl python3 rustc rust-src rustfmt rust-clippy bindgen libclang-19-dev
)
KERNELS=$RTRS_CACHE/kernel
GUESTS=$RTRS_CACHE/guest
CURRENT=$KERNELS/current-${RTRS_SERIES:-newest}-$RTRS_FLAVOUR
CHECKED=$KERNELS/.checked-${RTRS_SERIES:-newest}-$RTRS_FLAVOUR

# Run commands where the compilers are: in the root, or on this host.
RUN=("$RTRS_ENV/enter.sh")
run() { "${RUN[@]}" "$@"; }
prepare_step() { run "$RTRS_ENV/kernel-prepare.sh" "$@"; }

# tree_ready REL: the tree is prepared, by the compilers that are installed now.
tree_ready()
{
	[ -f "$KERNELS/$1/rust/libkernel.rmeta" ] &&
		[ "$(cat "$KERNELS/$1/.rtrs-ready" 2>/dev/null)" = "$COMPILERS" ]
}

# have_release REL: both the tree and the guest image are complete.
have_release() { tree_ready "$1" && [ -f "$GUESTS/$1/.complete" ]; }

have_current() { [ -L "$CURRENT" ] && have_release "$(readlink "$CURRENT")"; }

checked_lately()
{
	[ "${RTRS_REFRESH:-0}" != 1 ] && [ -f "$CHECKED" ] && [ -z "$(find "$CHECKED" -mmin +1440)" ]
}

# series_wanted: the series to look for, the best first.
series_wanted()
{
	if [ -n "$RTRS_SERIES" ]; then
		printf '%s\n' "$RTRS_SERIES"
	else
		printf '%s\n' "${RTRS_SUPPORTED[@]}"
	fi
}

# An untested series is used only when asked for.
check_wishes()
{
	local f known=no

	for f in "${RTRS_FLAVOURS[@]}"; do
		[ "$f" != "$RTRS_FLAVOUR" ] || known=yes
	done
	[ "$known" = yes ] || die "there is no flavour $RTRS_FLAVOUR; there are: ${RTRS_FLAVOURS[*]}"
	[ -n "$RTRS_SERIES" ] || return 0
	! supported "$RTRS_SERIES" || return 0
	[[ $RTRS_SERIES =~ ^[0-9]+\.[0-9]+$ ]] || die "RTRS_SERIES=$RTRS_SERIES is not like ${RTRS_SUPPORTED[0]}"
	[ "$(printf '%s\n' "${RTRS_SUPPORTED[0]}" "$RTRS_SERIES" | sort -V | tail -n 1)" = "$RTRS_SERIES" ] ||
		die "kernel $RTRS_SERIES is not supported; supported are: ${RTRS_SUPPORTED[*]}"
	say "warning: kernel $RTRS_SERIES is newer than the supported ones (${RTRS_SUPPORTED[*]}); trying it"
}

# best_cached CONDITION: the newest release of the wanted series for which CONDITION holds.
best_cached()
{
	local s rel

	for s in $(series_wanted); do
		while IFS= read -r rel; do
			if "$1" "$rel"; then
				printf '%s\n' "$rel"
				return
			fi
		done < <(find "$KERNELS" -mindepth 1 -maxdepth 1 -type d -regextype posix-extended \
			-regex ".*/${s//./\\.}\.[0-9]+$RTRS_MARK$RTRS_FLAVOUR" -printf '%f\n' | newest_first)
	done
	return 1
}

# have_source REL: only the tree must be made again, as the compilers have changed.
have_source() { [ -f "$KERNELS/$1/.rtrs-extracted" ] && [ -f "$GUESTS/$1/.complete" ]; }

# best_in_archive: prints "RELEASE VERSION".
best_in_archive()
{
	local s

	for s in $(series_wanted); do
		! prepare_step newest "$s" "$RTRS_FLAVOUR" || return 0
	done
	return 1
}

# swap_in NEW PATH: NEW replaces PATH, which exists until then.
swap_in()
{
	local old

	old=$(dirname "$2")/.old-$(basename "$2")
	rm -rf "$old"
	[ ! -e "$2" ] || mv "$2" "$old"
	mv "$1" "$2"
	rm -rf "$old"
}

# fetch REL VERSION PACKAGE...
fetch()
{
	local rel=$1

	[ ! -f "$RTRS_DEBS/$rel/.complete" ] || return 0
	step kernel-download "downloading the packages of kernel $rel" prepare_step download "$@"
}

# prepare_release REL: make the tree, beside one of that name that may exist.
prepare_release()
{
	local rel=$1 new=$KERNELS/.new-$1

	! tree_ready "$rel" || return 0
	if [ ! -f "$new/.rtrs-extracted" ]; then
		if [ -f "$RTRS_DEBS/$rel/.complete" ]; then
			step kernel-extract "unpacking the source of kernel $rel" \
				prepare_step extract "$rel" "$new" || return
		else
			step kernel-copy "copying the source of kernel $rel" \
				prepare_step again "$KERNELS/$rel" "$new" || return
		fi
	fi
	step kernel-prepare "preparing kernel tree $rel for Rust modules" \
		prepare_step prepare "$rel" "$new" || return
	swap_in "$new" "$KERNELS/$rel"
}

# guest_image REL: image and modules in the form for guests; tests/vm/src/platform.rs reads it.
guest_image()
{
	local rel=$1 new=$GUESTS/.new-$1 root=$RTRS_ROOTFS deb

	[ ! -f "$GUESTS/$rel/.complete" ] || return 0
	rm -rf "$new"
	mkdir -p "$new/unpacked" "$new/lib/modules"
	for deb in "$RTRS_DEBS/$rel"/linux-{base,binary,modules}-*.deb; do
		dpkg-deb -x "$deb" "$new/unpacked" || return
	done
	mv "$new/unpacked/usr/lib/modules/$rel" "$new/lib/modules/" || return
	rm -rf "$new/unpacked"
	[ -f "$new/lib/modules/$rel/vmlinuz" ] || die "no vmlinuz in linux-binary-$rel"
	run depmod -b "$new" "$rel" || return
	[ "$(debian_arch "$RTRS_FLAVOUR")" = amd64 ] || root+=-$(debian_arch "$RTRS_FLAVOUR")
	ln -s "lib/modules/$rel/vmlinuz" "$new/image"
	ln -s "$KERNELS/$rel" "$new/tree"
	printf '%s\n' "$rel" >"$new/release"
	printf '%s\n' "$root" >"$new/rootfs"
	debian_arch "$RTRS_FLAVOUR" >"$new/arch"
	touch "$new/.complete"
	swap_in "$new" "$GUESTS/$rel"
}

# make_release REL VERSION
make_release()
{
	local rel=$1 ver=$2 series arch
	series=$(series_of "$rel")
	arch=$(debian_arch "$RTRS_FLAVOUR")

	need_space "$RTRS_CACHE" 4000 "kernel tree $rel"
	# The source fits the compilers of any host. The source of a complete guest image is kept.
	fetch "$rel" "$ver" "linux-source-$series=$ver" "linux-headers-$rel:$arch=$ver" \
		"linux-base-$rel:$arch" "linux-binary-$rel:$arch" "linux-modules-$rel:$arch" &&
		prepare_release "$rel" && guest_image "$rel" || return
	rm -rf "${RTRS_DEBS:?}/$rel"
}

# choose REL: use REL from now on, for all requests that it fits.
choose()
{
	local rel=$1 link

	ln -sfn "$rel" "$CURRENT"
	for link in "$KERNELS"/current-*; do
		! same_kind "$(readlink "$link")" "$rel" || ln -sfn "$rel" "$link"
	done
}

# Remove what nothing refers to any more, unless another script uses the cache.
prune()
{
	"$RTRS_ENV/prune.sh" || say "cleaning up in $RTRS_CACHE failed; nothing depends on it"
}

update_index()
{
	step apt-update "asking the archive for kernels" \
		run apt-get -o Acquire::Retries=2 -o APT::Update::Error-Mode=any update
}

# stay WHY: use a cached release.
stay()
{
	local rel

	if ! rel=$(best_cached have_release); then
		rel=$(best_cached have_source) ||
			die "$1, and no kernel ${RTRS_SERIES:-${RTRS_SUPPORTED[*]}} ($RTRS_FLAVOUR) is cached"
		prepare_release "$rel" || die "the tree of $rel cannot be made again"
	fi
	say "$1: staying with $rel"
	ln -sfn "$rel" "$CURRENT"
}

from_archive()
{
	local rel ver

	if have_current && checked_lately; then
		return 0
	fi
	# Only foreign.sh fetches the index of another architecture.
	[ "$(debian_arch "$RTRS_FLAVOUR")" = amd64 ] || "$RTRS_ENV/foreign.sh" tools
	if ! update_index; then
		stay "the archive cannot be reached"
		return 0
	fi
	if ! read -r rel ver < <(best_in_archive); then
		stay "the archive has no kernel ${RTRS_SERIES:-${RTRS_SUPPORTED[*]}} ($RTRS_FLAVOUR) any more"
		touch "$CHECKED"
		return 0
	fi
	if ! have_release "$rel" && ! make_release "$rel" "$ver"; then
		stay "kernel $rel cannot be had"
		return 0
	fi
	choose "$rel"
	touch "$CHECKED"
	prune
}

# Names the kernel that this host should run instead, in one line with the command.
advice()
{
	local flavour=amd64 f

	for f in "${RTRS_FLAVOURS[@]}"; do
		[ "$(flavour_of "$(uname -r)")" != "$f" ] || flavour=$f
	done
	printf 'install linux-image-%s %s.x and boot it: apt-get install -t %s-backports linux-image-%s' \
		"$flavour" "${RTRS_SUPPORTED[0]}" "$RTRS_SUITE" "$flavour"
}

# The tree for the running kernel of this host.
for_running()
{
	local rel ver series missing=() p

	rel=$(uname -r)
	series=$(series_of "$rel")
	RTRS_FLAVOUR=$(flavour_of "$rel")
	RUN=()
	if ! is_debian "$rel" || ! supported "$series"; then
		die "the running kernel $rel is not supported; $(advice)"
	fi
	if [ -r "/boot/config-$rel" ] && ! grep -q '^CONFIG_RUST=y' "/boot/config-$rel"; then
		die "the running kernel $rel has no Rust; $(advice)"
	fi
	if command -v rustc >/dev/null && command -v bindgen >/dev/null; then
		COMPILERS=$(prepare_step compilers "$RTRS_FLAVOUR")
		! tree_ready "$rel" || return 0
	fi
	ver=$(dpkg-query -W -f '${Version}' "linux-image-$rel" 2>/dev/null) ||
		die "the running kernel $rel is not a Debian package; $(advice)"
	need_space "$RTRS_CACHE" 4000 "kernel tree $rel"
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
	COMPILERS=$(prepare_step compilers "$RTRS_FLAVOUR")
	! tree_ready "$rel" || return 0
	[ -n "$(apt-cache madison "linux-source-$series" | awk -v v="$ver" '$3 == v')" ] ||
		die "the archive has no source of the running kernel $rel ($ver) any more; $(advice)"
	if ! fetch "$rel" "$ver" "linux-source-$series=$ver" "linux-headers-$rel=$ver" || ! prepare_release "$rel"; then
		die "the tree of kernel $rel cannot be prepared; see $RTRS_LOGS"
	fi
	rm -rf "${RTRS_DEBS:?}/$rel"
}

main()
{
	local answer=tree rel

	need_root
	mkdir -p "$KERNELS" "$GUESTS"
	if [ "${1:-}" = --native ]; then
		lock_cache
		for_running
		printf '%s\n' "$KERNELS/$(uname -r)"
		return
	fi
	[ "${1:-}" != --guest ] || answer=guest
	check_wishes
	"$RTRS_ENV/rootfs.sh"
	[ "$(debian_arch "$RTRS_FLAVOUR")" = amd64 ] || [ "$answer" = tree ] || "$RTRS_ENV/foreign.sh" root
	COMPILERS=$(cat "$RTRS_ROOTFS/.rtrs-compilers")
	# The common case takes no lock, so that callers do not wait for each other.
	if ! have_current || ! checked_lately; then
		lock_cache
		from_archive
	fi
	rel=$(readlink "$CURRENT")
	printf '%s\n' "$RTRS_CACHE/${answer/tree/kernel}/$rel"
}

main "$@"
