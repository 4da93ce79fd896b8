#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# How kernel.sh copes with changes of an archive: series that are gone, point releases that move,
# downloads that are cut off. The archive is a stub, with packages of a few files in the form of
# Debian's; apt and kernel.sh are the real ones. Prints KTAP.
#
# Runs inside the root (enter.sh), in a cache of its own.

set -uo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
T=$(mktemp -d /tmp/rtrs-archive.XXXXXX)
trap 'rm -rf "$T"' EXIT
ARCHIVE=$T/archive
REAL_ROOTFS=${RTRS_CACHE:-/var/cache/rtrs-rs}/rootfs
N=0

export RTRS_INSIDE=1 RTRS_CACHE=$T/cache RTRS_LOGS=$T/log APT_CONFIG=$T/apt.conf
unset RTRS_LOCKED RTRS_SERIES RTRS_FLAVOUR ARCH

#
# The archive
#

# deb NAME VERSION DIR: make a package with the content of DIR.
deb()
{
	mkdir -p "$3/DEBIAN"
	printf 'Package: %s\nVersion: %s\nArchitecture: amd64\nMaintainer: nobody <n@localhost>\nDescription: stub\n' \
		"$1" "$2" >"$3/DEBIAN/control"
	dpkg-deb --root-owner-group -Znone --build "$3" "$ARCHIVE/$1_$2_amd64.deb" >/dev/null
}

