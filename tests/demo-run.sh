#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What "make demo" runs: set up and build what is missing, then run tests/demo.sh in a guest and
# show its output at once.

set -euo pipefail
# shellcheck source=env/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/env/lib.sh"

main()
{
	local platform vm build rc=0

	need_root
	in_use
	need_memory 5000 "the demonstration"
	platform=$("$RTRS_ENV/kernel.sh" --guest)
	"$RTRS_ENV/c-peer.sh" "$platform" >/dev/null
	vm=$("$RTRS_ENV/vm.sh")
	build=$(RTRS_STALE=no "$RTRS_ENV/build.sh" --tests "$platform")
	export RTRS_RESULTS=$RTRS_REPO/results/demo
	export RTRS_MODULES=$RTRS_RESULTS/modules
	keep_modules "$build" "$RTRS_MODULES"

	say "starting the guest"
	"$RTRS_ENV/enter.sh" "$vm" run --platform "$platform" --live --name demo --timeout 300 -- \
		"RTRS_DEMO_IMPL=${RTRS_DEMO_IMPL:-rust} $RTRS_REPO/tests/demo.sh" || rc=$?
	say "demo finished with status $rc"
	exit "$rc"
}

# The shell reads a script while it runs. With main at the end, edits meanwhile do no harm.
main "$@"
