#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs in a pair of guests: IO from one to the other, each with the plugin, in windows that both
# open and close for the client's requests.
#
# Usage: mixed.sh CLIENT SERVER ROW...
#	CLIENT and SERVER are rust or c; ROW as in guest.sh, without nvme and sessions
#
# The client writes the file "rows" of the result, as guest.sh does. The directory of each guest
# gets what is its own.

. "$(dirname "$0")/../lib/common.sh"
# shellcheck source=count.sh
. "$(dirname "$0")/count.sh"
require fio rdma

OWN=$OUT/$RTRS_ROLE
PORT=7777

requested() { io "$@"; }

# sent_again: number of packets that the other guest has sent more than once, as it took them for
# lost. They cost instructions that no request has.
sent_again() { cat /sys/class/infiniband/rxe0/ports/1/hw_counters/duplicate_request; }

# kept: the client has not made the connection again. That costs more than a million instructions,
# which the difference of two windows does not cancel out. On a host that is too busy it happens.
kept()
{
	local made failed

	read -r made failed _ < <(cat /sys/class/rtrs-client/bench/paths/*/stats/reconnects)
	[ "$made $failed" = "0 0" ]
}

server_up()
{
	load_rtrs "$1" server always_invalidate="$2"
	load_rnbd server
	addresses "$OWN" "$2"
}

client_up()
{
	load_rtrs "$1" client
	load_rnbd client
	map_rnbd bench /dev/nullb0 "ip:$(pair_addr 0)@ip:$(pair_addr 0 server)" >"$TMP/dev"
	addresses "$OWN" "$2"
}

client_down()
{
	unmap_rnbd "$(cat "$TMP/dev")"
	unload_modules
}

# rows_with AI ROW...
rows_with() { printf '%s\n' "${@:2}" | grep ":$1\$"; }

listens() { [ -n "$(ss -Hltn "sport = :$PORT")" ]; }

# server_role STACK AI ROWS
server_role()
{
	local marks rc=0

	must "the server comes up, $2" server_up "$1" "$2"
	# A row is two windows.
	"$MARK" serve "$(pair_addr 0):$PORT" "$((2 * $3))" &
	marks=$!
	must "windows can be marked" wait_for 20 listens
	barrier "listening-$2"
	wait "$marks" || rc=$?
	must "windows are marked" [ "$rc" -eq 0 ]
	barrier "done-$2"
	must "the server goes" unload_modules
}

# client_role CLIENT SERVER AI ROW...
client_role()
{
	local client=$1 server=$2 ai=$3 row bs rw
	shift 3

	barrier "listening-$ai"
	must "the client comes up, $ai" client_up "$client" "$ai"
	for row in "$@"; do
		IFS=: read -r bs rw _ <<<"$row"
		check "$row" count "$client/$server" "$bs" "$rw" "$ai"
		check "$row: the connection lasted" kept
	done
	must "the client goes" client_down
	barrier "done-$ai"
}

main()
{
	local client=$1 server=$2 ai rows
	shift 2

	must "the link and soft RoCE come up" pair_up
	defer pair_down
	if is_server; then
		must "a null_blk" null_blk_up nullb0 1024 0
		defer null_blk_down nullb0
	else
		must "huge pages for the data" huge_pages
		MARK_SERVER=$(pair_addr 0 server):$PORT
		: >"$OUT/rows"
	fi
	for ai in Y N; do
		mapfile -t rows < <(rows_with "$ai" "$@")
		[ "${#rows[@]}" -gt 0 ] || continue
		if is_server; then
			server_role "$server" "$ai" "${#rows[@]}"
		else
			client_role "$client" "$server" "$ai" "${rows[@]}"
		fi
	done
	sent_again >"$OWN/again"
	is_server || echo complete >"$OUT/complete"
	finish
}

main "$@"
