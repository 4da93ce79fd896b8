#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# From apt to a mounted file system, by the commands of README.md under "Install on two hosts": two
# images of Debian, where packages are installed natively, and which then boot in the emulator from
# their own /boot, with systemd, and the units and udev rules of the packages. Both hosts are
# rebooted, and the file system is back each time. Then the same with rtrs-dkms, and another kernel.
#
# Usage: boot.sh DEBS		(what "make deb" printed; needs the archive)
#        boot.sh --prebuilt DEBS	without DKMS
#        boot.sh --dkms DEBS		only that

set -uo pipefail

part=all
case ${1:-} in
--prebuilt | --dkms) part=${1#--}; shift ;;
esac
debs=$(cd "${1:?directory of packages missing}" && pwd -P) || exit 2
# Files from lib.sh must be on a disk, and visible in the root.
export TMPDIR=${RTRS_CACHE:-/var/cache/rtrs-rs}/deb/boot
mkdir -p "$TMPDIR"
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=../env/lib.sh
. "$repo/tests/env/lib.sh"
HERE=$repo/tests/packages/boot
# shellcheck source=boot/hosts.sh
. "$HERE/hosts.sh"
# shellcheck source=boot/steps.sh
. "$HERE/steps.sh"
# shellcheck source=boot/dkms.sh
. "$HERE/dkms.sh"

release=$(basename "$(echo "$debs"/rtrs-modules-*.deb)")
release=${release#rtrs-modules-}
release=${release%%_*}

ended()
{
	hosts_down
	# shellcheck disable=SC2154 # lib.sh has it
	[ ! -d "${RTRS_RESULTS:-}/host" ] || cp "$dir"/*.console "$RTRS_RESULTS/host/"
	rm -rf "$dir"
}
trap ended EXIT

images()
{
	"$HERE/image.sh" base && "$HERE/image.sh" copy "$dir/server.img" server 1 &&
		"$HERE/image.sh" copy "$dir/client.img" client 2 && new_hosts
}

known() { readme "$1"; }

# Reboot both hosts, one after the other, the client while it has the file system mounted.
reboots()
{
	must 'IO goes on' io
	must 'the server goes down' down server
	check 'the client has no path' state 'disconnected 0/2'
	must 'the server boots' boots server "$release"
	check 'the client is connected to it again' state 'connected 2/2'
	check 'IO went on without an error' io_ended
	check 'the data are there' data_there
	check 'the server has booted without a failed unit' settled server
	must 'the client reboots' reboot client "$release"
	check 'it has booted without a failed unit' settled client
	check 'the file system is mounted, and the data are there' data_there
	check 'both paths are connected again' state 'connected 2/2'
	check 'udev knows what is on the disk' found_by_uuid
}

# The state after a power cut, but in a known order.
client_first()
{
	must 'the client goes down' down client
	must 'and the server' down server
	must 'the client boots' boots client "$release"
	check 'nothing is mounted' on client '! mountpoint /mnt'
	must 'the server boots later' boots server "$release"
	check 'the client maps and mounts the disk then, and the data are there' data_there
}

unmapped()
{
	on client 'umount /mnt' && on_host client 'rnbd-map --unmap alpha/disk1' &&
		on client '! ls /sys/block | grep rnbd && udevadm settle && [ ! -e /dev/disk/by-rnbd/alpha-disk1 ]'
}

prebuilt()
{
	must 'two images of Debian' images
	must 'they ask the archive for packages' both update
	must 'README: the kernel of backports' in_images 'apt-get install -t * linux-image-amd64'
	must 'README: make deb' known 'make deb'
	# shellcheck disable=SC2016 # README has it expanded
	must 'README: the packages' in_images 'apt-get install ./debs/rtrs-common_\*.deb ./debs/rtrs-modules-$(uname -r)_\*.deb'
	must "both boot $release" boot_both "$release"
	check 'on the server nothing is loaded or started by the installation' untouched server
	check 'nor on the client' untouched client
	to_mount
	reboots
	client_first
	must 'README: the disk is taken away' unmapped
	check 'an interface that is made anew has soft RoCE again' made_anew server
	check 'all commands of README were known' all_known
	must 'both go down' both down
	must 'purged' purged
	check 'nothing is left on the server' nothing_left server
	check 'nothing is left on the client' nothing_left client
}
purged() { inside server "apt-get purge 'rtrs-*'" && inside client "apt-get purge 'rtrs-*'"; }

main()
{
	need_root
	need_space "$TMPDIR" 22000 "two images of Debian"
	need_memory 3500 "two guests"
	printf 'TAP version 13\n'
	mapfile -t STEPS < <(steps)
	NEXT=0 INSTALLED=3
	[ "$part" = dkms ] || prebuilt
	[ "$part" = prebuilt ] || with_dkms
	printf '1..%d\n' "$n"
}

# The shell reads a script while it runs. With main at the end, edits meanwhile do no harm.
main
