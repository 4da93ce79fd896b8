#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Load and unload all modules on the cloud flavour, a kernel that has neither soft RoCE nor a way to
# share the root with its guests: everything is in the initramfs. Prints KTAP.
#
# Usage: loads.sh PLATFORM	(the modules are those of build.sh --tests)

set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# The modules that rtrs-*.ko and rnbd-*.ko depend on.
BELOW=(ib_core rdma_cm)
OURS=(rtrs-core rtrs-client rtrs-server rnbd-client rnbd-server)
LIMIT=60

# The first process of the guest: loads in one order, unloads in the reverse order.
init()
{
	cat <<EOT
#!/bin/busybox sh
b=/bin/busybox
\$b mkdir -p /proc /sys
\$b mount -t proc proc /proc
\$b mount -t sysfs sysfs /sys
n=0
case_of() { # NAME CMD...
	n=\$((n + 1)) name=\$1
	shift
	if "\$@"; then echo "RTRS ok \$n \$name"; else echo "RTRS not ok \$n \$name"; fi
}
there() { [ -d "/sys/module/\$1" ]; }
gone() { [ ! -d "/sys/module/\$1" ]; }
clean() { ! \$b dmesg | \$b grep -E '$BAD'; }
for m in $1; do \$b insmod /m/\$m || echo "cannot load \$m"; done
for m in $2; do
	\$b insmod /m/\$m.ko
	case_of "\$m loads" there "\$(echo \$m | \$b tr - _)"
done
for m in $3; do
	\$b rmmod \$m
	case_of "\$m unloads" gone "\$(echo \$m | \$b tr - _)"
done
case_of "kernel log is clean" clean
echo "RTRS 1..\$n"
\$b poweroff -f
EOT
}

# Inside the root: guest PLATFORM MODULES PEERS
guest()
{
	local platform=$1 modules=$2 peers=$3 release dir below=() m path list reversed=()
	release=$(cat "$platform/release")
	# shellcheck source=../lib/util.sh
	. "$RTRS_REPO/tests/lib/util.sh"
	BAD=$DMESG_BAD

	dir=$(mktemp -d /tmp/loads.XXXXXX)
	mkdir -p "$dir/bin" "$dir/m" "$dir/dev"
	cp /usr/bin/busybox "$dir/bin/"
	for m in "${BELOW[@]}"; do
		while read -r _ path; do
			path=${path%% *}
			list=$(basename "${path%.xz}")
			[[ " ${below[*]} " != *" $list "* ]] || continue
			below+=("$list")
			case $path in
			*.xz) xz -dc "$path" >"$dir/m/$list" ;;
			*) cp "$path" "$dir/m/$list" ;;
			esac
		done < <(modprobe -d "$platform" -S "$release" --show-depends "$m" | grep '^insmod ')
	done
	cp "$modules"/rtrs-{core,client,server}.ko "$peers"/rnbd-{client,server}.ko "$dir/m/"
	for m in "${OURS[@]}"; do reversed=("$m" "${reversed[@]}"); done
	init "${below[*]}" "${OURS[*]}" "${reversed[*]}" >"$dir/init"
	chmod 755 "$dir/init"
	(cd "$dir" && find . | cpio -o -H newc --quiet) >"$dir.cpio"
	timeout "$LIMIT" qemu-system-x86_64 -accel tcg -cpu max,la57=off -nodefaults -display none -no-reboot \
		-smp 2 -m 1G -serial stdio -kernel "$platform/image" -initrd "$dir.cpio" \
		-append "console=ttyS0 loglevel=4 panic=-1 mitigations=off" </dev/null | tr -d '\r' >"$dir.log" || true
	sed -n 's/^RTRS //p' "$dir.log"
	if ! grep -q '^RTRS 1\.\.' "$dir.log"; then
		echo "not ok 1 the guest gets to its end"
		tail -n 40 "$dir.log" | sed 's/^/# /'
	fi
	rm -rf "$dir" "$dir.cpio" "$dir.log"
}

need_root
if [ "${1:-}" = --guest ]; then
	shift
	guest "$@"
	exit
fi
exec "$RTRS_ENV/enter.sh" "$RTRS_ENV/loads.sh" --guest "$1" "$("$RTRS_ENV/build.sh" --where "$1")" \
	"$("$RTRS_ENV/c-peer.sh" "$1")"
