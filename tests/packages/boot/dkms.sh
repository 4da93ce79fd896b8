# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The part of boot.sh that has rtrs-dkms in place of the prebuilt modules, and upgrades the kernel:
# the kernels that DKMS builds for are named, and booted; where it cannot build, one line gives the
# reason, and the old kernel keeps its modules.
#
# To be sourced, with what boot.sh has. Scripts in quotes are for the hosts.
# shellcheck disable=SC2016,SC2034,SC2154

# Packages of a kernel that the archive may drop.
OLD_DEBS=$RTRS_CACHE/deb/boot/old

# old_kernel: release and version of the newest kernel of the other series, from the archive or from
# the packages kept here.
old_kernel()
{
	local series=${RTRS_SUPPORTED[1]}
	read -r OLD OLD_VERSION < <(inside client "
		rel=\$(apt-cache --names-only search '^linux-image-${series//./\\.}\\.[0-9]+\\+deb13(\\+[0-9]+)?-amd64\$' |
			sed 's/^linux-image-//; s/ .*//; s/deb13-/deb13+0-/' | sort -V | tail -n 1 | sed 's/+0-/-/')
		ver=\$(apt-cache madison linux-image-\$rel | cut -d '|' -f 2 | head -n 1)
		echo \$rel \$ver")
	OLD_SERIES=$series
	[ -n "${OLD_VERSION:-}" ] || read -r OLD OLD_VERSION <"$OLD_DEBS/kernel" || return
	echo "$OLD $OLD_VERSION"
}

# Install the kernel's image, headers and source, and their dependencies.
install_old()
{
	local v=${OLD_VERSION/:/%3a} kept="$OLD $OLD_VERSION"
	if inside client "apt-get install -t $RTRS_SUITE-backports linux-image-$OLD linux-headers-$OLD linux-source-$OLD_SERIES=$OLD_VERSION"; then
		[ "$(cat "$OLD_DEBS/kernel" 2>/dev/null)" != "$kept" ] || return 0
		rm -rf "$OLD_DEBS"
		mkdir -p "$OLD_DEBS"
		find "$RTRS_CACHE/deb/archives" \( -name "linux-*${OLD%-amd64}*_${v}_*.deb" -o -name "linux-*-${OLD_SERIES}_${v}_*.deb" \) \
			-exec cp {} "$OLD_DEBS/" \; && echo "$kept" >"$OLD_DEBS/kernel"
	else
		echo "the archive has no $OLD, taking what is kept of it"
		RTRS_BIND=$OLD_DEBS "$HERE/image.sh" run "$dir/client.img" "apt-get install -t $RTRS_SUITE-backports ./debs/*.deb"
	fi
}

# says HOST LINE SCRIPT: apt succeeds, and its only line about it begins with LINE.
says()
{
	local out lines
	out=$(inside "$1" "$3 && dpkg --audit >/tmp/audit && [ ! -s /tmp/audit ]") || { printf '%s\n' "$out"; return 1; }
	lines=$(grep '^rtrs-dkms: ' <<<"$out")
	printf '%s\n' "$lines" "$(grep '^Setting up linux-' <<<"$out")"
	[[ $lines == "$2"* && $(wc -l <<<"$lines") = 1 ]]
}

# Both hosts start from the same image.
dkms_hosts()
{
	"$HERE/image.sh" copy "$dir/client.img" client 2 && update client
}
dkms_installed() { says client "rtrs-dkms: built for $OLD" 'apt-get install ./debs/rtrs-common_*.deb ./debs/rtrs-dkms_*.deb'; }
twins()
{
	cp --sparse=always "$dir/client.img" "$dir/server.img" && "$HERE/image.sh" name "$dir/server.img" server 1 && new_hosts
}

# A new kernel, and the packages needed to build for it, one by one. Headers come with a kernel if
# their metapackage is installed, as rtrs-dkms recommends.
piecemeal()
{
	must 'the client goes down' down client
	must 'a new kernel without headers is one line, and dpkg is not left broken' \
		says client "rtrs-dkms: not built for $release: linux-headers-$release is not installed" \
		'apt-get purge linux-headers-amd64 && apt-get install -t trixie-backports linux-image-amd64'
	must "the client still boots $OLD" boots client "$OLD" "$OLD"
	check 'it has booted without a failed unit' settled client
	check 'the file system is mounted, and the data are there' data_there
	must 'the client goes down again' down client
	must 'headers without the source are one line' \
		says client "rtrs-dkms: not built for $release: linux-source-$(series_of "$release")" \
		'apt-get install -t trixie-backports linux-headers-amd64'
	must 'with the source it is built' \
		says client "rtrs-dkms: built for $release" 'apt-get install -t trixie-backports linux-source'
}

with_dkms()
{
	NEXT=$INSTALLED
	must 'an image of Debian for the client' dkms_hosts
	must 'there is a kernel of another series' old_kernel
	must "its kernel $OLD is installed" install_old
	must 'README: rtrs-dkms in place of the modules, which are built' dkms_installed
	must 'the server is a copy of it' twins
	must "both boot $OLD" boot_both "$OLD"
	to_mount
	piecemeal
	must "the client boots $release" boots client "$release"
	check 'it has booted without a failed unit' settled client
	check 'the file system is mounted, and the data are there' data_there
	# As production.rst describes it for a server that is away for longer.
	must 'the client waits for longer' \
		on client 'for f in /sys/class/rtrs-client/*/fast_io_fail_tmo; do echo 1800 > "$f" || exit; done'
	must 'the server goes down' down server
	must 'its kernel is upgraded, with all that is needed, and the modules are built' \
		says server "rtrs-dkms: built for $release" \
		'apt-get update && apt-get install -t trixie-backports linux-image-amd64 linux-headers-amd64 linux-source'
	must "the server boots $release" boots server "$release"
	check 'the client is connected to it again' state 'connected 2/2'
	check 'the data are there' data_there
	check 'the server has booted without a failed unit' settled server
	# In the other order the client's last IO would wait for the server.
	must 'the client goes down' down client
	must 'and the server' down server
	must 'purged' purged
	check 'nothing is left on the server' nothing_left server
	check 'nothing is left on the client' nothing_left client
}
