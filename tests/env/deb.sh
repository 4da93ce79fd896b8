#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Build the Debian packages, in a layer over the Debian root, so that the host needs nothing
# installed: rtrs-common, rtrs-dkms, and modules and headers for the kernel that kernel.sh provides.
# Prints the directory with the packages.
#
# Usage: deb.sh [DIR] [KEY=FILE CERT=FILE]

set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

TOOLS=(debhelper dpkg-dev lintian)
LAYER=$RTRS_CACHE/deb/tools

# control RELEASE: the packages for one kernel, which debian/control does not name.
control()
{
	local f
	for f in control.modules.in modules.postinst.in modules.postrm.in; do
		sed -i "s/@RELEASE@/$1/g" "debian/$f"
	done
	cat debian/control.modules.in >>debian/control
	cp debian/modules.postinst.in "debian/rtrs-modules-$1.postinst"
	cp debian/modules.postrm.in "debian/rtrs-modules-$1.postrm"
}

# Inside: build WORK TREE RELEASE [KEY=FILE CERT=FILE], from sources in WORK/rtrs.
build()
{
	local work=$1 tree=$2 release=$3 version
	shift 3
	cd "$work/rtrs"
	control "$release"
	version=$(dpkg-parsechangelog -S Version)
	# The compilers are installed, by packages other than C++'s build-essential.
	env RTRS_KDIR="$tree" RTRS_RELEASE="$release" "$@" dpkg-buildpackage -d -b -us -uc
	lintian --fail-on error "$work/rtrs_$version"_*.changes
}

main()
{
	local out=$RTRS_REPO/debs tree work arg version sign=()

	need_root
	if [ "${1:-}" = --build ]; then
		shift
		build "$@"
		return
	fi
	for arg in "$@"; do
		case $arg in
		KEY=* | CERT=*)
			sign+=("$arg")
			RTRS_BIND=${RTRS_BIND:-}:$(dirname "${arg#*=}") ;;
		*) out=$arg ;;
		esac
	done
	export RTRS_BIND=${RTRS_BIND:-}
	# One of the two signs nothing.
	[ "${#sign[@]}" != 1 ] || die "KEY= and CERT= are only of use together; ${sign[0]} was given"
	[ "${RTRS_FLAVOUR:-}" != arm64 ] && [ "${ARCH:-amd64}" != arm64 ] ||
		die "packages are built for amd64 only; make modules_install is for arm64"
	tree=$("$RTRS_ENV/kernel.sh")
	# Not the cache's lock: other users need not wait for this.
	mkdir -p "$RTRS_CACHE/deb"
	exec 8>"$RTRS_CACHE/deb/.lock"
	flock 8
	"$RTRS_ENV/layer.sh" "$LAYER" "${TOOLS[@]}"
	work=$RTRS_CACHE/deb/build
	rm -rf "$work"
	mkdir -p "$work/rtrs" "$out"
	"$RTRS_ENV/enter.sh" rsync -a --filter=':- .gitignore' --exclude=/.git --exclude=/results \
		"$RTRS_REPO/" "$work/rtrs/"
	step deb "building packages for $(basename "$tree")" \
		"$RTRS_ENV/over.sh" "$LAYER" "$RTRS_ENV/deb.sh" --build "$work" "$tree" "$(basename "$tree")" "${sign[@]}" ||
		die "the packages do not build, or lintian finds errors; see $RTRS_LOGS/deb.log"
	# What installs debs/NAME_*.deb must find one version. Those for other kernels stay.
	version=$(basename "$(echo "$work"/rtrs-common_*.deb)" _all.deb)
	find "$out" -maxdepth 1 -name 'rtrs-*.deb' ! -name "rtrs-*_${version#*_}_*.deb" -delete
	cp "$work"/*.deb "$out/"
	rm -rf "$work"
	printf '%s\n' "$out"
}

main "$@"
