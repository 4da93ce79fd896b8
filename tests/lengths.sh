#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: a user in C that says wrong lengths of its data: what its lists describe is moved, and nothing else
# topology: single
# timeout: 120
# seconds: 20

. "$(dirname "$0")/lib/common.sh"
require rdma

# tried N OPTION...: all lists and lengths, which are N.
tried()
{
	local n=$1
	shift

	load_one "$RTRS_MODULES" rtrs-lengths "$@" &&
		dmesg_has "rtrs_lengths: $n lengths: all data arrived" && unload_one rtrs-lengths
}

must "soft RoCE comes up" rxe_up rxe0
defer rxe_down rxe0
resource_snapshot
defer unload_modules
for ai in Y N; do
	for copy in 4096 0; do
		tag="always_invalidate=$ai copy_max=$copy"
		must "$tag: the server's module loads" load_rtrs rust server "always_invalidate=$ai"
		client_params "copy_max=$copy"
		must "$tag: the client's module loads" load_rtrs rust client
		dmesg_mark
		case $copy in
		0) check "$tag: data are what lists describe" tried 55 gaps=N ;;
		*) check "$tag: data are what lists describe" tried 77 ;;
		esac
		check "$tag: the modules unload" unload_modules
		check "$tag: nothing is left behind" resource_compare
	done
done
finish