# stub_source DIR VERSION RELEASE: the parts of a kernel tree that are needed to prepare it.
stub_source()
{
	mkdir -p "$1/scripts"
	printf '#!/bin/sh\n' | tee "$1/scripts/config" >"$1/scripts/diffconfig"
	chmod 755 "$1"/scripts/*
	cat >"$1/Makefile" <<EOT
kernelversion:
	@echo $2
kernelrelease:
	@echo $3
olddefconfig:
	@true
modules_prepare:
	@test ! -e $T/broken
	@echo x >>$T/prepared
	@mkdir -p rust && touch rust/libkernel.rmeta
mrproper:
	@rm -rf rust .config Module.symvers
EOT
}

# add VERSION [FLAVOUR [NUMBER]]: add a point release with all its packages. One that was built again
# has a NUMBER.
add()
{
	local v=$1 rel=$1+deb13${3:++$3}-${2:-amd64} series=${1%.*} d=$T/package ver p
	ver=$v-$((${3:-0} + 1))

	mkdir -p "$ARCHIVE"
	rm -rf "$d"
	mkdir -p "$d/usr/src"
	stub_source "$T/linux-source-$series" "$v" "$rel"
	tar -C "$T" -cJf "$d/usr/src/linux-source-$series.tar.xz" "linux-source-$series"
	rm -rf "$T/linux-source-$series"
	deb "linux-source-$series" "$ver" "$d"

	rm -rf "$d"
	mkdir -p "$d/usr/src/linux-headers-$rel"
	echo CONFIG_RUST=y >"$d/usr/src/linux-headers-$rel/.config"
	: >"$d/usr/src/linux-headers-$rel/Module.symvers"
	deb "linux-headers-$rel" "$ver" "$d"

	rm -rf "$d"
	mkdir -p "$d/usr/lib/modules/$rel/kernel"
	: >"$d/usr/lib/modules/$rel/modules.order"
	: >"$d/usr/lib/modules/$rel/modules.builtin"
	deb "linux-modules-$rel" "$ver" "$d"
	echo image >"$d/usr/lib/modules/$rel/vmlinuz"
	deb "linux-binary-$rel" "$ver" "$d"
	for p in base image; do
		rm -rf "$d"
		mkdir -p "$d"
		deb "linux-$p-$rel" "$ver" "$d"
	done
	publish
}

# drop PATTERN: remove packages from the archive.
drop()
{
	# shellcheck disable=SC2086 # a pattern
	rm -f "$ARCHIVE"/$1
	publish
}

publish()
{
	local f

	for f in "$ARCHIVE"/*.deb; do
		[ -f "$f" ] || continue
		dpkg-deb -f "$f"
		printf 'Filename: %s\nSize: %s\nSHA256: %s\n\n' "$(basename "$f")" "$(stat -c %s "$f")" \
			"$(sha256sum "$f" | cut -d ' ' -f 1)"
	done >"$ARCHIVE/Packages"
}

#
# kernel.sh and its answers
#

# kernel [VAR=VALUE...]: run kernel.sh, which asks the archive. Its answer is in $OUT, its messages
# in $SAID; its exit status is the function's.
kernel()
{
	OUT=$(env RTRS_REFRESH=1 "$@" "$HERE/kernel.sh" 2>"$T/said")
	local rc=$?
	SAID=$(cat "$T/said")
	return "$rc"
}

# gives RELEASE [VAR=VALUE...]: the answer is the tree of RELEASE, and it is complete.
gives()
{
	local rel=$1
	shift

	[[ $rel == *+* ]] || rel+=+deb13-amd64
	kernel "$@" || return
	[ "$OUT" = "$RTRS_CACHE/kernel/$rel" ] && [ -f "$OUT/rust/libkernel.rmeta" ] &&
		[ -f "$RTRS_CACHE/guest/$rel/image" ] && [ -f "$RTRS_CACHE/guest/$rel/lib/modules/$rel/modules.dep" ]
}

# says TEXT: exactly one line of the messages has TEXT.
says() { [ "$(grep -cF -- "$1" <<<"$SAID")" = 1 ]; }

# there VERSION: the cache has VERSION, in the first flavour.
there() { [ -d "$RTRS_CACHE/kernel/$1+deb13-amd64" ]; }

# check NAME CMD...
check()
{
	local name=$1
	shift

	N=$((N + 1))
	if "$@"; then
		printf 'ok %d %s\n' "$N" "$name"
	else
		printf 'not ok %d %s\n# answer: %s\n' "$N" "$name" "${OUT:-}"
		printf '%s\n' "${SAID:-}" | sed 's/^/# said: /'
		tail -n 5 "$T"/log/*.log 2>/dev/null | sed 's/^/# /'
		FAILED=yes
	fi
}

begin()
{
	mkdir -p "$T/apt/state/lists/partial" "$T/apt/cache/archives/partial" "$RTRS_CACHE/rootfs"
	: >"$T/apt/status"
	printf 'deb [trusted=yes] copy:%s ./\n' "$ARCHIVE" >"$T/apt/sources.list"
	cat >"$APT_CONFIG" <<EOT
Dir::Etc::sourcelist "$T/apt/sources.list";
Dir::Etc::sourceparts "-";
Dir::State "$T/apt/state";
Dir::State::status "$T/apt/status";
Dir::Cache "$T/apt/cache";
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
APT::Sandbox::User "root";
EOT
	"$HERE/rootfs.sh" --stamp >"$RTRS_CACHE/rootfs/.rtrs-rootfs"
	cp "$REAL_ROOTFS/.rtrs-compilers" "$RTRS_CACHE/rootfs/" || exit
}

# A Debian 13 host, like this root, that runs kernel RELEASE.
runs_kernel()
{
	local revision=1

	mkdir -p "$T/bin" "$T/dpkg"
	printf '#!/bin/sh\n[ "$*" != -r ] || exec echo %s\nexec /usr/bin/uname "$@"\n' "$1" >"$T/bin/uname"
	chmod 755 "$T/bin/uname"
	[[ $1 =~ deb13\+([0-9]+) ]] && revision=$((BASH_REMATCH[1] + 1))
	sed -n '/^NATIVE_PACKAGES=(/,/^)/p' "$HERE/kernel.sh" | sed '1d;$d' | tr -s '\t ' '\n' |
		sed -n 's/..*/Package: &\nStatus: install ok installed\nArchitecture: amd64\nMaintainer: n\nDescription: n\nVersion: 1\n/p' \
			>"$T/dpkg/status"
	printf 'Package: linux-image-%s\nStatus: install ok installed\nArchitecture: amd64\nMaintainer: n\nDescription: n\nVersion: %s-%s\n\n' \
		"$1" "${1%%+*}" "$revision" >>"$T/dpkg/status"
}

