#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Disk images of Debian hosts for boot.sh: the distribution's own kernel, systemd, and the agent of
# the test, nothing else. Packages are installed in a chroot, by this machine's processor: an
# emulated one would take hours.
#
# image.sh base			make the image that all are copies of, unless it is there
# image.sh copy IMAGE NAME NUMBER	a host of that name, with the addresses 10.0.0.NUMBER and 10.1.0.NUMBER
# image.sh name IMAGE NAME NUMBER	that an image is of another host now
# image.sh run IMAGE SCRIPT	run SCRIPT in it, with bash; RTRS_BIND=DIR is seen as /root/debs
# image.sh kernel IMAGE DIR [RELEASE]	copy out of its /boot what it boots, or what it has of RELEASE

set -euo pipefail
# shellcheck source=../../env/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../env/lib.sh"

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
BOOT=$RTRS_CACHE/deb/boot
BASE=$BOOT/base.img
ARCHIVES=$RTRS_CACHE/deb/archives
PACKAGES=init,udev,kmod,e2fsprogs,ca-certificates,linux-image-amd64

# The definition of the image.
stamp()
{
	declare -f configure bootstrap
	printf '%s\n' "$PACKAGES"
	cat "$HERE"/agent.*
}

# archives: a directory with earlier downloads, for one run of apt: apt locks it, and other runs may
# happen at the same time.
archives()
{
	local own
	own=$(mktemp -d "$ARCHIVES.XXXXXX")
	mkdir -p "$ARCHIVES" "$own/partial"
	find "$ARCHIVES" -maxdepth 1 -name '*.deb' -exec cp -l -t "$own" {} +
	printf '%s\n' "$own"
}

# keep DIR: keep the new downloads in DIR.
keep()
{
	find "$1" -maxdepth 1 -name '*.deb' -exec cp -l -n -t "$ARCHIVES" {} +
	rm -rf "$1"
}

# Settings that the installer would have asked for.
configure()
{
	local root=$1
	printf 'LABEL=root / ext4 defaults 0 1\n' >"$root/etc/fstab"
	printf 'APT::Get::Assume-Yes "true";\n' >"$root/etc/apt/apt.conf.d/90test"
	install -m 755 "$HERE/agent.sh" "$root/usr/local/sbin/agent"
	install -m 644 "$HERE/agent.service" "$root/etc/systemd/system/agent.service"
	# A host that was booted has no archive.
	chroot "$root" systemctl mask apt-daily.timer apt-daily-upgrade.timer
	chroot "$root" systemctl enable agent.service systemd-networkd.service
}

# Inside: bootstrap IMAGE MIRROR OPTION...
bootstrap()
{
	local root=$BOOT/root mirror=$2 own
	own=$(archives)
	truncate -s 16G "$1"
	mkfs.ext4 -q -F -L root "$1"
	mkdir -p "$root"
	mount -o loop "$1" "$root"
	shift 2
	# shellcheck disable=SC2016 # for mmdebstrap's hooks
	mmdebstrap --mode=root --variant=minbase --format=directory "$@" \
		--aptopt='Acquire::Retries "3"' --dpkgopt='force-unsafe-io' \
		--skip=download/empty,essential/unlink,cleanup/apt/lists \
		--setup-hook="mkdir -p \"\$1/var/cache/apt/archives\"; mount --bind '$own' \"\$1/var/cache/apt/archives\"" \
		--customize-hook='umount "$1/var/cache/apt/archives"' \
		--include="$PACKAGES" "$RTRS_SUITE" "$root" \
		"deb $mirror $RTRS_SUITE main" "deb $mirror $RTRS_SUITE-backports main"
	keep "$own"
	configure "$root"
	umount "$root"
}

