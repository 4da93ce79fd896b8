#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The part of kernel.sh that runs where the compiler is: inside the root, or on a Debian host
# itself. Only other scripts call it.
#
# kernel-prepare.sh compilers FLAVOUR		print what a tree's objects depend on
# kernel-prepare.sh newest SERIES FLAVOUR	print "RELEASE VERSION" of the newest kernel
# kernel-prepare.sh download REL VER PACKAGE...	fetch into $RTRS_DEBS/REL
# kernel-prepare.sh supported REL|SERIES	tell by the exit status
# kernel-prepare.sh extract REL TREE		unpack the source into TREE
# kernel-prepare.sh unpack TARBALL HEADERS TREE	the same, from where packages have put it
# kernel-prepare.sh again OLD TREE		the same, from a tree that other compilers prepared
# kernel-prepare.sh prepare REL TREE		configure TREE and make it Rust-ready
#
# A distribution's linux-headers package carries no Rust metadata. The full
# source of the same version, with the distribution's configuration, release
# name and Module.symvers, prepared by the same compilers, yields the very
# symbols the stock kernel exports.

set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

compilers()
{
	rustc --version
	bindgen --version
	gcc --version | sed 1q
}

# version_of PACKAGE [WANTED]: a version apt can download; WANTED if given.
version_of()
{
	apt-cache madison "$1" | awk -F' *[|] *' -v want="${2:-}" '
		(want == "" || $2 == want) && found == "" && $3 !~ / Sources$/ { found = $2 }
		END { print found }'
}

# Point releases come and go in the archive: take the newest one that is complete there.
newest()
{
	local series=$1 flavour=$2 arch rel ver p ok
	arch=$(debian_arch "$flavour")

	while IFS= read -r rel; do
		ver=$(version_of "linux-image-$rel:$arch")
		[ -n "$ver" ] || continue
		ok=yes
		for p in "linux-base-$rel" "linux-binary-$rel" "linux-modules-$rel" "linux-headers-$rel"; do
			[ -n "$(version_of "$p:$arch")" ] || ok=no
		done
		[ -n "$(version_of "linux-source-$series" "$ver")" ] || ok=no
		if [ "$ok" = yes ]; then
			printf '%s %s\n' "$rel" "$ver"
			return
		fi
	done < <(apt-cache --names-only search "^linux-image-${series//./\\.}\.[0-9]+$RTRS_MARK$flavour\$" |
		sed 's/^linux-image-\([^ ]*\) .*/\1/' | newest_first)
	return 1
}

download()
{
	local rel=$1 dir=$RTRS_DEBS/$1
	shift 2

	mkdir -p "$dir"
	cd "$dir"
	# apt checks files that are there already against the archive's checksum.
	apt-get -o APT::Sandbox::User=root -o Acquire::Retries=3 download "$@"
	touch "$dir/.complete"
	printf 'packages of %s are in %s\n' "$rel" "$dir"
}

extract()
{
	local rel=$1 tree=$2 series tmp
	series=$(series_of "$rel")

	tmp=$RTRS_CACHE/kernel/.unpack-$rel
	rm -rf "$tmp"
	mkdir -p "$tmp"
	dpkg-deb -x "$(echo "$RTRS_DEBS/$rel/linux-source-$series"_*.deb)" "$tmp"
	dpkg-deb -x "$(echo "$RTRS_DEBS/$rel/linux-headers-$rel"_*.deb)" "$tmp"
	unpack "$(echo "$tmp/usr/src/linux-source-$series".tar.*)" "$tmp/usr/src/linux-headers-$rel" "$tree"
	rm -rf "$tmp"
}

unpack()
{
	local tarball=$1 headers=$2 tree=$3

	rm -rf "$tree"
	mkdir -p "$tree"
	xz -T0 -dc "$tarball" | tar -x -C "$tree" --strip-components=1
	cp "$headers/.config" "$tree/.config.distro"
	cp "$headers/Module.symvers" "$tree/Module.symvers.distro"
	touch "$tree/.rtrs-extracted"
}

again()
{
	local old=$1 tree=$2

	rm -rf "$tree"
	cp -a "$old" "$tree"
	rm -f "$tree/.rtrs-ready" "$tree/.rtrs-extracted"
	make -C "$tree" mrproper
	touch "$tree/.rtrs-extracted"
}

prepare()
{
	local rel=$1 tree=$2 version got jobs args
	jobs=$(nproc)
	mapfile -t args < <(kbuild_args "$(flavour_of "$rel")")

	cd "$tree"
	cp .config.distro .config
	cp Module.symvers.distro Module.symvers
	version=$(make -s "${args[@]}" kernelversion)
	./scripts/config --set-str LOCALVERSION "${rel#"$version"}" \
		--disable LOCALVERSION_AUTO
	make -j"$jobs" "${args[@]}" olddefconfig
	got=$(make -s "${args[@]}" kernelrelease)
	[ "$got" = "$rel" ] || die "the prepared tree calls itself $got, the kernel is $rel"
	grep -q '^CONFIG_RUST=y' .config ||
		die "CONFIG_RUST got lost: the compilers here do not match the kernel's"
	make -j"$jobs" "${args[@]}" modules_prepare
	./scripts/diffconfig .config.distro .config || true
	compilers >.rtrs-ready.tmp
	mv .rtrs-ready.tmp .rtrs-ready
}

cmd=${1:?command missing}
shift
case $cmd in
compilers | newest | download | extract | unpack | again | prepare) "$cmd" "$@" ;;
supported) supported "$(series_of "${1:-}")" ;;
*) die "unknown command $cmd" ;;
esac
