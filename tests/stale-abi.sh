#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: a client built against another core fails to load, and does not misbehave
# topology: single
# timeout: 60
# seconds: 15

. "$(dirname "$0")/lib/common.sh"

STALE=$RTRS_MODULES/stale
[ -f "$STALE/rtrs-client.ko" ] || skip_all "no modules of another build in $STALE"

load() { load_one "$RTRS_MODULES" rtrs-core; }

# Same kernel, same names, but a different comment in a source file of the core.
refused()
{
	[ "$(modinfo -F vermagic "$STALE/rtrs-client.ko")" = "$(modinfo -F vermagic "$RTRS_MODULES/rtrs-client.ko")" ]
	expect_error "Unknown symbol" insmod "$STALE/rtrs-client.ko"
	not module_loaded rtrs-client
	dmesg_has "rtrs_client: Unknown symbol _R"
}

core_serves_its_own()
{
	module_refs rtrs-core 0
	load_one "$RTRS_MODULES" rtrs-client
	module_refs rtrs-core 1
	rmmod rtrs-client
}

# Only the matching core was missing.
with_its_core()
{
	rmmod rtrs-core
	insmod "$STALE/rtrs-core.ko"
	insmod "$STALE/rtrs-client.ko"
	expect_error "Unknown symbol" insmod "$RTRS_MODULES/rtrs-server.ko"
	rmmod rtrs-client rtrs-core
}

modprobe -a "${MODPROBE_RDMA[@]}"
defer unload_modules
must "the core loads" load
check "a client of another build is refused" refused
check "that leaves no reference, and the right client loads" core_serves_its_own
check "with a core of that build it loads" with_its_core
finish
