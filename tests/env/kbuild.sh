#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Run a target for the modules against a prepared kernel tree: the targets of kbuild, and some more.
# Runs where the compiler is: in the root, or on a host of the tree's own distribution.
#
# Usage: kbuild.sh TREE [VAR=VALUE...] TARGET
#
#   rnbd             mainline's RNBD, from the source in TREE, into rnbd/
#   modules_install  ours, and rnbd/ if it was built; then depmod for that kernel
#   headers_install  what users out of tree build against, to INSTALL_HDR_PATH
#   sign             the modules where they were built, with KEY= and CERT=
#   any other one    is kbuild's

set -euo pipefail
# The "+" of the recipe passes make's jobs on, but also makes "make -n" run this. Single-letter
# options are the first word, if there are any.
flags=${MAKEFLAGS:-}
flags=${flags%% *}
[[ $flags != *n* || ! $flags =~ ^[A-Za-z]+$ ]] || exit 0
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

RNBD=$RTRS_REPO/rnbd
tree=$(cd "${1:?tree missing}" && pwd -P)
shift
target=${*: -1}
vars=("${@:1:$#-1}")

# value NAME: the value of a variable of the command line, all of which are passed on as well.
value()
{
	local v
	for v in "${vars[@]}"; do
		[[ $v != "$1="* ]] || printf '%s' "${v#*=}"
	done
}

# kbuild DIR TARGET...
kbuild()
{
	local dir=$1
	shift
	# Use the jobserver of a make above, or a number of jobs.
	[[ ${MAKEFLAGS:-} == *jobserver* ]] || set -- -j"$(nproc)" "$@"
	make -C "$tree" M="$dir" "${vars[@]}" "$@"
}

release() { cat "$tree/include/config/kernel.release"; }

# The modules that are built; all must be for this kernel.
built()
{
	local release ko
	release=$(release)
	for ko in "$RTRS_REPO"/rtrs-*.ko "$RNBD"/rnbd-*.ko; do
		[ -f "$ko" ] || continue
		[ "$(modinfo -F vermagic "$ko" | cut -d ' ' -f 1)" = "$release" ] ||
			die "$ko is not for $release; make it again"
		printf '%s\n' "$ko"
	done
}

signed() { [ "$(tail -c 28 "$1" | tr -d '\0')" = "~Module signature appended~" ]; }

rnbd()
{
	kbuild "$RTRS_REPO" modules
	"$RTRS_ENV/mainline.sh" "$tree" "$RTRS_REPO" rnbd "${vars[@]}" \
		KBUILD_EXTRA_SYMBOLS="$RTRS_REPO/Module.symvers"
}

modules_install()
{
	local root ko list
	root=$(value INSTALL_MOD_PATH)
	list=$(built)
	[ -n "$list" ] || die "there are no modules to install; make them first"
	while IFS= read -r ko; do
		[ -z "$(value INSTALL_MOD_STRIP)" ] || ! signed "$ko" ||
			die "INSTALL_MOD_STRIP would remove the signature of $ko"
	done <<<"$list"
	# Without a key in the tree kbuild prints a long complaint about each module.
	[ -f "$tree/$(sed -n 's/^CONFIG_MODULE_SIG_KEY="\(.*\)"$/\1/p' "$tree/.config")" ] ||
		vars+=(CONFIG_MODULE_SIG_ALL=)
	kbuild "$RTRS_REPO" modules_install
	[ ! -f "$RNBD/rnbd-client.ko" ] || kbuild "$RNBD" modules_install
	# The kernel is named, as another one may be running. Where the kernel itself is not
	# installed, depmod has nothing to resolve symbols against.
	[ -d "$root/lib/modules/$(release)/kernel" ] || return 0
	printf '  DEPMOD  %s, by name\n' "$(release)"
	depmod -b "${root:-/}" "$(release)"
}

# The flags for code out of tree, for its Kbuild to include. Paths are relative to the file.
flags_for_users()
{
	cat <<-EOF
	# SPDX-License-Identifier: GPL-2.0
	#
	# For the Kbuild of a module that uses RTRS $1 on $(release):
	#
	# include /usr/src/rtrs-headers-\$(KERNELRELEASE)/rtrs.mk
	# ccflags-y += \$(rtrs-ccflags)
	# RUSTFLAGS_<object> += \$(rtrs-rustflags)
	# \$(obj)/<object>: \$(rtrs-metadata)
	rtrs-headers := \$(patsubst %/,%,\$(dir \$(lastword \$(MAKEFILE_LIST))))
	KBUILD_EXTRA_SYMBOLS += \$(rtrs-headers)/Module.symvers
	rtrs-ccflags := -I\$(rtrs-headers)/include
	rtrs-rustflags := -L \$(rtrs-headers)/rust --extern rtrs_bindings --extern rtrs_core
	rtrs-rustflags += --extern rtrs_client --extern rtrs_server
	rtrs-metadata := \$(wildcard \$(rtrs-headers)/rust/*.rmeta)
	EOF
}

headers_install()
{
	local dir crate version
	built >/dev/null
	[ -f "$RTRS_REPO/Module.symvers" ] || die "there are no modules; make them first"
	version=$(sed -n 's/^RTRS_VERSION := //p' "$RTRS_REPO/Kbuild")
	dir=$(value INSTALL_HDR_PATH)
	dir=${dir:-/usr/src/rtrs-headers-$(release)}
	install -d "$dir/include" "$dir/rust"
	# What is the same stays as it is: users are built again only if it is not.
	install -C -m 644 "$RTRS_REPO/rtrs_core/rtrs.h" "$dir/include/"
	install -C -m 644 "$RTRS_REPO/Module.symvers" "$dir/"
	for crate in bindings/librtrs_bindings rtrs_core/librtrs_core rtrs_client/librtrs_client \
		rtrs_server/librtrs_server; do
		install -C -m 644 "$RTRS_REPO/$crate.rmeta" "$dir/rust/"
	done
	flags_for_users "$version" >"$dir/rtrs.mk"
	printf '  INSTALL %s\n' "$dir"
}

sign()
{
	local key cert ko list hash
	key=$(value KEY)
	cert=$(value CERT)
	[ -f "$key" ] && [ -f "$cert" ] || die "sign wants KEY= and CERT=, files of a key and its certificate"
	[ -x "$tree/scripts/sign-file" ] || die "$tree has no scripts/sign-file"
	hash=$(sed -n 's/^CONFIG_MODULE_SIG_HASH="\(.*\)"$/\1/p' "$tree/.config")
	list=$(built)
	[ -n "$list" ] || die "there are no modules to sign; make them first"
	while IFS= read -r ko; do
		# Stripping after signing would remove the signature. Stripping also removes an
		# older one.
		strip --strip-debug "$ko"
		"$tree/scripts/sign-file" "$hash" "$key" "$cert" "$ko"
		signed "$ko" || die "$ko has no signature"
		printf '  SIGN    %s\n' "$ko"
	done <<<"$list"
}

case $target in
rnbd | modules_install | headers_install | sign) "$target" ;;
*) kbuild "$RTRS_REPO" "$target" ;;
esac
