#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: modules load and unload, many times, in the right order only and with good parameters only
# topology: single
# timeout: 240
# seconds: 42

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/observe.sh"

# There are four orders.
CYCLES=12
[ -z "${RTRS_LONG:-}" ] || CYCLES=48
# The debug kernel is slow.
[ "$RTRS_TIME_SCALE" = 1 ] || CYCLES=8
PARAMS=/sys/module/rtrs_server/parameters

load() { load_one "$RTRS_MODULES" "$@"; }

# A module whose provider is missing is refused, and its message names what is missing.
needs_core()
{
	local m

	for m in rtrs-client rtrs-server; do
		expect_error "Unknown symbol" load "$m"
		not module_loaded "$m"
	done
	dmesg_has "rtrs_client: Unknown symbol"
	dmesg_has "rtrs_server: Unknown symbol"
}

core_is_held()
{
	load rtrs-core
	module_refs rtrs-core 0
	load rtrs-client
	module_refs rtrs-core 1
	load rtrs-server
	module_refs rtrs-core 2
	expect_error "in use" rmmod rtrs-core
	rmmod rtrs-client
	module_refs rtrs-core 1
	expect_error "in use" rmmod rtrs-core
	rmmod rtrs-server
	module_refs rtrs-core 0
	rmmod rtrs-core
}

rnbd_holds()
{
	load_modules rust
	module_refs rtrs-client 1
	module_refs rtrs-server 1
	expect_error "in use" rmmod rtrs-client
	expect_error "in use" rmmod rtrs-server
	unload_modules
}

classes()
{
	load_rtrs rust both
	[ -d /sys/class/rtrs-client ]
	[ -d /sys/class/rtrs-server ]
	unload_rtrs
	[ ! -e /sys/class/rtrs-client ]
	[ ! -e /sys/class/rtrs-server ]
}

# An open table keeps its module, which goes on working. The table is read and closed while the
# module is there.
open_tables()
{
	local m t fd line fds

	load_rtrs rust both
	debugfs_up rtrs_client
	for m in rtrs-client rtrs-server; do
		fds=()
		for t in connections requests; do
			exec {fd}<"/sys/kernel/debug/${m//-/_}/$t"
			fds+=("$fd")
		done
		module_refs "$m" 2
		expect_error "in use" rmmod "$m"
		load_rnbd both
		module_refs "$m" 3
		unload_rnbd
		for fd in "${fds[@]}"; do
			expect_error "in use" rmmod "$m"
			read -r line <&"$fd"
			[[ $line == @(Type|Session)\ * ]]
			exec {fd}<&-
		done
		module_refs "$m" 0
		rmmod "$m"
		[ ! -e "/sys/kernel/debug/${m//-/_}" ]
		load_rtrs rust both
	done
	unload_rtrs
}

# Each order in which client and server can load and unload.
cycles()
{
	local n

	for ((n = 0; n < CYCLES; n++)); do
		load rtrs-core
		case $((n % 4)) in
		0) load rtrs-client; load rtrs-server; rmmod rtrs-client rtrs-server ;;
		1) load rtrs-server; load rtrs-client; rmmod rtrs-client rtrs-server ;;
		2) load rtrs-client; load rtrs-server; rmmod rtrs-server rtrs-client ;;
		3) load rtrs-server; rmmod rtrs-server; load rtrs-client; rmmod rtrs-client ;;
		esac
		rmmod rtrs-core
	done
}

# The kernel has a line of its own for each refused parameter. A text that is no number gets no
# other line.
server_lines()
{
	dmesg_since_start | grep 'rtrs_server: ' | grep -v "' invalid for parameter "
}

# bad PARAM=VALUE...: refused with EINVAL, with one line that gives the reason.
bad()
{
	bad_text "Invalid parameters" "$@"
	server_lines >"$TMP/after" || true
	diff "$TMP/before" "$TMP/after" >"$TMP/new" || true
	[ "$(grep -c '^[<>]' "$TMP/new")" -eq 1 ] || {
		echo "not one line more in the kernel log:"
		cat "$TMP/new"
		return 1
	}
	# The line names the parameter and its value.
	grep -F -- "$1" "$TMP/new"
}

# bad_text TEXT PARAM=VALUE...: refused by the kernel's own parser.
bad_text()
{
	local text=$1
	shift

	server_lines >"$TMP/before" || true
	expect_error "$text" load rtrs-server "$@"
	not module_loaded rtrs-server
	dmesg_has "rtrs_server: \`${1#*=}' invalid for parameter \`${1%%=*}'" || [ "$#" -gt 1 ]
}

# good ALWAYS_INVALIDATE CHUNK DEPTH [PARAM=VALUE...]
good()
{
	local ai=$1 chunk=$2 depth=$3
	shift 3

	load rtrs-server "$@"
	[ "$(cat $PARAMS/always_invalidate)" = "$ai" ]
	[ "$(cat $PARAMS/max_chunk_size)" = "$chunk" ]
	[ "$(cat $PARAMS/sess_queue_depth)" = "$depth" ]
	[ "$(find $PARAMS/ -type f ! -name listen -exec stat -c %a {} + | sort -u)" = 444 ]
	[ "$(stat -c %a $PARAMS/listen)" = 644 ]
	rmmod rtrs-server
}

misspelt()
{
	load rtrs-server
	rmmod rtrs-server
	# A misspelt parameter is reported.
	load rtrs-server always_invalid=Y
	dmesg_has "unknown parameter 'always_invalid'"
	rmmod rtrs-server
}

must "soft RoCE comes up" rxe_up rxe0
defer rxe_down rxe0
resource_snapshot
defer unload_modules
check "client and server need the core" needs_core
check "the core cannot go before its users" core_is_held
check "client and server cannot go before RNBD" rnbd_holds
check "the classes come and go with the modules" classes
check "a module does not go while its tables are open" open_tables
check "$CYCLES cycles" cycles

must "the core for parameters of the server" load rtrs-core
for p in max_chunk_size=0 max_chunk_size=-8192 max_chunk_size=4096 max_chunk_size=12288 \
	max_chunk_size=131073 max_chunk_size=8388608 max_chunk_size=1073741825 sess_queue_depth=0 sess_queue_depth=-1 \
	sess_queue_depth=65536 ahead_max=-1 ahead_max=65535 ahead_max=1073741825; do
	check "refused: $p" bad "$p"
done
for p in always_invalidate=maybe max_chunk_size=big sess_queue_depth=12x sess_queue_depth=; do
	check "refused: $p" bad_text "Invalid parameters" "$p"
done
for p in max_chunk_size=4294967296 sess_queue_depth=99999999999; do
	check "refused: $p" bad_text "out of range" "$p"
done
check "refused: too many chunks for their size" bad sess_queue_depth=65535 max_chunk_size=131072
check "defaults" good Y 131072 512
check "always_invalidate=0" good N 131072 512 always_invalidate=0
check "always_invalidate=y" good Y 131072 512 always_invalidate=y
check "always_invalidate" good Y 131072 512 always_invalidate
check "small chunks, many" good Y 8192 16384 max_chunk_size=8192 sess_queue_depth=16384
check "large chunks, one" good N 1048576 1 always_invalidate=N max_chunk_size=0x100000 sess_queue_depth=1
check "a parameter that does not exist" misspelt
finish
