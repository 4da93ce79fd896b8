#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: md RAID1 over two servers, one of which falls silent: with fast_io_fail_tmo=0 its leg is dropped at once, without it IO waits and no leg is lost
# topology: pair
# timeout: 240
# seconds: 60

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
require fio rdma mdadm

# The far leg is at the other guest, the near one at this one.
FAR=$CLT/far
NEAR=$(pair_addr 1 client)
MD=/dev/md0
# Milliseconds that md may take to drop a leg after the path is lost.
SOON=$((3000 * RTRS_TIME_SCALE))

map_legs()
{
	map_rnbd far /dev/nullb0 "ip:$(pair_addr 0)@ip:$(pair_addr 0 server)" >"$TMP/far" &&
		map_rnbd near /dev/nullb1 "ip:$NEAR@ip:$NEAR" >"$TMP/near"
}
leg() { printf '/dev/%s\n' "$(cat "$TMP/$1")"; }

make_array()
{
	modprobe -a md_mod raid1
	mdadm --create "$MD" --run --level=1 --raid-devices=2 --assume-clean --metadata=1.2 \
		--bitmap=internal "$(leg far)" "$(leg near)"
	# There is no udev here that would look at the array again.
	wait_for 10 legs UU
	# With the default values it takes at least ten seconds to notice a silent server.
	write "$FAR/heartbeat_interval_ms" $((300 * RTRS_TIME_SCALE))
	write "$FAR/heartbeat_limit" 3
}
stop_array() { [ ! -e "$MD" ] || mdadm --stop "$MD"; }

# legs UU|_U: the array has these legs.
legs()
{
	grep -A 1 '^md0 ' /proc/mdstat | has -F "[$1]" || {
		cat /proc/mdstat
		return 1
	}
}

path_is() { [ "$(cat "$FAR"/paths/*/state)" = "$1" ]; }

# Pull the cable at the server's end: a paused guest would keep packets of soft RoCE, which then
# does not free the queue pair.
silence()
{
	vm_control link server 0 down
	wait_for 30 not path_is connected
	ms_now >"$TMP/lost"
}

# The application's IO succeeds, by the remaining leg.
dropped()
{
	local t

	wait_for 20 legs _U
	t=$(($(ms_now) - $(cat "$TMP/lost")))
	echo "the leg was dropped $t ms after the path was lost"
	[ "$t" -lt "$SOON" ] || late "that is too long"
	goes_on
}

# goes_on: the load's IO goes on.
goes_on()
{
	local before
	before=$(ios md0)

	wait_for 20 eval "[ \$(ios md0) -gt $((before + 20)) ]"
	load_runs
}

again()
{
	vm_control link server 0 up
	wait_for 60 path_is connected
	# A machine that pauses while the legs are made equal must not cost the leg once more.
	write "$FAR/fast_io_fail_tmo" 60
	# RNBD opens its device after that.
	wait_for 20 dd if="$(leg far)" of=/dev/null bs=4k count=1 iflag=direct status=none
	mdadm "$MD" --remove "$(leg far)"
	mdadm "$MD" --re-add "$(leg far)"
	wait_for 60 legs UU
}

# Longer than md would need to drop the leg.
waits()
{
	sleep $((SOON / 1000 + 1))
	legs UU
	load_runs
}

back()
{
	vm_control link server 0 up
	wait_for 60 path_is connected
	goes_on
	legs UU
}

# Both legs have the same content.
same_content()
{
	mdadm --stop "$MD"
	mdadm --assemble "$MD" "$(leg far)" "$(leg near)"
	wait_for 20 legs UU
	echo check >/sys/block/md0/md/sync_action
	wait_for 60 has_words /sys/block/md0/md/sync_action idle
	[ "$(cat /sys/block/md0/md/mismatch_cnt)" = 0 ]
}

unmap_legs() { unmap_rnbd "$(cat "$TMP/far")" && unmap_rnbd "$(cat "$TMP/near")"; }

server_role() { serve_disk 64 180; }

client_role()
{
	must "the near disk" null_blk_up nullb1 64
	defer null_blk_down nullb1
	must "modules of both sides load" eval "load_rtrs rust both && load_rnbd both"
	barrier listening
	must "two legs map" map_legs
	must "an array is made" make_array
	defer stop_array

	write "$FAR/fast_io_fail_tmo" 0
	load_start md0
	check "fast_io_fail_tmo=0: one server falls silent" silence
	check "fast_io_fail_tmo=0: its leg is dropped at once" dropped
	ktap_log "$TMP/case.log" 1
	check "fast_io_fail_tmo=0: it comes back, and is added again" again
	load_stop
	check "fast_io_fail_tmo=0: all IO succeeded and verified" load_is_fine

	load_start md0
	check "fast_io_fail_tmo=60: one server falls silent" silence
	check "fast_io_fail_tmo=60: IO waits, and no leg is dropped" waits
	check "fast_io_fail_tmo=60: it comes back, and IO goes on" back
	load_stop
	check "fast_io_fail_tmo=60: all IO succeeded and verified" load_is_fine
	check "both legs are the same" same_content
	check "the array stops" mdadm --stop "$MD"
	check "the legs unmap" unmap_legs
	check "the client modules unload" unload_modules
	barrier unmapped
}

pair_main