# native CMD...: run CMD on that host; results as for kernel().
native()
{
	OUT=$(PATH=$T/bin:$PATH DPKG_ADMINDIR=$T/dpkg "$@" 2>"$T/said")
	local rc=$?
	SAID=$(cat "$T/said")
	return "$rc"
}

# refused TEXT: fails with one line that has the reason, the package and the command.
refused()
{
	native "$HERE/build.sh" modules && return 1
	[ "$(wc -l <<<"$SAID")" = 1 ] && says "$1" &&
		says "install linux-image-${2:-amd64} 7.3.x and boot it: apt-get install -t trixie-backports linux-image-${2:-amd64}"
}

#
# The cases
#

nothing_at_all() { ! kernel && says "is cached"; }
newest() { gives 7.3.1; }
other_series() { gives 7.2.2 RTRS_SERIES=7.2; }
old_series() { ! kernel RTRS_SERIES=6.12 && says "is not supported"; }
future_series()
{
	add 7.9.1
	gives 7.9.1 RTRS_SERIES=7.9 && says "is newer than the supported ones" || return
	gives 7.3.1
}
nothing_to_do()
{
	local before
	before=$(wc -l <"$T/prepared")
	gives 7.3.1 && [ "$(wc -l <"$T/prepared")" = "$before" ]
}

series_gone()
{
	drop '*7.2*'
	gives 7.2.2 RTRS_SERIES=7.2 && says "has no kernel 7.2 (amd64) any more: staying with 7.2.2+deb13-amd64"
}

unreachable()
{
	mv "$ARCHIVE" "$ARCHIVE.away"
	gives 7.3.1 && says "the archive cannot be reached: staying with 7.3.1+deb13-amd64"
	local rc=$?
	mv "$ARCHIVE.away" "$ARCHIVE"
	return "$rc"
}

cut_off()
{
	local f=$ARCHIVE/linux-headers-7.3.3+deb13-amd64_7.3.3-1_amd64.deb

	add 7.3.3
	cp "$f" "$T/whole"
	truncate -s -200 "$f"
	gives 7.3.1 && says "kernel 7.3.3+deb13-amd64 cannot be had: staying with 7.3.1+deb13-amd64"
	local rc=$?
	cp "$T/whole" "$f"
	return "$rc"
}

preparation_fails()
{
	touch "$T/broken"
	gives 7.3.1 && says "staying with 7.3.1+deb13-amd64"
	local rc=$?
	rm "$T/broken"
	return "$rc"
}

# The source was unpacked before the preparation failed, and is not unpacked again.
goes_on()
{
	[ -f "$RTRS_CACHE/kernel/.new-7.3.3+deb13-amd64/.rtrs-extracted" ] || return
	kernel
	! says "unpacking the source of kernel 7.3.3+deb13-amd64 ..."
}

# The name of one flavour ends like the other's.
other_flavour()
{
	add 7.3.2 rt-amd64
	gives 7.3.2+deb13-rt-amd64 RTRS_FLAVOUR=rt-amd64 && there 7.3.3 && gives 7.3.3
}

moved() { gives 7.3.3 && gives 7.3.3 RTRS_SERIES=7.3; }
old_is_gone() { ! there 7.3.1 && there 7.2.2; }

# By the archive, and by the cache.
built_again()
{
	add 7.2.2 amd64 1
	gives 7.2.2+deb13+1-amd64 RTRS_SERIES=7.2 && ! there 7.2.2 || return
	add 7.2.2 amd64 10
	gives 7.2.2+deb13+10-amd64 RTRS_SERIES=7.2 || return
	drop '*7.2*'
	gives 7.2.2+deb13+10-amd64 RTRS_SERIES=7.2
}

in_use()
{
	add 7.3.4
	(
		flock -s 6
		gives 7.3.4 && there 7.3.3
	) 6>"$RTRS_CACHE/.use"
}

