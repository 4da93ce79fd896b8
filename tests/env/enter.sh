#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Run a command inside the Debian root, with this repository and the cache visible at the same paths
# as outside, so that paths recorded by builds agree on both sides. RTRS_BIND=DIR:DIR... names more
# directories to show.
#
# Usage: enter.sh [CMD [ARG...]]	(a shell without CMD)
#
# All mounts are in a private mount namespace: even if the command is killed, the host's mount table
# stays as it was, and callers do not see each other's mounts.

set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Already inside: a script that enters the root calls another one that does.
if [ "${RTRS_INSIDE:-}" = 1 ]; then
	exec "$@"
fi

need_root
[ -f "$RTRS_ROOTFS/.rtrs-rootfs" ] || die "no root at $RTRS_ROOTFS; run tests/env/rootfs.sh first"
[ "$#" -gt 0 ] || set -- bash

# Cargo keeps its registry in the cache; a configuration of the host (a registry mirror, for
# example) stays in force.
cargo_home=$RTRS_CACHE/cargo
mkdir -p "$cargo_home"
for f in config.toml config; do
	if [ -f "${HOME:-/root}/.cargo/$f" ]; then
		cmp -s "${HOME:-/root}/.cargo/$f" "$cargo_home/config.toml" ||
			cp "${HOME:-/root}/.cargo/$f" "$cargo_home/config.toml"
		break
	fi
done

# The host's environment does not leak in, except for these variables.
env=(
	PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
	HOME=/root LANG=C.UTF-8 RTRS_INSIDE=1 CARGO_HOME="$cargo_home"
)
while IFS= read -r name; do
	case $name in
	RTRS_LOCKED) ;;
	RTRS_* | CARGO_NET_* | CARGO_HTTP_* | CARGO_REGISTR* | CARGO_TERM_* | *_proxy | *_PROXY | \
	TERM | NO_COLOR | CI | KDIR | CLIPPY | W | V | LLVM | KBUILD_SIGN_PIN | PROPTEST_* | LOOM_* | RUST_BACKTRACE)
		env+=("$name=${!name}") ;;
	esac
done < <(compgen -e)

export RTRS_ENTER_CWD=$PWD
# shellcheck disable=SC2016 # expanded by the inner shell
exec unshare -m --propagation private bash -c '
	set -e
	bind() { # SRC [--rbind]: at the same path below the root
		mkdir -p "$RTRS_ROOTFS$1"
		mount "${2:---bind}" "$1" "$RTRS_ROOTFS$1"
	}
	bind_file() {
		[ -e "$1" ] || return 0
		mkdir -p "$(dirname "$RTRS_ROOTFS$1")"
		[ -f "$RTRS_ROOTFS$1" ] || : >"$RTRS_ROOTFS$1"
		mount --bind "$(readlink -f "$1")" "$RTRS_ROOTFS$1"
	}
	bind /proc --rbind
	bind /dev --rbind
	bind /sys --rbind
	mount -t tmpfs -o mode=1777 tmp "$RTRS_ROOTFS/tmp"
	bind "$RTRS_CACHE"
	bind "$RTRS_REPO"
	[ -z "${KDIR:-}" ] || [ ! -d "$KDIR" ] || bind "$(readlink -f "$KDIR")"
	IFS=: read -ra also <<<"${RTRS_BIND:-}"
	for dir in "${also[@]}"; do
		[ -z "$dir" ] || bind "$dir"
	done
	bind_file /etc/resolv.conf
	bind_file /etc/hosts
	bind_file /etc/ssl/certs/ca-certificates.crt
	cwd=$RTRS_ENTER_CWD
	[ -d "$RTRS_ROOTFS$cwd" ] || cwd=$RTRS_REPO
	n=$1
	shift
	exec chroot "$RTRS_ROOTFS" /usr/bin/env -i "${@:1:n}" \
		/bin/bash -c '\''cd "$1" && shift && exec "$@"'\'' bash "$cwd" "${@:n+1}"
' bash "${#env[@]}" "${env[@]}" "$@"