base()
{
	local opt opts=() new=$BOOT/new.img

	mkdir -p "$BOOT"
	exec 8>"$BOOT/.lock"
	flock 8
	if [ -f "$BASE" ] && stamp | cmp -s - "$BOOT/stamp"; then
		return
	fi
	host_packages mmdebstrap=mmdebstrap mkfs.ext4=e2fsprogs
	while IFS= read -r opt; do
		opts+=("--aptopt=$opt")
	done < <(apt_host_options)
	rm -f "$new" "$BASE"
	step boot-base "making an image of Debian" \
		unshare -m -p -f --kill-child --mount-proc --propagation private "$HERE/image.sh" --bootstrap "$new" "$(apt_mirror)" "${opts[@]}" ||
		die "the image cannot be made; see $RTRS_LOGS/boot-base.log"
	mv "$new" "$BASE"
	stamp >"$BOOT/stamp"
}

# The interfaces have the names that the kernel gives them.
network()
{
	local n=$1 i
	for i in 0 1; do
		printf '[Match]\nName=eth%d\n[Network]\nAddress=10.%d.0.%d/24\n' "$i" "$i" "$n" \
			>"/etc/systemd/network/eth$i.network"
	done
}

copy() { cp --sparse=always --reflink=auto "$BASE" "$1" && name "$@"; }

name()
{
	run "$1" "$(declare -f network)
		echo $2 >/etc/hostname
		printf '127.0.0.1 localhost $2\n' >/etc/hosts
		: >/etc/machine-id
		systemd-machine-id-setup
		network $3"
}

# Inside: chrooted IMAGE SCRIPT
chrooted()
{
	local root own d rc=0
	own=$(archives)
	root=$(mktemp -d "$BOOT/root.XXXXXX")
	mount -o loop "$1" "$root"
	mount -t proc proc "$root/proc"
	mount --rbind /sys "$root/sys"
	mount --rbind /dev "$root/dev"
	mount -t tmpfs run "$root/run"
	mount -t tmpfs tmp "$root/tmp"
	mount --bind "$own" "$root/var/cache/apt/archives"
	mkdir -p "$root/root/debs"
	[ -z "${RTRS_BIND:-}" ] || mount --bind "$RTRS_BIND" "$root/root/debs"
	for d in resolv.conf hosts; do
		[ -e "$root/etc/$d" ] || : >"$root/etc/$d"
		mount --bind "$(readlink -f "/etc/$d")" "$root/etc/$d"
	done
	# No service is started here.
	printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
	chmod 755 "$root/usr/sbin/policy-rc.d"
	apt_host_options >"$root/etc/apt/apt.conf.d/91host"
	chroot "$root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive bash -c "cd /root; $2" </dev/null || rc=$?
	rm -f "$root/usr/sbin/policy-rc.d" "$root/etc/apt/apt.conf.d/91host"
	umount -R "$root"
	rmdir "$root"
	keep "$own"
	return "$rc"
}

# In a PID namespace of its own: the remaining processes end with it, and release the image.
run() { unshare -m -p -f --kill-child --propagation private "$HERE/image.sh" --chrooted "$1" "$2"; }

# Inside: boot_files IMAGE DIR [RELEASE]. Without RELEASE, the files that the links for Debian's
# boot loaders point to.
boot_files()
{
	local root rc=0
	root=$(mktemp -d "$BOOT/root.XXXXXX")
	mount -o loop,ro "$1" "$root"
	cp "$root/${3:+boot/}vmlinuz${3:+-$3}" "$2/vmlinuz" && cp "$root/${3:+boot/}initrd.img${3:+-$3}" "$2/initrd.img" || rc=$?
	umount "$root"
	rmdir "$root"
	return "$rc"
}

kernel() { unshare -m --propagation private "$HERE/image.sh" --boot_files "$@"; }

cmd=${1:?command missing}
shift
need_root
case $cmd in
base | copy | name | run | kernel) "$cmd" "$@" ;;
--bootstrap | --chrooted | --boot_files) "${cmd#--}" "$@" ;;
*) die "unknown command $cmd" ;;
esac