# The compilers are new, and the archive has none of the packages any more.
other_compilers()
{
	drop '*.deb'
	echo "another rustc" >>"$RTRS_CACHE/rootfs/.rtrs-compilers"
	# The stub's tree records the real compilers.
	cp "$RTRS_CACHE/rootfs/.rtrs-compilers" "$T/new"
	kernel
	[ "$(grep -c 'copying the source of kernel 7.3.4' <<<"$SAID")" -ge 1 ] && there 7.3.4 &&
		says "staying with 7.3.4+deb13-amd64"
}

host_too_old()
{
	runs_kernel 6.12.107+deb13-amd64
	refused "the running kernel 6.12.107+deb13-amd64 is not supported"
}

host_series_gone()
{
	runs_kernel 7.1.13+deb13-rt-amd64
	refused "the running kernel 7.1.13+deb13-rt-amd64 is not supported" rt-amd64
}

host_foreign()
{
	runs_kernel 7.3.0-custom
	refused "the running kernel 7.3.0-custom is not supported"
}

# Neither the newest kernel, nor the first flavour.
host_runs()
{
	local rel=7.3.1+deb13${1:-}-cloud-amd64

	add 7.3.1 cloud-amd64 "${1#+}"
	runs_kernel "$rel"
	native "$HERE/kernel.sh" --native && [ "$OUT" = "$RTRS_CACHE/kernel/$rel" ] &&
		[ -f "$OUT/rust/libkernel.rmeta" ]
}

host_source_gone()
{
	add 7.3.2 cloud-amd64
	runs_kernel 7.3.2+deb13-cloud-amd64
	drop 'linux-source-7.3_7.3.2*'
	native "$HERE/kernel.sh" --native && return 1
	says "the archive has no source of the running kernel 7.3.2+deb13-cloud-amd64 (7.3.2-1) any more"
}

# A list of mirrors, as in cloud images.
mirror_list()
{
	printf '# best first\nhttps://mirror.invalid/debian\tpriority:1\nhttps://other.invalid/debian\n' >"$T/mirrors"
	OUT=$(printf 'mirror+file:%s trixie main\nmirror+file://%s trixie main\nfile:/x trixie main\n' "$T/mirrors" "$T/mirrors" |
		bash -c '. "$1"; real_mirrors' bash "$HERE/lib.sh")
	[ "$OUT" = "$(printf '%s trixie main\n' https://mirror.invalid/debian https://mirror.invalid/debian file:/x)" ]
}

begin
mkdir -p "$ARCHIVE"
publish
check "an empty archive and an empty cache are an error" nothing_at_all
add 7.2.1
add 7.2.2
add 7.3.1
add 7.3.2
drop 'linux-headers-7.3.2*'
check "the newest release of which everything is there" newest
check "a series that is asked for" other_series
check "a series that is too old is refused" old_series
check "a series that is newer is tried, with a warning" future_series
check "what is complete is not made again" nothing_to_do
check "the series is gone from the archive" series_gone
check "the archive is unreachable" unreachable
check "a download that is cut off" cut_off
check "a preparation that fails" preparation_fails
check "what was interrupted goes on where it was" goes_on
check "the point release has moved" moved
check "the replaced release is removed, the last one of another series is not" old_is_gone
check "another flavour neither replaces nor is replaced" other_flavour
check "a release that was built again replaces the one before" built_again
check "nothing is removed from a cache that is in use" in_use
check "a host that runs an old kernel is told which one to install" host_too_old
check "so is one whose series is not supported any more, of its flavour" host_series_gone
check "so is one that runs a kernel of its own" host_foreign
check "a host gets the tree for the kernel that it runs" host_runs ''
check "also for one that was built again" host_runs +1
check "it is told if the source of that is gone" host_source_gone
check "apt's list of mirrors in a file is read" mirror_list
check "other compilers prepare what is cached again" other_compilers
printf '1..%d\n' "$N"
[ -z "${FAILED:-}" ]
