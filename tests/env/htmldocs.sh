#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Make HTML of Documentation/ in Documentation/output. A warning is an error.
#
# Sphinx is installed in the Debian root. The kernel's own Sphinx extension, from the tree of the
# newest supported kernel, makes the pages of the C API from kernel-doc comments.
#
# Usage: htmldocs.sh		make the pages
#        htmldocs.sh --tools	only install what it takes

set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

TOOLS=(python3-sphinx)

# Apart from the root's own list of packages: a change of that list rebuilds the root.
tools()
{
	local stamp=$RTRS_ROOTFS/.rtrs-tools-docs

	"$RTRS_ENV/rootfs.sh"
	[ "$(cat "$stamp" 2>/dev/null)" != "${TOOLS[*]}" ] || return 0
	lock_cache
	step tools-docs "installing ${TOOLS[*]}" \
		"$RTRS_ENV/enter.sh" sh -c "apt-get update &&
			DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ${TOOLS[*]}" ||
		die "${TOOLS[*]} cannot be installed"
	printf '%s\n' "${TOOLS[*]}" >"$stamp"
}

html()
{
	local tree out=$RTRS_REPO/Documentation/output
	tree=$("$RTRS_ENV/kernel.sh")

	rm -rf "$out"
	"$RTRS_ENV/enter.sh" env srctree="$tree" PYTHONDONTWRITEBYTECODE=1 \
		sphinx-build -q -W --keep-going -b html -d /tmp/doctrees "$RTRS_REPO/Documentation" "$out" ||
		die "the documentation has errors"
	printf '%s\n' "$out/index.html"
}

need_root
tools
case ${1:-} in
--tools) ;;
"") html ;;
*) die "unknown option $1" ;;
esac
