#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Run tests by name, each in a fresh guest.
#
# Usage: tests/run.sh [OPTION...] [NAME...]	('*' in a name stands for anything;
#						without a name all tests run)
#   --debug	on the debug kernel
#   --here ...	between this machine and another one, over their RDMA devices: "--here --help"
#   --list	only list the tests
#   --platform DIR	on the kernel of kernel.sh --guest or debug-kernel.sh; without it the one
#		that RTRS_SERIES, RTRS_FLAVOUR and ARCH choose
#   --no-build	with the modules as they were built last time
#   --console	afterwards show the console logs
# Other options go to rtrs-vm: --fail-fast --live --jobs N --retries N --append ARGS --smp N --mem M
#   --timeout S --qemu-arg ARG

set -euo pipefail
# shellcheck source=env/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/env/lib.sh"

# the_platform [--debug]
the_platform()
{
	if [ "${1:-}" = --debug ]; then
		"$RTRS_ENV/debug-kernel.sh"
	else
		"$RTRS_ENV/kernel.sh" --guest
	fi
}

main()
{
	export RTRS_STALE=yes
	local build=yes console=no list=no debug='' platform='' names=() opts=() vm rc=0 f

	while [ "$#" -gt 0 ]; do
		case $1 in
		--debug) debug=--debug ;;
		--here)
			shift
			exec "$RTRS_REPO/tests/here/run.sh" "$@"
			;;
		--no-build) build=no ;;
		--console) console=yes ;;
		--list) list=yes ;;
		--platform)
			[ "$#" -ge 2 ] || die "$1 wants a value"
			platform=$2
			shift
			;;
		--append | --smp | --mem | --jobs | --retries | --timeout | --qemu-arg | --links)
			[ "$#" -ge 2 ] || die "$1 wants a value"
			opts+=("$1" "$2")
			shift
			;;
		-h | --help)
			sed -n '5,/^$/s/^# \{0,1\}//p' "$0"
			exit 0
			;;
		-*) opts+=("$1") ;;
		*) names+=("$1") ;;
		esac
		shift
	done

	need_root

	vm=$("$RTRS_ENV/vm.sh")
	if [ "$list" = yes ]; then
		exec "$RTRS_ENV/enter.sh" "$vm" test --list "${names[@]}"
	fi
	in_use
	need_memory 6000 "a run of tests"
	platform=${platform:-$(the_platform ${debug:+--debug})}
	"$RTRS_ENV/c-peer.sh" "$platform" >/dev/null
	"$RTRS_ENV/peer.sh" >/dev/null
	if [ "$build" = yes ]; then
		# Only one test needs the modules of another version.
		[ "${#names[@]}" -eq 0 ] || RTRS_STALE=no
		for f in "${names[@]}"; do
			# shellcheck disable=SC2053 # a pattern
			[[ stale-abi != $f ]] || RTRS_STALE=yes
		done
		RTRS_MODULES=$("$RTRS_ENV/build.sh" --tests "$platform")
	else
		RTRS_MODULES=$("$RTRS_ENV/build.sh" --where "$platform")
	fi
	export RTRS_RESULTS=${RTRS_RESULTS:-$RTRS_REPO/results/$(date +%Y%m%d-%H%M%S)-$$}
	keep_modules "$RTRS_MODULES" "$RTRS_RESULTS/modules"
	export RTRS_MODULES=$RTRS_RESULTS/modules
	[ "$(dirname "$RTRS_RESULTS")" != "$RTRS_REPO/results" ] ||
		ln -sfn "$(basename "$RTRS_RESULTS")" "$RTRS_REPO/results/latest"

	"$RTRS_ENV/enter.sh" "$vm" test --platform "$platform" "${opts[@]}" "${names[@]}" || rc=$?
	if [ "$console" = yes ]; then
		for f in "$RTRS_RESULTS"/*/*/console*.log; do
			printf '=== %s\n' "$f"
			cat "$f"
		done
	fi
	exit "$rc"
}

# The shell reads a script while it runs. With main at the end, edits meanwhile do no harm.
main "$@"
