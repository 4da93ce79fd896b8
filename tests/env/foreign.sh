#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What guests of another architecture need: cross compilers in the Debian root, and a Debian root of
# that architecture, $RTRS_CACHE/rootfs-<arch>. Its packages are only unpacked: none of its programs
# ever runs on this host.
#
# Usage: foreign.sh tools	compilers, and the archive's index of that architecture
#        foreign.sh root	the root

set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

ARCH=$(debian_arch "$RTRS_FLAVOUR")
ROOT=$RTRS_ROOTFS-$ARCH
case $ARCH in
arm64) TOOLS=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-system-arm) ;;
*) die "no cross compiler is known for $ARCH" ;;
esac
GUEST_PACKAGES=(
	base-files base-passwd bash coreutils dash debianutils diffutils findutils grep gzip
	hostname sed tar util-linux mount mawk gawk perl-base login passwd libc-bin
	fio iproute2 rdma-core ibverbs-providers ibverbs-utils busybox-static e2fsprogs udev kmod
	procps iputils-ping ethtool nftables xxd bsdextrautils attr trace-cmd
)

tools()
{
	local stamp=$RTRS_ROOTFS/.rtrs-tools-$ARCH

	"$RTRS_ENV/rootfs.sh"
	[ "$(cat "$stamp" 2>/dev/null)" != "${TOOLS[*]}" ] || return 0
	lock_cache
	step "tools-$ARCH" "installing ${TOOLS[*]}" \
		"$RTRS_ENV/enter.sh" sh -c "dpkg --add-architecture $ARCH && apt-get update &&
			DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ${TOOLS[*]}" ||
		die "the cross compiler cannot be installed"
	printf '%s\n' "${TOOLS[*]}" >"$stamp"
}

# The packages' scripts do not run, so users and alternatives are missing.
finish_root()
{
	local new=$1

	cp "$new/usr/share/base-passwd/passwd.master" "$new/etc/passwd"
	cp "$new/usr/share/base-passwd/group.master" "$new/etc/group"
	mkdir -p "$new/etc/alternatives" "$new$RTRS_CACHE" "$new/work" "$new/proc" "$new/sys" "$new/dev" \
		"$new/run" "$new/tmp"
	ln -sf gawk "$new/usr/bin/awk"
	[ -e "$new/usr/bin/sh" ] || ln -s dash "$new/usr/bin/sh"
}

root()
{
	local new=$ROOT.partial mirror packages

	[ "$(cat "$ROOT/.rtrs-rootfs" 2>/dev/null)" != "${GUEST_PACKAGES[*]}" ] || return 0
	lock_cache
	need_space "$RTRS_CACHE" 2000 "the $ARCH root"
	host_packages mmdebstrap=mmdebstrap
	mirror=$(apt_mirror)
	rm -rf --one-file-system "$new"
	packages=$(IFS=,; printf '%s' "${GUEST_PACKAGES[*]}")
	step "rootfs-$ARCH" "unpacking a $RTRS_SUITE root for $ARCH guests" \
		unshare -m -p -f --kill-child --mount-proc mmdebstrap --mode=root --variant=extract \
			--architectures="$ARCH" --format=directory --skip=check/qemu \
			--aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Retries "3"' \
			--include="$packages" "$RTRS_SUITE" "$new" "deb $mirror $RTRS_SUITE main" ||
		die "the $ARCH root cannot be made; see $RTRS_LOGS/rootfs-$ARCH.log"
	finish_root "$new"
	printf '%s\n' "${GUEST_PACKAGES[*]}" >"$new/.rtrs-rootfs"
	rm -rf --one-file-system "$ROOT"
	mv "$new" "$ROOT"
}

need_root
case ${1:-} in
tools | root) "$1" ;;
*) die "tools or root?" ;;
esac
