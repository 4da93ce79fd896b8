#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: a user in C that says wrong lengths of its data: what its lists describe is moved, and nothing else
# topology: single
# timeout: 120
# seconds: 25

. "$(dirname "$0")/lib/common.sh"
require rdma

# tried N REFUSED OPTION...: all lists and lengths, which are N; REFUSED of them are too long.
tried()
{
	local n=$1 refused=$2
	shift 2

	load_one "$RTRS_MODULES" rtrs-lengths "$@" &&
		dmesg_has "rtrs_lengths: $n lengths: all data arrived, and nothing else; $refused refused" &&
		unload_one rtrs-lengths
}

# lengths COPY_MAX N REFUSED SERVER-OPTION... [-- OPTION...]
lengths()
{
	local copy=$1 n=$2 refused=$3 server=() tag
	shift 3

	while [ "$#" -gt 0 ] && [ "$1" != -- ]; do
		server+=("$1")
		shift
	done
	[ "$#" -eq 0 ] || shift
	tag="${server[*]} copy_max=$copy"
	must "$tag: the server's module loads" load_rtrs rust server "${server[@]}"
	client_params "copy_max=$copy"
	must "$tag: the client's module loads" load_rtrs rust client
	dmesg_mark
	check "$tag: data are what lists describe" tried "$n" "$refused" "$@"
	check "$tag: the modules unload" unload_modules
	check "$tag: nothing is left behind" resource_compare
}

must "soft RoCE comes up" rxe_up rxe0
defer rxe_down rxe0
resource_snapshot
defer unload_modules
for ai in Y N; do
	lengths 4096 77 0 "always_invalidate=$ai"
	lengths 0 55 0 "always_invalidate=$ai" -- gaps=N
	# Keys of chunks change with all reads that are not copied.
	[ "$ai" = N ] || lengths 4096 77 0 "always_invalidate=$ai" private_chunks=0
	# Two of the lists do not fit.
	lengths 32768 77 22 "always_invalidate=$ai" max_chunk_size=16384
done
finish
