#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The part of kernel.sh that runs where the compiler is: inside the root, or
# on a Debian host itself. Not for people; kernel.sh calls it.
#
# kernel-prepare.sh newest		print "RELEASE VERSION" of the newest kernel
# kernel-prepare.sh download REL VER PACKAGE...	fetch into $RTRS_DEBS/REL
# kernel-prepare.sh extract REL		unpack the source into the tree
# kernel-prepare.sh prepare REL		configure the tree and make it Rust-ready
#
# A distribution's linux-headers package carries no Rust metadata. The full
# source of the same version, with the distribution's configuration, release
# name and Module.symvers, prepared by the same compilers, yields the very
# symbols the stock kernel exports.

set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

FLAVOUR=amd64

# version_of PACKAGE [WANTED]: a version apt can download; WANTED if given.
version_of()
{
	apt-cache madison "$1" | awk -F' *[|] *' -v want="${2:-}" '
		(want == "" || $2 == want) && found == "" && $3 !~ / Sources$/ { found = $2 }
		END { print found }'
}

# Point releases come and go in the archive: take the newest one of which
# everything is there.
newest()
{
	local rel ver p ok

	while IFS= read -r rel; do
		ver=$(version_of "linux-image-$rel")
		[ -n "$ver" ] || continue
		ok=yes
		for p in "linux-base-$rel" "linux-binary-$rel" "linux-modules-$rel" "linux-headers-$rel"; do
			[ -n "$(version_of "$p")" ] || ok=no
		done
		[ -n "$(version_of "linux-source-$RTRS_SERIES" "$ver")" ] || ok=no
		if [ "$ok" = yes ]; then
			printf '%s %s\n' "$rel" "$ver"
			return
		fi
	done < <(apt-cache --names-only search "^linux-image-${RTRS_SERIES//./\\.}\.[0-9]+\+deb13-$FLAVOUR\$" |
		sed 's/^linux-image-\([^ ]*\) .*/\1/' | sort -Vr)
	return 1
}

download()
{
	local rel=$1 dir=$RTRS_DEBS/$1
	shift 2

	mkdir -p "$dir"
	cd "$dir"
	# apt checks what is there already against the archive's checksum.
	apt-get -o APT::Sandbox::User=root -o Acquire::Retries=3 download "$@"
	touch "$dir/.complete"
	printf 'packages of %s are in %s\n' "$rel" "$dir"
}

extract()
{
	local rel=$1 tree=$RTRS_CACHE/kernel/$1 tmp tarball

	tmp=$RTRS_CACHE/kernel/.unpack-$rel
	rm -rf "$tmp" "$tree"
	mkdir -p "$tmp" "$tree"
	dpkg-deb -x "$RTRS_DEBS/$rel/linux-source-${RTRS_SERIES}"_*.deb "$tmp"
	tarball=$(echo "$tmp"/usr/src/linux-source-"$RTRS_SERIES".tar.*)
	xz -T0 -dc "$tarball" | tar -x -C "$tree" --strip-components=1
	rm -rf "$tmp"
	touch "$tree/.rtrs-extracted"
}

prepare()
{
	local rel=$1 tree=$RTRS_CACHE/kernel/$1 tmp version got jobs
	jobs=$(nproc)

	tmp=$RTRS_CACHE/kernel/.headers-$rel
	rm -rf "$tmp"
	mkdir -p "$tmp"
	dpkg-deb -x "$RTRS_DEBS/$rel/linux-headers-${rel}"_*.deb "$tmp"
	cp "$tmp/usr/src/linux-headers-$rel/.config" "$tree/.config"
	cp "$tmp/usr/src/linux-headers-$rel/Module.symvers" "$tree/Module.symvers"
	rm -rf "$tmp"

	cd "$tree"
	version=$(make -s kernelversion)
	./scripts/config --set-str LOCALVERSION "${rel#"$version"}" \
		--disable LOCALVERSION_AUTO
	cp .config .config.distro
	make -j"$jobs" olddefconfig
	got=$(make -s kernelrelease)
	[ "$got" = "$rel" ] || die "the prepared tree calls itself $got, the kernel is $rel"
	grep -q '^CONFIG_RUST=y' .config ||
		die "CONFIG_RUST got lost: the compilers here do not match the kernel's"
	make -j"$jobs" modules_prepare
	./scripts/diffconfig .config.distro .config || true
	touch .rtrs-ready
}

cmd=${1:?command missing}
shift
case $cmd in
newest) newest ;;
download | extract | prepare) "$cmd" "$@" ;;
*) die "unknown command $cmd" ;;
esac
