#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Build the Debian root that everything else runs in: the tool chain, the test programs, QEMU.
# Guests also mount it as their root.
#
# Usage: rootfs.sh		(does nothing when it is there already)
#        rootfs.sh --check	(only tell, by the exit status, whether it is)
#        rootfs.sh --stamp	(print the text by which a complete one is known)

set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

BUILD_PACKAGES=(
	make gcc gcc-14 libc6-dev bc bison flex libelf-dev libssl-dev dwarves
	cpio kmod rsync xz-utils zstd git perl python3 patch diffutils file
	rustc rust-src rustfmt rust-clippy cargo bindgen pkg-config
	clang-19 lld-19 llvm-19 libclang-19-dev valgrind shellcheck
	ca-certificates
)
TEST_PACKAGES=(
	fio iproute2 rdma-core librdmacm-dev libibverbs-dev ibverbs-utils
	rdmacm-utils perftest qemu-system-x86 busybox-static e2fsprogs udev
	mdadm trace-cmd linux-perf nftables netcat-openbsd procps iputils-ping ethtool
	util-linux xxd bsdextrautils attr
)

# A new version rebuilds the root on every machine: change it when the lists change.
ROOTFS_VERSION=1
STAMP=$RTRS_ROOTFS/.rtrs-rootfs

stamp_text()
{
	printf 'version %s\n' "$ROOTFS_VERSION"
	printf '%s\n' "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
}

complete()
{
	[ -f "$RTRS_ROOTFS/.rtrs-compilers" ] && stamp_text | cmp -s - "$STAMP"
}

# Packages in the root must not start a daemon or build an initramfs.
prepare_hooks()
{
	local dir=$1

	mkdir -p "$dir"
	printf '#!/bin/sh\nexit 101\n' >"$dir/policy-rc.d"
	chmod 755 "$dir/policy-rc.d"
	apt_host_options >"$dir/host-options"
}

# Packages are downloaded to a place that outlives an interrupted run, which the next run uses.
bootstrap()
{
	local partial=$RTRS_ROOTFS.partial hooks=$RTRS_CACHE/hooks archives=$RTRS_CACHE/rootfs-debs mirror
	local packages opt opts=()

	mirror=$(apt_mirror)
	prepare_hooks "$hooks"
	while IFS= read -r opt; do
		opts+=("--aptopt=$opt")
	done <"$hooks/host-options"

	if [ -e "$partial" ]; then
		say "removing the unfinished root of an interrupted run"
		rm -rf --one-file-system "$partial"
	fi
	packages=$(IFS=,; printf '%s' "${BUILD_PACKAGES[*]},${TEST_PACKAGES[*]}")
	# In namespaces of its own: an interrupted run leaves neither mounts nor processes behind
	# (dpkg makes itself independent of its parents).
	mkdir -p "$archives/partial"
	# shellcheck disable=SC2016 # $1 is for mmdebstrap's hooks
	step rootfs "building the $RTRS_SUITE root (about 900 MiB to download and unpack)" \
		unshare -m -p -f --kill-child --mount-proc mmdebstrap --mode=root --variant=minbase --format=directory \
			"${opts[@]}" \
			--aptopt='APT::Install-Recommends "false"' \
			--aptopt='Acquire::Retries "3"' \
			--dpkgopt='force-unsafe-io' \
			--dpkgopt='path-exclude=/usr/share/man/*' \
			--dpkgopt='path-exclude=/usr/share/locale/*' \
			--dpkgopt='path-exclude=/usr/share/doc/*' \
			--dpkgopt='path-include=/usr/share/doc/*/copyright' \
			--skip=download/empty,essential/unlink \
			--setup-hook="mkdir -p \"\$1/var/cache/apt/archives\"; mount --bind '$archives' \"\$1/var/cache/apt/archives\"" \
			--customize-hook='umount "$1/var/cache/apt/archives"' \
			--setup-hook="install -D -m 755 '$hooks/policy-rc.d' \"\$1/usr/sbin/policy-rc.d\"" \
			--include="$packages" \
			"$RTRS_SUITE" "$partial" \
			"deb $mirror $RTRS_SUITE main" \
			"deb $mirror $RTRS_SUITE-backports main" ||
		die "the root could not be built; see $RTRS_LOGS/rootfs.log (network down, or $mirror lacks $RTRS_SUITE?)"

	chroot "$partial" "/usr/bin/env" -i PATH=/usr/bin:/bin LANG=C.UTF-8 bash -s compilers amd64 \
		<<<"$(sed -n '/^compilers()/,/^}/p' "$RTRS_ENV/kernel-prepare.sh"); compilers" \
		>"$partial/.rtrs-compilers" || die "the root has no compilers"
	stamp_text >"$partial/.rtrs-rootfs"
	# Mount points that enter.sh and the guests need; the root itself is
	# mounted read-only there.
	mkdir -p "$partial$RTRS_CACHE" "$partial/work"
	rm -rf --one-file-system "$RTRS_ROOTFS"
	mv "$partial" "$RTRS_ROOTFS"
	rm -rf "$archives"
}

main()
{
	if [ "${1:-}" != --stamp ] && complete; then
		return 0
	fi
	[ "${1:-}" != --check ] || return 1
	[ "${1:-}" != --stamp ] || { stamp_text && return; }
	need_root
	lock_cache
	# Another script may have built it meanwhile.
	if complete; then
		return 0
	fi
	need_space "$RTRS_CACHE" 9000 "the build root, kernel tree and tests"
	host_packages mmdebstrap=mmdebstrap xz=xz-utils unshare=util-linux \
		flock=util-linux dpkg-deb=dpkg
	[ -e /usr/share/keyrings/debian-archive-keyring.gpg ] ||
		host_packages no-such-command=debian-archive-keyring
	bootstrap
}

main "$@"
