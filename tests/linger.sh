#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: the server keeps a session without a path for as long as its client waits, up to its limit
# topology: single
# timeout: 300
# seconds: 40

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
require fio rdma

SESS=$CLT/linger
SRV=/sys/class/rtrs-server/linger
# Seconds that the server adds to the client's timeout.
GRACE=60
# Seconds for which the server keeps a session whose client names no timeout.
LINGER=2
MAX=300

map() { map_rnbd linger /dev/nullb0 ip:10.9.0.1 >"$TMP/dev"; }
dev() { cat "$TMP/dev"; }
path() { echo "$SESS"/paths/ip:*; }
tmo() { write "$SESS/fast_io_fail_tmo" "$1"; }
load_server_with() { load_rtrs rust both "session_linger=$1" "session_linger_max=$2" "${@:3}" && load_rnbd both; }

# kept SECONDS: the server will keep the session for SECONDS.
kept()
{
	cat "$SRV/linger"
	[ "$(cat "$SRV/linger")" = "$1" ]
}

# told TMO SECONDS: with timeout TMO the server keeps the session for SECONDS, from the next
# connection on.
told()
{
	local before

	before=$(cat "$SRV/linger")
	tmo "$1"
	kept "$before"
	write "$(path)/reconnect" 1
	kept "$2"
}

# without_path SECONDS: the client has no path for SECONDS.
without_path()
{
	write "$(path)/disconnect" 1
	wait_for 10 eval "[ ! -e $SRV ]"
	sleep "$1"
	write "$(path)/reconnect" 1
}

# forgotten: the client has no path until the server, which keeps the session for a while, has
# forgotten it.
forgotten()
{
	write "$(path)/disconnect" 1
	wait_for 10 eval "[ ! -e $SRV ]"
	wait_for 20 sessions_are 0
	write "$(path)/reconnect" 1
}
sessions_are() { [ "$(cat /sys/module/rtrs_server/quotas/sessions/current)" = "$1" ]; }

says() { dmesg | has "$1"; }

# Its client may have crashed: one new session gets in for each that is kept, and no more.
crashed() { write "$(path)/disconnect" 1 && wait_for 10 eval "[ ! -e $SRV ]"; }
another_comes()
{
	map_rnbd second /dev/nullb1 ip:10.9.0.1 >"$TMP/second"
	unmap_rnbd "$(cat "$TMP/second")"
	wait_for 10 sessions_are 2
}
a_third_is_refused() { not map_rnbd third /dev/nullb1 ip:10.9.0.1 && says "sessions per source address"; }

must "soft RoCE comes up" rxe_up rxe0
defer rxe_down rxe0
must "two disks" eval "null_blk_up nullb0 64 && null_blk_up nullb1 16"
defer null_blk_down nullb0
defer null_blk_down nullb1
resource_snapshot
defer unload_modules

must "modules load" load_server_with $LINGER $MAX
must "a device maps" map
check "the server knows how long the client waits" kept $((180 + GRACE))
check "a longer time-out is told with the next connection" told 120 $((120 + GRACE))
check "a client that does not wait gets what the server gives anyway" told 0 $LINGER
check "one that waits for ever gets no more than is allowed" told off $MAX
check "nor does one that asks for too much" told 86400 $MAX
check "a reasonable one gets what it asks for" told 60 $((60 + GRACE))
load_start "$(dev)"
sleep 1
check "there is no path for longer than the server would keep a session by itself" without_path $((LINGER + 8))
check "IO goes on" load_runs
load_stop
check "no IO failed" load_is_fine

check "the client does not wait longer than the server keeps the session" told 0 $LINGER
check "the server forgets it then" forgotten
check "the client's log says so" wait_for 20 says "linger: the server does not know the session any more"
check "the device comes back" wait_for 20 usable "$(dev)"
check "it is usable again" fio_verify "$(dev)" 1M
check "the device unmaps" unmap_rnbd "$(dev)"
check "the modules unload" unload_modules

must "modules load with one session for each source" load_server_with 30 600 max_sessions_per_source=1
must "a device maps again" map
must "it has no path" crashed
check "its host can have another one" another_comes
check "sessions that are kept count for their source" a_third_is_refused
check "its own client has it back" write "$(path)/reconnect" 1
check "the device works" fio_verify "$(dev)" 1M
check "the device unmaps, too" unmap_rnbd "$(dev)"
check "the modules unload, too" unload_modules

must "modules load with a server that keeps nothing" load_server_with 0 600
must "a device maps once more" map
check "nothing is kept, whatever the client says" kept 0
check "the server forgets the session at once" forgotten
check "the device comes back afterwards" wait_for 20 usable "$(dev)"
check "it is usable" fio_verify "$(dev)" 1M
check "the device unmaps at last" unmap_rnbd "$(dev)"
finish
