#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Install the packages in a layer over the Debian root, as on a host, and purge them: prebuilt
# modules first; then those of DKMS, before and after the kernel's headers are there. Nothing boots:
# the kernel is named wherever it matters.
#
# Usage: packages.sh DEBS	(what "make deb" printed; needs the archive)
#        packages.sh --quick DEBS	without DKMS, which prepares a kernel tree

set -euo pipefail
# shellcheck source=../env/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../env/lib.sh"

n=0

check()
{
	local text=$1 rc=ok
	shift
	"$@" >/tmp/log 2>&1 || rc='not ok'
	n=$((n + 1))
	printf '%s %d %s\n' "$rc" "$n" "$text"
	[ "$rc" = ok ] || tail -n 40 /tmp/log | sed 's/^/# /'
}

# Downloads are kept for the next run.
apt()
{
	mkdir -p "$RTRS_CACHE/deb/archives/partial"
	apt-get -y --no-install-recommends -o Dir::Cache::archives="$RTRS_CACHE/deb/archives" "$@" >/tmp/apt 2>&1 ||
		{ cat /tmp/apt; return 1; }
}

# Modules of the kernel, as on a host that runs it.
install_kernel() { apt update && apt install "linux-modules-$release"; }

# install PACKAGE...: packages of this project; the rest comes from the archive.
install()
{
	local p files=()
	for p in "$@"; do
		files+=("$(echo "$debs/${p}"_*.deb)")
	done
	apt install "${files[@]}"
}

versions()
{
	local m
	for m in rtrs-core rtrs-client rtrs-server; do
		[ "$(modinfo -k "$release" -F version "$m")" = "$version" ] || return 1
	done
}

# resolves DIR: RNBD's symbols resolve to the modules in DIR.
resolves()
{
	modprobe -S "$release" --show-depends rnbd-client | grep "/$1/rtrs-client.ko" &&
		modprobe -S "$release" --show-depends rnbd-server | grep "/$1/rtrs-server.ko"
}

only_export() { modprobe -S "$release" --show-depends rnbd-server | grep 'rnbd-server.*dev_search_path=/etc/rnbd/export'; }
units() { systemd-analyze verify --man=no rnbd-map.service rnbd-map-again.timer rtrs-rxe@eth0.service; }
rules() { udevadm verify /usr/lib/udev/rules.d/60-rtrs.rules; }
table() { rnbd-map --check && [ -z "$(rnbd-map --list)" ]; }
audit() { [ -z "$(dpkg --audit)" ]; }

# Everything in the root with a name of this project, and what depmod knows.
nothing_left()
{
	! find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path "/usr/src/linux-*" -o -path "$RTRS_CACHE" -o -path "$RTRS_REPO" \) \
		-prune -o \( -name 'rtrs*' -o -name 'rnbd*' -o -name 60-rtrs.rules \) -print | grep . &&
		! grep -E 'rtrs|rnbd' "/usr/lib/modules/$release/modules.dep" && audit
}

purge() { apt purge 'rtrs-*'; }

# says LINE: apt succeeded, and LINE is the only one about it.
says() { [ "$(grep -c '^rtrs-dkms: ' /tmp/apt)" = 1 ] && grep -F "$1" /tmp/apt && audit; }

prebuilt()
{
	check 'the prebuilt modules are installed' install rtrs-common "rtrs-modules-$release"
	check 'their version is that of the packages' versions
	check 'RNBD resolves to them' resolves updates
	check 'a server offers links in /etc/rnbd/export only' only_export
	check 'the units are right' units
	check 'the udev rules are right' rules
	check 'the table of mappings is read' table
	check 'purged' purge
	check 'nothing is left' nothing_left
}

# other_kernel: a kernel of another series, whose source is not a dependency of the packages.
other_kernel()
{
	local s
	for s in "${RTRS_SUPPORTED[@]}"; do
		[ "$s" != "$(series_of "$release")" ] || continue
		"$RTRS_ENV/kernel-prepare.sh" newest "$s" "$(flavour_of "$release")" | cut -d ' ' -f 1 && return
	done
}

without_source()
{
	local other
	other=$(other_kernel)
	if [ -z "$other" ]; then
		check 'a kernel of another series without its source # SKIP the archive has none' true
		return
	fi
	check 'a kernel of another series is installed, without its source' \
		apt install "linux-modules-$other" "linux-headers-$other"
	check 'one line says so, and dpkg is not left broken' \
		says "rtrs-dkms: not built for $other: linux-source-$(series_of "$other")"
}

with_dkms()
{
	check 'the source is installed, without headers of the kernel' install rtrs-common rtrs-dkms
	check 'one line says what is missing, and dpkg is not left broken' \
		says "rtrs-dkms: not built for $release: linux-headers-$release is not installed"
	check 'the headers are installed' apt install "linux-headers-$release"
	check 'and the modules are built' says "rtrs-dkms: built for $release"
	check 'their version is that of the packages' versions
	check 'RNBD resolves to them' resolves updates/dkms
	without_source
	check 'what was built is still there' resolves updates/dkms
	check 'purged' purge
	check 'nothing is left' nothing_left
}

# Inside: inside DEBS RELEASE QUICK
inside()
{
	debs=$1 release=$2 quick=$3
	export DEBIAN_FRONTEND=noninteractive LC_ALL=C
	version=$(dpkg-deb -f "$(echo "$debs"/rtrs-common_*.deb)" Version)
	printf 'TAP version 13\n'
	check 'the kernel is installed' install_kernel
	prebuilt
	[ "$quick" = --quick ] || with_dkms
	printf '1..%d\n' "$n"
}

main()
{
	local layer quick=- release

	if [ "${1:-}" = --inside ]; then
		shift
		inside "$@"
		return
	fi
	need_root
	[ "${1:-}" != --quick ] || { quick=--quick; shift; }
	release=$(basename "$(echo "${1:?directory of packages missing}"/rtrs-modules-*.deb)")
	release=${release#rtrs-modules-}
	release=${release%%_*}
	need_space "$RTRS_CACHE" 8000 "a root with packages"
	mkdir -p "$RTRS_CACHE/deb"
	layer=$(mktemp -d "$RTRS_CACHE/deb/test.XXXXXX")
	# shellcheck disable=SC2064 # its name as it is now
	trap "rm -rf '$layer'" EXIT
	cp "$1"/*.deb "$layer/"
	"$RTRS_ENV/over.sh" "$layer" "$RTRS_REPO/tests/packages/packages.sh" --inside "$layer" "$release" "$quick"
}

main "$@"
