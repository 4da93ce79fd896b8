#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: the example of a module that uses only the wrappers: an echo over RDMA
# topology: single
# timeout: 90
# seconds: 10

. "$(dirname "$0")/lib/common.sh"
require rdma

echo_comes_back()
{
	load_one "$RTRS_MODULES" rtrs-echo
	dmesg_has "rtrs_echo: it came back"
}

# Nothing has this address: loading fails in time, and leaves nothing behind.
no_host()
{
	! load_one "$RTRS_MODULES" rtrs-echo addr=10.9.0.77
}

no_address()
{
	! load_one "$RTRS_MODULES" rtrs-echo addr=10.9.0
}

must "soft RoCE comes up" rxe_up rxe0
defer rxe_down rxe0
resource_snapshot
must "the core loads" load_one "$RTRS_MODULES" rtrs-core
defer unload_modules
check "what was said comes back" echo_comes_back
check "its ends can be seen" eval 'rdma resource show qp | has rtrs_echo'
check "it unloads" unload_one rtrs-echo
check "an address that no host has is refused" no_host
check "what is no address is refused" no_address
check "the core unloads" unload_one rtrs-core
finish
